"""Swift's log into a file: the hook named by ``log_custom_handlers``.

Swift closes its standard streams once it serves and otherwise knows only syslog, so without this
an embedded server would be silent.
"""

from __future__ import annotations

import logging


def to_file(conf, name, log_to_console, log_route, fmt, logger, adapted_logger):
    """Replace the logger's handlers by one that appends to ``conf['log_file']``.

    The signature is that of ``swift.common.utils.logs.get_swift_logger``'s hooks. Swift calls it
    each time the logger is asked for, so it must not add a second handler.
    """
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    handler = logging.FileHandler(conf["log_file"], encoding="utf-8")
    handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s {fmt}"))
    logger.addHandler(handler)
