"""Faults of a training run itself."""

from __future__ import annotations

from swift_hapi.protocol.errors import HapiError


class CheckpointMismatch(HapiError):
    """The checkpoint belongs to another run; the detail says what differs."""

    name = "checkpoint-mismatch"
    status = 409


class Diverged(HapiError):
    """The loss is no finite number any more."""

    name = "diverged"
    status = 422


class TaskFailed(HapiError):
    """A user's own task raised, or returned what it must not; the detail names its file."""

    name = "task-failed"
    status = 422


class OtherRankFailed(HapiError):
    """The first rank could not do what it does for all, or any other has ended; it tells why
    itself."""

    name = "other-rank-failed"
