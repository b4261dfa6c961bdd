from __future__ import annotations

import pytest

from hapi_compute.cli import config_file
from hapi_compute.cli.main import build_parser, main

NAMES = ["--model", "m", "--weights", "w", "--freeze-at", "f"]


def parse(tmp_path, text: str, *argv: str, command: str = "train"):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    parser = build_parser(command)
    argv = (command, *argv, "--config", str(path))
    chosen = parser._subparsers._group_actions[0].choices[command]
    config_file.apply(chosen, config_file.config_path(list(argv)))
    return parser.parse_args(argv)


def test_a_run_from_a_file_alone(tmp_path):
    args = parse(
        tmp_path,
        "dataset: swift://c/p\nmodel: resnet18\nweights: random:1\nfreeze-at: layer3\n"
        "batch-size: 12\nlr: 1e-2\nprefetch_bytes: 16MiB\nresume: true\nout: null\n",
    )
    assert (args.dataset, args.model, args.freeze_at) == ("swift://c/p", "resnet18", "layer3")
    assert (args.batch_size, args.lr, args.prefetch_bytes) == (12, 0.01, 16 << 20)
    assert args.resume is True and args.out is None and args.epochs == 3


def test_the_command_line_goes_before_the_file(tmp_path):
    text = "dataset: swift://c/p\nmodel: a\nweights: w\nfreeze_at: f\nepochs: 9\n"
    args = parse(tmp_path, text, "swift://d/q", "--epochs", "2", "--model", "b")
    assert (args.dataset, args.epochs, args.model, args.weights) == ("swift://d/q", 2, "b", "w")


def test_random_steps_from_a_file(tmp_path):
    args = parse(tmp_path, 'augment: "hflip=0.5, hue=(-0.1 0.2)"\n', "swift://c/p", *NAMES)
    assert args.augment == "hflip=0.5, hue=(-0.1 0.2)"


def test_an_empty_file_says_nothing(tmp_path):
    assert parse(tmp_path, "# nothing\n", "swift://c/p", *NAMES).epochs == 3


def test_extract_and_eval(tmp_path):
    text = "model: resnet18\ncut: layer2\nmicro-batch: 8\nencoding: zstd\n"
    args = parse(tmp_path, text, "c/p", "--out", "f.npy", command="extract")
    assert (args.cut, args.micro_batch, args.encoding) == ("layer2", 8, "zstd")
    args = parse(tmp_path, "run: out\nsplit: raw\ndataset: c/p\n", command="eval")
    assert (args.product, args.split, args.dataset) == ("out", "raw", "c/p")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("epochs: many", "epochs='many': want int"),
        ("epoch: 3", "there is no option 'epoch'"),
        ("config: x", "there is no option 'config'"),
        ("help: x", "there is no option 'help'"),
        ("resume: 1", "resume=1: want true or false"),
        ("model: [a, b]", "want one value"),
        ("model: true", "want one value"),
        ("optimizer: lion", "optimizer='lion': want "),
        ("prefetch-bytes: 16TB", "want a size such as"),
        ("- a\n- b", "want a mapping of options"),
        ("a: b: c", "mapping values are not allowed"),
        ("!!python/object/apply:os.system ['true']", "could not determine a constructor"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, capsys, text, why):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    assert main(["train", "swift://c/p", *NAMES, f"--config={path}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"hapi train: {path}: ") and why in error and error.count("\n") == 1


def test_a_file_that_is_not_there(tmp_path, capsys):
    path = tmp_path / "none.yaml"
    assert main(["train", "swift://c/p", *NAMES, "--config", str(path)]) == 2
    assert "none.yaml" in capsys.readouterr().err


def test_the_range_of_an_option_holds_for_the_file_too(tmp_path, capsys):
    path = tmp_path / "run.yaml"
    path.write_text("epochs: 0")
    argv = ["train", "swift://c/p", *NAMES, "--config", str(path)]
    assert main([*argv, "--auth-url", "http://x", "--user", "u", "--key", "k"]) == 2
    assert "epochs=0: want 1 to" in capsys.readouterr().err
