import pytest

from swift_hapi.protocol.errors import BadHeader
from swift_hapi.protocol.headers import FeatureRequest, SampleRange, negotiate_encoding

HEX = "0123456789abcdef" * 4


def request(**headers):
    given = {"x-hapi-model": f"sha256:{HEX}", "x-hapi-split": "avgpool"}
    given.update({k.replace("_", "-"): v for k, v in headers.items()})
    return FeatureRequest.from_headers(lambda name: given.get(name.lower()))


def test_defaults():
    parsed = request()
    assert (parsed.dtype, parsed.on_error, parsed.encoding) == ("float32", "fail", "identity")
    assert parsed.samples is parsed.batch_size is parsed.transform is None


def test_headers_survive_the_round_trip():
    parsed = request(
        x_hapi_transform="crop=8, mean=(0.5)",
        x_hapi_samples="3-9",
        x_hapi_batch_size="16",
        x_hapi_on_error="report",
        accept_encoding="gzip, zstd;q=0.5",
    )
    assert parsed.samples == SampleRange(3, 9) and parsed.batch_size == 16
    assert parsed.encoding == "zstd"
    headers = {k.lower(): v for k, v in parsed.to_headers().items()}
    assert FeatureRequest.from_headers(lambda name: headers.get(name.lower())) == parsed


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x_hapi_model", None),
        ("x_hapi_model", "sha256:abc"),
        ("x_hapi_model", f"sha256:{HEX.upper()}"),
        ("x_hapi_model", "../etc/passwd"),
        ("x_hapi_model", "a" * 129),
        ("x_hapi_split", None),
        ("x_hapi_split", "layer1.0"),
        ("x_hapi_split", "-1"),
        ("x_hapi_split", ""),
        ("x_hapi_samples", "5-3"),
        ("x_hapi_samples", "5"),
        ("x_hapi_samples", "0-9999999999"),
        ("x_hapi_dtype", "float64"),
        ("x_hapi_batch_size", "0"),
        ("x_hapi_batch_size", "1e3"),
        ("x_hapi_on_error", "ignore"),
    ],
)
def test_refusals_name_the_header(header, value):
    with pytest.raises(BadHeader, match=header.replace("_", "-").title()):
        request(**{header: value})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "identity"),
        ("gzip", "identity"),
        ("ZSTD", "zstd"),
        ("zstd;q=0", "identity"),
        ("zstd; q=0.000", "identity"),
        ("zstd;q=0.001", "zstd"),
        ("*", "identity"),
    ],
)
def test_encoding(value, expected):
    assert negotiate_encoding(value) == expected
