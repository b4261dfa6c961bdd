from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hapi_compute.plan.profile import (
    PrefixTimer,
    byte_seconds,
    decode_all,
    run_batches,
    train_seconds,
)
from swift_hapi.graph.interpreter import Tail
from swift_hapi.graph.split import build_transfer

SHAPE = (3, 16, 16)


class Small(nn.Module):
    """With an operation in place just behind a cut."""

    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(3, 8, 3)
        self.relu = nn.ReLU(inplace=True)
        self.two = nn.Conv2d(8, 4, 3, stride=4)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.Dropout(), nn.Linear(16, 5))

    def forward(self, x):
        return self.head(self.two(self.relu(self.one(x))))


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def parts():
    torch.manual_seed(0)
    return build_transfer(Small().eval(), "two", 4, 0, SHAPE)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).standard_normal((10, *SHAPE)).astype(np.float32)


def test_the_timed_pass_computes_the_features(parts, images):
    extractor, _ = parts
    timer = PrefixTimer(extractor)
    found = run_batches(timer, images.copy(), batch=4)
    expected = Tail(extractor, extractor.cuts[0])(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert found.flags.c_contiguous and timer.passes == 3


def test_times_grow_from_cut_to_cut(parts, images):
    extractor, _ = parts
    timer = PrefixTimer(extractor)
    run_batches(timer, images, batch=10)
    times = timer.prefix()
    assert list(times) == [cut.name for cut in extractor.cuts]
    values = list(times.values())
    assert values[0] == 0.0 and values == sorted(values) and values[-1] > 0
    assert timer.passes == 3  # The one batch again: a first pass does not tell.


def test_compression_is_measured_where_asked(parts, images):
    extractor, _ = parts
    assert PrefixTimer(extractor).squeezed == {}
    timer = PrefixTimer(extractor, squeeze="float32")
    timer.run(np.zeros_like(images))
    assert set(timer.squeezed) == {cut.name for cut in extractor.cuts}
    assert timer.squeezed["input"] < 0.1
    noisy = PrefixTimer(extractor, squeeze="float32")
    noisy.run(images)
    assert noisy.squeezed["input"] > 0.8
    half = PrefixTimer(extractor, squeeze="float16")
    half.run(images)
    # Of the bytes that are compressed, not of float32.
    assert 0.8 < half.squeezed["input"] <= 1.1


def test_timing_the_training_changes_nothing(parts, images):
    _, trainable = parts
    before = {name: tensor.clone() for name, tensor in trainable.state_dict().items()}
    torch.manual_seed(5)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    seconds = train_seconds(
        trainable,
        lambda part: torch.optim.SGD(part.parameters(), lr=1.0),
        np.ones((3, 4, 3, 3), dtype=np.float32),
        [0, 1, 2],
        batch=7,
    )
    assert seconds > 0 and torch.equal(torch.rand(1), drawn)
    assert all(torch.equal(before[n], t) for n, t in trainable.state_dict().items())
    assert all(parameter.grad is None for parameter in trainable.parameters())


def test_training_is_timed_in_the_run_s_precision(parts):
    _, trainable = parts
    seen = []
    hook = trainable.register_forward_hook(lambda _m, _x, y: seen.append(y.dtype))
    try:
        train_seconds(
            trainable,
            lambda part: torch.optim.SGD(part.parameters(), lr=1.0),
            np.ones((3, 4, 3, 3), dtype=np.float32),
            [0, 1, 2],
            4,
            lambda: torch.autocast("cpu", torch.bfloat16),
        )
    finally:
        hook.remove()
    assert set(seen) == {torch.bfloat16}


def test_decoding():
    def load(place, out):
        out[...] = place

    images, seconds = decode_all(load, 3, (2, 2))
    assert images.shape == (3, 2, 2) and images[2].min() == 2 and seconds >= 0


def test_bytes_take_time():
    assert 0 < byte_seconds(np.zeros((1000, 1000), dtype=np.float32)) < 1e-6
