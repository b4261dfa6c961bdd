"""Is the filter at its place in the proxy's pipeline?

Left of auth it would compute for anybody; right of the filters that assemble and decrypt
objects it would see manifests and ciphertext, and silently compute features of them. Swift
itself inserts filters that a pipeline does not list, to the left of ours, so what counts is the
pipeline as loaded.
"""

from __future__ import annotations

_SWIFT = "swift.common.middleware."
#: Module (or package) of a filter: its name in a pipeline. The longest match counts.
LEFT_OF_HAPI = {
    _SWIFT + "catch_errors": "catch_errors",
    _SWIFT + "gatekeeper": "gatekeeper",
    _SWIFT + "memcache": "cache",
    _SWIFT + "ratelimit": "ratelimit",
    _SWIFT + "tempurl": "tempurl",
    _SWIFT + "formpost": "formpost",
    _SWIFT + "container_sync": "container_sync",
    _SWIFT + "domain_remap": "domain_remap",
    _SWIFT + "cname_lookup": "cname_lookup",
    _SWIFT + "s3api": "s3api",
    _SWIFT + "tempauth": "tempauth",
    _SWIFT + "keystoneauth": "keystoneauth",
    "keystonemiddleware.auth_token": "authtoken",
}
RIGHT_OF_HAPI = {
    _SWIFT + "copy": "copy",
    _SWIFT + "slo": "slo",
    _SWIFT + "dlo": "dlo",
    _SWIFT + "versioned_writes": "versioned_writes",
    _SWIFT + "symlink": "symlink",
    _SWIFT + "crypto": "encryption",
    _SWIFT + "crypto.keymaster": "keymaster",
    _SWIFT + "crypto.kms_keymaster": "kms_keymaster",
    _SWIFT + "crypto.kmip_keymaster": "kmip_keymaster",
}
_KNOWN = {**LEFT_OF_HAPI, **RIGHT_OF_HAPI}


def check_pipeline(pipeline: list[object], ours: object) -> list[str]:
    """What is wrong with the place of ``ours`` in a loaded pipeline, one sentence each.

    :param pipeline: WSGI apps, leftmost first
    :returns: empty when all is well
    """
    place = next(index for index, app in enumerate(pipeline) if app is ours)
    wrong = []
    for index, app in enumerate(pipeline):
        module = _known_module(app)
        name = _KNOWN.get(module, "")
        if index != place and type(app) is type(ours):
            wrong.append("hapi must be in the pipeline only once")
        elif index > place and module in LEFT_OF_HAPI:
            wrong.append(f"hapi must stand right of {name}")
        elif index < place and module in RIGHT_OF_HAPI:
            wrong.append(f"hapi must stand left of {name}")
    return list(dict.fromkeys(wrong))


def describe(pipeline: list[object]) -> str:
    """The pipeline as one line, filters by the names that pipelines give them."""
    return " ".join(_KNOWN.get(_known_module(app)) or type(app).__name__ for app in pipeline)


def _known_module(app: object) -> str | None:
    for cls in type(app).__mro__:
        parts = cls.__module__.split(".")
        for length in range(len(parts), 0, -1):
            module = ".".join(parts[:length])
            if module in _KNOWN:
                return module
    return None
