"""``hapi train swift://container/prefix``: fine-tune a pretrained model on images in Swift."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys

from hapi_compute.cli import config_file, early, exit_codes, options

HELP = "fine-tune a pretrained model on images in Swift"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_arguments(parser)
    config_file.add_config(parser)
    options.add_json(parser)
    options.add_auth(parser)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything that decides a run."""
    from hapi_compute.train.config import (
        DEVICES,
        ENCODINGS,
        FEATURE_DTYPES,
        KEEP,
        OPTIMIZERS,
        PRECISIONS,
        SCHEDULES,
        TrainConfig,
    )

    defaults = {field.name: field.default for field in dataclasses.fields(TrainConfig)}

    def option(group, name: str, help_: str, **kwargs) -> None:
        default = defaults[name]
        if default is not None and default is not False:
            help_ += f" ({default})"
        group.add_argument(f"--{name.replace('_', '-')}", default=default, help=help_, **kwargs)

    parser.add_argument("dataset", metavar="[swift://]CONTAINER/PREFIX")
    model = parser.add_argument_group("model")
    model.add_argument("--model", required=True, help="of torchvision, or timm/NAME")
    model.add_argument(
        "--weights", required=True, help="default, a weights name, a file, or random:SEED"
    )
    model.add_argument(
        "--freeze-at", required=True, metavar="CUT", help="cut or module; all before it is frozen"
    )
    option(model, "split", "auto, raw, or the cut or module up to which the store computes",
           metavar="CUT")  # fmt: skip
    option(model, "task", "your own head and loss: FILE.py:FACTORY of a TrainingTask",
           metavar="REF")  # fmt: skip
    option(model, "num_classes", "where the dataset does not say", type=int, metavar="N")

    data = parser.add_argument_group("data")
    option(data, "transform", "as in X-Hapi-Transform, or 'none' (default: the model's own)")
    option(data, "augment", "random steps for training alone, as in X-Hapi-Transform: "
           "'hflip=0.5, brightness=0.4, hue=0.1'", metavar="STEPS")  # fmt: skip
    option(data, "test_transform", "for validation and test (default: without random steps)")
    option(data, "test", "dataset for the final accuracy", metavar="swift://C/P")
    option(data, "labels", "'path', or a CSV or JSONL table (default: in the shards)",
           metavar="WHERE")  # fmt: skip
    option(data, "val_split", "part of the shards to validate on", type=float, metavar="F")

    training = parser.add_argument_group("training")
    option(training, "epochs", "passes over the data", type=int, metavar="N")
    option(training, "batch_size", "samples in a step, of all ranks", type=int, metavar="N")
    option(training, "drop_last", "leave out a last batch that is not full", action="store_true")
    option(training, "accumulate", "batches for one change of the weights", type=int, metavar="N")
    option(training, "optimizer", "method", choices=OPTIMIZERS)
    option(training, "lr", "learning rate", type=float)
    option(training, "weight_decay", "pull towards zero", type=float, metavar="W")
    option(training, "momentum", "of sgd", type=float, metavar="M")
    option(training, "schedule", "of the learning rate, by step", choices=SCHEDULES)
    option(training, "warmup", "steps in which the rate rises to its height", type=int,
           metavar="N")  # fmt: skip
    option(training, "label_smoothing", "part of the target spread over all classes", type=float,
           metavar="S")  # fmt: skip
    option(training, "class_weights", "'balanced', or a number for each class, with commas",
           metavar="W")  # fmt: skip
    option(training, "patience", "stop after so many epochs without a better validation",
           type=int, metavar="N")  # fmt: skip
    option(training, "keep", "the model is the best or the last epoch's (default: the best, with "
           "validation)", choices=KEEP)  # fmt: skip
    option(training, "precision", "of the layers that are trained; auto: bfloat16 where a GPU has "
           "it", choices=PRECISIONS)  # fmt: skip
    option(training, "seed", "of order, new layers, dropout, random transforms", type=int)
    option(training, "window", "shards shuffled together", type=int, metavar="W")

    work = parser.add_argument_group("work")
    option(work, "prefetch", "shards read ahead of the window (default: as the window)",
           type=int, metavar="N")  # fmt: skip
    option(work, "prefetch_bytes", "bound of the same in bytes", type=options.size, metavar="SIZE")
    option(work, "concurrency", "requests at once", type=int, metavar="N")
    option(work, "micro_batch", "samples the store runs at once", type=int, metavar="N")
    option(work, "dtype", "of features on the wire; float16 and int8 round them",
           choices=FEATURE_DTYPES)  # fmt: skip
    option(work, "encoding", "of features on the wire", choices=ENCODINGS)
    option(work, "threads", "torch's CPU threads (default: CPUs that do not decode)",
           type=int, metavar="N")  # fmt: skip
    option(work, "decode_threads", "decoders (default: half the CPUs)", type=int, metavar="N")
    option(work, "out", "directory for checkpoint and model", metavar="DIR")
    option(work, "resume", "go on from the checkpoint in --out", action="store_true")
    option(work, "overwrite", "begin anew in an --out that holds a run", action="store_true")
    option(work, "checkpoint_seconds", "between checkpoints", type=float, metavar="S")
    option(work, "tensorboard", "write events for TensorBoard below --out", action="store_true")
    option(work, "device", "to train on", choices=DEVICES)
    option(work, "require_pushdown", "fail rather than go on raw", action="store_true")


def config_of(args: argparse.Namespace):
    """The :class:`~hapi_compute.train.config.TrainConfig` that the options describe.

    :raises ValueError: an option is out of range
    """
    from hapi_compute.train.config import TrainConfig

    early.check_split(args.split)
    early.check_labels(args.labels)
    early.check_weights(args.weights)
    early.check_code("model", args.model)
    early.check_code("task", args.task, needed=True)
    names = [field.name for field in dataclasses.fields(TrainConfig)]
    given = {name: getattr(args, name) for name in names}
    for name in ("dataset", "test"):
        if given[name] is not None:
            given[name] = options.swift_url(given[name])
    return TrainConfig(**given)


def run(args: argparse.Namespace) -> int:
    from hapi_compute import train
    from hapi_compute.train.errors import OtherRankFailed
    from hapi_compute.train.progress import Progress, for_terminal

    first = os.environ.get("RANK", "0") == "0"
    try:
        with for_terminal() if first else Progress() as progress:
            if args.out is None:
                progress.note("the model will not be kept: there is no --out")
            report = train.run(config_of(args), options.client(args), progress)
    except OtherRankFailed:
        if first:
            raise
        return exit_codes.FAILED  # That rank says why.
    if not first:
        return exit_codes.OK
    # Where the JSON goes to stdout, nothing else may.
    print(report.table(), file=sys.stderr if args.json == "-" else sys.stdout)
    options.write_json(args.json, report.to_dict())
    return exit_codes.OK
