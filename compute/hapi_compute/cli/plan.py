"""``hapi plan swift://container/prefix``: what every split would cost, measured."""

from __future__ import annotations

import argparse
import io
import sys

from hapi_compute.cli import config_file, exit_codes, options

HELP = "compare the ways to split a training run between store and trainer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from hapi_compute.cli import train

    train.add_run_arguments(parser)
    parser.add_argument(
        "--plot", metavar="PATH", help="draw the stages of every candidate (PNG; needs matplotlib)"
    )
    config_file.add_config(parser)
    options.add_json(parser)
    options.add_auth(parser)


def run(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from hapi_compute.cli.train import config_of
    from hapi_compute.plan import plot, table
    from hapi_compute.train.config import AUTO
    from hapi_compute.train.files import write_whole
    from hapi_compute.train.job import running
    from hapi_compute.train.progress import for_terminal

    if args.plot is not None:
        plot.check()
        options.check_target(args.plot, "--plot")
    config = replace(config_of(args), split=AUTO, out=None, resume=False, tensorboard=False)
    with for_terminal() as progress, running(config, options.client(args), progress) as job:
        document = job.plan().plan.to_dict()
    out = sys.stderr if args.json == "-" else sys.stdout
    print(table.render(document), file=out)
    if args.plot is not None:
        picture = io.BytesIO()
        plot.draw(document, picture)
        write_whole(args.plot, picture.getvalue())
    options.write_json(args.json, document)
    return exit_codes.OK
