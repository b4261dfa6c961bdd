"""Run one Swift server in this process: ``python -m swift_hapi.cluster.serve CONF KIND``."""

from __future__ import annotations

import os
import sys

KINDS = ("account", "container", "object", "proxy")


def main(argv: list[str]) -> int:
    conf, kind = argv
    if kind not in KINDS:
        raise ValueError(f"no Swift server of kind {kind!r}")
    from swift.common import utils

    # Storage policies and constraints are read when their modules are first imported, from
    # /etc/swift unless another directory was set before.
    utils.set_swift_dir(os.path.dirname(conf))
    from swift.common.wsgi import run_wsgi

    options = {}
    if kind == "object":
        from swift.obj.server import global_conf_callback

        options["global_conf_callback"] = global_conf_callback
    return run_wsgi(conf, f"{kind}-server", **options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
