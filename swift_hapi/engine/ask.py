"""What a feature request's headers ask for, as the filter sends them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from swift_hapi.graph.cuts import Cut
from swift_hapi.protocol import headers
from swift_hapi.protocol.errors import BadHeader
from swift_hapi.protocol.headers import FeatureRequest

Get = Callable[[str], str | None]


@dataclass(frozen=True)
class Ask:
    """One request's headers, parsed.

    ``account`` is charged with the work; ``path`` is the object's quoted path; ``deadline``
    is in seconds, from the arrival of the headers until all is computed, and once more for
    taking the answer.
    """

    request: FeatureRequest
    account: str
    path: str
    source_etag: str
    if_none_match: str | None
    deadline: float

    @property
    def name(self) -> str:
        """The object's name within its container."""
        parts = unquote(self.path).split("/", 4)  # /v1/account/container/object
        return parts[4] if len(parts) == 5 and parts[4] else unquote(self.path)


def parse_ask(get: Get, deadline: float) -> Ask:
    """:param get: looks a header up, None when absent
    :param deadline: the node's own, in seconds; a request may ask for less
    :raises BadHeader: naming the header
    """
    source_etag = get(headers.SOURCE_ETAG)
    if not source_etag:
        raise BadHeader(f"{headers.SOURCE_ETAG} is missing: it tells versions of an object apart")
    return Ask(
        request=FeatureRequest.from_headers(get),
        account=get(headers.ACCOUNT) or "-",
        path=get(headers.OBJECT) or "-",
        source_etag=source_etag,
        if_none_match=get("If-None-Match"),
        deadline=headers.parse_deadline(get(headers.DEADLINE), deadline),
    )


def check_dtype(request: FeatureRequest, cut: Cut) -> None:
    """:raises BadHeader: what lies at ``cut`` cannot travel as ``request.dtype``"""
    if request.dtype == "uint8":
        if cut.index or request.transform is None:
            raise BadHeader(
                f"{headers.DTYPE}: uint8 are the pixels of images, at the first cut; "
                f"{cut.name!r} is "
                + ("not the first" if cut.index else "asked for without a transform")
            )
    elif request.dtype != "float32" and cut.dtype != "float32":
        raise BadHeader(f"{headers.DTYPE}: {request.dtype} is for float32, not for {cut.dtype}")
