"""A queue over the stand-in, for what only a queue on rqlite can do or suffer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_localqueue.backends.rqlite import RqliteQueue
from django_localqueue.transports import cluster as conversations
from tests.fakes.rqlite import FakeCluster
from tests.fakes.versions import V10, VERSIONS

TIMEOUTS = {"connect": 2.0, "read": 5.0, "total": 20.0}


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "FIRST_PAUSE", 0.002)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """Three nodes of version 10; the first one leads."""
    with FakeCluster(V10) as cluster:
        yield cluster


@pytest.fixture(params=["v8", "v10"])
def any_cluster(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    with FakeCluster(VERSIONS[request.param]) as cluster:
        yield cluster


@pytest.fixture
def open_queue() -> Iterator[Callable[..., RqliteQueue]]:
    """Opens queues on a cluster; closes them after the test."""
    opened: list[RqliteQueue] = []

    def open_queue(location: Any, name: str = "default", **options: Any) -> RqliteQueue:
        options.setdefault("timeouts", TIMEOUTS)
        opened.append(RqliteQueue(location, name, **options))
        return opened[-1]

    yield open_queue
    for queue in opened:
        queue.close()


@pytest.fixture
def queue(cluster: FakeCluster, open_queue: Callable[..., RqliteQueue]) -> RqliteQueue:
    return open_queue(cluster.urls)
