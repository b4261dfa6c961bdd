from __future__ import annotations

import pytest
import torch
from torch import nn

from hapi_compute.train import hook
from hapi_compute.train.errors import TaskFailed
from hapi_compute.train.hook import TrainingTask

OUTPUTS, LABELS = torch.zeros(4, 3, requires_grad=True), torch.tensor([0, 1, 2, 0])


@pytest.fixture
def task(tmp_path):
    """``task(line, ...)``: one loaded from a file whose class has these lines."""
    numbers = iter(range(100))

    def make(*lines: str) -> TrainingTask:
        path = tmp_path / f"task_{next(numbers)}.py"
        body = "".join(f"    {line}\n" for line in lines)
        path.write_text(
            "import torch\nfrom torch.nn.functional import cross_entropy\n"
            f"from hapi_compute import TrainingTask\nclass T(TrainingTask):\n{body}"
        )
        return hook.load(f"{path}:T", 0.25)

    return make


def test_what_is_right_passes(task):
    made, usual = task("pass"), hook.load(None, 0.25)
    torch.testing.assert_close(made.losses(OUTPUTS, LABELS), usual.losses(OUTPUTS, LABELS))
    assert made.scores(OUTPUTS) is OUTPUTS
    rest = nn.Linear(2, 3)
    assert made.head(rest, torch.zeros(2), 3) is rest


@pytest.mark.parametrize(
    ("loss", "shape"),
    [
        ("cross_entropy(outputs, labels)", r"\[\]"),
        ("cross_entropy(outputs, labels, reduction='none')[:, None]", r"\[4, 1\]"),
        ("cross_entropy(outputs, labels, reduction='none')[1:]", r"\[3\]"),
        ("0.5", "float"),
        ("None", "NoneType"),
    ],
)
def test_losses_of_another_shape(task, loss, shape):
    made = task(f"def losses(self, outputs, labels): return {loss}")
    with pytest.raises(TaskFailed, match=rf"py: losses\(\) returned {shape}, want .*\[4\]"):
        made.losses(OUTPUTS, LABELS)


@pytest.mark.parametrize("scores", ["outputs[:2]", "outputs[..., None]", "outputs.argmax(1)"])
def test_scores_of_another_shape(task, scores):
    made = task(f"def scores(self, outputs): return {scores}")
    with pytest.raises(TaskFailed, match=r"scores\(\) returned \[.*, want \[4, classes\]"):
        made.scores(OUTPUTS)


def test_what_they_raise_is_told_with_file_and_line(task):
    made = task(
        "def head(self, rest, features, classes): raise RuntimeError('my\\n head bug')",
        "def losses(self, outputs, labels): return outputs.nothing",
        "def scores(self, outputs): return outputs @ outputs",
    )
    for number, (what, why, call) in enumerate(
        (
            ("head", "RuntimeError: my head bug$", lambda: made.head(None, torch.zeros(2), 3)),
            ("losses", "AttributeError: .*nothing", lambda: made.losses(OUTPUTS, LABELS)),
            ("scores", "RuntimeError: ", lambda: made.scores(OUTPUTS)),
        ),
        5,
    ):
        with pytest.raises(TaskFailed, match=rf"\.py:{number}: {what}\(\) failed: {why}"):
            call()


def test_a_head_is_tried_before_the_run_and_left_as_it_was(task):
    made = task("pass")
    good = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(6), nn.Dropout(), nn.LazyLinear(3))
    good[2].eval()
    made.try_head(good, torch.ones(2, 3))
    assert [module.training for module in good] == [True, True, False, True]
    assert good[1].num_batches_tracked == 0 and good[3].weight.shape == (3, 6)
    with pytest.raises(TaskFailed, match=r"\.py: the head failed: RuntimeError: mat1 and mat2"):
        made.try_head(nn.Sequential(nn.Flatten(), nn.Linear(7, 3)), torch.ones(2, 3))
    with pytest.raises(TaskFailed, match=r"scores\(\) returned \[2, 2, 3\], want \[2, classes\]"):
        made.try_head(nn.Linear(3, 3), torch.ones(2, 3))
