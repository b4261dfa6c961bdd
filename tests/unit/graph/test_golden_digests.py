"""Extractor files keep their names: the same model has the same digest as it had before.

A digest that changes makes every store's copy of that model useless, so a change here is a change
of the format: raise ``extractor_file.VERSION``, and say so in a release note. The graph is what
the libraries' code traces to, so digests belong to versions of the libraries. To add some: run
this file with ``python -m``.
"""

from __future__ import annotations

import hashlib
import zlib
from importlib.metadata import version

import pytest
import torch

from benchmarks.user_models import Net, Text
from hapi_compute.models import load_model
from swift_hapi.graph.extractor import Extractor, extractor_bytes, load_extractor
from swift_hapi.graph.split import make_extractor

LIBRARIES = ("torch", "torchvision", "timm")
#: model -> freeze point, side of the input
MODELS = {
    "squeezenet1_1": ("features.12", 64),
    "mobilenet_v3_small": ("features.4", 64),
    "shufflenet_v2_x0_5": ("stage3", 64),
    "timm/tf_efficientnet_lite0": ("blocks.3", 64),
    "timm/mobilevit_xxs": ("stages.3", 64),
}
OWN = {"net": (Net, (3, 64, 64), torch.float32), "text": (Text, (64,), torch.int64)}

#: versions of LIBRARIES -> model -> digest
GOLDEN: dict[tuple[str, ...], dict[str, str]] = {
    ("2.14.1", "0.29.1", "1.0.31"): {
        "squeezenet1_1": "beb821a0eb6f290946fb64494f5059dbb53037cf6e809c02953f3f5fb1e8c4cf",
        "mobilenet_v3_small": "5e2305cca880ae18b55f408813046acf818a1330e215f9c152b0c85608b4ae5f",
        "shufflenet_v2_x0_5": "1cebe8cc97590197ab96477f9c01f4cb90db82295d2515aa1baf3802f7e21da5",
        "timm/tf_efficientnet_lite0":
            "16db77546141ae819fa3a31d8d6e877fb9f9f4c3016cdc857acf7804d18be648",
        "timm/mobilevit_xxs": "24d18bf9c029eedc91a443f44eaf272bad627d70b15f9dc69c57a590dc0bfa74",
        "net": "63d778b7917e07a33934b374e852e084035c94984d2880610ea03595f0ef764c",
        "text": "bfba235f068fefafee9ce4a851e2951d0c0802863f497efcb4f9cb4c8ee4949a",
    },
}


def _fill(model: torch.nn.Module) -> torch.nn.Module:
    """Weights from whole numbers alone: those of a random generator are not the same to the last
    bit on every kind of processor."""
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            numbers = torch.arange(tensor.numel()) * 7919 + zlib.crc32(name.encode())
            tensor.copy_(((numbers % 4096 + 1) / 2**14).reshape(tensor.shape))
    return model.eval()


def _extractor(name: str) -> Extractor:
    if name in OWN:
        cls, shape, dtype = OWN[name]
        return make_extractor(_fill(cls(4)), None, shape, dtype)
    freeze_at, side = MODELS[name]
    return make_extractor(_fill(load_model(name, "none").module), freeze_at, (3, side, side))


def _versions() -> tuple[str, ...]:
    # What follows a plus tells how it was built, for which accelerator: no matter here.
    return tuple(version(library).partition("+")[0] for library in LIBRARIES)


@pytest.mark.parametrize("name", [*MODELS, *OWN])
def test_golden_digests(name):
    golden = GOLDEN.get(_versions())
    if golden is None:
        have = ", ".join(map(" ".join, zip(LIBRARIES, _versions(), strict=True)))
        pytest.skip(f"no digests are on record for {have}")
    extractor = _extractor(name)
    assert extractor.digest == f"sha256:{golden[name]}"
    # The bytes, not only what is remembered of them.
    data = extractor_bytes(extractor)
    assert hashlib.sha256(data).hexdigest() == golden[name]
    assert load_extractor(data).digest == extractor.digest


def test_digests_do_not_depend_on_threads():
    digests = set()
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            digests.add(make_extractor(_fill(Net(4)), None, (3, 64, 64)).digest)
    finally:
        torch.set_num_threads(threads)
    assert len(digests) == 1


if __name__ == "__main__":
    print(_versions(), {n: _extractor(n).digest.removeprefix("sha256:") for n in (*MODELS, *OWN)})
