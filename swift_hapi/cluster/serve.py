"""Run one Swift server in this process: ``python -m swift_hapi.cluster.serve CONF KIND``.

Its log goes to standard error, which is the server's log file.
"""

from __future__ import annotations

import os
import sys
import time

from swift_hapi.cluster.processes import die_with

KINDS = ("account", "container", "object", "proxy")


class Stamped:
    """A stream that puts the time before what is written: Swift leaves that to syslog."""

    def __init__(self, stream):
        self._stream = stream

    def write(self, text: str) -> int:
        now = time.time()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        return self._stream.write(f"{stamp}.{int(now % 1 * 1000):03d} {text}")

    def __getattr__(self, name):
        return getattr(self._stream, name)


def main(argv: list[str]) -> int:
    conf, kind = argv
    if kind not in KINDS:
        raise ValueError(f"no Swift server of kind {kind!r}")
    from swift.common import utils

    # Storage policies and constraints are read when their modules are first imported, from
    # /etc/swift unless another directory was set before.
    utils.set_swift_dir(os.path.dirname(conf))
    from swift.common.wsgi import run_wsgi

    # Swift's console handlers write there, and Swift leaves open what they write to.
    sys.__stderr__ = Stamped(sys.__stderr__)
    options = {"verbose": True}
    # Forked workers do not inherit the bond to the supervisor, so they are bound to this process.
    server = os.getpid()
    os.register_at_fork(after_in_child=lambda: die_with(server))
    if kind == "object":
        from swift.obj.server import global_conf_callback

        options["global_conf_callback"] = global_conf_callback
    return run_wsgi(conf, f"{kind}-server", **options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
