"""Names in URLs: quoting for Swift, and ``swift://container/prefix``."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


def object_path(container: str, name: str | None = None) -> str:
    """Quoted ``container`` or ``container/name``; slashes of the name stay as they are.

    Everything else is quoted, so that a blank, ``%``, ``?``, ``#``, a line break or any other
    character of a name reaches Swift as itself.
    """
    if not container or "/" in container:
        raise ValueError(f"container name {container!r}: must be there and have no slash")
    path = quote(container, safe="")
    return path if name is None else f"{path}/{quote(name, safe='/')}"


@dataclass(frozen=True)
class SwiftUrl:
    """``swift://container/prefix``, taken literally: nothing in it is percent-decoded."""

    container: str
    prefix: str = ""

    @classmethod
    def parse(cls, text: str) -> SwiftUrl:
        """:raises ValueError: not of that form"""
        if not text.startswith("swift://"):
            raise ValueError(f"{text!r}: want swift://container/prefix")
        container, _, prefix = text[len("swift://") :].partition("/")
        if not container:
            raise ValueError(f"{text!r}: the container's name is missing")
        if len(container.encode()) > 256:
            raise ValueError(f"{text!r}: a container's name has at most 256 bytes")
        return cls(container, prefix.removesuffix("/"))

    def name(self, tail: str) -> str:
        """Name of the object ``tail`` below the prefix."""
        return f"{self.prefix}/{tail}" if self.prefix else tail

    def __str__(self) -> str:
        return f"swift://{self.container}" + (f"/{self.prefix}" if self.prefix else "")
