"""Fixtures that tests with real processes share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contract.processes import Processes
from tests.fakes.rqlite import FakeCluster
from tests.integration.worker_site import Site
from tests.rqlite.nodes import RealCluster, find_rqlited

STORES = ["sqlite", "rqlite-stand-in", pytest.param("rqlite", marks=pytest.mark.rqlite)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A project in a folder of its own; its worker processes end with the test."""
    site = Site(tmp_path)
    yield site
    site.close()


@pytest.fixture(params=STORES)
def any_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """As ``site``, once with its queues on each store."""
    with ExitStack() as stack:
        urls: list[str] = []
        if request.param == "rqlite-stand-in":
            urls = stack.enter_context(FakeCluster()).urls
        elif request.param == "rqlite":
            if find_rqlited() is None:
                pytest.skip("rqlited is neither on PATH nor named by RQLITED")
            (tmp_path / "nodes").mkdir()
            urls = stack.enter_context(RealCluster(tmp_path / "nodes", 3)).urls
        site = Site(tmp_path, urls)
        stack.callback(site.close)
        yield site


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Processes that share the store of ``queue``; they end with the test."""
    with ExitStack() as stack:
        yield Processes(tmp_path / "queue", stack)
