"""Which way up a picture is, by its metadata: the tag of EXIF 2.3, 4.6.4, and its copies.

Nothing else is read of a block: a directory of 64 KiB may claim gigabytes. What is damaged says
nothing. The rules are those of ``PIL.ImageOps.exif_transpose``.
"""

from __future__ import annotations

import re
import struct
import zlib

UPRIGHT = 1
_TAG, _SHORT, _LONG, _BIG_TIFF = 0x0112, 3, 4, 43
_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')
_MOST = 1 << 20  #: bytes of a text that are looked at
PROFILE_KEY = b"Raw profile type exif\0"  #: as ImageMagick copies EXIF into a PNG's text
XMP_KEY = b"XML:com.adobe.xmp\0"


def of_exif(block: memoryview | bytes) -> int | None:
    """The orientation in a TIFF structure, with or without ``Exif`` in front of it."""
    if bytes(block[:6]) == b"Exif\0\0":
        block = block[6:]
    order = {b"II": "<", b"MM": ">"}.get(bytes(block[:2]))
    if order is None or len(block) < 8:
        return None
    magic, at = struct.unpack_from(order + "HI", block, 2)
    if magic == _BIG_TIFF or at + 2 > len(block):
        return None
    (count,) = struct.unpack_from(order + "H", block, at)
    for entry in range(at + 2, min(at + 2 + 12 * count, len(block) - 11), 12):
        tag, kind, values = struct.unpack_from(order + "HHI", block, entry)
        if tag == _TAG and values == 1 and kind in (_SHORT, _LONG):
            (value,) = struct.unpack_from(order + "HI"[kind == _LONG], block, entry + 8)
            return value
    return None


def of_xmp(document: memoryview | bytes) -> int | None:
    """The orientation in an XMP document."""
    found = _XMP.search(document[:_MOST])
    return int(found.group(1)) if found else None


def of_png_text(kind: bytes, content: memoryview) -> int | None:
    """The orientation in a text chunk of one of the two keys.

    :param kind: ``tEXt``, ``zTXt`` or ``iTXt``
    """
    key, _, text = bytes(content[:_MOST]).partition(b"\0")
    if kind == b"iTXt":
        packed, (_, _, text) = text[:1] != b"\0", (text[2:].split(b"\0", 2) + [b""] * 3)[:3]
    else:
        packed, text = kind == b"zTXt", text[1:] if kind == b"zTXt" else text
    if packed:
        try:
            text = zlib.decompressobj().decompress(text, _MOST)
        except zlib.error:
            return None
    if key + b"\0" == XMP_KEY:
        return of_xmp(text)
    # A line of nothing, one with the kind, one with the length, then hexadecimal.
    digits = b"".join(text.split(b"\n", 3)[3:]).translate(None, b" \n\r\t")
    try:
        return of_exif(bytes.fromhex(digits.decode("ascii")))
    except ValueError:
        return None
