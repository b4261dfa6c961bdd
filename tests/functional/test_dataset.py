"""``SwiftDataset`` over a real Swift: the same batches for any number of ranks and workers."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
from collections import Counter

import pytest
import torch
from torch.utils.data import DataLoader

from hapi_compute import FeaturesOf, Reading, SwiftDataset
from hapi_compute.data.errors import DatasetError
from hapi_compute.models import load_model
from swift_hapi.graph.interpreter import Head
from swift_hapi.graph.split import build_transfer
from tests.functional.support import processes_naming, take_interrupts
from tests.functional.training import client_of, digit_folders, put

URL = "swift://datasets/d"
TRANSFORM = "resize=32x32, mean=(0.5), std=(0.25)"
BATCH = 6


@pytest.fixture(scope="module")
def store(cluster, tmp_path_factory):
    client = client_of(cluster)
    put(client, digit_folders(tmp_path_factory.mktemp("digits"), 300, 47), URL)
    return client


@pytest.fixture(scope="module")
def parts():
    module = load_model("resnet18", "random:5").module
    return build_transfer(module, "layer1", 10, 0, (3, 32, 32))


def dataset(store, **options) -> SwiftDataset:
    return SwiftDataset(URL, store, **{"batch_size": BATCH, "transform": TRANSFORM} | options)


def consume(data: SwiftDataset, steps: int | None = None, **options) -> list[dict]:
    """Batches of the rest of an epoch, as many of them as asked for."""
    found = []
    for batch in DataLoader(data, batch_size=None, **options):
        found.append(batch)
        if len(found) == steps:
            break
    return found


def keys(batches) -> list[str]:
    return [key for batch in batches for key in batch["key"]]


@pytest.fixture(scope="module")
def whole(store) -> list[dict]:
    """An epoch, read by one process alone."""
    data = dataset(store)
    data.set_epoch(1)
    return consume(data)


def test_an_epoch(store, whole):
    assert [batch["step"] for batch in whole] == list(range(8))
    assert [len(batch["key"]) for batch in whole] == [6] * 7 + [5]
    assert set(Counter(keys(whole)).values()) == {1} and len(keys(whole)) == 47
    assert whole[0]["data"].shape == (6, 3, 32, 32) and whole[0]["data"].dtype == torch.float32
    assert whole[0]["label"].dtype == torch.int64 and whole[-1]["total"] == 5
    # The folder that an image came from is its class.
    data = dataset(store)
    for batch in whole:
        for key, label in zip(batch["key"], batch["label"].tolist(), strict=True):
            assert data.classes[label] == key.split("/")[0]
    assert keys(consume(data)) != keys(whole) and len(data) == data.steps == 8


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_any_number_of_ranks_and_workers_makes_the_same_batches(store, whole, ranks, workers):
    data = [dataset(store, rank=rank, ranks=ranks) for rank in range(ranks)]
    for each in data:
        each.set_epoch(1)
    found = [consume(each, num_workers=workers) for each in data]
    for step, batches in enumerate(zip(*found, strict=True)):
        assert [k for b in batches for k in b["key"]] == whole[step]["key"]
        assert {b["step"] for b in batches} == {step}
        together = torch.cat([b["data"] for b in batches if len(b["key"])])
        assert torch.equal(together, whole[step]["data"])


def test_resuming_with_other_numbers(store, whole):
    """One state, whoever made it, leads on to the same batches for everybody."""
    data = dataset(store, rank=1, ranks=2)
    data.set_epoch(1)
    state = data.state_after(consume(data, 3, num_workers=2)[-1])
    assert (state["epoch"], state["step"]) == (1, 3)
    for ranks, workers in ((1, 0), (3, 2), (2, 1)):
        found = []
        for rank in range(ranks):
            again = dataset(store, rank=rank, ranks=ranks)
            again.load_state_dict(pickle.loads(pickle.dumps(state)))
            again.set_epoch(1)
            found.append(consume(again, num_workers=workers))
        for step, batches in enumerate(zip(*found, strict=True), 3):
            assert [k for b in batches for k in b["key"]] == whole[step]["key"]
        assert len(found[0]) == 5


def test_state_in_one_process(store, whole):
    data = dataset(store)
    data.set_epoch(1)
    batches = iter(data)
    for _ in range(4):
        next(batches)
    state = data.state_dict()
    batches.close()
    again = dataset(store)
    again.load_state_dict(state)
    assert keys(again) == keys(whole[4:])
    done = again.state_dict()
    assert done["step"] == 8
    again.load_state_dict(done)
    assert list(again) == []
    again.set_epoch(2)
    assert len(list(again)) == 8


def test_states_of_something_else_are_refused(store):
    state = dataset(store).state_dict()
    with pytest.raises(ValueError, match="another batch_size: 6, not 5"):
        dataset(store, batch_size=5).load_state_dict(state)
    with pytest.raises(ValueError, match="another seed"):
        dataset(store, seed=3).load_state_dict(state)


def test_drop_last(store, whole):
    data = [dataset(store, drop_last=True, rank=rank, ranks=2) for rank in range(2)]
    for each in data:
        each.set_epoch(1)
    found = [consume(each) for each in data]
    assert [len(each) for each in found] == [7, 7] and len(data[0]) == 7
    assert sorted(keys(found[0]) + keys(found[1])) == sorted(keys(whole[:7]))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_last_sample_for_two_ranks(store, parts, workers):
    """The one without it gets a part that a network can be run on."""
    extractor, rest = parts
    options = {"batch_size": 23, "features": FeaturesOf(extractor)}
    found = [
        consume(dataset(store, rank=rank, ranks=2, **options), num_workers=workers)
        for rank in range(2)
    ]
    assert [[len(b["key"]) for b in batches] for batches in found] == [[12, 12, 1], [11, 11, 0]]
    last = found[1][-1]
    assert (last["total"], last["step"]) == (1, 2)
    assert last["data"].shape[1:] == extractor.cuts[-1].shape
    rest.eval()
    losses = torch.nn.functional.cross_entropy(rest(last["data"]), last["label"], reduction="sum")
    losses.backward()
    assert losses.item() == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_instead_of_batches(store, whole, workers):
    for rank in range(2):
        data = dataset(store, batched=False, rank=rank, ranks=2)
        data.set_epoch(1)
        loader = DataLoader(data, batch_size=data.rank_batch_size, num_workers=workers)
        found = list(loader)
        assert len(found) == 8
        for batch, all_ranks in zip(found, whole, strict=True):
            half = -(-len(all_ranks["key"]) // 2)
            mine = all_ranks["key"][:half] if rank == 0 else all_ranks["key"][half:]
            assert list(batch["key"]) == mine
    with pytest.raises(ValueError, match="cannot be divided by 4"):
        _ = dataset(store, rank=0, ranks=4).rank_batch_size


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("batched", [True, False])
def test_stateful_data_loader(store, whole, workers, batched):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def loader():
        data = dataset(store, batched=batched)
        data.set_epoch(1)
        return stateful.StatefulDataLoader(
            data, batch_size=None if batched else BATCH, num_workers=workers
        )

    first = loader()
    batches = iter(first)
    seen = [next(batches) for _ in range(3)]
    state = pickle.loads(pickle.dumps(first.state_dict()))
    del batches
    again = loader()
    again.load_state_dict(state)
    assert keys(seen) + keys(again) == keys(whole)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_features_in_workers(store, whole, parts, method):
    extractor, _ = parts
    reading = Reading(concurrency=1, prefetch=1)
    features = FeaturesOf(extractor, required=True)
    data = dataset(store, features=features, reading=reading)
    data.set_epoch(1)
    found = consume(data, num_workers=2, multiprocessing_context=method)
    head = Head(extractor, extractor.cuts[-1])
    for batch, images in zip(found, whole, strict=True):
        assert batch["key"] == images["key"]
        expected = head(images["data"]).contiguous()
        torch.testing.assert_close(batch["data"], expected, rtol=1e-5, atol=1e-5)


def test_a_rank_gets_its_own_part_alone(store, parts):
    """Two ranks together receive the bytes of one, where features are asked for."""
    extractor, _ = parts
    received = []
    for ranks in (1, 2):
        bytes_ = samples = 0
        for rank in range(ranks):
            data = dataset(
                store, features=FeaturesOf(extractor), rank=rank, ranks=ranks, drop_last=True
            )
            consume(data)
            bytes_ += data.totals.bytes_received
            samples += data.totals.samples
        received.append((bytes_, samples))
    (bytes_1, samples_1), (bytes_2, samples_2) = received
    assert samples_1 == 47 and samples_2 <= 50 and bytes_2 < 1.15 * bytes_1


def test_foreign_tars_are_counted_when_asked(store):
    """Copies of the shards without a manifest."""
    store.put_container("foreign")
    for each in store.list("datasets", "d/"):
        if each.name.endswith(".tar"):
            body = store.get("datasets", each.name).body
            store.put("foreign", each.name, body, content_type="application/x-tar")
    options = {"batch_size": BATCH, "transform": TRANSFORM, "num_classes": 10}
    unknown = SwiftDataset("swift://foreign/d", store, **options)
    alone = consume(unknown)
    assert unknown.steps is None and len(keys(alone)) == 47
    with pytest.raises(DatasetError, match="count=True"):
        consume(unknown, num_workers=2)
    data = SwiftDataset("swift://foreign/d", store, count=True, **options)
    assert data.steps == 8 and keys(consume(data, num_workers=2)) == keys(alone)


def test_persistent_workers_are_refused(store):
    loader = DataLoader(dataset(store), batch_size=None, num_workers=1, persistent_workers=True)
    assert len(list(loader)) == 8
    with pytest.raises(RuntimeError, match="set_epoch"):
        list(loader)


def test_it_says_what_is_wrong(store):
    with pytest.raises(ValueError, match="batch_size=0"):
        dataset(store, batch_size=0)
    with pytest.raises(ValueError, match="rank=2: want 0 to 1"):
        dataset(store, rank=2, ranks=2)
    with pytest.raises(ValueError, match="together"):
        dataset(store, rank=2)
    with pytest.raises(ValueError, match="concurrency=0"):
        Reading(concurrency=0)


def test_interrupting_leaves_nothing_behind(cluster, store, tmp_path):
    """Ctrl-C reaches the whole process group, as in a terminal."""
    program = textwrap.dedent(
        f"""
        import sys
        from torch.utils.data import DataLoader
        from hapi_compute import Credentials, SwiftClient, SwiftDataset

        store = SwiftClient(Credentials({cluster.auth_url!r}, {cluster.user!r}, {cluster.key!r}))
        data = SwiftDataset({URL!r}, store, batch_size=2, transform={TRANSFORM!r})
        for epoch in range(10_000):
            data.set_epoch(epoch)
            for batch in DataLoader(data, batch_size=None, num_workers=2):
                print("batch", flush=True)
        """
    )
    path = tmp_path / "endless_program.py"
    path.write_text(program)
    before = set(os.listdir("/dev/shm"))
    process = subprocess.Popen(
        [sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, preexec_fn=take_interrupts,
    )  # fmt: skip
    for _ in range(30):
        assert process.stdout.readline() == "batch\n"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0 and "KeyboardInterrupt" in errors
    assert processes_naming(str(path)) == []
    new = set(os.listdir("/dev/shm")) - before
    assert not any(name.startswith(("torch_", "psm_", "sem.")) for name in new), new
