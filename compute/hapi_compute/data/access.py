"""How a process reads a dataset: its own connections, decoded samples or features.

Everything here can be pickled; connections are opened by the process that uses them.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from hapi_compute.data.inspection import tensor_shape
from hapi_compute.data.listing import Dataset
from hapi_compute.data.readers import FeatureReader, Pushdown, RawReader
from hapi_compute.data.shards import Reader
from hapi_compute.data.timings import Timings
from hapi_compute.store.client import SwiftClient
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.extractor import Extractor, extractor_bytes, load_extractor
from swift_hapi.graph.interpreter import Head
from swift_hapi.protocol.headers import FEATURE_DTYPES
from swift_hapi.protocol.transform import TransformSpec


@dataclass(frozen=True)
class FeaturesOf:
    """What to compute from the samples, in the store where it can be.

    :param extractor: frozen part of a model, as ``swift_hapi.graph.split.build_transfer`` makes it
    :param cut: name or index of the cut to have features of; None: the last, the freeze point
    :param micro_batch: samples that run at once, at most
    :param dtype: on the wire, ``float32``, ``float16`` or ``int8``; the latter two round
    :param encoding: content coding on the wire, ``identity`` or ``zstd``
    :param required: a store that cannot do it is an error
    """

    extractor: Extractor
    cut: str | None = None
    micro_batch: int = 32
    encoding: str = "identity"
    required: bool = False
    dtype: str = "float32"

    def __post_init__(self):
        if self.dtype not in FEATURE_DTYPES:
            raise ValueError(f"dtype={self.dtype!r}: want {' or '.join(FEATURE_DTYPES)}")

    def __getstate__(self) -> dict:
        # As the bytes of its file: modules bound to tensors do not travel.
        return {**self.__dict__, "extractor": extractor_bytes(self.extractor)}

    def __setstate__(self, state: dict) -> None:
        extractor = load_extractor(state["extractor"])
        for name, value in (state | {"extractor": extractor}).items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Reading:
    """How a process reads; has no influence on what it yields.

    :param concurrency: requests at once
    :param prefetch: shards read ahead of the window; None: as many as the window has
    :param prefetch_bytes: bound of the same in bytes
    :param decode_threads: None: one for every second CPU, one in a worker
    :param ahead: batches made ahead
    """

    concurrency: int = 2
    prefetch: int | None = None
    prefetch_bytes: int = 256 << 20
    decode_threads: int | None = None
    ahead: int = 2

    def __post_init__(self):
        for name in ("concurrency", "prefetch", "prefetch_bytes", "decode_threads", "ahead"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}: want 1 or more")


class Access:
    """Makes readers of one dataset's shards.

    :param store: client of the account that the dataset lies in; forked and spawned processes
        make their own from its credentials
    :param spec: transform of any epoch, None where samples are tensors
    :raises BadCut: ``features`` name a cut that the extractor does not have
    """

    def __init__(
        self,
        store: SwiftClient,
        listing: Dataset,
        num_classes: int,
        spec: TransformSpec | None,
        features: FeaturesOf | None,
    ):
        self._credentials, self._policy = store.credentials, store.retrier.policy
        self._client: tuple[int, SwiftClient | None] = (os.getpid(), store)
        self._container = listing.url.container
        self._num_classes = num_classes
        self._features = features
        self._input_shape = tensor_shape(store, listing) if spec is None else (3, *spec.size)
        self._model_container = None
        if features is not None:
            self.cut()
            self._model_container = _upload(features.extractor, store)

    def reader(self, pool: ThreadPoolExecutor) -> Reader:
        """:param pool: decodes where features cannot be had"""
        client, features = self._store(), self._features
        raw = RawReader(client, self._container, self._num_classes, Timings(client.occupancy))
        if features is None:
            return raw
        cut = self.cut()
        pushdown = Pushdown(
            features.extractor.digest, cut.name, cut.bytes, features.micro_batch,
            features.encoding, self._model_container, features.required, features.dtype,
            pixels=cut.index == 0,
        )  # fmt: skip
        head = Head(features.extractor, cut)

        def local_head(batch: np.ndarray) -> np.ndarray:
            return head(torch.from_numpy(batch)).contiguous().numpy()

        return FeatureReader(
            client, self._container, self._num_classes, pushdown, raw, local_head, pool,
            self._input_shape,
        )  # fmt: skip

    def shapes(self) -> dict[str | None, tuple[int, ...]]:
        """Of one sample at the cut; None: of a decoded one."""
        shapes: dict[str | None, tuple[int, ...]] = {None: self._input_shape}
        if self._features is not None:
            cut = self.cut()
            shapes[cut.name] = cut.shape
        return shapes

    @property
    def empty(self) -> np.ndarray:
        """No samples, in the shape that they are yielded in."""
        shape = self._input_shape if self._features is None else self.cut().shape
        return np.empty((0, *shape), dtype=np.float32)

    def cut(self) -> Cut:
        """Where features are taken, with its shape for this dataset's samples."""
        extractor, wanted = self._features.extractor, self._features.cut
        cuts = extractor.cuts_for(self._input_shape)
        return cuts[-1] if wanted is None else cuts[extractor.resolve(wanted).index]

    def _store(self) -> SwiftClient:
        pid, client = self._client
        if pid != os.getpid():
            client = SwiftClient(self._credentials, policy=self._policy)
            self._client = (os.getpid(), client)
        return client

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_client": (0, None)}


def _upload(extractor: Extractor, store: SwiftClient) -> str | None:
    from hapi_compute.train.upload_model import ensure_uploaded

    return ensure_uploaded(extractor, store)[0]
