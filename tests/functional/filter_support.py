"""Asking the filter of a real cluster."""

from __future__ import annotations

import requests

from swift_hapi.protocol import digest, payload
from swift_hapi.protocol.errors import CONTENT_TYPE
from swift_hapi.protocol.headers import FEATURES_TYPE
from tests.functional.extractors import TRANSFORM, Model
from tests.unit.engine.client import ask


def hapi_headers(model: Model | str, split: str | None = None, **more: str | None) -> dict:
    """Headers of a feature request; ``More_Words`` become ``More-Words``, None removes one."""
    if split is None:
        split = model.last_cut
    headers = {
        "X-Hapi-Model": getattr(model, "digest", model),
        "X-Hapi-Split": split,
        "X-Hapi-Transform": TRANSFORM,
        "Accept-Encoding": "identity",
    }
    headers |= {name.replace("_", "-"): value for name, value in more.items()}
    return {name: value for name, value in headers.items() if value is not None}


def get(account, url: str, headers: dict, method: str = "GET") -> requests.Response:
    """The answer with its body as it was sent; a short body raises."""
    response = account.session.request(method, url, headers=headers, stream=True)
    body = response.raw.read(decode_content=False)
    length = response.headers.get("Content-Length")
    assert method == "HEAD" or length is None or len(body) == int(length)
    response._content = body
    return response


def decoded(response: requests.Response) -> payload.Features:
    assert response.status_code == 200, (response.status_code, response.content)
    assert response.headers["Content-Type"] == FEATURES_TYPE
    assert digest.matches(response.headers["Content-Digest"], response.content)
    return payload.decode(response.content)


def problem(response: requests.Response) -> tuple[int, str, dict]:
    """(status, name, document) of an answer that must be a problem of ours."""
    assert response.headers["Content-Type"] == CONTENT_TYPE, response.content
    document = response.json()
    assert document["status"] == response.status_code
    assert document["trans_id"] == response.headers["X-Trans-Id"]
    name = document["type"].removeprefix("urn:hapi:error:")
    return response.status_code, name, document


def engine_requests(cluster) -> dict[str, float]:
    """What the engine has been asked so far, by route and status, its metrics apart."""
    text = ask(cluster.engine_socket, "GET", "/metrics").body.decode()
    found = {}
    for line in text.splitlines():
        if line.startswith("hapi_engine_requests_total{") and "/v1/" in line:
            labels, value = line.rsplit(" ", 1)
            if "/v1/status" not in labels:
                found[labels] = float(value)
        elif line.startswith("hapi_engine_admitted_total"):
            found["admitted"] = float(line.rsplit(" ", 1)[1])
    return found


def engine_status(cluster) -> dict:
    return ask(cluster.engine_socket, "GET", "/v1/status").json()
