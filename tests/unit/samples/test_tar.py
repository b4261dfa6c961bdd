import io
import tarfile

import pytest

from swift_hapi.samples.tar import TarError, TooManyHeaders, regular_files

CONTENTS = {
    "a.jpg": b"x" * 700,
    "empty.cls": b"",
    "ümläut/ß 漢字.png": b"y" * 512,
    "d" * 90 + "/" + "e" * 80 + ".jpg": b"z" * 513,
}
LONG = {"/".join(["very-long-directory-name"] * 12) + "/n.jpg": b"long"}


def archive(contents, format_, extra=()) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format_) as target:
        for info in extra:
            target.addfile(info)
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            target.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def read(data: bytes) -> dict[str, bytes]:
    return {name: bytes(content) for name, content in regular_files(memoryview(data))}


@pytest.mark.parametrize(
    ("format_", "contents"),
    [
        (tarfile.USTAR_FORMAT, CONTENTS),
        (tarfile.GNU_FORMAT, CONTENTS | LONG),
        (tarfile.PAX_FORMAT, CONTENTS | LONG),
    ],
)
def test_reads_what_tarfile_writes(format_, contents):
    assert read(archive(contents, format_)) == contents


def other(kind: bytes, name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "a.jpg"
    return info


def test_directories_links_and_devices_are_passed_over():
    kinds = (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)
    extra = [other(kind, f"other{i}.jpg") for i, kind in enumerate(kinds)]
    assert read(archive(CONTENTS, tarfile.GNU_FORMAT, extra)) == CONTENTS


def test_huge_size_in_base_256_is_cut_short_not_an_allocation():
    data = bytearray(archive({"a.jpg": b"x"}, tarfile.GNU_FORMAT))
    data[124:136] = b"\x80" + (1 << 80).to_bytes(11, "big")
    fix_sum(data)
    with pytest.raises(TarError, match=r"cut short in member 'a\.jpg'"):
        read(bytes(data))


def fix_sum(data: bytearray) -> None:
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])


def pax(payload: bytes) -> bytes:
    header = bytearray(512)
    header[:1], header[156:157] = b"p", b"x"
    header[124:136] = b"%011o\0" % len(payload)
    header[257:265] = b"ustar\00000"
    fix_sum(header)
    return bytes(header) + payload + b"\0" * (-len(payload) % 512)


def test_large_extended_headers_are_refused_unread():
    # Python's tarfile (CVE-2024-6232) takes minutes for this one.
    with pytest.raises(TarError, match="extended header"):
        read(pax(b"1" * 150_000) + archive(CONTENTS, tarfile.USTAR_FORMAT))


@pytest.mark.parametrize(
    "records",
    [b"1" * 60_000, b"0 a=b\n", b"-5 a=b\n", b"999 path=x\n", b"12 path=xxxxxxx", b" =", b"4 a\n"],
)
def test_damaged_pax_records_are_refused(records):
    with pytest.raises(TarError):
        read(pax(records) + archive(CONTENTS, tarfile.USTAR_FORMAT))


@pytest.mark.parametrize("size", [b"-1", b"x", b"9" * 30])
def test_pax_sizes_are_checked(size):
    body = b"size=" + size + b"\n"
    record = b"%d " % (len(body) + 3) + body
    with pytest.raises(TarError):
        read(pax(record) + archive({"a.jpg": b"x"}, tarfile.USTAR_FORMAT))


def test_sparse_members_are_refused():
    data = bytearray(archive({"a.jpg": b"x"}, tarfile.GNU_FORMAT))
    data[156:157] = b"S"
    fix_sum(data)
    with pytest.raises(TarError, match="sparse"):
        read(bytes(data))


def test_headers_of_every_kind_are_counted():
    extra = [other(tarfile.DIRTYPE, f"d{i}") for i in range(9)]
    data = memoryview(archive({"a": b""}, tarfile.GNU_FORMAT, extra))
    assert len(list(regular_files(data, 10))) == 1
    with pytest.raises(TooManyHeaders):
        list(regular_files(data, 9))


@pytest.mark.parametrize("at", [0, 100, 124, 150, 257])
def test_a_damaged_header_is_noticed(at):
    data = bytearray(archive(CONTENTS, tarfile.USTAR_FORMAT))
    data[at] ^= 0x15
    with pytest.raises(TarError):
        read(bytes(data))


def test_a_tar_cut_anywhere_but_between_members_is_refused():
    contents = {"a.jpg": b"x" * 700, "b.jpg": b"y" * 512, "c.jpg": b"z" * 30}
    data = archive(contents, tarfile.USTAR_FORMAT)
    ends = {512 + 1024: 1, 1536 + 1024: 2, 2560 + 1024: 3}
    for length in range(1, 3584 + 1):
        if length in ends:
            # What is whole may lack the mark of its end: some writers leave it out.
            assert len(read(data[:length])) == ends[length]
            continue
        with pytest.raises(TarError, match="cut short"):
            read(data[:length])
