from __future__ import annotations

import torch

from hapi_compute.train import threads
from hapi_compute.train.config import TrainConfig
from tests.unit.train.test_config import BASE


def test_threads_do_not_outnumber_the_cpus(monkeypatch):
    for cpus, decode, raw, split in ((1, 1, 1, 1), (2, 1, 1, 2), (16, 8, 8, 16)):
        monkeypatch.setattr(threads, "cpus", lambda cpus=cpus: cpus)
        config = TrainConfig(**BASE)
        assert threads.decode_threads(config) == decode
        assert threads.torch_threads(config, raw=True) == raw
        assert threads.torch_threads(config, raw=False) == split


def test_options_win():
    config = TrainConfig(**BASE, threads=3, decode_threads=5)
    assert threads.decode_threads(config) == 5
    assert threads.torch_threads(config, raw=True) == threads.torch_threads(config, False) == 3


def test_a_run_leaves_torch_as_it_was():
    before = torch.get_num_threads()
    with threads.shared_cpus(TrainConfig(**BASE, threads=2), raw=True):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == before


def test_beside_a_store_half_the_cpus_are_left_to_it(monkeypatch):
    for cpus, expected in ((1, 1), (2, 1), (8, 4)):
        monkeypatch.setattr(threads, "cpus", lambda cpus=cpus: cpus)
        assert threads.beside_a_store() == expected
