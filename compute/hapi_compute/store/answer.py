"""One HTTP answer of Swift: checks on its bytes, and the typed error that it stands for."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

import requests

from hapi_compute.store.errors import Corrupted, from_status
from swift_hapi.protocol.errors import CONTENT_TYPE as PROBLEM_TYPE
from swift_hapi.protocol.errors import HapiError, from_problem

_MD5 = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Answer:
    """Status, headers (looked up in any case) and the whole body.

    ``times``: when the request was sent, when its headers were there, and when the last byte was,
    in seconds of ``time.perf_counter``.
    """

    status: int
    headers: requests.structures.CaseInsensitiveDict
    body: bytes
    times: tuple[float, float, float] = (0.0, 0.0, 0.0)


def bare_etag(value: str | None) -> str:
    """An ETag without weakness mark and quotes."""
    return (value or "").strip().removeprefix("W/").strip('"')


def check_etag(answer: Answer, what: str) -> None:
    """Compare the body with an ETag that is its md5.

    Large objects have an ETag of their own making (md5 of segment ETags), which is no checksum
    of the body.

    :raises Corrupted: they disagree
    """
    if "X-Static-Large-Object" in answer.headers or "X-Object-Manifest" in answer.headers:
        return
    etag = bare_etag(answer.headers.get("ETag"))
    if answer.status == 200 and _MD5.fullmatch(etag):
        md5 = hashlib.md5(answer.body, usedforsecurity=False).hexdigest()
        if md5 != etag:
            raise Corrupted(f"{what}: the body has md5 {md5}, its ETag says {etag}")


def check_length(answer: Answer, what: str) -> None:
    length = answer.headers.get("Content-Length")
    if length is not None and int(length) != len(answer.body):
        raise Corrupted(f"{what}: {len(answer.body)} bytes came, {length} were promised")


def success_or_error(answer: Answer, what: str) -> Answer:
    """The answer if it is a success, else the typed error that it stands for."""
    if 200 <= answer.status < 300:
        return answer
    after = answer.headers.get("Retry-After", "")
    retry_after = int(after) if re.fullmatch(r"\d{1,6}", after) else None
    if answer.headers.get("Content-Type", "").startswith(PROBLEM_TYPE):
        error = _problem(answer, what, retry_after)
        if error is not None:
            raise error
    text = answer.body[:300].decode("utf-8", "replace")
    reason = " ".join(re.sub(r"<[^>]*>", " ", text).split())
    raise from_status(answer.status, what, reason, retry_after)


def _problem(answer: Answer, what: str, retry_after: int | None) -> HapiError | None:
    try:
        error = from_problem(json.loads(answer.body), answer.status, retry_after=retry_after)
    except (ValueError, RecursionError):
        return None
    if error is not None:
        error.detail = f"{what}: {error.detail}"
        error.args = (error.detail,)
    return error
