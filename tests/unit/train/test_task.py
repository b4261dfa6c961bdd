from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hapi_compute.data.batches import Batch, Part
from hapi_compute.data.timings import Timings
from hapi_compute.train.errors import TaskFailed
from hapi_compute.train.hook import Guarded, TrainingTask
from hapi_compute.train.task import LocalHead, TransferTask, step_seed
from swift_hapi.graph.split import build_transfer

SHAPE = (3, 16, 16)


class Small(nn.Module):
    """BatchNorm and dropout on either side of the freeze point."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5)
        )
        self.middle = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Sequential(
            nn.Flatten(), nn.LazyLinear(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 5)
        )

    def forward(self, x):
        return self.head(self.middle(self.stem(x)))


@pytest.fixture(scope="module")
def parts():
    torch.manual_seed(0)
    model = Small()
    with torch.no_grad():
        model(torch.randn(8, *SHAPE))
    model.eval()
    return build_transfer(model, "middle", 4, 0, SHAPE)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).standard_normal((6, *SHAPE)).astype(np.float32)


LABELS = np.array([0, 1, 2, 3, 0, 1])


def batch(data, labels=LABELS, cut=None) -> Batch:
    return Batch((Part(cut, np.arange(len(data)), data),), labels, ("",) * len(data))


def gradients(task) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in task.trainable.named_parameters()}


def test_every_cut_gives_the_same_loss_and_gradients(parts, images):
    extractor, trainable = parts
    found = []
    for cut in extractor.cuts:
        task = TransferTask(extractor, trainable, Timings())
        trainable.zero_grad()
        outcome = task.loss(batch(LocalHead(extractor, cut)(images), cut=cut.name), seed=11)
        outcome.loss.backward()
        right = (outcome.correct, outcome.correct5)
        found.append((outcome.loss.item(), right, gradients(task)))
    assert len(found) > 3
    for loss, correct, grads in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-5) and correct == found[0][1]
        for name, grad in grads.items():
            torch.testing.assert_close(grad, found[0][2][name], rtol=1e-4, atol=1e-6)


def test_rows_of_several_cuts_make_the_same_batch(parts, images):
    extractor, trainable = parts
    task = TransferTask(extractor, trainable, Timings())
    whole = task.loss(batch(images), seed=11).loss.item()
    pieces = []
    for rows, cut in (([0, 3], None), ([1], extractor.cuts[2]), ([2, 4, 5], extractor.cuts[-1])):
        rows = np.array(rows)
        data = images[rows] if cut is None else LocalHead(extractor, cut)(images[rows])
        pieces.append(Part(None if cut is None else cut.name, rows, data))
    mixed = Batch(tuple(pieces), LABELS, ("",) * 6)
    assert task.loss(mixed, seed=11).loss.item() == pytest.approx(whole, rel=1e-5)
    torch.testing.assert_close(task.predict(mixed)[0], task.predict(batch(images))[0])


def test_dropout_follows_the_seed_alone(parts, images):
    extractor, trainable = parts
    task = TransferTask(extractor, trainable, Timings())
    torch.manual_seed(1)
    first = task.loss(batch(images), seed=5).loss.item()
    torch.rand(100)
    assert task.loss(batch(images), seed=5).loss.item() == first
    assert task.loss(batch(images), seed=6).loss.item() != first


def test_the_frozen_part_stays_as_it_is(parts, images):
    extractor, trainable = parts
    before = {name: tensor.clone() for name, tensor in extractor.tensors.items()}
    task = TransferTask(extractor, trainable, Timings())
    optimizer = torch.optim.SGD(trainable.parameters(), lr=0.1)
    for seed in range(3):
        loss = task.loss(batch(images), seed).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for name, tensor in extractor.tensors.items():
        assert torch.equal(tensor, before[name]), name


def test_prediction_is_in_eval_mode(parts, images):
    extractor, trainable = parts
    task = TransferTask(extractor, trainable, Timings())
    task.loss(batch(images), 0)
    logits, loss = task.predict(batch(images))
    assert torch.equal(logits, task.predict(batch(images))[0]) and logits.shape == (6, 4)
    target = torch.from_numpy(LABELS)
    assert loss == pytest.approx(float(cross_entropy(logits, target, reduction="sum")), rel=1e-5)


def test_weights_of_classes_and_smoothing(parts, images):
    extractor, trainable = parts
    weights, hook = (1.0, 0.5, 2.0, 0.0), TrainingTask()
    hook.label_smoothing = 0.1
    task = TransferTask(extractor, trainable, Timings(), hook, weights)
    found = task.loss(batch(images), 3)
    plain = TransferTask(extractor, trainable, Timings()).loss(batch(images), 3)
    each = torch.tensor(weights)[torch.from_numpy(LABELS)]
    assert found.weight == pytest.approx(float(each.sum()))
    torch.manual_seed(3)
    logits = trainable(task._features(batch(images)))
    expected = cross_entropy(
        logits, torch.from_numpy(LABELS), torch.tensor(weights), label_smoothing=0.1
    )
    smooth = cross_entropy(
        logits, torch.from_numpy(LABELS), label_smoothing=0.1, reduction="none"
    )
    assert found.loss.item() == pytest.approx((smooth * each).sum().item(), rel=1e-5)
    assert plain.loss.item() != pytest.approx(found.loss.item())
    assert expected.isfinite()


def test_mixed_precision_is_of_what_is_trained_alone(parts, images):
    extractor, trainable = parts
    computed, seen = [], []

    class Watching(TrainingTask):
        def losses(self, outputs, labels):
            seen.append(outputs.dtype)
            return super().losses(outputs, labels)

    exact = TransferTask(extractor, trainable, Timings()).loss(batch(images), seed=11)
    task = TransferTask(extractor, trainable, Timings(), Watching(), precision="bfloat16")
    hook = trainable.register_forward_hook(lambda _m, x, y: computed.append((x[0].dtype, y.dtype)))
    try:
        found = []
        for cut in extractor.cuts:
            trainable.zero_grad()
            outcome = task.loss(batch(LocalHead(extractor, cut)(images), cut=cut.name), seed=11)
            outcome.loss.backward()
            found.append(outcome.loss.item())
        logits, loss = task.predict(batch(images))
    finally:
        hook.remove()
    # The frozen part has come out in float32, the loss is float32, and so are weights' gradients.
    assert set(computed) == {(torch.float32, torch.bfloat16)} and set(seen) == {torch.float32}
    assert all(grad.dtype == torch.float32 for grad in gradients(task).values())
    assert logits.dtype == torch.float32 and loss > 0
    # The same features at every cut, and the same roundings of them but for a few.
    assert found == pytest.approx([found[0]] * len(found), rel=1e-3)
    assert found[0] == pytest.approx(exact.loss.item(), rel=0.05) and found[0] != exact.loss.item()


def test_a_rank_without_samples_has_gradients_of_nothing(parts, images):
    extractor, trainable = parts
    task = TransferTask(extractor, trainable, Timings())
    trainable.zero_grad()
    outcome = task.loss(Batch((), np.zeros(0, np.int64), (), 7, 1), 3)
    outcome.loss.backward()
    assert (outcome.weight, outcome.samples) == (0, 0)
    assert all(not grad.any() for grad in gradients(task).values())


def test_step_seeds():
    seeds = {step_seed(0, epoch, step) for epoch in range(10) for step in range(10)}
    assert len(seeds) == 100 and all(0 <= seed < 2**63 for seed in seeds)
    assert step_seed(1, 2, 3) == step_seed(1, 2, 3)


def test_a_head_that_does_not_fit_is_told_in_one_line(parts, images):
    hook = Guarded(TrainingTask(), "own/task.py:factory")
    task = TransferTask(parts[0], nn.Sequential(nn.Flatten(), nn.Linear(7, 4)), Timings(), hook)
    for call in (lambda: task.loss(batch(images), seed=0), lambda: task.predict(batch(images))):
        with pytest.raises(TaskFailed, match=r"own/task.py: the head failed: RuntimeError: mat1"):
            call()
