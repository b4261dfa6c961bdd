"""Faults of a dataset; each detail names the object and, where there is one, the sample."""

from __future__ import annotations

from swift_hapi.protocol.errors import HapiError


class DatasetError(HapiError):
    """The dataset cannot be used as it is."""

    name = "dataset"
    status = 422


class LabelMissing(DatasetError):
    """A sample to train on has no label, or one beyond the number of classes."""

    name = "label"


class BadSource(DatasetError):
    """A file that was to be uploaded is no image we can read."""

    name = "bad-source"
