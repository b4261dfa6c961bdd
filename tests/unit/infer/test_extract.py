"""Extraction from a store without a filter; with one, see tests/functional."""

from __future__ import annotations

import numpy as np
import pytest

from hapi_compute.infer.config import ScanConfig
from hapi_compute.infer.extract import ExtractConfig, extract
from hapi_compute.store.errors import Overwritten, PushdownUnavailable


def config(out, **scan) -> ExtractConfig:
    options = {"threads": 1, "decode_threads": 1, "micro_batch": 2, "concurrency": 1}
    return ExtractConfig(
        ScanConfig("swift://c/d", **options | scan), "squeezenet1_1", "features.2", str(out),
        "random:1", "resize=48x48, mean=(0.5), std=(0.5)",
    )  # fmt: skip


def test_a_run_that_broke_off_goes_on_where_it_was(swift, store, tars, tmp_path):
    whole = extract(config(tmp_path / "whole.npy"), store)
    assert (whole.samples, whole.shards, whole.fallbacks, whole.unlabelled) == (8, 3, 3, 0)
    broken, last = tmp_path / "broken.npy", swift.containers["c"]["d/2.tar"].body
    seen_before = swift.seen["GET", "/v1/AUTH_test/c/d/0.tar"]

    def change(done: int, total: int) -> None:
        # The listing is pinned: the last shard is not the one listed any more.
        if done == 1:
            swift.put("c", "d/2.tar", b"other")

    with pytest.raises(Overwritten, match="c/d/2.tar"):
        extract(config(broken, prefetch=1), store, change)
    assert not broken.exists()
    swift.put("c", "d/2.tar", last)
    report = extract(config(broken), store)
    assert report.resumed == 4
    assert swift.seen["GET", "/v1/AUTH_test/c/d/0.tar"] == seen_before + 1
    # The JSON names its own file.
    assert broken.read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert np.load(broken).shape == (8, *whole.shape[1:])
    assert extract(config(broken), store).resumed == 8


def test_pushdown_can_be_required(store, tars, tmp_path):
    with pytest.raises(PushdownUnavailable, match="no hapi filter"):
        extract(config(tmp_path / "f.npy", require_pushdown=True), store)
    assert list(tmp_path.iterdir()) == []
