"""What can go wrong with an embedded cluster."""

from __future__ import annotations

from swift_hapi.protocol.errors import HapiError


class ClusterError(HapiError):
    """The cluster cannot start, is there already, or lost a server; the detail says which."""

    name = "cluster"


class PortTaken(ClusterError):
    """Somebody took a port between its choice and its use; other ports may do."""

    name = "cluster-port-taken"
    retryable = True


class NotOurs(ClusterError, ValueError):
    """The directory holds what no cluster has made; nothing in it was touched."""

    name = "cluster-directory"
    status = 409
