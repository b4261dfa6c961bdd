from __future__ import annotations

import pytest

from hapi_compute.cli.main import build_parser
from hapi_compute.cli.train import config_of

NEEDED = ["--model", "resnet18", "--weights", "random:0", "--freeze-at", "avgpool"]


def config(*argv):
    return config_of(build_parser("train").parse_args(["train", *argv, *NEEDED]))


def test_containers_with_and_without_a_scheme():
    short, long = config("c/p", "--test", "c/t"), config("swift://c/p", "--test", "swift://c/t")
    assert short == long and (short.dataset, short.test) == ("swift://c/p", "swift://c/t")
    assert short.identity() == long.identity()
    assert config("c").test is None


@pytest.mark.parametrize("argv", [["http://c/p"], ["c/p", "--test", "file:///tmp/x"]])
def test_no_other_scheme(argv):
    with pytest.raises(ValueError, match="want swift://container/prefix"):
        config(*argv)
