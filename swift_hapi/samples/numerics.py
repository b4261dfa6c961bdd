"""Versions of the libraries that decide a decoded pixel."""

from __future__ import annotations

import PIL
from PIL import features


def versions() -> str:
    """``pillow=... libjpeg=...``: part of ``X-Hapi-Numerics`` and of every response's ETag."""
    if features.check_feature("libjpeg_turbo"):
        libjpeg = f"turbo-{features.version_feature('libjpeg_turbo')}"
    else:
        libjpeg = str(features.version_codec("jpg"))
    return f"pillow={PIL.__version__} libjpeg={libjpeg}"
