"""One suite over both carriers, over a stand-in for each version and over real nodes if any."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_localqueue.transports import AsyncRqliteTransport, RqliteTransport, Timeouts
from django_localqueue.transports import cluster as conversations
from tests.fakes.rqlite import FakeCluster
from tests.fakes.versions import VERSIONS
from tests.rqlite.nodes import RealCluster, find_rqlited

TIMEOUTS = Timeouts(connect=2.0, read=5.0, total=20.0)
TABLES = ("messages", "groups", "localqueue_outcomes")
Connect = Callable[..., Any]


class Awaited:
    """An ``AsyncRqliteTransport`` with the face of ``RqliteTransport``: each verb is awaited."""

    def __init__(self, transport: AsyncRqliteTransport, runner: asyncio.Runner) -> None:
        self._transport = transport
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._transport, name)
        if not inspect.iscoroutinefunction(value):
            return value
        return lambda *args, **options: self._runner.run(value(*args, **options))

    def __repr__(self) -> str:
        return repr(self._transport)


@pytest.fixture(params=["requests", "httpx"])
def connect(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Opens transports on URLs, by the carrier's name; closes them after the test."""
    pytest.importorskip(request.param)
    monkeypatch.setattr(conversations, "FIRST_PAUSE", 0.002)
    opened: list[Any] = []
    with asyncio.Runner() as runner:

        def connect(urls: Any, **options: Any) -> Any:
            options.setdefault("timeouts", TIMEOUTS)
            if request.param == "requests":
                opened.append(RqliteTransport.from_url(urls, **options))
            else:
                made = runner.run(AsyncRqliteTransport.from_url(urls, **options))
                opened.append(Awaited(made, runner))
            return opened[-1]

        yield connect
        for transport in opened:
            transport.close()


@pytest.fixture(params=[*VERSIONS])
def cluster(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    """A stand-in of three nodes; the first one leads."""
    with FakeCluster(VERSIONS[request.param]) as cluster:
        yield cluster


@pytest.fixture
def transport(cluster: FakeCluster, connect: Connect) -> Any:
    return connect(cluster.urls)


@pytest.fixture(scope="session")
def real_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with RealCluster(tmp_path_factory.mktemp("rqlite"), nodes=3) as cluster:
        yield cluster


def _stores() -> list[Any]:
    real = [pytest.param("real", marks=pytest.mark.rqlite)] if find_rqlited() else []
    return [*VERSIONS, *real]


@pytest.fixture(params=_stores())
def urls(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """The nodes of an empty database: a stand-in of each version, and real ones if found."""
    if request.param == "real":
        cluster = request.getfixturevalue("real_cluster")
        cluster.execute([f"DROP TABLE IF EXISTS {table}" for table in TABLES])
        yield cluster.urls
    else:
        with FakeCluster(VERSIONS[request.param]) as cluster:
            yield cluster.urls


@pytest.fixture
def store(urls: list[str], connect: Connect) -> Any:
    """A transport on an empty database."""
    return connect(urls)
