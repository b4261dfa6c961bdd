"""How many samples each shard has, where nobody wrote it down."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from hapi_compute.data.listing import Dataset, Shard
from hapi_compute.store.client import SwiftClient
from swift_hapi.protocol.errors import HapiError
from swift_hapi.protocol.limits import Limits
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
