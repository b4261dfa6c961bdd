"""Samples of one batch must not see each other: shown for good networks, refused for others."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.building import X, call, file
from swift_hapi.graph.extractor import load_extractor
from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.split import make_extractor
from swift_hapi.protocol.errors import ModelInvalid

SHAPE = (6, 4, 4)


class Own(nn.Module):
    """A module of one function."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(6, 6))
        self.token = nn.Parameter(torch.randn(1, 1, 6))
        self.fc = nn.Linear(6, 6)
        self.norm = nn.InstanceNorm2d(6)
        self.scaled = nn.InstanceNorm2d(6, affine=True)
        self.attention = nn.MultiheadAttention(6, 2)
        self.register_buffer("order", torch.tensor([3, 0, 1, 2]))

    def forward(self, x):
        return self.function(self, x)


def extractor_of(function, shape=SHAPE):
    torch.manual_seed(0)
    return make_extractor(Own(function).eval(), None, shape)


def tokens(x):
    return x.flatten(2).transpose(1, 2)


def windows(m, x):
    n, c, h, w = x.shape
    x = x.permute(0, 2, 3, 1).reshape(n, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5)
    x = m.fc(x.reshape(-1, 4, c))
    back = x.shape[0] // (h * w // 2 // 2)
    x = x.view(back, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5)
    return x.reshape(back, h, w, c)


def tokens_first(m, x):
    x = x.flatten(2).permute(2, 0, 1)
    return m.attention(x, x, x, need_weights=False)[0].transpose(0, 1)


def class_token(m, x):
    x = torch.cat([m.token.expand(x.shape[0], -1, -1), tokens(x)], dim=1)
    return F.softmax(x @ x.transpose(1, 2), -1)[:, 0]


def folded(m, x):
    n, c, h, w = x.shape
    x = F.conv2d(x.reshape(n * c, 1, h, w), m.weight[:1, :1, None, None])
    return x.view(n, c, h, w)


GOOD = {
    "windows": windows,
    "tokens first": tokens_first,
    "class token": class_token,
    "channels folded into the batch": folded,
    "instance norm": lambda m, x: m.norm(x),
    "instance norm with a scale": lambda m, x: m.scaled(x),
    "roll within a sample": lambda m, x: torch.roll(x, (1, 2), (2, 3)),
    "order within a sample": lambda m, x: x[:, :, m.order],
    "flip within a sample": lambda m, x: torch.flip(x, [1, 3]),
    "repeat within a sample": lambda m, x: x.repeat(1, 2, 1, 1),
    "pad within a sample": lambda m, x: F.pad(x, (1, 1, 0, 2)),
    "statistics of a sample": lambda m, x: x - x.mean((1, 2, 3), keepdim=True),
    "split channels": lambda m, x: torch.cat(x.chunk(3, 1)[::-1], 1),
    "shuffle": lambda m, x: F.channel_shuffle(F.pixel_shuffle(x.repeat(1, 2, 1, 1), 2), 3),
    "unfold": lambda m, x: F.fold(F.unfold(x, 2, stride=2), (4, 4), 2, stride=2),
    "stack": lambda m, x: torch.stack([x, x + 1], 2).sum(2),
    "einsum": lambda m, x: torch.einsum("nchw,cd->ndhw", x, m.weight),
    "nothing put beside": lambda m, x: torch.cat([x, torch.zeros_like(x)], 1).cumsum(1),
    "a query for each sample": lambda m, x: F.scaled_dot_product_attention(
        m.token.expand(x.shape[0], 2, 6), tokens(x), tokens(x)),
    "a token folded": lambda m, x: m.fc(
        m.token.repeat(x.shape[0], 4, 1).reshape(-1, 6)).view(-1, 4, 6) + tokens(x)[:, :4],
    "written into nothing": lambda m, x: torch.zeros_like(x).add_(x),
    "added to a product": lambda m, x: torch.addmm(
        x[:, 0, 0].repeat(1, 2)[:, :6], x[:, 1, :, :2].flatten(1)[:, :6], m.weight),
    "matrix from the left": lambda m, x: m.weight @ x.flatten(2),
}


@pytest.mark.parametrize("case", GOOD)
def test_networks_that_keep_samples_apart(case):
    extractor = extractor_of(GOOD[case])
    head = Head(extractor, extractor.cuts[-1])
    a, b, c = torch.randn(3, *SHAPE)
    out, swapped, other = (
        head(torch.stack(pair).contiguous(memory_format=torch.channels_last))
        for pair in ((a, b), (b, a), (a, c))
    )
    torch.testing.assert_close(out[0], swapped[1])
    torch.testing.assert_close(out[1], swapped[0])
    torch.testing.assert_close(out[0], other[0])


def _back(x, like):
    """Back to [n, ...] without an operation that would be refused by itself."""
    return x.reshape(like.shape)


BAD = {
    "flip": lambda m, x: x.flip(0),
    "roll": lambda m, x: torch.roll(x, 1, 0),
    "roll of everything": lambda m, x: torch.roll(x, 1),
    "mean": lambda m, x: x - x.mean(0, keepdim=True),
    "mean of everything": lambda m, x: x - x.mean(),
    "maximum": lambda m, x: x / x.amax((0, 1), keepdim=True),
    "softmax": lambda m, x: F.softmax(x, 0),
    "cumulated": lambda m, x: x.cumsum(0),
    "norm": lambda m, x: x / x.norm(),
    "first sample": lambda m, x: x + x[0],
    "first samples": lambda m, x: x + x[:1],
    "taken apart": lambda m, x: x.unbind(0)[0] + x,
    "each with each": lambda m, x: torch.softmax(
        x.flatten(1) @ x.flatten(1).t(), 1) @ x.flatten(1),
    "transposed": lambda m, x: _back(x.flatten(1).t(), x),
    "another shape": lambda m, x: _back(x.reshape(6, -1).t(), x),
    "a shape that fits two and three": lambda m, x: _back(x.flatten(1).view(6, -1), x),
    "repeated": lambda m, x: _back(x.unsqueeze(0).expand(2, -1, -1, -1, -1)
                                   .flatten(0, 1).narrow(0, 0, 1).expand_as(x), x),
    "attention over samples": lambda m, x: m.attention(
        x.mean((2, 3)), x.mean((2, 3)), x.mean((2, 3)), need_weights=False)[0],
    "batch statistics": lambda m, x: F.batch_norm(x, None, None, training=True),
    "samples as channels": lambda m, x: _back(F.conv2d(
        F.pad(x.permute(1, 0, 2, 3).flatten(1, 2).unsqueeze(1), (1, 1, 1, 1)),
        m.weight[:1, :1, None, None].expand(1, 1, 3, 3)).squeeze(1).unflatten(1, (-1, 4))
        .permute(1, 0, 2, 3), x),
    "layer norm": lambda m, x: _back(
        F.layer_norm(x.flatten(1).t().reshape(96, -1), x.shape[:1]).t(), x),
    "pool": lambda m, x: _back(
        F.avg_pool1d(x.flatten(1).t().unsqueeze(1), 3, 1, 1).squeeze(1).t(), x),
    "looked up": lambda m, x: x + x[m.order[1:2]],
    "looked up in a list": lambda m, x: x + x.index_select(0, m.order[1:2]),
    "padded": lambda m, x: F.pad(x, (0, 0, 0, 0, 0, 0, 1, -1)),
    "flipped on the side": lambda m, x: _back(x.flatten(1).t().flip(1).t(), x),
    "written into a buffer": lambda m, x: torch.zeros(x.shape).add_(x),
    "counted": lambda m, x: x + torch.ones_like(x).sum(0, True),
    "numbered": lambda m, x: x + torch.ones_like(x).cumsum(0),
    "a token for each counted": lambda m, x: tokens(x) + m.token.expand(
        x.shape[0], -1, -1).sum(0),
    "a token for each numbered": lambda m, x: tokens(x) + m.token.repeat(
        x.shape[0], 1, 1).cumsum(0),
    "expanded like samples": lambda m, x: x + m.token.view(1, 6, 1, 1).expand_as(x).mean(0),
    "norm of a row for each": lambda m, x: x / torch.ones_like(x).norm(),
    "glu": lambda m, x: F.glu(torch.stack([x, x], 0).flatten(0, 1), 0),
    "mask": lambda m, x: torch.where(x > 0, x, x.flip(0)),
    "compared with all": lambda m, x: x * (x > x.max()),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_networks_that_mix_samples_are_refused(case):
    with pytest.raises(ModelInvalid, match="mix|how samples lie|into memory|grows faster"):
        extractor_of(BAD[case])


def test_the_refusal_names_the_place():
    with pytest.raises(ModelInvalid, match=r"node 'flip'.*flip may mix the samples of a batch"):
        extractor_of(BAD["flip"])


#: the same for batches of two and three, another thing for larger ones
LATE = {
    "third of the batch": lambda m, x: torch.roll(x, x.shape[0] // 4, 0),
    "slice": lambda m, x: x[: 5 * (x.shape[0] // 5 + 1)],
    "remainder": lambda m, x: x * (x.shape[0] % 4),
    "sum": lambda m, x: x.reshape(x.shape[0] + 0, -1),
    "product": lambda m, x: x.reshape(x.shape[0] * x.shape[0] // x.shape[0], -1),
    "quotient": lambda m, x: x * (6 / x.shape[0]),
    "value": lambda m, x: x * x.shape[0],
    "comparison": lambda m, x: x * (x.shape[0] > 3),
}


@pytest.mark.parametrize("case", LATE)
def test_numbers_that_could_tell_large_batches_are_refused(case):
    with pytest.raises(ModelInvalid, match="in proportion|mix the samples"):
        extractor_of(LATE[case])


#: the same for batches of two and three, but a single sample would lose its dimension
ALONE = {
    "squeeze": lambda m, x: x.mean((1, 2, 3), keepdim=True).squeeze(),
    "squeeze of the batch": lambda m, x: x.squeeze(0),
    "squeeze of several": lambda m, x: x.mean(1, keepdim=True).squeeze((0, 1)),
}  # fmt: skip


@pytest.mark.parametrize("case", ALONE)
def test_a_single_sample_has_the_shape_it_has_among_others(case):
    with pytest.raises(ModelInvalid, match="batch of one|in proportion"):
        extractor_of(ALONE[case])


def test_nor_may_a_shape_come_from_what_has_no_samples():
    nodes = [
        call("n", "method", "size", X, 0),
        call("zeros", "function", "torch.zeros", {"tuple": [{"ref": "n"}, 1, 96]}),
        call("squeezed", "method", "squeeze", {"ref": "zeros"}, 0),
        call("shape", "function", "getattr", {"ref": "squeezed"}, "shape"),
        call("end", "method", "reshape", X, {"ref": "shape"}),
    ]
    with pytest.raises(ModelInvalid, match="batch of one"):
        load_extractor(file(nodes, "end", shape=SHAPE))


def rows_for_each(*steps) -> bytes:
    """``ones``, a row for each sample, and what ``steps`` make of them, added to the input."""
    nodes = [
        call("n", "method", "size", X, 0),
        call("ones", "function", "torch.ones", {"tuple": [{"ref": "n"}, 6, 1, 1]}),
    ]
    for i, (target, *args) in enumerate(steps):
        op = "function" if "." in target else "method"
        nodes.append(call(f"s{i}", op, target, *args))
    nodes.append(call("end", "method", "add", X, {"ref": nodes[-1]["name"]}))
    return file(nodes, "end", shape=SHAPE)


_ONES = {"ref": "ones"}


@pytest.mark.parametrize(
    "steps",
    [
        [("sum", _ONES, 0, True)],
        [("cumsum", _ONES, 0)],
        [("sum", _ONES)],
        [("flatten", _ONES, 1), ("t", {"ref": "s0"}), ("matmul", {"ref": "s1"}, {"ref": "s0"}),
         ("view", {"ref": "s2"}, 1, 36, 1, 1), ("narrow", {"ref": "s3"}, 1, 0, 6)],
        [("view", _ONES, 6, -1), ("cumsum", {"ref": "s0"}, 1),
         ("view", {"ref": "s1"}, -1, 6, 1, 1)],
        [("operator.getitem", _ONES, {"slice": [-1, None, None]})],
        [("torch.zeros_like", _ONES), ("cumsum", {"ref": "s0"}, 0)],
    ],
)  # fmt: skip
def test_nobody_learns_how_many_others_there_are(steps):
    """The ones hold no samples, but a row for each of them."""
    with pytest.raises(ModelInvalid, match="mix the samples|how samples lie"):
        load_extractor(rows_for_each(*steps))


def test_rows_for_each_sample_are_fine():
    steps = [("softmax", _ONES, 1), ("mul", {"ref": "s0"}, X)]
    extractor = load_extractor(rows_for_each(*steps))
    x = torch.randn(3, *SHAPE)
    torch.testing.assert_close(Head(extractor, extractor.cuts[-1])(x), x * (7 / 6))


def test_squeezes_within_a_sample_are_fine():
    extractor = extractor_of(
        lambda m, x: x.mean((2, 3), keepdim=True).squeeze(-1).squeeze(-1).reshape(-1, 2, 1, 3)
        .squeeze((2, 3))
    )
    head = Head(extractor, extractor.cuts[-1])
    assert [head(torch.randn(n, *SHAPE)).shape for n in (1, 4)] == [(1, 2, 3), (4, 2, 3)]


def test_another_input_shape_is_followed_anew():
    """For its own shape the reshape takes one sample a row, for another it takes several."""
    extractor = extractor_of(lambda m, x: torch.cumsum(x.reshape(-1, 96), 1).reshape(x.shape))
    assert extractor.cuts_for((6, 8, 4))[-1].shape == (6, 8, 4)
    with pytest.raises(ModelInvalid, match="mix the samples"):
        extractor.cuts_for((6, 2, 4))
