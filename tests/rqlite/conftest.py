"""Real nodes for the tests of this folder; without rqlited they are skipped, saying so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.versions import VERSIONS, Version
from tests.rqlite.nodes import RealCluster, find_rqlited


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skip(reason="rqlited is neither on PATH nor named by RQLITED")
    for item in items:
        if "tests/rqlite/" in item.nodeid and find_rqlited() is None:
            item.add_marker(missing)


@pytest.fixture(scope="session")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """One node."""
    with RealCluster(tmp_path_factory.mktemp("single"), nodes=1) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def triple(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three nodes; tests that kill one start it again."""
    with RealCluster(tmp_path_factory.mktemp("triple"), nodes=3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def version(single: RealCluster) -> Version:
    """The guise of the stand-in that should look like these nodes."""
    return VERSIONS[f"v{single.version[0]}"]
