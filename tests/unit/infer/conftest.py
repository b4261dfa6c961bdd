from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from hapi_compute.data.packing import build_tar


def jpeg(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG")
    return stream.getvalue()


@pytest.fixture
def tars(swift) -> None:
    """Container ``c`` with shards of 3, 1 and 4 labelled images below ``d/``."""
    number = 0
    for shard, count in enumerate((3, 1, 4)):
        samples = []
        for _ in range(count):
            samples.append((f"k/{number}", "jpg", number % 3, jpeg(number)))
            number += 1
        swift.put("c", f"d/{shard}.tar", build_tar(samples))
