"""Exit codes of ``hapi``; documented in doc/source/cli.rst."""

OK = 0
FAILED = 1  #: the command ran and failed (network, store, training)
USAGE = 2  #: bad option or argument; nothing was done
INTERRUPTED = 130  #: Ctrl-C
