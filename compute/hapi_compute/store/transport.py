"""One HTTP exchange, whole body in memory, failures typed.

One ``requests.Session`` per process and thread: a session shared across ``fork`` would share
sockets. Requests ask for identity encoding unless the caller names another, because a decoded
body can no longer be compared with ``Content-Length``, ETag and ``Content-Digest``.
"""

from __future__ import annotations

import os
import threading
import time
from urllib.parse import urlsplit

import requests
import urllib3

from hapi_compute.store.answer import Answer, check_length
from hapi_compute.store.auth import cause, tls_reason
from hapi_compute.store.counters import Counters
from hapi_compute.store.errors import StoreError, Unreachable
from hapi_compute.store.occupancy import NETWORK, STORAGE, Occupancy

#: seconds to connect, and to wait for the next bytes: a little over the engine's deadline
TIMEOUT = (5, 330)
#: Swift's own bound on an object that is not assembled; we hold bodies in memory
MAX_BODY = 5 << 30


class Transport:
    """Sends requests. Safe to use from many threads and after ``fork``.

    :param verify: of https: a file of CAs to trust, or True for the usual ones
    """

    def __init__(
        self,
        counters: Counters,
        occupancy: Occupancy,
        timeout: tuple[float, float] = TIMEOUT,
        verify: bool | str = True,
    ):
        self._counters = counters
        self._occupancy = occupancy
        self._timeout = timeout
        self._verify = verify
        self._local = threading.local()

    def _session(self) -> requests.Session:
        if getattr(self._local, "pid", None) != os.getpid():
            session = requests.Session()
            # No retries below us: a silent one would be counted by nobody.
            adapter = requests.adapters.HTTPAdapter(max_retries=0)
            session.mount("http://", adapter)
            session.mount("https://", adapter)
            session.headers.clear()
            self._local.session, self._local.pid = session, os.getpid()
        return self._local.session

    def exchange(
        self,
        method: str,
        url: str,
        headers: dict[str, str],
        body: bytes | None,
        token: str | None = None,
    ) -> Answer:
        """Whatever the server answers, error statuses included.

        :raises Unreachable: no answer, or one that breaks off
        :raises StoreError: the server's certificate is none to trust
        :raises Corrupted: the body is shorter or longer than promised
        """
        session = self._session()
        sent = {"Accept-Encoding": "identity", "User-Agent": "hapi", **headers}
        if token is not None:
            sent["X-Auth-Token"] = token
        what = f"{method} {urlsplit(url).path}"
        try:
            prepared = session.prepare_request(requests.Request(method, url, sent, data=body))
            # requests removes "//" and dot segments, which are part of a name in Swift.
            prepared.url = url
            settings = session.merge_environment_settings(url, {}, True, self._verify, None)
            started = time.perf_counter()
            with self._occupancy.busy(STORAGE):
                response = session.send(
                    prepared, timeout=self._timeout, allow_redirects=False, **settings
                )
            first = time.perf_counter()
            with response, self._occupancy.busy(NETWORK):
                content = _read(response, what)
            times = (started, first, time.perf_counter())
            answer = Answer(response.status_code, response.headers, content, times)
        except requests.exceptions.SSLError as error:
            self._counters.add(requests=1)
            raise StoreError(f"{what}: {tls_reason(error)}") from None
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            self._counters.add(requests=1)
            raise Unreachable(f"{what} at {urlsplit(url).netloc}: {cause(error)}") from None
        self._counters.add(
            requests=1, bytes_received=len(answer.body), bytes_sent=len(body or b"")
        )
        if method != "HEAD":
            check_length(answer, what)
        return answer


def _read(response: requests.Response, what: str) -> bytes:
    length = response.headers.get("Content-Length", "")
    if length.isdigit() and int(length) > MAX_BODY:
        raise StoreError(f"{what}: body of {length} bytes is more than {MAX_BODY}", status=413)
    return response.raw.read(decode_content=False)

