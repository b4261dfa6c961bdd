"""The promise, on real networks: head in the store, then tail here, is the whole network."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hapi_compute.models import load_model
from swift_hapi.graph.extractor import load_extractor, save_extractor
from swift_hapi.graph.interpreter import Head, Tail
from swift_hapi.graph.split import make_extractor
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import parse_transform
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.shard import read_shard
from tests.functional.extractors import shard
from tests.functional.filter_support import decoded, get

STATS = "mean=(0.485 0.456 0.406), std=(0.229 0.224 0.225)"
COUNT = 5
MICRO_BATCH = 2  #: so that the last micro-batch is a part of one


@pytest.fixture(scope="module")
def photos() -> bytes:
    return shard(COUNT)


@pytest.mark.parametrize(
    ("name", "weights", "side"),
    [
        ("resnet18", "random:1", 96),
        ("alexnet", "random:2", 96),
        ("mobilenet_v3_large", "random:3", 96),
        ("vit_b_16", "random:4", 224),
        ("timm/tf_efficientnet_lite0", "package:efficientnet-lite0", 96),
    ],
)
def test_features_by_http_equal_the_local_run(
    account, container, photos, tmp_path, name, weights, side
):
    torch.set_num_threads(1)
    module = load_model(name, weights).module.eval()
    path = tmp_path / "extractor.safetensors"
    digest = save_extractor(make_extractor(module, None, (3, side, side)), path)
    extractor = load_extractor(path.read_bytes())
    user = account()
    user.put("hapi-models")
    user.put("hapi-models", f"{digest[7:]}.safetensors", data=path.read_bytes())
    user.put(container, "photos.tar", data=photos)
    transform = f"resize={side}, crop={side}, {STATS}"
    spec = parse_transform(transform)
    samples = read_shard(photos, "photos.tar", Limits()).samples
    images = torch.from_numpy(np.stack([decode_sample(s, spec, Limits()) for s in samples]))
    batches = images.split(MICRO_BATCH)
    channels_last = [b.contiguous(memory_format=torch.channels_last) for b in batches]
    with torch.inference_mode():
        whole = torch.cat([module(batch) for batch in channels_last])
    assert whole.shape == (COUNT, 1000) and whole.std() > 0

    cuts = [cut for cut in extractor.cuts_for((3, side, side)) if cut.name != "input"]
    for cut in (cuts[0], cuts[len(cuts) // 2], cuts[-2]):
        response = get(
            user,
            user.url(container, "photos.tar"),
            {
                "X-Hapi-Model": digest,
                "X-Hapi-Split": cut.name,
                "X-Hapi-Transform": transform,
                "X-Hapi-Batch-Size": str(MICRO_BATCH),
            },
        )
        features = torch.from_numpy(decoded(response).features)
        assert features.shape == (COUNT, *cut.shape)
        head, tail = Head(extractor, cut), Tail(extractor, cut, inference=True)
        # The same micro-batches give the same bits.
        assert torch.equal(features, torch.cat([head(b) for b in batches])), cut.name
        assert torch.equal(torch.cat([tail(f) for f in features.split(MICRO_BATCH)]), whole)
