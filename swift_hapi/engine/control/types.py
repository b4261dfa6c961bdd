"""What goes into the controller and what comes out of it. All sizes are bytes, times seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class DeviceSpec:
    """A device and what may be used of its memory.

    :param max_lanes: lanes that hold memory at once; None is as many as fit. Lanes that run at
        once share the device's time as the device pleases; with few of them the controller
        decides, by account, and their micro-batches are larger
    """

    name: str
    budget_bytes: int
    max_lanes: int | None = None

    def __post_init__(self):
        if self.budget_bytes <= 0:
            raise ValueError("budget_bytes must be above 0")
        if self.max_lanes is not None and self.max_lanes < 1:
            raise ValueError("max_lanes must be at least 1")


@dataclass(frozen=True)
class ControlConfig:
    """The controller's constants.

    :param depth: micro-batches of one lane under way: one in the network, the others decoding
    :param batch_wait: longest that an unfilled micro-batch waits for more samples
    :param batch_seconds: a micro-batch takes no longer, as far as measurements tell: who comes
        next waits for those under way. The least micro-batch may take ten times as long; until
        a sample has been measured, none may if it should take most_seconds
    :param places: requests admitted to one device
    :param room: requests that may wait to be admitted to one device
    :param input_share: part of the budget that objects' bytes may take
    :param output_share: part of the budget that responses may take (one larger response is
        taken when there is no other)
    :param turn_seconds: estimated service after which a lane makes way for lanes that wait
    :param turn_batches: micro-batches after which it does so in any case
    :param patience: micro-batches of others, times the lanes with work, after which a lane goes
        first whatever its accounts have had
    :param failure_growth: factor on a lane's per-sample bytes when an allocation failed
    :param grow_after: full micro-batches in a row after which a shrunk lane grows again
    :param single_tries: allocation failures of a lone sample after which its request is given up
    :param load_rate: bytes of weights a device loads per second (only to compare devices)
    :param max_retry_after: longest time a client is told to stay away
    """

    depth: int = 2
    batch_wait: float = 0.02
    batch_seconds: float = math.inf
    places: int = 64
    room: int = 64
    input_share: float = 0.25
    output_share: float = 0.25
    turn_seconds: float = 2.0
    turn_batches: int = 16
    patience: int = 16
    failure_growth: float = 1.25
    grow_after: int = 8
    single_tries: int = 3
    load_rate: float = 1e9
    max_retry_after: float = 60.0

    def __post_init__(self):
        for name in ("depth", "places", "turn_batches", "patience", "grow_after", "single_tries"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.room < 0 or self.batch_wait < 0:
            raise ValueError("room and batch_wait must not be negative")
        if not (0 < self.input_share < 1 and 0 < self.output_share < 1):
            raise ValueError("input_share and output_share must lie between 0 and 1")
        if self.batch_seconds <= 0:
            raise ValueError("batch_seconds must be above 0")
        if self.failure_growth < 1 or self.load_rate <= 0 or self.turn_seconds <= 0:
            raise ValueError("failure_growth >= 1, load_rate > 0 and turn_seconds > 0 are due")


@dataclass(frozen=True)
class LaneKey:
    """What samples must agree in to share a micro-batch.

    :param bound: the client's own limit on the micro-batch (``X-Hapi-Batch-Size``), 0 for none
    :param account: empty, or the only one that may use this lane
    :param pixels: decoded to uint8, not further
    """

    digest: str
    cut: str
    shape: tuple[int, ...]
    bound: int = 0
    account: str = ""
    pixels: bool = False


@dataclass(frozen=True)
class LaneSpec:
    """A lane's memory model and limits, as first known; the controller calibrates its own copy.

    :param weight_bytes: of the extractor; shared by all lanes of one digest on a device
    :param workspace_bytes: fixed cost of a micro-batch under way
    :param activation_bytes: per sample, while the network runs
    :param decoded_bytes: per sample, from decoding until the network is through
    :param sample_seconds: first guess of the time per sample, replaced by measurements
    :param most_seconds: longest that a sample may take, as far as known before it is measured
    :param padded: each micro-batch takes as long as the largest: none is made smaller to save time
    """

    key: LaneKey
    weight_bytes: int
    workspace_bytes: int
    activation_bytes: int
    decoded_bytes: int = 0
    b_min: int = 1
    b_max: int = 32
    sample_seconds: float = 0.05
    most_seconds: float = math.inf
    padded: bool = False

    def __post_init__(self):
        sizes = (self.weight_bytes, self.workspace_bytes, self.decoded_bytes)
        if min(sizes) < 0 or self.activation_bytes < 1:
            raise ValueError("sizes must not be negative, activation_bytes at least 1")
        if not 1 <= self.b_min <= self.b_max:
            raise ValueError("1 <= b_min <= b_max is due")
        if self.sample_seconds <= 0:
            raise ValueError("sample_seconds must be above 0")


@dataclass(frozen=True)
class Ticket:
    """A request as known before its bytes arrive.

    :param deadline: on the clock of ``now``
    :param digest: of the extractor, if known: lets placement prefer the device that has it
    :param seconds: estimated service, if known
    """

    id: str
    account: str
    input_bytes: int
    deadline: float = math.inf
    digest: str | None = None
    seconds: float = 0.0


class Answer(Enum):
    ADMITTED = "admitted"
    WAITING = "waiting"  # an Event tells when it is admitted, or seated
    LATER = "later"  # nothing is kept; come back after retry_after
    NEVER = "never"  # larger than this node will ever grant


@dataclass(frozen=True)
class Verdict:
    """Answer to an offer. ``reason`` is a sentence for whom is turned away."""

    answer: Answer
    device: int = -1
    retry_after: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Part:
    """``count`` samples of a request from position ``start`` on, in the order of the request."""

    request: str
    start: int
    count: int


@dataclass(frozen=True)
class Batch:
    """A micro-batch to run now. Its memory is reserved until it is reported done or failed.

    :param load: the weights are not on the device yet
    :param reserved_bytes: what this micro-batch added to the device's reservations
    """

    id: int
    device: int
    lane: LaneKey
    parts: tuple[Part, ...]
    size: int
    load: bool
    reserved_bytes: int


@dataclass(frozen=True)
class Pause:
    """Nothing to start. Ask again after the next call of any kind, or at ``until``."""

    until: float | None = None


class What(Enum):
    ADMITTED = "admitted"  # a waiting offer now holds its input bytes
    SEATED = "seated"  # a waiting request now holds its output bytes and is queued
    SHED = "shed"  # a queued request can no longer be served: answer it and depart
    EXPIRED = "expired"  # past its deadline: answer it and depart
    EVICT = "evict"  # drop these weights before anything else is allocated


@dataclass(frozen=True)
class Event:
    """``subject`` is a request's id, or a digest for EVICT."""

    what: What
    subject: str
    device: int
    reason: str = ""
