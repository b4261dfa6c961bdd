"""The object itself: the requester's own GET, with its body left unread until it is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from urllib.parse import parse_qs

from swift.common.utils import close_if_possible, drain_and_close
from swift.common.wsgi import WSGIContext

from swift_hapi.middleware.green import Timeout
from swift_hapi.protocol.errors import BadHeader, SourceTruncated, TooLarge

SWIFT_SOURCE = "HAPI"
#: A body that turns out not to be wanted is read to its end if it has no more bytes than this,
#: so that Swift does not count it as a client that went away; but not for longer than this.
DRAIN_BYTES = 64 * 1024
DRAIN_SECONDS = 1.0

#: Conditionals on the object's ETag stay (If-Match, If-Unmodified-Since); those on what the
#: client already has are about the features, and Range would be about their bytes.
_DROPPED = frozenset(
    {
        "HTTP_RANGE",
        "HTTP_IF_RANGE",
        "HTTP_IF_NONE_MATCH",
        "HTTP_IF_MODIFIED_SINCE",
        "HTTP_ACCEPT_ENCODING",
        "HTTP_EXPECT",
        "HTTP_TRANSFER_ENCODING",
        "CONTENT_LENGTH",
        "CONTENT_TYPE",
        "eventlet.input",
    }
)
_QUERIES = ("multipart-manifest", "symlink", "part-number")


def refuse_odd_queries(env: dict) -> None:
    """Refuse queries that ask for something else than the object's assembled bytes.

    :raises BadHeader: naming the query parameter
    """
    query = parse_qs(env.get("QUERY_STRING", ""), keep_blank_values=True)
    for name in _QUERIES:
        if name in query:
            raise BadHeader(f"X-Hapi-Model cannot be combined with the query {name}=")


def inner_env(env: dict) -> dict:
    """A copy of the requester's environment for the plain GET (or HEAD) of the same object.

    Everything that auth has left in it stays, so the read is allowed or denied as it would be
    without us.
    """
    copy = {
        key: value
        for key, value in env.items()
        if key not in _DROPPED and not key.startswith("HTTP_X_HAPI_")
    }
    copy["wsgi.input"] = BytesIO()
    copy["swift.source"] = SWIFT_SOURCE
    return copy


class Source(WSGIContext):
    """The answer to one inner request; close it whatever happens.

    :param app: what lies right of the filter
    :param env: environment made by :func:`inner_env` or of a subrequest
    """

    def __init__(self, app, env: dict):
        super().__init__(app)
        self._body = self._app_call(env)
        self.status: str = self._response_status
        self.status_int: int = self._get_status_int()
        self.headers: list[tuple[str, str]] = self._response_headers

    def header(self, name: str) -> str | None:
        return self._response_header_value(name)

    @property
    def etag(self) -> str | None:
        """The ETag without quotes: Swift sends it bare, SLO and etag_quoter quoted."""
        value = self.header("Etag")
        return None if value is None else value.strip().removeprefix("W/").strip('"')

    @property
    def length(self) -> int | None:
        value = self.header("Content-Length")
        return int(value) if value and value.isdigit() else None

    def require_length(self, limit: int, what: str, option: str) -> int:
        """Content-Length in bytes.

        :raises TooLarge: unknown, or more than ``limit``
        """
        if self.length is None:
            raise TooLarge(
                f"the length of {what} is not known beforehand (a dynamic large object with "
                f"more segments than one listing holds?)"
            )
        if self.length > limit:
            raise TooLarge(f"{what} has {self.length} bytes; {option} is {limit}")
        return self.length

    def take_body(self):
        """Hand the body over, with the duty to close it."""
        body, self._body = self._body, None
        return body

    def chunks(self) -> Iterator[bytes]:
        """The body, as many bytes as Content-Length says.

        :raises SourceTruncated: the body ends early, goes on too long, or fails
        """
        missing = self.length
        body = iter(self._body)
        while True:
            try:
                chunk = next(body, None)
            except (Exception, Timeout) as err:  # noqa: BLE001 - whatever a filter may raise
                raise SourceTruncated(
                    f"reading the object failed with {missing} bytes to go: {type(err).__name__}"
                ) from err
            if chunk is None:
                break
            missing -= len(chunk)
            if missing < 0:
                raise SourceTruncated("the object has more bytes than its Content-Length")
            if chunk:
                yield chunk
        if missing:
            raise SourceTruncated(f"the object's bytes ended early, {missing} are missing")

    def close(self) -> None:
        """Let go of the backend; a body that was read to its end costs nothing."""
        body, self._body = self._body, None
        if body is None:
            return
        if self.length is not None and self.length > DRAIN_BYTES:
            close_if_possible(body)
            return
        try:
            with Timeout(DRAIN_SECONDS):
                drain_and_close(body, read_limit=DRAIN_BYTES)
        except (Exception, Timeout):  # noqa: BLE001 - the answer no longer depends on it
            close_if_possible(body)
