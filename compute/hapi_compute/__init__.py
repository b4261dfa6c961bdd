"""The compute tier: data from Swift, with the frozen part of a network run beside it.

What is public is imported when it is asked for, so that the command line answers without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hapi_compute.data.access import FeaturesOf, Reading
    from hapi_compute.data.dataset import SwiftDataset
    from hapi_compute.store.auth import Credentials
    from hapi_compute.store.client import SwiftClient
    from hapi_compute.train.hook import TrainingTask

_WHERE = {
    "Credentials": "hapi_compute.store.auth",
    "FeaturesOf": "hapi_compute.data.access",
    "Reading": "hapi_compute.data.access",
    "SwiftClient": "hapi_compute.store.client",
    "SwiftDataset": "hapi_compute.data.dataset",
    "TrainingTask": "hapi_compute.train.hook",
}

__all__ = [
    "Credentials", "FeaturesOf", "Reading", "SwiftClient", "SwiftDataset", "TrainingTask",
]  # fmt: skip


def __getattr__(name: str):
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)
