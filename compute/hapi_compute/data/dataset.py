"""``SwiftDataset``: a dataset in Swift for PyTorch's ``DataLoader``.

::

    from torch.utils.data import DataLoader
    from hapi_compute import SwiftDataset

    dataset = SwiftDataset("swift://pets/train", store, batch_size=64,
                           transform="resize=256, crop=224")
    for epoch in range(3):
        dataset.set_epoch(epoch)
        for batch in DataLoader(dataset, batch_size=None, num_workers=2):
            batch["data"], batch["label"], batch["key"]

The batches of an epoch depend on seed, epoch, listing, window and batch size alone. With several
ranks each gets its part of every batch, and equally many steps; with several workers each makes
whole steps in turn. What was consumed is told by ``(epoch, step)``, so a run may be resumed with
other numbers of ranks and workers, and continues with the very next batch.

Every process opens its own connections when it first iterates. One process decodes in several
threads and reads ahead, so ``num_workers=0`` is fast already; each further worker reads all the
shards of its rank once more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset, get_worker_info

from hapi_compute.data.access import Access, FeaturesOf, Reading
from hapi_compute.data.batches import Batch, EpochTotals, Loader
from hapi_compute.data.fetcher import Fetcher
from hapi_compute.data.inspection import counted
from hapi_compute.data.listing import Dataset, pin
from hapi_compute.data.windows import Layout, Share, training_windows
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.names import SwiftUrl
from hapi_compute.train.config import training_transform

_VERSION = 1


class SwiftDataset(IterableDataset):
    """Yields batches ``{"data", "label", "key", "epoch", "step", "total"}``: data float32
    [n, ...], labels int64 [n], n keys; ``total`` is the size of the batch over all ranks.

    Use ``DataLoader(dataset, batch_size=None)``; or, with ``batched=False``, which yields samples,
    ``batch_size=dataset.rank_batch_size``.

    :param url: ``swift://container/prefix``
    :param store: client of the account that the dataset lies in
    :param batch_size: samples of a step, over all ranks
    :param transform: grammar of ``X-Hapi-Transform``; None where samples are tensors. Seed and
        epoch of random steps are filled in
    :param features: yield features instead of decoded samples
    :param shuffle: False keeps the order of the listing
    :param window: shards shuffled together
    :param drop_last: leave out a last batch that is not full. Otherwise its samples are divided
        among the ranks; if there are fewer than ranks, some get an empty part (with
        ``batched=False`` none at all, so that they make a step less)
    :param num_classes: for tar shards without a manifest
    :param labels: as :func:`hapi_compute.data.listing.pin` takes it
    :param count: where there is no manifest that tells how many samples a shard has, read all of
        them once to count: several ranks or workers have to know
    :param rank: of ``ranks``; None: as ``torch.distributed`` says once iteration begins, one of
        one if it is not initialised
    :raises ValueError: an option is out of range
    :raises HapiError: what listing the dataset raised
    """

    def __init__(
        self,
        url: str,
        store: SwiftClient,
        *,
        batch_size: int,
        transform: str | None = None,
        features: FeaturesOf | None = None,
        seed: int = 0,
        shuffle: bool = True,
        window: int = 4,
        drop_last: bool = False,
        batched: bool = True,
        num_classes: int | None = None,
        labels: str | None = None,
        count: bool = False,
        rank: int | None = None,
        ranks: int | None = None,
        reading: Reading | None = None,
    ):
        for name, value in (("batch_size", batch_size), ("window", window)):
            if value < 1:
                raise ValueError(f"{name}={value}: want 1 or more")
        if (rank is None) != (ranks is None):
            raise ValueError("give rank and ranks together, or neither")
        if rank is not None:
            Share(rank, ranks)
        self.listing: Dataset = pin(store, SwiftUrl.parse(url), num_classes, labels)
        if count:
            self.listing = counted(self.listing, store)
        self.classes = self.listing.classes
        self.batch_size = batch_size
        self.batched = batched
        self._transform = transform
        self._seed = seed
        self._shuffle = shuffle
        self._window = window
        self._drop_last = drop_last
        self._ranks = None if rank is None else (rank, ranks)
        self._reading = reading or Reading()
        spec = training_transform(transform, seed, 0)
        self._access = Access(
            store, self.listing, num_classes or len(self.classes), spec, features
        )
        #: where the next iteration begins, and where the running one is
        self._start = {"epoch": 0, "step": 0}
        self._position = dict(self._start)
        self._iterated = 0  #: the worker process that has iterated already
        #: what the last epoch that ended in this process has read
        self.totals = EpochTotals()

    @property
    def rank_batch_size(self) -> int:
        """Samples of this rank in a full batch.

        :raises ValueError: the batch size cannot be divided by the number of ranks
        """
        _, ranks = self._rank_of()
        if self.batch_size % ranks:
            raise ValueError(f"batch_size={self.batch_size} cannot be divided by {ranks} ranks")
        return self.batch_size // ranks

    @property
    def steps(self) -> int | None:
        """Steps of an epoch, the same on every rank; None when not known beforehand."""
        return self._layout(Share(*self._rank_of())).step_count

    def __len__(self) -> int:
        """Batches of an epoch, or samples of this rank with ``batched=False``."""
        layout = self._layout(Share(*self._rank_of()))
        if layout.step_count is None:
            raise TypeError("the number of samples is not known beforehand")
        if self.batched:
            return layout.step_count
        return sum(step.own for step in layout.steps(0))

    def set_epoch(self, epoch: int) -> None:
        """Begin ``epoch`` next; where it is the one that a loaded state is in, go on in it."""
        if epoch < 0:
            raise ValueError(f"epoch={epoch}: want 0 or more")
        if epoch != self._start["epoch"]:
            self._start = {"epoch": epoch, "step": 0}
        self._position = dict(self._start)

    def state_dict(self) -> dict:
        """Where the iteration in this process is: after the batch it has yielded last.

        Where workers iterate, the process that uses the batches has none of its own to tell of:
        there :meth:`state_after` is what to save.
        """
        return {**self._position, **self._identity()}

    def state_after(self, batch: dict) -> dict:
        """The state in which ``batch`` and all before it have been consumed, on whatever ranks
        and by whatever workers."""
        position = {"epoch": int(batch["epoch"]), "step": int(batch["step"]) + 1}
        return {**position, **self._identity()}

    def load_state_dict(self, state: dict) -> None:
        """Go on from there.

        :raises ValueError: it is the state of another dataset, order or batch size
        """
        wanted = self._identity()
        for name, value in wanted.items():
            if state.get(name) != value:
                raise ValueError(f"state of another {name}: {state.get(name)!r}, not {value!r}")
        self._start = {"epoch": int(state["epoch"]), "step": int(state["step"])}
        self._start |= {name: state[name] for name in ("sample", "worker") if name in state}
        self._position = dict(self._start)

    def __iter__(self) -> Iterator[dict]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        if info is not None:
            if self._iterated == os.getpid():
                raise RuntimeError(
                    "persistent_workers=True: a worker that goes on does not learn of set_epoch; "
                    "use persistent_workers=False"
                )
            self._iterated = os.getpid()
        start = dict(self._start)
        first = start["step"]
        if "worker" in start:
            # Of a worker's own state, which StatefulDataLoader saved: it has its turns still.
            saved, first = tuple(start["worker"][:2]), start["worker"][2]
            if saved != (worker, workers):
                raise ValueError(f"state of worker {saved[0]} of {saved[1]}, not of this one")
        share = Share(*self._rank_of(), worker, workers, first)
        turn = {} if info is None else {"worker": (worker, workers, first)}
        batches = self._batches(share, start["epoch"], start["step"])
        skip = start.get("sample", 0)
        try:
            for batch in batches:
                here = {"epoch": start["epoch"], "step": batch.step, **turn}
                after = {**here, "step": batch.step + 1}
                if self.batched:
                    self._position = after
                    data = batch.data if batch.parts else self._access.empty
                    yield _as_dict(
                        batch.step, batch.total, start["epoch"], data,
                        torch.from_numpy(batch.labels), list(batch.keys),
                    )  # fmt: skip
                    continue
                for sample in range(skip, len(batch.labels)):
                    last = sample + 1 == len(batch.labels)
                    self._position = after if last else {**here, "sample": sample + 1}
                    yield _as_dict(
                        batch.step, batch.total, start["epoch"], batch.data[sample],
                        int(batch.labels[sample]), batch.keys[sample],
                    )  # fmt: skip
                skip = 0
        finally:
            batches.close()

    def _batches(self, share: Share, epoch: int, step: int) -> Iterator[Batch]:
        layout = self._layout(share)
        if layout.step_count is not None and step >= layout.step_count:
            return
        seed = self._seed if self._shuffle else None
        windows = training_windows(
            self.listing, seed, epoch, self._window, step * self.batch_size
        )
        spec = training_transform(self._transform, self._seed, epoch)
        reading = self._reading
        prefetch = reading.prefetch or self._window
        if self.listing.single:
            prefetch = max(prefetch, 2 * self.batch_size)
        threads = reading.decode_threads or _decode_threads(share)
        with ThreadPoolExecutor(threads, thread_name_prefix="hapi-decode") as pool:
            fetcher = Fetcher(
                layout.jobs(windows, lambda _: spec),
                self._access.reader(pool),
                concurrency=reading.concurrency,
                prefetch=prefetch,
                max_bytes=reading.prefetch_bytes,
            )
            with Loader(
                windows, fetcher, layout, shape_of=self._access.shapes().__getitem__, pool=pool,
                ahead=reading.ahead,
            ) as loader:  # fmt: skip
                yield from loader.epoch()
                self.totals = loader.totals

    def _layout(self, share: Share) -> Layout:
        return Layout(self.batch_size, self.listing.samples, share, self._drop_last)

    def _rank_of(self) -> tuple[int, int]:
        if self._ranks is not None:
            return self._ranks
        if dist.is_available() and dist.is_initialized():
            return dist.get_rank(), dist.get_world_size()
        return 0, 1

    def _identity(self) -> dict:
        """What must be equal for a state to mean the same batches."""
        return {
            "version": _VERSION,
            "dataset": self.listing.digest,
            "batch_size": self.batch_size,
            "seed": self._seed,
            "window": self._window,
            "shuffle": self._shuffle,
            "drop_last": self._drop_last,
        }

    def __getstate__(self) -> dict:
        # A spawned worker knows nothing of torch.distributed.
        return {**self.__dict__, "_ranks": self._rank_of()}


def _decode_threads(share: Share) -> int:
    if share.workers > 1 or get_worker_info() is not None:
        return 1
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, count // 2)


def _as_dict(step: int, total: int, epoch: int, data: np.ndarray, label, key) -> dict:
    return {
        "data": torch.from_numpy(data), "label": label, "key": key,
        "epoch": epoch, "step": step, "total": total,
    }  # fmt: skip
