"""The place of the filter, looked at from outside; real pipelines are in the functional tests."""

import pytest
from swift.common.middleware.copy import ServerSideCopyMiddleware
from swift.common.middleware.crypto.decrypter import Decrypter
from swift.common.middleware.crypto.keymaster import KeyMaster
from swift.common.middleware.slo import StaticLargeObject
from swift.common.middleware.tempauth import TempAuth
from swift.common.middleware.versioned_writes.legacy import VersionedWritesMiddleware

from swift_hapi.middleware.config import FilterConfig
from swift_hapi.middleware.filter import HapiMiddleware
from swift_hapi.middleware.pipeline_check import check_pipeline, describe
from tests.unit.middleware.support import Logger


class Derived(TempAuth):
    """An operator's own auth."""


def bare(cls):
    return cls.__new__(cls)


def hapi(**options) -> HapiMiddleware:
    return HapiMiddleware(None, FilterConfig("/e.sock", **options), Logger())


def test_right_place():
    ours = hapi()
    pipeline = [bare(TempAuth), ours, bare(ServerSideCopyMiddleware), bare(StaticLargeObject), "x"]
    assert check_pipeline(pipeline, ours) == []
    assert describe(pipeline) == "tempauth HapiMiddleware copy slo str"


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (ServerSideCopyMiddleware, "copy"),
        (StaticLargeObject, "slo"),
        (VersionedWritesMiddleware, "versioned_writes"),
        (Decrypter, "encryption"),
        (KeyMaster, "keymaster"),
    ],
)
def test_what_must_be_right_of_us(cls, name):
    ours = hapi()
    assert check_pipeline([bare(cls), ours], ours) == [f"hapi must stand left of {name}"]
    assert check_pipeline([ours, bare(cls)], ours) == []


def test_auth_must_be_left_of_us_also_when_it_is_derived():
    ours = hapi()
    assert check_pipeline([ours, bare(Derived)], ours) == ["hapi must stand right of tempauth"]


def test_only_once():
    ours = hapi()
    assert check_pipeline([hapi(), ours], ours) == ["hapi must be in the pipeline only once"]


def test_the_loader_hands_the_pipeline_over_and_learns_what_is_wrong():
    strict, lenient = hapi(), hapi(strict_pipeline=False)
    with pytest.raises(ValueError, match="right of tempauth"):
        strict._pipeline = [strict, bare(TempAuth)]
    lenient._pipeline = [lenient, bare(TempAuth)]
    assert lenient._pipeline[0] is lenient
    assert "right of tempauth" in lenient.logger.lines[0]
