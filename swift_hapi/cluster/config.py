"""What an embedded cluster should look like."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path

Pairs = tuple[tuple[str, str], ...]

# tempauth splits "user_<account>_<user>" at underscores, and ini values end at a line's end.
_NAME = re.compile(r"[A-Za-z0-9.-]+")
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class User:
    """A tempauth user; without groups he sees only what ACLs allow him."""

    account: str
    user: str
    key: str
    groups: tuple[str, ...] = ()

    def __post_init__(self):
        for field in ("account", "user"):
            if not _NAME.fullmatch(getattr(self, field)):
                raise ValueError(f"user's {field} {getattr(self, field)!r}: want [A-Za-z0-9.-]+")
        if not self.key or re.search(r"\s", self.key):
            raise ValueError(f"key of {self.name}: must be there and have no white space")

    @property
    def name(self) -> str:
        """The name to log in with (``X-Auth-User``)."""
        return f"{self.account}:{self.user}"


DEFAULT_USERS = (
    User("test", "tester", "testing", (".admin",)),
    User("test2", "tester2", "testing2", (".admin",)),
    User("test", "tester3", "testing3"),
)


@dataclass(frozen=True)
class ClusterConfig:
    """Shape and options of an embedded cluster.

    :param dir: directory of its own: etc/, logs/, run/, state.json; made if absent. One that holds
        something else is refused
    :param replicas: copies of each object, at most ``object_devices``
    :param object_devices: object servers, each with one device
    :param hapi: put our filter into the proxy's pipeline and run an engine
    :param filter_conf: more options of ``[filter:hapi]``
    :param engine_conf: more options of ``[engine]``
    :param proxy_conf: more options of ``[app:proxy-server]``
    :param users: the first one is the cluster's own user, so it needs the group ``.admin``
    :param engine_threads: CPUs the engine may use
    :param token_life: seconds an auth token is good for
    :param proxy_host: address of this machine on which the proxy listens; all others listen on
        the loopback interface
    :param workers: worker processes of the proxy; 0 serves in one process without forking
    :param listing_limit: most names in one container listing; None keeps Swift's 10,000
    :param encryption: put Swift's keymaster and encryption into the pipeline
    :param data_dir: where device data goes; None takes /dev/shm when there is room, else ``dir``
    :param log_level: of all Swift servers
    :param start_timeout: seconds until a start that is not done counts as failed
    :raises ValueError: an option is out of range; the message names it
    """

    dir: str | os.PathLike
    replicas: int = 1
    object_devices: int = 1
    hapi: bool = True
    filter_conf: Pairs = ()
    engine_conf: Pairs = ()
    proxy_conf: Pairs = ()
    users: tuple[User, ...] = DEFAULT_USERS
    engine_threads: int = 1
    token_life: int = 86400
    proxy_host: str = "127.0.0.1"
    workers: int = 0
    listing_limit: int | None = None
    encryption: bool = False
    data_dir: str | os.PathLike | None = None
    log_level: str = "INFO"
    start_timeout: float = 60.0

    def __post_init__(self):
        object.__setattr__(self, "dir", Path(self.dir).absolute())
        if self.data_dir is not None:
            object.__setattr__(self, "data_dir", Path(self.data_dir).absolute())
        if "\n" in str(self.dir):
            raise ValueError("dir: a path with a line break cannot stand in Swift's conf files")
        if not 1 <= self.object_devices <= 64:
            raise ValueError(f"object_devices={self.object_devices}: want 1 to 64")
        if not 1 <= self.replicas <= self.object_devices:
            raise ValueError(
                f"replicas={self.replicas}: want 1 to object_devices={self.object_devices}"
            )
        if self.workers < 0:
            raise ValueError(f"workers={self.workers}: want 0 or more")
        if self.engine_threads < 1:
            raise ValueError(f"engine_threads={self.engine_threads}: want 1 or more")
        if self.token_life < 1:
            raise ValueError(f"token_life={self.token_life}: want 1 second or more")
        if self.listing_limit is not None and self.listing_limit < 1:
            raise ValueError(f"listing_limit={self.listing_limit}: want 1 or more")
        try:
            ipaddress.IPv4Address(self.proxy_host)
        except ValueError as error:
            raise ValueError(f"proxy_host: {error}") from None
        if not self.users or ".admin" not in self.users[0].groups:
            raise ValueError("users: the first one must be there and be in the group .admin")
        for option in ("filter_conf", "engine_conf", "proxy_conf"):
            for key, value in getattr(self, option):
                if not _KEY.fullmatch(key):
                    raise ValueError(f"{option}: {key!r} is no option name")
                if "\n" in value or "\r" in value:
                    raise ValueError(f"{option}: the value of {key} has a line break")
