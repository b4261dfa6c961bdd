"""``hapi demo``: the main job on an embedded Swift, unsplit and split, and how they compare."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hapi_compute.cli import exit_codes, options

HELP = "train on an embedded cluster, unsplit and split"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Boots a Swift of one machine with filter and engine, stores real labelled images in it, "
        "fine-tunes a pretrained network on them twice, without a split and with one, and says "
        "whether the two runs agree. Leaves nothing running."
    )
    parser.add_argument("--out", default="demo-out", metavar="DIR", help="results (demo-out)")
    parser.add_argument("--epochs", type=int, default=3, metavar="N", help="passes (3)")
    parser.add_argument("--seed", type=int, default=0, help="of order and new layers (0)")
    parser.add_argument(
        "--split", metavar="CUT", help="of the second run (the cut with the fewest bytes)"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the images")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from hapi_compute.demo.compare import RTOL, table
    from hapi_compute.demo.run import DemoConfig, LossesDiffer, quick, run_demo
    from hapi_compute.store.auth import Credentials
    from hapi_compute.train.progress import for_terminal

    started = time.monotonic()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    progress = for_terminal()

    def say(text: str) -> None:
        progress.note(f"[{time.monotonic() - started:5.1f} s] {text}")

    with tempfile.TemporaryDirectory(prefix="hapi-demo-") as work:
        config = DemoConfig(
            work_dir=Path(work, "photos"),
            out=out,
            epochs=args.epochs,
            seed=args.seed,
        )
        if args.split is not None:
            config = replace(config, split=args.split)
        if args.quick:
            config = quick(config)
        say("starting an embedded Swift (proxy, account, container, object, memcached, engine)")
        with _cluster(Path(work, "cluster"), out) as cluster:
            say(f"ready: {cluster.auth_url}")
            credentials = Credentials(
                auth_url=cluster.auth_url, user=cluster.user, key=cluster.key
            )
            try:
                report = run_demo(config, credentials, say, progress)
            except LossesDiffer as error:
                print(f"hapi demo: {error}", file=sys.stderr)
                return exit_codes.FAILED
    options.write_json(args.json, report)
    stream = sys.stderr if args.json == "-" else sys.stdout
    raw, split = report["runs"]
    received = [sum(e["bytes_received"] for e in r["epochs"]) for r in (raw, split)]
    print(
        "\nBoth tiers share this machine and its loopback: what follows shows equality and bytes, "
        f"not speed.\n\n{table(report['runs'])}\n\n"
        f"The two runs took the same {len(raw['step_losses'])} steps: their losses differ by at "
        f"most {report['largest_relative_loss_difference']:.1e} relatively (allowed: {RTOL:g}).\n"
        f"The split run brought {received[0] / max(received[1], 1):.1f} times fewer bytes over "
        "the network.\n"
        f"The trained network, a plain state dict: {out}/split/model.safetensors\n"
        f"{time.monotonic() - started:.0f} s in all",
        file=stream,
    )
    return exit_codes.OK


@contextmanager
def _cluster(where: Path, out: Path):
    """A cluster whose logs are kept beside the results when something goes wrong."""
    import shutil

    from swift_hapi.cluster import ClusterConfig, EmbeddedCluster

    try:
        with EmbeddedCluster(ClusterConfig(dir=where, engine_threads=1)) as cluster:
            yield cluster
    except BaseException:
        kept = out / "logs"
        if (where / "logs").is_dir():
            shutil.copytree(where / "logs", kept, dirs_exist_ok=True)
            print(f"hapi demo: the servers' logs are in {kept}", file=sys.stderr)
        raise
