"""One embedded cluster, with filter and engine, for the whole functional run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from swift_hapi.cluster import ClusterConfig, EmbeddedCluster
from tests.functional.support import Account, log_in

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory) -> Iterator[EmbeddedCluster]:
    """The running cluster; nobody may stop it or break what others rely on."""
    # Measuring every model that a test brings along would take the CPU that tests need.
    config = ClusterConfig(
        dir=tmp_path_factory.mktemp("cluster"), engine_conf=(("measure_memory", "false"),)
    )
    with EmbeddedCluster(config) as running:
        yield running


@pytest.fixture(scope="session")
def account(cluster) -> Iterator[Callable[..., Account]]:
    """``account()`` or ``account("test2:tester2")``: a user of the cluster, logged in."""
    accounts: dict[str, Account] = {}

    def of(user: str = cluster.user) -> Account:
        if user not in accounts:
            accounts[user] = log_in(cluster, user)
        return accounts[user]

    yield of
    for known in accounts.values():
        known.session.close()


@pytest.fixture
def container(account) -> str:
    """Name of a fresh, empty container of the cluster's first user."""
    name = f"c{next(_numbers)}"
    account().put(name)
    return name
