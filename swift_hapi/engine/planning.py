"""What a feature request asks to be computed, found out before its body is asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from swift_hapi.engine import sizing
from swift_hapi.engine.ask import Ask, check_dtype
from swift_hapi.engine.control import LaneKey
from swift_hapi.engine.engine import Engine
from swift_hapi.engine.lane import Lane
from swift_hapi.engine.loaded import LoadedModel
from swift_hapi.engine.model_files import OPERATOR, ModelFile
from swift_hapi.engine.sizing import Footprint
from swift_hapi.graph.cuts import Cut


@dataclass(frozen=True)
class Plan:
    """What is to be computed, for samples of one shape, and where it queues."""

    shape: tuple[int, ...]
    dtype: np.dtype
    cut: Cut
    footprint: Footprint
    lane: Lane
    ids_below: int | None


async def make_plan(
    engine: Engine, ask: Ask, file: ModelFile, model: LoadedModel, shape: tuple[int, ...]
) -> Plan:
    """:param shape: of one decoded sample
    :raises BadCut: the split names no cut
    :raises BadHeader: what lies at the cut cannot travel as the dtype
    :raises BadTransform: the shape does not suit the model
    :raises TooLarge: not even one sample fits into memory
    :raises EngineBusy: the account has too much of this to be found out
    """
    request = ask.request
    cut = await model.cut(request.split, shape)
    check_dtype(request, cut)
    pixels = request.dtype == "uint8"
    footprint = await model.footprint(cut, shape)
    # Strangers share a micro-batch only in networks that are known not to mix samples.
    shared = file.scope == OPERATOR or model.row_independent
    runs = cut.index > 0
    key = LaneKey(
        model.digest,
        cut.name,
        shape,
        sizing.bound(request.batch_size, engine.batches),
        "" if shared or not runs else ask.account,
        pixels,
    )
    spec, padded = sizing.lane_spec(
        key,
        model.weight_bytes if runs else 0,
        footprint,
        engine.batches,
        engine.driver.never_runs,
        model.most_seconds(shape) if runs else 0.0,
    )
    lane = Lane(spec, file, cut if runs else None, padded, footprint.head)
    dtype = np.dtype(np.uint8) if pixels else model.input_dtype
    return Plan(shape, dtype, cut, footprint, lane, model.ids_below)
