"""Fixtures of the contract suite: every test here runs over every queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from django_localqueue.backends.base import BaseQueue
from tests.contract.backends import BACKENDS, NAMES, Backend, Clock
from tests.rqlite.nodes import find_rqlited


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """An empty store of each kind under test."""
    made = BACKENDS[request.param](tmp_path)
    yield made
    made.end()


@pytest.fixture
def make_queue(backend: Backend) -> Callable[..., BaseQueue]:
    """Opens a queue of the store: ``make_queue(name, **options)``."""
    return backend.open


@pytest.fixture
def queue(backend: Backend) -> BaseQueue:
    """The queue "default", with a lease of 60 s and 3 retries."""
    return backend.open()


@pytest.fixture
def clock(backend: Backend) -> Clock:
    return backend.clock


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skip(reason="rqlited is neither on PATH nor named by RQLITED")
    for item in items:
        real = item.get_closest_marker("rqlite") and "tests/contract/" in item.nodeid
        if real and find_rqlited() is None:
            item.add_marker(missing)
