"""Small files that cost decoders much."""

from __future__ import annotations

import struct
import zlib


def segment(code: int, content: bytes = b"") -> bytes:
    return bytes([0xFF, code]) + struct.pack(">H", len(content) + 2) + content


def chunk(kind: bytes, content: bytes = b"") -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


def into_jpeg(jpeg: bytes, more: bytes) -> bytes:
    """``more`` right behind the start of the image."""
    return jpeg[:2] + more + jpeg[2:]


def into_png(png: bytes, more: bytes) -> bytes:
    """``more`` right behind the header."""
    return png[:33] + more + png[33:]


def _bits(*groups: tuple[int, int]) -> bytes:
    """(value, width), ones up to the next byte, and zeros stuffed."""
    text = "".join(f"{value:0{width}b}" for value, width in groups)
    text += "1" * (-len(text) % 8)
    return int(text, 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\0")


def scans(width: int, height: int, count: int) -> bytes:
    """A grey progressive JPEG of ``count`` scans, all of which but the first code nothing."""
    blocks = -(-width // 8) * -(-height // 8)
    runs, left = [], blocks
    while left:  # runs of blocks without coefficients: EOB14 for 16384 to 32767, else shorter ones
        power = min(14, left.bit_length() - 1)
        run = min(left, (2 << power) - 1)
        runs += [(0, 1) if power == 14 else (0b10000 + power, 5), (run - (1 << power), power)]
        left -= run
    runs = [(value, width) for value, width in runs if width]
    eob = bytes([0xE0, *(power << 4 for power in range(14))])
    return b"".join(
        [
            b"\xff\xd8",
            segment(0xDB, b"\0" + b"\1" * 64),
            segment(0xC2, struct.pack(">BHHB", 8, height, width, 1) + b"\1\x11\0"),
            segment(0xC4, b"\0" + bytes([1]) + bytes(15) + b"\0"),
            segment(0xC4, b"\x10" + bytes([1, 0, 0, 0, 14]) + bytes(11) + eob),
            segment(0xDA, b"\1\1\0\0\0\0") + bytes(-(-blocks // 8)),
            (segment(0xDA, b"\1\1\0\1\x3f\0") + _bits(*runs)) * (count - 1),
            b"\xff\xd9",
        ]
    )


def tiff(*entries: tuple[int, int, int, bytes], order: str = "<") -> bytes:
    """A TIFF structure of one directory; (tag, type, count, four bytes)."""
    out = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "IH", 8, len(entries))
    for tag, kind, count, value in entries:
        out += struct.pack(order + "HHI", tag, kind, count) + value
    return out + bytes(4)


def upright(value: int, order: str = "<") -> bytes:
    """EXIF that says nothing but an orientation."""
    return tiff((0x0112, 3, 1, struct.pack(order + "HH", value, 0)), order=order)
