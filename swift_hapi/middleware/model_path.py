"""Where the extractor file of a request lies in Swift."""

from __future__ import annotations

from dataclasses import dataclass

from swift.common.swob import str_to_wsgi, wsgi_quote, wsgi_to_bytes, wsgi_unquote

from swift_hapi.protocol.digest import model_hex
from swift_hapi.protocol.errors import BadHeader
from swift_hapi.protocol.headers import MODEL_CONTAINER

SUFFIX = ".safetensors"
MAX_NAME_BYTES = 256


@dataclass(frozen=True)
class ModelPath:
    """``reference`` is ``sha256:<hex>`` or a name; the rest WSGI strings.

    ``named`` tells that the client has named the container.
    """

    reference: str
    version: str
    account: str
    container: str
    named: bool

    @property
    def hex(self) -> str | None:
        """The 64 hex digits, or None for a name."""
        return model_hex(self.reference)

    @property
    def may_be_operators(self) -> bool:
        """A name in a container that the client has named is never the operator's."""
        return self.hex is not None or not self.named

    @property
    def quoted(self) -> str:
        """The object's quoted path: ``/v1/account/container/<hex or name>.safetensors``."""
        name = str_to_wsgi((self.hex or self.reference) + SUFFIX)
        return wsgi_quote(f"/{self.version}/{self.account}/{self.container}/{name}")

    @classmethod
    def of_request(
        cls, reference: str, version: str, account: str, header: str | None, default: str
    ) -> ModelPath:
        """
        :param account: of the request's path
        :param header: value of ``X-Hapi-Model-Container``: ``[account/]container``, quoted
        :param default: container where the header is absent
        :raises BadHeader: the header is malformed
        """
        if header is None:
            return cls(reference, version, account, str_to_wsgi(default), named=False)
        parts = [wsgi_unquote(part) for part in header.strip().split("/")]
        if len(parts) > 2 or not all(_is_name(part) for part in parts):
            raise BadHeader(f"{MODEL_CONTAINER}: {header!r} is not [account/]container")
        if len(parts) == 2:
            account = parts[0]
        return cls(reference, version, account, parts[-1], named=True)


def _is_name(part: str) -> bool:
    raw = wsgi_to_bytes(part)
    if not 0 < len(raw) <= MAX_NAME_BYTES or part in (".", "..") or "/" in part:
        return False
    # Control characters include NUL, which marks Swift's reserved names.
    return all(byte >= 0x20 and byte != 0x7F for byte in raw)
