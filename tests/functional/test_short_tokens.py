"""A run of more than two minutes with tokens of twenty seconds."""

from __future__ import annotations

import time

import numpy as np
import pytest

from hapi_compute.train.progress import Progress
from swift_hapi.cluster import ClusterConfig, EmbeddedCluster
from tests.functional.training import RTOL, client_of, digit_folders, put, run

URL = "swift://tokens/train"
LIFE, SECONDS, EPOCHS = 20, 130.0, 40
OPTIONS = {"freeze_at": "avgpool", "lr": 1e-4, "val_split": 0.2}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    config = ClusterConfig(
        dir=tmp_path_factory.mktemp("short"), token_life=LIFE,
        engine_conf=(("measure_memory", "false"),),
    )  # fmt: skip
    with EmbeddedCluster(config) as running:
        # No second try: whatever a token's end would break shows.
        client = client_of(running, attempts=1)
        put(client, digit_folders(tmp_path_factory.mktemp("digits"), 900, 60), URL)
        yield client


class Paced(Progress):
    """The run takes ``SECONDS`` at least, however fast the machine; notes the tokens in use."""

    def __init__(self, store, steps: int):
        self._store = store
        self._pause = SECONDS / steps
        self._begun = time.monotonic()
        self.tokens: list[str] = []

    def step(self, epoch: int, step: int, loss: float) -> None:
        token = self._store._auth.grant().token
        if token not in self.tokens:
            self.tokens.append(token)
        due = self._begun + self._pause * (step + 1)
        time.sleep(max(0.0, due - time.monotonic()))


@pytest.mark.slow
def test_no_token_that_ends_is_noticed(store):
    alone = run(store, URL, **OPTIONS, split="raw", epochs=2)
    steps = EPOCHS * len(alone.step_losses) // 2
    progress = Paced(store, steps)
    # Read as late as possible, so that requests come all the time.
    report = run(
        store, URL, progress, **OPTIONS, split="add_4", require_pushdown=True, epochs=EPOCHS,
        prefetch=1, concurrency=1,
    )  # fmt: skip
    found = report.to_dict()
    print(
        f"{found['timings']['total']:.0f} s, {len(report.step_losses)} steps, "
        f"{found['requests']} requests, {len(progress.tokens)} tokens, {found['logins']} logins, "
        f"{found['retries']} retries, {found['fallbacks']} fallbacks"
    )
    assert len(report.step_losses) == steps and found["timings"]["total"] >= SECONDS - 1
    assert len(progress.tokens) >= SECONDS // LIFE and found["logins"] >= SECONDS // LIFE
    assert (found["retries"], found["fallbacks"]) == (0, 0)
    np.testing.assert_allclose(
        report.step_losses[: len(alone.step_losses)], alone.step_losses, rtol=RTOL
    )
