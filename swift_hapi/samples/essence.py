"""What of an image file decides its pixels: all that a decoder gets to see.

Metadata are where files of a few kilobytes make decoders spend gigabytes and minutes (thousands of
empty segments, directories whose entries all name the same bytes), and where decoders fail in the
oddest ways. No pixel depends on them, so they stay out, but for the orientation.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from swift_hapi.samples import orientation as turns

#: JPEG segments before the pixels, and PNG chunks. Cameras write some tens of segments, depth maps
#: and profiles some hundreds; a PNG has a chunk for every 8 KiB of pixels as a rule.
MAX_SEGMENTS, MAX_CHUNKS = 4096, 1 << 17
#: Progressive files have about ten scans. Decoders of browsers stop at as many.
MAX_SCANS = 100
JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"

_MARKER = re.compile(rb"\xff([^\x00\xff])")
#: ends the data of a scan: neither a stuffed byte, nor filling, nor a restart mark
_END_OF_DATA = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
_SOS, _EOI = 0xDA, 0xD9
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = {0xC2, 0xC6, 0xCA, 0xCE}
_NO_LENGTH = {*range(0x01, 0xC0), 0xC8, *range(0xD0, 0xDA), *range(0xF0, 0xFE)}
_EXIF, _XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"
#: Of these application segments colours depend on the first bytes (JFIF 1.02; Adobe TN 5116).
_COLOURS = {0xE0: (b"JFIF\0", 14), 0xEE: (b"Adobe", 12)}
_METADATA = {*range(0xE0, 0xF0), 0xFE}
_IEND = struct.pack(">I4sI", 0, b"IEND", 0xAE426082)
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")


@dataclass(frozen=True)
class Essence:
    """``data`` is a file of the ``format`` (as Pillow calls it) with the same pixels.

    :param orientation: EXIF's: 1 to 8, or anything else for upright
    :param layered: a decoder goes over the whole picture once for every scan, and holds the
        coefficients of all of it meanwhile
    """

    format: str
    data: bytes
    orientation: int
    layered: bool = False


def essence(view: memoryview) -> Essence:
    """:raises ValueError: neither JPEG nor PNG, or one of too many parts"""
    if bytes(view[: len(JPEG)]) == JPEG:
        return _jpeg(view)
    if bytes(view[: len(PNG)]) == PNG:
        return _png(view)
    raise ValueError("is no readable JPEG or PNG")


def _jpeg(view: memoryview) -> Essence:
    """A JPEG up to the end, of MPO files too, whose first picture this is. Markers that do not
    belong here are left to the decoder."""
    parts: list[bytes | memoryview] = [view[:2]]
    exif = xmp = None
    position, segments, components, layered = 2, 0, 0, False
    while found := _MARKER.search(view, position):
        segments += 1
        if segments > MAX_SEGMENTS:
            raise ValueError(f"has more than {MAX_SEGMENTS} segments")
        code, start, position = view[found.end() - 1], found.start(), found.end()
        if code in _NO_LENGTH:
            parts.append(view[start:position])
            continue
        length = max(2, int.from_bytes(view[position : position + 2], "big"))
        content = view[position + 2 : position + length]
        position += length
        if code == _SOS:
            layered = layered or len(content) > 0 and content[0] < components
            parts.append(view[start:])
            break
        if code in _FRAMES and len(content) > 5:
            components, layered = content[5], code in _PROGRESSIVE
        if code not in _METADATA:
            parts.append(view[start:position])
        elif code in _COLOURS:
            name, needed = _COLOURS[code]
            if bytes(content[: len(name)]) == name:
                kept = content[:needed]
                parts += [struct.pack(">BBH", 0xFF, code, len(kept) + 2), kept]
        elif code == 0xE1 and exif is None and bytes(content[: len(_EXIF)]) == _EXIF:
            exif = content
        elif code == 0xE1 and bytes(content[: len(_XMP)]) == _XMP:
            xmp = content
    turn = None if exif is None else turns.of_exif(exif)
    if turn is None and xmp is not None:
        turn = turns.of_xmp(xmp)
    return Essence("JPEG", b"".join(parts), turn or turns.UPRIGHT, layered)


def more_scans_than(data: bytes, most: int) -> bool:
    """Whether a JPEG has more than ``most`` scans.

    A scan that codes nothing takes a hundred bytes, and as long as any other.
    """
    # All that could be one; more than enough for most files, and fast.
    if data.count(b"\xff\xda") <= most:
        return False
    position, scans, pattern = 2, 0, _MARKER
    while found := pattern.search(data, position):
        code, position = data[found.end() - 1], found.end()
        if code == _EOI:
            return False
        # Within a scan libjpeg passes over marks below 0xC0, elsewhere it gives up.
        if code in _NO_LENGTH:
            continue
        pattern = _MARKER
        if code == _SOS:
            scans += 1
            pattern = _END_OF_DATA
            if scans > most:
                return True
        position += max(2, int.from_bytes(data[position : position + 2], "big"))
    return False


def _png(view: memoryview) -> Essence:
    """Header, palette and pixels of a PNG."""
    parts: dict[bytes, memoryview] = {}
    pixels: list[memoryview] = []
    position, chunks, over = len(PNG), 0, False
    exif, texts = None, {}
    while position + 8 <= len(view):
        chunks += 1
        if chunks > MAX_CHUNKS:
            raise ValueError(f"has more than {MAX_CHUNKS} chunks")
        length, kind = struct.unpack_from(">I4s", view, position)
        end = position + 12 + length
        content = view[position + 8 : end - 4]
        if kind == b"IDAT":
            if not over:
                pixels.append(content)
        else:
            over = bool(pixels)
            if kind in (b"IHDR", b"PLTE") and not pixels:
                parts.setdefault(kind, view[position:end])
            elif kind == b"eXIf":
                exif = content
            elif kind in _TEXTS:
                head = bytes(content[: len(turns.PROFILE_KEY)])
                for key in (turns.PROFILE_KEY, turns.XMP_KEY):
                    if head.startswith(key):
                        texts[key] = kind, content
            elif kind == b"IEND":
                break
        position = end
    written = [PNG, parts.get(b"IHDR", b""), parts.get(b"PLTE", b"")]
    if pixels:
        # Decoders do not look at its check sum: zlib has its own.
        written += [struct.pack(">I4s", sum(map(len, pixels)), b"IDAT"), *pixels, bytes(4)]
    return Essence("PNG", b"".join([*written, _IEND]), _png_turn(exif, texts))


def _png_turn(exif: memoryview | None, texts: dict[bytes, tuple[bytes, memoryview]]) -> int:
    turn = None if exif is None else turns.of_exif(exif)
    if turn is None and exif is None and turns.PROFILE_KEY in texts:
        turn = turns.of_png_text(*texts[turns.PROFILE_KEY])
    if turn is None and turns.XMP_KEY in texts:
        turn = turns.of_png_text(*texts[turns.XMP_KEY])
    return turn or turns.UPRIGHT
