"""Whatever comes in, the protocol answers with a value or with a typed error."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from swift_hapi.graph.packing import pack, unpack
from swift_hapi.protocol import payload
from swift_hapi.protocol.errors import HapiError
from swift_hapi.protocol.headers import FEATURE_DTYPES, FeatureRequest
from swift_hapi.protocol.payload import Features, SampleError
from swift_hapi.protocol.transform import (
    JITTER,
    MAX_FACTOR,
    MAX_SIDE,
    TransformSpec,
    parse_transform,
)

sides = st.integers(1, MAX_SIDE)
sizes = st.one_of(sides, st.tuples(sides, sides))
numbers = st.floats(-1e6, 1e6, allow_nan=False)


def ranges(low, high):
    pairs = st.tuples(st.floats(low, high), st.floats(low, high))
    return pairs.map(lambda pair: tuple(value + 0.0 for value in sorted(pair)))


@st.composite
def specs(draw):
    random = draw(st.booleans())
    values = {
        "exif": draw(st.sampled_from(["apply", "ignore"])),
        "resize": draw(st.none() | sizes),
        "interpolation": draw(st.sampled_from(["bilinear", "bicubic", "nearest"])),
        "mean": draw(st.none() | st.tuples(numbers) | st.tuples(numbers, numbers, numbers)),
        "std": draw(st.none() | st.tuples(st.floats(1e-6, 1e6))),
    }
    if random:
        values |= {
            "rrc": draw(sizes),
            "scale": draw(st.none() | st.just((0.08, 1.0))),
            "hflip": draw(st.none() | st.floats(0, 1)),
            "brightness": draw(st.none() | ranges(0, MAX_FACTOR)),
            "contrast": draw(st.none() | ranges(0, MAX_FACTOR)),
            "saturation": draw(st.none() | ranges(0, MAX_FACTOR)),
            "hue": draw(st.none() | ranges(-0.5, 0.5)),
            "grayscale": draw(st.none() | st.floats(0, 1)),
            "seed": draw(st.integers(0, 2**63 - 1)),
            "epoch": draw(st.integers(0, 10**6)),
        }
    else:
        values["crop"] = draw(sizes)
    return TransformSpec(**values)


@given(specs())
def test_transform_text_round_trips(spec):
    assert parse_transform(str(spec)) == spec
    assert str(parse_transform(str(spec))) == str(spec)


@given(st.sampled_from(JITTER), st.floats(0, 1000))
def test_a_number_is_the_range_around_the_neutral_factor(key, reach):
    text = f"crop=8, {key}={reach!r}, seed=0, epoch=0"
    most = 0.5 if key == "hue" else MAX_FACTOR
    expected = (-reach, reach) if key == "hue" else (max(0, 1 - reach), 1 + reach)
    try:
        spec = parse_transform(text)
    except HapiError as error:
        assert error.status == 400 and f"{key}: " in error.detail
        assert expected[1] > most
    else:
        assert getattr(spec, key) == expected and expected[1] <= most
        assert parse_transform(str(spec)) == spec


@given(
    st.sampled_from([*JITTER, "grayscale"]),
    st.text(max_size=12) | st.text("0123456789.-+e( )"),
)
def test_any_value_of_a_colour_is_parsed_or_refused(key, value):
    try:
        spec = parse_transform(f"crop=8, {key}={value}, seed=0, epoch=0")
    except HapiError as error:
        assert error.status == 400
    else:
        found = getattr(spec, key)
        low, high = (found, found) if key == "grayscale" else found
        assert -0.5 <= low <= high <= MAX_FACTOR
        assert parse_transform(str(spec)) == spec and str(parse_transform(str(spec))) == str(spec)


@given(st.text(alphabet="crop=resizemansthflq 0123456789.,()x-+eE", max_size=60) | st.text())
def test_any_transform_text_is_parsed_or_refused(text):
    try:
        spec = parse_transform(text)
    except HapiError as error:
        assert error.status == 400
    else:
        assert spec.size is not None


header_text = st.none() | st.text(max_size=80)


@given(header_text, header_text, header_text, header_text, header_text, header_text)
def test_any_headers_are_parsed_or_refused(model, split, samples, dtype, batch, encoding):
    given_headers = {
        "X-Hapi-Model": model,
        "X-Hapi-Split": split,
        "X-Hapi-Samples": samples,
        "X-Hapi-Dtype": dtype,
        "X-Hapi-Batch-Size": batch,
        "Accept-Encoding": encoding,
    }
    try:
        FeatureRequest.from_headers(given_headers.get)
    except HapiError as error:
        assert error.status == 400


@given(
    st.data(),
    hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4),
    st.lists(st.tuples(st.integers(0, 9), st.text(), st.text()), max_size=3),
)
def test_payload_round_trips(data, shape, errors):
    array = data.draw(hnp.arrays(np.float32, shape, elements=st.floats(-9, 9, width=32)))
    packed, _ = pack(array, data.draw(st.sampled_from(FEATURE_DTYPES)))
    keys = data.draw(st.lists(st.text(), min_size=shape[0], max_size=shape[0]))
    original = Features(
        features=packed.rows,
        scale=packed.scale,
        zero=packed.zero,
        index=np.arange(shape[0]),
        label=np.full(shape[0], -1),
        keys=tuple(keys),
        cut="c",
        model="m",
        errors=tuple(SampleError(*e) for e in errors),
    )
    back = payload.decode(payload.encode(original))
    assert back.features.dtype == packed.rows.dtype
    for ours, theirs in ((back.features, packed.rows), (back.scale, packed.scale)):
        assert np.array_equal(ours, theirs) if theirs is not None else ours is None
    np.testing.assert_allclose(unpack(back.packed), array, atol=18 / 255)
    assert back.keys == original.keys and back.errors == original.errors


@settings(max_examples=300)
@given(st.data())
def test_damaged_payload_is_decoded_or_refused(data):
    blob = bytearray(
        payload.encode(
            Features(
                features=np.ones((2, 3), np.float32),
                index=np.arange(2),
                label=np.arange(2),
                keys=("a", "b"),
                cut="c",
                model="m",
            )
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    try:
        payload.decode(bytes(blob))
    except HapiError as error:
        assert error.name == "payload-invalid"
