"""The regular files of an uncompressed tar, as views into its bytes.

Reads what GNU tar, Python's tarfile and WebDataset write: ustar, GNU long names, pax records
(POSIX.1-2001, ``pax`` utility, "ustar Interchange Format" and "pax Extended Header").
Python's own tarfile is not made for hostile input: up to 3.12.5 it takes time quadratic in the
size of a pax header, with the interpreter locked (CVE-2024-6232). Here each byte of a header is
looked at a fixed number of times.
"""

from __future__ import annotations

from collections.abc import Iterator

BLOCK = 512
MAX_EXTENSION_BYTES = 64 << 10  #: of one long name or one set of pax records
_REGULAR = (b"0", b"\0", b"7")
_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL, _SPARSE = b"L", b"K", b"x", b"g", b"S"
#: types that announce no data, whatever their size field says
_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")


class TarError(ValueError):
    """The bytes are no tar, or not one that is read here."""


class TooManyHeaders(Exception):
    """More headers than allowed, of whatever kind."""


def regular_files(
    view: memoryview, max_headers: int = 1 << 20
) -> Iterator[tuple[str, memoryview]]:
    """(name, content) of each regular file, in order.

    :raises TarError: not a tar, damaged, cut short, or with sparse members
    :raises TooManyHeaders: more than ``max_headers``
    """
    position, name, size, headers = 0, None, None, 0
    while position + BLOCK <= len(view):
        header = bytes(view[position : position + BLOCK])
        if not any(header):
            return  # the end-of-archive mark
        headers += 1
        if headers > max_headers:
            raise TooManyHeaders(max_headers)
        _check_sum(header)
        position += BLOCK
        kind = header[156:157]
        length = _number(header[124:136])
        extension = kind in (_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL)
        if size is not None and not extension:
            length, size = size, None
        if kind in _WITHOUT_DATA:
            length = 0
        content = view[position : position + length]
        if len(content) < length:
            shown = name if name is not None else _plain_name(header)
            raise TarError(f"cut short in member {shown!r}")
        position += -(-length // BLOCK) * BLOCK
        if extension:
            if length > MAX_EXTENSION_BYTES:
                raise TarError(f"an extended header of {length} bytes")
            if kind == _LONG_NAME:
                name = _text(bytes(content))
            elif kind == _PAX:
                records = _records(bytes(content))
                name = records.get("path", name)
                size = _decimal(records["size"]) if "size" in records else size
            continue
        if kind == _SPARSE:
            raise TarError("sparse members are not supported")
        given, name = name, None
        if kind in _REGULAR:
            yield (given if given is not None else _plain_name(header)), content
    if position < len(view) or position == 0:
        raise TarError("cut short in a header")
    if position > len(view):
        raise TarError("cut short in the padding of its last member")


def _check_sum(header: bytes) -> None:
    expected = _number(header[148:156])
    blank = header[:148] + b" " * 8 + header[156:]
    # Some old writers summed signed characters.
    if expected not in (sum(blank), sum(blank) - 256 * sum(byte > 127 for byte in blank)):
        raise TarError("bad checksum in a header")


def _number(field: bytes) -> int:
    if field[0] == 0x80:  # GNU: base 256
        return int.from_bytes(field[1:], "big")
    digits = field.split(b"\0", 1)[0].strip()
    if not digits:
        return 0
    if not all(48 <= digit <= 55 for digit in digits):
        raise TarError(f"bad number {field!r} in a header")
    return int(digits, 8)


def _decimal(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise TarError(f"bad size {text[:24]!r} in a pax record")
    return int(text)


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _plain_name(header: bytes) -> str:
    name = _text(header[:100])
    # GNU's own format keeps other things where ustar has the prefix.
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _records(raw: bytes) -> dict[str, str]:
    """Pax records, ``<length> <key>=<value>\\n``."""
    records: dict[str, str] = {}
    position = 0
    while position < len(raw) and raw[position]:
        blank = raw.find(b" ", position, position + 8)
        length = _decimal(raw[position:blank].decode("latin-1")) if blank > position else 0
        record = raw[blank + 1 : position + length]
        key, equals, value = record.partition(b"=")
        if not equals or not value.endswith(b"\n") or position + length > len(raw):
            raise TarError("bad pax record")
        if key.startswith(b"GNU.sparse"):
            raise TarError("sparse members are not supported")
        records[key.decode("utf-8", "replace")] = value[:-1].decode("utf-8", "surrogateescape")
        position += length
    return records
