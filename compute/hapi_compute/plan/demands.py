"""From a few measurements to what every candidate asks of every stage. Pure functions.

The storage tier's time at a cut is what it took at the one cut that was probed, with the part
inside the network scaled by how long the compute tier takes to either cut: one probe tells how
fast the one tier is in terms of the other. Receiving is measured per byte; making and sending an
answer is taken to cost the storage tier as much per byte, in its own speed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hapi_compute.plan.candidates import Candidate
from hapi_compute.plan.costs import Demand
from hapi_compute.plan.profile import ComputeProfile


@dataclass(frozen=True)
class ObjectProfile:
    """Reading objects as they are.

    :param bytes: per sample
    :param latency: seconds from a request to its first byte
    :param request: CPU seconds per request on the compute tier
    :param receive: CPU seconds per byte beside that: checking, unpacking
    :param samples: per request
    :param bandwidth: bytes per second
    """

    bytes: float
    latency: float
    request: float
    receive: float
    samples: float
    bandwidth: float

    def receiving(self, bytes_: float) -> float:
        """CPU seconds of a sample of so many bytes."""
        return self.request / self.samples + self.receive * bytes_


@dataclass(frozen=True)
class StorageProfile:
    """The storage tier, probed at ``cut``.

    :param service: seconds per sample from request to answer, without waiting for others
    :param inference: the part of them inside the network
    :param overhead: bytes per sample beside the features (keys, labels, headers)
    """

    cut: str
    service: float
    inference: float
    overhead: float

    def ratio(self, compute: ComputeProfile) -> float:
        """The storage tier's seconds for one of the compute tier."""
        alone = compute.prefix[self.cut]
        return self.inference / alone if alone > 0 else 1.0


def demands(
    candidates: Iterable[Candidate],
    compute: ComputeProfile,
    objects: ObjectProfile,
    storage: StorageProfile | None,
    sizes: dict[str, int],
    threads: int,
    raw_threads: int,
) -> dict[str, Demand]:
    """By the candidates' names.

    :param storage: None where nothing was or can be computed there; push-downs are left out then
    :param sizes: bytes of one sample at each cut, as the candidates have them travel
    :param threads: torch's, with a push-down and while profiling; ``raw_threads``: without, where
        time is taken to grow as threads get fewer
    """
    found = {}
    for candidate in candidates:
        if candidate.cut is None:
            found[candidate.name] = Demand(
                storage=0.0,
                latency=objects.latency,
                bytes=objects.bytes,
                receive=objects.receiving(objects.bytes),
                decode=compute.decode,
                compute=(compute.frozen + compute.train) * threads / raw_threads,
                threads=raw_threads,
            )
        elif storage is not None:
            found[candidate.name] = _pushdown(
                candidate, compute, objects, storage, sizes, threads
            )
    return found


def _pushdown(
    candidate: Candidate,
    compute: ComputeProfile,
    objects: ObjectProfile,
    storage: StorageProfile,
    sizes: dict[str, int],
    threads: int,
) -> Demand:
    name = candidate.cut.name
    ratio = storage.ratio(compute)
    plain = sizes[name]
    wire = plain * squeezed(candidate, compute)
    per_byte = objects.receive * ratio
    service = (
        storage.service
        + ratio * (compute.prefix[name] - compute.prefix[storage.cut])
        + per_byte * (plain - sizes[storage.cut])
    )
    return Demand(
        # The probe's noise must not make a shallow cut free.
        storage=max(service, storage.service - storage.inference, 1e-9),
        latency=objects.latency,
        bytes=wire + storage.overhead,
        receive=objects.receiving(plain),
        decode=compute.normalise if candidate.dtype == "uint8" else 0.0,
        compute=compute.frozen - compute.prefix[name] + compute.train,
        threads=threads,
    )


def squeezed(candidate: Candidate, compute: ComputeProfile) -> float:
    """Bytes on the wire as a part of those without content coding."""
    # Pixels of photos hardly get smaller.
    if candidate.encoding == "identity" or candidate.dtype == "uint8":
        return 1.0
    return compute.squeezed[candidate.cut.name]
