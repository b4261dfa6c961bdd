"""Entry point of ``hapi``: one file per command, imported only when it is asked for.

A command module has ``HELP`` (one line), ``add_arguments(parser)`` and ``run(args) -> int``.
Heavy imports (torch, requests, ...) belong inside ``run``, so that ``hapi --help`` is quick.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback

from hapi_compute.cli import exit_codes, messages, options
from swift_hapi.protocol.errors import HapiError

#: command -> (module, one-line help)
COMMANDS = {
    "cluster": ("hapi_compute.cli.cluster", "run an embedded single-machine Swift"),
    "cuts": ("hapi_compute.cli.cuts", "list where a model can be cut"),
    "demo": ("hapi_compute.cli.demo", "train on an embedded cluster, unsplit and split"),
    "engine": ("hapi_compute.cli.engine", "look into an engine on this machine"),
    "eval": ("hapi_compute.cli.eval", "measure a trained model on a labelled container"),
    "export": ("hapi_compute.cli.export", "write a model's frozen part as an extractor file"),
    "extract": ("hapi_compute.cli.extract", "write the features of a whole dataset to a file"),
    "info": (
        "hapi_compute.cli.info",
        "say whether the cluster runs push-down, and within which limits",
    ),
    "ls": ("hapi_compute.cli.ls", "list containers, or the objects and datasets in one"),
    "models": (
        "hapi_compute.cli.models",
        "list models by name, with the weights there are for them",
    ),
    "plan": (
        "hapi_compute.cli.plan",
        "compare the ways to split a training run between store and trainer",
    ),
    "predict": (
        "hapi_compute.cli.predict",
        "label everything in a container with a trained model",
    ),
    "put": ("hapi_compute.cli.put", "pack images into shards and upload them"),
    "train": ("hapi_compute.cli.train", "fine-tune a pretrained model on images in Swift"),
    "verify": (
        "hapi_compute.cli.verify",
        "look at every byte of a dataset and say what is wrong with it",
    ),
}


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Parser of the whole tool, or, with ``command``, with that command's options filled in."""
    parser = argparse.ArgumentParser(
        prog="hapi",
        description="Transfer learning with the frozen part of the network run inside Swift.",
        epilog="'hapi COMMAND --help' tells more.",
    )
    parser.set_defaults(verbose=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, help_) in COMMANDS.items():
        sub = commands.add_parser(name, help=help_, description=help_)
        if name == command:
            importlib.import_module(module).add_arguments(sub)
    _add_verbose(parser)
    return parser


def _add_verbose(parser: argparse.ArgumentParser) -> None:
    """``-v`` at every place: before the command, behind it, behind an action of it."""
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="tracebacks of errors",
        default=argparse.SUPPRESS,  # A default would undo the -v of the parser before.
    )  # fmt: skip
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _add_verbose(inner)


def _under_flags(chosen: argparse.ArgumentParser, argv: list[str]) -> None:
    """Let the file of ``--config``, if any, speak for options that ``argv`` leaves out."""
    if "--config" not in chosen._option_string_actions:
        return
    from hapi_compute.cli import config_file

    path = config_file.config_path(argv)
    if path is not None:
        config_file.apply(chosen, path)


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    command = next((word for word in argv if not word.startswith("-")), None)
    parser = build_parser(command if command in COMMANDS else None)
    own = parser._subparsers._group_actions[0].choices.get(command, parser)
    try:
        if command in COMMANDS:
            _under_flags(own, argv)
        args = parser.parse_args(argv)
        options.check_target(getattr(args, "json", None), "--json")
        return importlib.import_module(COMMANDS[command][0]).run(args)
    except KeyboardInterrupt:
        print("hapi: interrupted", file=sys.stderr)
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone; keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.FAILED
    except (HapiError, OSError, ValueError) as error:
        if {"-v", "--verbose"} & set(argv):
            traceback.print_exc()
        print(f"hapi {command}: {messages.explained(error, own)}", file=sys.stderr)
        usage = isinstance(error, (ValueError, *messages.NOT_THERE))
        return exit_codes.USAGE if usage else exit_codes.FAILED


if __name__ == "__main__":
    sys.exit(main())
