"""Swift as we need it: objects and listings, every byte checked, every failure typed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_address
from urllib.parse import quote, urlsplit

from hapi_compute.store.answer import (
    Answer,
    bare_etag,
    check_etag,
    success_or_error,
)
from hapi_compute.store.auth import Grant, Login
from hapi_compute.store.counters import Counters
from hapi_compute.store.errors import Corrupted, NotFound, StoreError
from hapi_compute.store.names import object_path
from hapi_compute.store.occupancy import RECEIVE, Occupancy
from hapi_compute.store.retry import Retrier, RetryPolicy
from hapi_compute.store.transport import TIMEOUT, Transport


@dataclass(frozen=True)
class ObjectInfo:
    """One object of a listing. ``etag`` is what ``If-Match`` compares, without quotes."""

    name: str
    etag: str
    bytes: int
    content_type: str = ""


@dataclass(frozen=True)
class ContainerInfo:
    """One container of an account's listing; counts may lag behind for a while."""

    name: str
    objects: int
    bytes: int


class SwiftClient:
    """Calls on one account.

    :param credentials: with ``storage_url`` set, calls go to that account instead of the user's
    :param policy: how failed requests are repeated
    :param counters: where to count; a fresh one by default
    :param occupancy: where to note when storage or network are waited for
    """

    def __init__(
        self,
        credentials: Login,
        *,
        policy: RetryPolicy | None = None,
        retrier: Retrier | None = None,
        counters: Counters | None = None,
        occupancy: Occupancy | None = None,
        timeout: tuple[float, float] = TIMEOUT,
    ):
        self.credentials = credentials
        self.counters = counters or Counters()
        self.occupancy = occupancy or Occupancy()
        self.retrier = retrier or Retrier(policy or RetryPolicy())
        self._timeout = timeout
        self._auth = credentials.authenticator(self.retrier)
        self._auth.on_login = lambda: self.counters.add(logins=1)
        self._transport = Transport(self.counters, self.occupancy, timeout, credentials.verify)

    def __repr__(self) -> str:
        return f"SwiftClient({self.credentials!r})"

    def own_account(self) -> SwiftClient:
        """A client of the user's own account, which shares token and counters."""
        return self.of_account(None)

    def of_account(self, storage_url: str | None) -> SwiftClient:
        """A client of another account (None: the user's own), which shares token and counters."""
        if self.credentials.storage_url == storage_url:
            return self
        own = SwiftClient(
            replace(self.credentials, storage_url=storage_url),
            retrier=self.retrier,
            counters=self.counters,
            occupancy=self.occupancy,
            timeout=self._timeout,
        )
        own._auth = self._auth
        return own

    @property
    def on_this_machine(self) -> bool:
        """Whether the account's address is a loopback one, as an embedded cluster's."""
        host = urlsplit(self.storage_url).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    @property
    def storage_url(self) -> str:
        return (self.credentials.storage_url or self._auth.grant().storage_url).rstrip("/")

    @property
    def account(self) -> str:
        """Name of the account that calls go to, as it stands in the URL."""
        return self.storage_url.rpartition("/")[2]

    def get(
        self,
        container: str,
        name: str,
        *,
        headers: dict[str, str] | None = None,
        if_match: str | None = None,
        attempts: int | None = None,
        sleep: Callable[[float], object] | None = None,
        check: Callable[[Answer], None] | None = None,
    ) -> Answer:
        """A whole object.

        :param if_match: ETag that the object must have
        :param check: raises when the answer will not do; replaces the ETag check
        :raises Overwritten: ``if_match`` does not match
        :raises Corrupted: bytes and ETag or length disagree, on every try
        :raises HapiError: what the filter's problem document says
        """
        wanted = dict(headers or {})
        if if_match is not None:
            wanted["If-Match"] = f'"{if_match}"'
        return self._call(
            "GET",
            object_path(container, name),
            headers=wanted,
            check=check or (lambda answer: check_etag(answer, f"GET {container}/{name}")),
            attempts=attempts,
            sleep=sleep,
        )

    def put(
        self,
        container: str,
        name: str,
        body: bytes,
        *,
        content_type: str,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Store ``body``; Swift and we both compare its md5."""
        md5 = hashlib.md5(body, usedforsecurity=False).hexdigest()

        def check(answer: Answer) -> None:
            found = bare_etag(answer.headers.get("ETag"))
            if found != md5:
                raise Corrupted(f"PUT {container}/{name}: stored as {found}, sent {md5}")

        sent = {**(headers or {}), "ETag": md5, "Content-Type": content_type}
        return self._call("PUT", object_path(container, name), sent, body, check)

    def put_container(self, container: str) -> None:
        """Make a container; nothing happens when it is there."""
        self._call("PUT", object_path(container), body=b"")

    def head(self, container: str, name: str | None = None) -> Answer | None:
        """Headers of an object or container; None when there is none."""
        try:
            return self._call("HEAD", object_path(container, name))
        except NotFound:
            return None

    def post(self, container: str, name: str | None, headers: dict[str, str]) -> None:
        """Set metadata of an object or container."""
        self._call("POST", object_path(container, name), headers, b"")

    def delete(self, container: str, name: str | None = None) -> bool:
        """Remove an object or an empty container; False when there was none."""
        try:
            self._call("DELETE", object_path(container, name))
        except NotFound:
            return False
        return True

    def list(self, container: str, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects whose names start with ``prefix``, in the container's order.

        For an SLO the listing's ``slo_etag`` is given, and symlinks and empty objects (which may
        be DLO manifests) are looked at one by one, since their listing hash is not what
        ``If-Match`` compares.
        """
        for entry in self._pages(object_path(container), container, prefix):
            yield self._entry(container, entry)

    def containers(self, prefix: str = "") -> Iterator[ContainerInfo]:
        """All containers of the account whose names start with ``prefix``."""
        for entry in self._pages("", self.account, prefix):
            yield ContainerInfo(entry["name"], int(entry["count"]), int(entry["bytes"]))

    def _pages(self, path: str, what: str, prefix: str) -> Iterator[dict]:
        """Entries of a listing, page by page until one is empty: a page that is shorter than asked
        for, or than the one before, is no sign of the end."""
        marker = ""
        while True:
            query = f"?format=json&prefix={quote(prefix, safe='')}"
            answer = self._call("GET", f"{path}{query}&marker={quote(marker, safe='')}")
            if not answer.body.strip():
                return
            try:
                entries = json.loads(answer.body)
            except ValueError:
                raise StoreError(f"GET {what}: the listing is no JSON") from None
            entries = [entry for entry in entries if "name" in entry]
            if not entries:
                return
            yield from entries
            if entries[-1]["name"] == marker:
                raise StoreError(f"GET {what}: the listing does not go on after {marker!r}")
            marker = entries[-1]["name"]

    def _entry(self, container: str, entry: dict) -> ObjectInfo:
        name, size = entry["name"], int(entry["bytes"])
        kind = entry.get("content_type", "")
        if "slo_etag" in entry:
            return ObjectInfo(name, bare_etag(entry["slo_etag"]), size, kind)
        if size == 0 or "symlink_path" in entry:
            found = self.head(container, name)
            if found is not None:
                return ObjectInfo(
                    name,
                    bare_etag(found.headers.get("ETag")),
                    int(found.headers.get("Content-Length") or 0),
                    kind,
                )
        return ObjectInfo(name, bare_etag(entry["hash"]), size, kind)

    def info(self) -> dict:
        """The cluster's ``/info``; empty where the operator switched it off."""
        parts = urlsplit(self.storage_url)
        try:
            answer = self.retrier.call(
                lambda: self._transport.exchange(
                    "GET", f"{parts.scheme}://{parts.netloc}/info", {}, None
                )
            )
            return json.loads(success_or_error(answer, "GET /info").body)
        except (StoreError, ValueError):
            return {}

    def _call(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        check: Callable[[Answer], None] = lambda answer: None,
        attempts: int | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> Answer:
        def attempt() -> Answer:
            answer = self._authenticated(method, path, headers or {}, body)
            with self.occupancy.busy(RECEIVE):
                check(answer)
            return answer

        return self.retrier.call(
            attempt,
            on_retry=lambda error, pause: self.counters.add(retries=1),
            attempts=attempts,
            sleep=sleep,
        )

    def _authenticated(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> Answer:
        # A token may be revoked at any moment: one fresh one, beside the budget of retries.
        what = f"{method} {path.partition('?')[0]}"
        for last in (False, True):
            grant = self._auth.grant()
            answer = self._transport.exchange(
                method, self._url(grant, path), headers, body, grant.token
            )
            if answer.status != 401 or last:
                return success_or_error(answer, what)
            self._auth.refused(grant)
        raise AssertionError("unreachable")

    def _url(self, grant: Grant, path: str) -> str:
        base = (self.credentials.storage_url or grant.storage_url).rstrip("/")
        return base + path if path.startswith("?") else f"{base}/{path}"
