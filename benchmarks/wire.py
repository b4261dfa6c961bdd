"""What a narrower wire costs and saves: one training run for each dtype, content coding and cut.

Digits (MNIST) and EfficientNet-Lite0 with ImageNet's weights, as in ``hapi demo``; bytes received,
the largest difference of a loss to that of float32, and the accuracy on held-out images.

    python -m benchmarks.wire --json out.json [--quick]
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.common import table, write_json
from hapi_compute.data.uploader import PutConfig, upload
from hapi_compute.demo.images import write_digits
from hapi_compute.demo.run import CONTAINER, DemoConfig, quick, training_config
from hapi_compute.store.auth import Credentials
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.names import SwiftUrl
from hapi_compute.train import run as train
from swift_hapi.cluster import ClusterConfig, EmbeddedCluster
from swift_hapi.protocol.headers import ENCODINGS, FEATURE_DTYPES

#: raw and pixels, which lose nothing; early with many bytes, in the middle, and the last
CUTS = ("raw", "input", "bn1_act", "add", "add_2", "global_pool_pool")


def measure(config: DemoConfig, store: SwiftClient, cuts: list[str]) -> list[dict]:
    cases: list[dict] = []
    for cut, dtype, encoding in itertools.product(cuts, FEATURE_DTYPES, ENCODINGS):
        if cut in ("raw", "input") and (dtype, encoding) != (FEATURE_DTYPES[0], ENCODINGS[0]):
            continue
        options = training_config(config, cut)
        report = train(replace(options, out=None, dtype=dtype, encoding=encoding), store)
        losses, bytes_ = report.step_losses, sum(e.bytes_received for e in report.epochs)
        first = next((case for case in cases if case["cut"] == cut), None)
        cases.append(
            {
                "cut": cut,
                "dtype": dtype,
                "encoding": encoding,
                "bytes_per_sample": bytes_ / config.train / config.epochs,
                "share": 1.0 if first is None else bytes_ / first["_bytes"],
                "loss_difference": 0.0 if first is None else max(
                    abs(a - b) / abs(b) for a, b in zip(losses, first["_losses"], strict=True)
                ),
                "accuracy": report.test_accuracy,
                "_bytes": bytes_,
                "_losses": losses,
            }
        )
        print(table([_shown(cases[-1])]), flush=True)
    return [_shown(case) for case in cases]


def _shown(case: dict) -> dict:
    return {key: value for key, value in case.items() if not key.startswith("_")}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wire", description=__doc__)
    parser.add_argument("--json", metavar="PATH")
    parser.add_argument("--quick", action="store_true", help="a tenth of the images")
    parser.add_argument("--cuts", nargs="+", default=list(CUTS))
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="hapi-wire-") as work:
        config = DemoConfig(Path(work, "photos"), Path(work, "out"), epochs=2)
        config = quick(config) if args.quick else config
        with EmbeddedCluster(ClusterConfig(dir=Path(work, "swift"), engine_threads=1)) as cluster:
            store = SwiftClient(Credentials(cluster.auth_url, cluster.user, cluster.key))
            for folder in write_digits(config.work_dir, config.train, config.test):
                target = SwiftUrl.parse(f"swift://{CONTAINER}/{folder.name}")
                upload(PutConfig(folder, target, shard_samples=config.shard_samples), store)
            cases = measure(config, store, args.cuts)
    print(table(cases))
    summary = {
        "worst_loss_difference": {
            dtype: max(case["loss_difference"] for case in cases if case["dtype"] == dtype)
            for dtype in FEATURE_DTYPES
        },
        "accuracies": sorted({case["accuracy"] for case in cases}),
    }
    for key, value in summary.items():
        print(f"{key}: {value}")
    write_json(args.json, "wire", cases, summary)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
