"""Real photos for benchmarks: crops of the two that scikit-learn ships, ~110 KB as JPEG."""

from __future__ import annotations

import io
import tarfile

import numpy as np
from PIL import Image

NAMES = ("china.jpg", "flower.jpg")


def photo(number: int, width: int = 500, height: int = 375, quality: int = 95) -> bytes:
    """The ``number``-th crop as a JPEG: which photo, where and mirrored or not follow from it."""
    from sklearn.datasets import load_sample_image

    pixels = load_sample_image(NAMES[number % len(NAMES)])
    rng = np.random.RandomState(number)
    top = rng.randint(pixels.shape[0] - height + 1)
    left = rng.randint(pixels.shape[1] - width + 1)
    crop = pixels[top : top + height, left : left + width]
    image = Image.fromarray(crop if number % 4 < 2 else np.ascontiguousarray(crop[:, ::-1]))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def tar(members: dict[str, bytes]) -> bytes:
    """A shard in WebDataset layout."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
