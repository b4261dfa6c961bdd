"""What only the objects themselves tell: the shape of tensors, and how many samples there are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from hapi_compute.data.listing import Dataset, Shard
from hapi_compute.store.client import SwiftClient
from swift_hapi.protocol.errors import HapiError
from swift_hapi.protocol.headers import SampleRange
from swift_hapi.protocol.limits import Limits
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.shard import read_shard


def counted(dataset: Dataset, store: SwiftClient, concurrency: int = 4) -> Dataset:
    """The dataset with every shard's number of samples; shards that lack it are read whole.

    :raises HapiError: a shard cannot be read
    """
    container = dataset.url.container

    def count(shard: Shard) -> Shard:
        if shard.samples is not None:
            return shard
        body = store.get(container, shard.name, if_match=shard.etag).body
        try:
            total = read_shard(body, shard.name, Limits()).total
        except HapiError as error:
            where = f"{container}/{shard.name}"
            raise type(error)(f"{where}: {error.detail}", **error.members) from None
        return replace(shard, samples=total)

    with ThreadPoolExecutor(concurrency, thread_name_prefix="hapi-count") as pool:
        return replace(dataset, shards=tuple(pool.map(count, dataset.shards)))


def tensor_shape(client: SwiftClient, dataset: Dataset) -> tuple[int, ...]:
    """Shape of a dataset's first sample, for datasets of tensors: nothing else tells it.

    :raises HapiError: the sample is an image, or damaged
    """
    container, shard = dataset.url.container, dataset.shards[0]
    body = client.get(container, shard.name, if_match=shard.etag).body
    contents = read_shard(body, shard.name, Limits(), SampleRange(0, 0))
    try:
        return decode_sample(contents.samples[0], None, Limits()).shape
    except HapiError as error:
        where = f"{container}/{shard.name}"
        raise type(error)(f"{where}: {error.detail}", **error.members) from None
