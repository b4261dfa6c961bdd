"""Small real images and tars for tests."""

from __future__ import annotations

import io
import tarfile

import numpy as np
from PIL import Image


def picture(width=90, height=70, seed=0) -> Image.Image:
    """A smooth colour picture with some noise, so that every filter has work to do."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    base = np.stack([x * 255 / width, y * 255 / height, (x + y) % 256], axis=-1)
    noisy = np.clip(base + rng.normal(0, 12, base.shape), 0, 255)
    return Image.fromarray(noisy.astype(np.uint8), "RGB")


def encode(image: Image.Image, format_="JPEG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format_, **options)
    return buffer.getvalue()


def tar(members: dict[str, bytes] | list[tuple[str, bytes]]) -> bytes:
    pairs = members.items() if isinstance(members, dict) else members
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in pairs:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
