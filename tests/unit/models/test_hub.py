from __future__ import annotations

import socket

import pytest

constants = pytest.importorskip("huggingface_hub.constants")

from hapi_compute.models import architectures  # noqa: E402
from hapi_compute.models.hub import cache_only_if_out_of_reach  # noqa: E402


@pytest.fixture
def nobody(monkeypatch, tmp_path):
    """The hub's address is one where nobody listens, and its cache is empty."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return port


def test_out_of_reach(nobody, monkeypatch):
    before = constants.HF_HUB_OFFLINE
    with cache_only_if_out_of_reach() as reason:
        assert reason == f"cannot connect to http://127.0.0.1:{nobody}: Connection refused"
        assert constants.HF_HUB_OFFLINE is True
    assert constants.HF_HUB_OFFLINE is before
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with cache_only_if_out_of_reach() as reason:
        assert reason is None


def test_within_reach(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        before = constants.HF_HUB_OFFLINE
        with cache_only_if_out_of_reach() as reason:
            assert reason is None and constants.HF_HUB_OFFLINE is before


def test_weights_of_timm_are_not_waited_for(nobody, monkeypatch):
    pytest.importorskip("timm")
    monkeypatch.setattr(
        "huggingface_hub.utils._http.time.sleep", lambda _: pytest.fail("it tries again")
    )
    with pytest.raises(OSError, match="timm/resnet18 .*cannot connect to .*--weights also takes"):
        architectures._timm_pretrained(architectures.find("timm/resnet18"))
