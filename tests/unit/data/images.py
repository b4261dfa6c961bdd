"""Small pictures and class folders."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int, kind: str = "JPEG", side: int = 24) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 255, (side, side, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def class_folders(root: Path, classes: int = 3, each: int = 4) -> Path:
    """``root/class <n>/<i>.jpg`` and one png in each."""
    for label in range(classes):
        folder = root / f"class {label}"
        folder.mkdir(parents=True)
        for i in range(each):
            last = i == each - 1
            path = folder / f"{i}.{'png' if last else 'jpg'}"
            path.write_bytes(picture(label * 100 + i, "PNG" if last else "JPEG"))
    return root
