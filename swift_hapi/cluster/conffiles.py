"""The text of every configuration file of an embedded cluster."""

from __future__ import annotations

import base64
import os
import pwd
import secrets
from dataclasses import dataclass

from swift_hapi.cluster.config import ClusterConfig, Pairs
from swift_hapi.cluster.layout import Layout

# hapi stands where design says: right of auth and ratelimit, left of everything that assembles or
# decrypts objects. All are listed because Swift would put the missing ones left of us.
_BEFORE = (
    *("catch_errors", "gatekeeper", "healthcheck", "proxy-logging", "cache", "listing_formats"),
    *("bulk", "tempurl", "ratelimit", "tempauth"),
)
_AFTER = (
    *("copy", "container-quotas", "account-quotas", "slo", "dlo", "versioned_writes", "symlink"),
)

_EGG = {"cache": "memcache", "proxy-logging": "proxy_logging"}
_EGG |= {"container-quotas": "container_quotas", "account-quotas": "account_quotas"}


@dataclass(frozen=True)
class Ports:
    """TCP ports on 127.0.0.1; ``objects`` has one per object server."""

    proxy: int
    account: int
    container: int
    memcached: int
    objects: tuple[int, ...]


def pipeline(config: ClusterConfig) -> list[str]:
    """Names in the proxy's pipeline, left to right."""
    names = [*_BEFORE, *(["hapi"] if config.hapi else []), *_AFTER]
    if config.encryption:
        names += ["keymaster", "encryption"]
    return [*names, "proxy-logging", "proxy-server"]


def _section(title: str, pairs: dict[str, object] | Pairs) -> str:
    lines = [f"{key} = {value}" for key, value in dict(pairs).items()]
    return "\n".join([f"[{title}]", *lines, ""])


def _paste(*sections: tuple[str, dict[str, object]]) -> str:
    """An ini file for PasteDeploy, which interpolates ``%``."""
    return "\n".join(_section(*section) for section in sections).replace("%", "%%")


def swift_conf(config: ClusterConfig) -> str:
    sections = [
        (
            "swift-hash",
            {
                "swift_hash_path_prefix": secrets.token_hex(8),
                "swift_hash_path_suffix": secrets.token_hex(8),
            },
        ),
        ("storage-policy:0", {"name": "default", "default": "yes"}),
    ]
    if config.listing_limit is not None:
        limits = {"container_listing_limit": config.listing_limit}
        limits["account_listing_limit"] = config.listing_limit
        sections.append(("swift-constraints", limits))
    return "\n".join(_section(*section) for section in sections)


def _default(layout: Layout, config: ClusterConfig, name: str, port: int, workers: int) -> dict:
    user = {}
    if workers:
        # A forked worker becomes the user "swift" unless told otherwise.
        user["user"] = pwd.getpwuid(os.geteuid()).pw_name
    return user | {
        "swift_dir": layout.etc,
        "bind_ip": "127.0.0.1",
        "bind_port": port,
        # Longer would only delay the choice of another port.
        "bind_timeout": 2,
        "workers": workers,
        "log_name": name,
        "log_level": config.log_level,
        # serve.py logs to a file; what Swift sends to syslog besides goes to the discard port.
        "log_udp_host": "127.0.0.1",
        "log_udp_port": 9,
        # A busy machine is slow, not broken: Swift's 0.5 s would make it shun its own servers.
        "conn_timeout": 5,
        "node_timeout": 30,
    }


def backend_conf(layout: Layout, config: ClusterConfig, name: str, kind: str, port: int) -> str:
    """Configuration of an account, container or object server."""
    default = _default(layout, config, name, port, 0) | {
        "devices": layout.devices,
        "mount_check": "false",
        "disable_fallocate": "true",
        # No updater runs here: what a PUT could not tell the container at once would be lost.
        "container_update_timeout": 30,
    }
    return _paste(
        ("DEFAULT", default),
        ("pipeline:main", {"pipeline": f"healthcheck {kind}-server"}),
        ("filter:healthcheck", {"use": "egg:swift#healthcheck"}),
        (f"app:{kind}-server", {"use": f"egg:swift#{kind}", "set log_name": name}),
    )


def proxy_conf(layout: Layout, config: ClusterConfig, ports: Ports) -> str:
    names = pipeline(config)
    options: dict[str, dict[str, object]] = {
        name: {"use": f"egg:swift#{_EGG.get(name, name)}"} for name in names[:-1]
    }
    options["cache"]["memcache_servers"] = f"127.0.0.1:{ports.memcached}"
    options["tempauth"]["token_life"] = config.token_life
    for user in config.users:
        key = f"user_{user.account}_{user.user}"
        options["tempauth"][key] = " ".join([user.key, *user.groups])
    options["versioned_writes"]["allow_versioned_writes"] = "true"
    options["versioned_writes"]["allow_object_versioning"] = "true"
    options["tempurl"]["allowed_digests"] = "sha256 sha512"
    if config.encryption:
        secret = base64.b64encode(secrets.token_bytes(32)).decode()
        options["keymaster"]["encryption_root_secret"] = secret
    if config.hapi:
        options["hapi"] = {
            "use": "egg:swift-hapi#hapi",
            "engine": f"unix:{layout.engine_socket}",
            **dict(config.filter_conf),
        }
    app = {
        "use": "egg:swift#proxy",
        "allow_account_management": "true",
        "account_autocreate": "true",
        **dict(config.proxy_conf),
    }
    default = _default(layout, config, "proxy", ports.proxy, config.workers)
    return _paste(
        ("DEFAULT", default | {"bind_ip": config.proxy_host}),
        ("pipeline:main", {"pipeline": " ".join(names)}),
        *((f"filter:{name}", pairs) for name, pairs in options.items()),
        ("app:proxy-server", app),
    )


def engine_conf(layout: Layout, config: ClusterConfig) -> str:
    return _section(
        "engine",
        {
            "socket": layout.engine_socket,
            "model_dir": layout.engine / "models",
            "cache_dir": layout.engine / "cache",
            "engine_cpus": config.engine_threads,
            **dict(config.engine_conf),
        },
    )
