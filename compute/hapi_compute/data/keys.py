"""Keys of samples: names of files without their extensions, changed only where a tar in WebDataset
layout could not say them.

There the base name ends at its first dot, so a dot within becomes ``_``. Blanks, letters of any
script and long names stay; tar has pax records for them.
"""

from __future__ import annotations

import re

#: what ends a name in a tar's header, and bytes of a name that are not UTF-8
_UNREADABLE = re.compile("[\0\ud800-\udfff]")


def legal_key(stem: str) -> str:
    """``stem``, a path without extension, as a key; not yet unique."""
    *folders, base = stem.split("/")
    kept = ["_" if part == ".." else part for part in folders if part not in ("", ".")]
    return _UNREADABLE.sub("_", "/".join([*kept, base.replace(".", "_") or "_"]))


def readable(name: str) -> str:
    """``name`` in UTF-8; bytes of it that are not are written as ``\\xff``."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class Keys:
    """Hands out keys; a second sample that wants the same one gets a number behind it."""

    def __init__(self):
        self._taken: set[str] = set()

    def unique(self, stem: str) -> str:
        key = wanted = legal_key(stem)
        number = 1
        while key in self._taken:
            number += 1
            key = f"{wanted}-{number}"
        self._taken.add(key)
        return key
