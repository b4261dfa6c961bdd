"""Entity tags: what they depend on, and how they compare."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swift_hapi.engine.etag import feature_etag, matches
from swift_hapi.protocol.headers import FeatureRequest, SampleRange
from swift_hapi.protocol.transform import parse_transform

REQUEST = FeatureRequest("sha256:" + "a" * 64, "7", parse_transform("crop=64"))


def tag(request=REQUEST, cut="avgpool", source="e", numerics="n") -> str:
    return feature_etag(request, cut, source, numerics)


def coloured(step: str) -> FeatureRequest:
    return replace(REQUEST, transform=parse_transform(f"crop=64, {step}, seed=1, epoch=0"))


def test_everything_that_matters_changes_it():
    tags = [
        tag(),
        tag(cut="layer4"),
        tag(source="f"),
        tag(numerics="m"),
        tag(REQUEST.with_model("sha256:" + "b" * 64)),
        tag(replace(REQUEST, transform=None)),
        tag(replace(REQUEST, transform=parse_transform("crop=65"))),
        tag(coloured("hue=0.1")),
        tag(coloured("hue=0.2")),
        tag(coloured("brightness=0.1")),
        tag(coloured("grayscale=0.1")),
        tag(replace(REQUEST, samples=SampleRange(0, 3))),
        tag(replace(REQUEST, on_error="report")),
        tag(replace(REQUEST, encoding="zstd")),
    ]
    assert len(set(tags)) == len(tags)
    assert all(one.startswith('W/"') and one.endswith('"') for one in tags)


def test_what_does_not_matter_does_not():
    assert tag() == tag(replace(REQUEST, batch_size=3))
    assert tag() == tag(replace(REQUEST, split="avgpool"))
    assert tag() == tag(replace(REQUEST, transform=parse_transform("exif=apply, crop=64")))
    assert tag(coloured("hue=0.1")) == tag(coloured("hue=(-0.1 0.1)"))
    assert tag(source='"e"') == tag(source="e")


@pytest.mark.parametrize(
    "value, expected",
    [
        (None, False),
        ("*", True),
        (' * ', True),
        ('W/"abc"', True),
        ('"abc"', True),
        ('"x", W/"abc", "y"', True),
        ('"x,abc"', False),
        ('"abcd"', False),
        ("abc", False),
        ("", False),
    ],
)
def test_comparison(value, expected):
    assert matches(value, 'W/"abc"') is expected
