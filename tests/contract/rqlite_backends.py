"""The queues on rqlite that the contract suite runs over: the stand-in, and real nodes."""

from __future__ import annotations

import atexit
import contextlib
import json
import tempfile
from abc import abstractmethod
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django_localqueue.backends.base import BaseQueue
from django_localqueue.transports.answers import Answer
from django_localqueue.transports.cluster import Request
from tests.contract.backends import Backend
from tests.fakes.database import Database
from tests.fakes.rqlite import FakeCluster
from tests.fakes.versions import V10, VERSIONS
from tests.rqlite.nodes import RealCluster


class TwoClocks:
    """A wall clock and a clock of leases, which pass as the test tells them to."""

    def __init__(self) -> None:
        self._wall = 1_767_225_600_000_000
        self._leases = 1_000_000

    def advance(self, seconds: float) -> None:
        self._wall += round(seconds * 1_000_000)
        self._leases += round(seconds * 1_000_000)

    def step_wall(self, seconds: float) -> None:
        self._wall += round(seconds * 1_000_000)

    def now(self) -> int:
        return self._wall

    def times(self) -> tuple[int, int]:
        return self._wall, self._leases


class RqliteBackend(Backend):
    def __init__(self) -> None:
        super().__init__()
        self.clock: TwoClocks = TwoClocks()

    @abstractmethod
    def urls(self, store: str) -> Sequence[str]:
        """Return the nodes of the cluster of this name."""

    @abstractmethod
    def write(self, store: str, sql: str, *parameters: Any) -> None:
        """Apply a statement behind the queue's back."""

    def _open(self, name: str, options: dict[str, Any]) -> BaseQueue:
        return self._queue("store", name, options)

    def open_elsewhere(self) -> BaseQueue:
        queue = self._queue("other", "default", {})
        self._opened.append(queue)
        return queue

    def _queue(self, store: str, name: str, options: dict[str, Any]) -> BaseQueue:
        from django_localqueue.backends.rqlite import RqliteQueue

        options = {"clock": self.clock.times, **options}
        return RqliteQueue(self.urls(store), name, **options)

    def corrupt_payload(self, queue: BaseQueue, id: str, payload: bytes) -> None:
        from django_localqueue.backends.rqlite.records import stored

        sql = "UPDATE localqueue_messages SET payload = ? WHERE id = ?"
        self.write("store", sql, stored(payload), int(id))

    def opening_code(self) -> str:
        return (
            "from django_localqueue.backends.rqlite import RqliteQueue\n"
            f"queue = RqliteQueue({list(self.urls('store'))!r})\n"
        )


class StandIn(RqliteBackend):
    """A cluster of the stand-in for each test."""

    def __init__(self, version: str) -> None:
        super().__init__()
        self._version = VERSIONS[version]
        self._clusters: dict[str, FakeCluster] = {}

    def urls(self, store: str) -> Sequence[str]:
        return self.cluster(store).urls

    def cluster(self, store: str = "store") -> FakeCluster:
        if store not in self._clusters:
            self._clusters[store] = FakeCluster(self._version).__enter__()
        return self._clusters[store]

    def write(self, store: str, sql: str, *parameters: Any) -> None:
        self.cluster(store).database.rows(sql, *parameters)

    def end(self) -> None:
        super().end()
        while self._clusters:
            self._clusters.popitem()[1].__exit__()


class RealNodes(RqliteBackend):
    """Real nodes, started once and emptied for each test."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self._nodes = nodes
        self._emptied: set[str] = set()

    def urls(self, store: str) -> Sequence[str]:
        cluster = _cluster(self._nodes, store)
        if store not in self._emptied:
            self._emptied.add(store)
            from django_localqueue.backends.rqlite.schema import TABLES

            names = [name for name in TABLES if name != "localqueue_meta"]
            sql = "SELECT count(*) FROM sqlite_master WHERE name = 'localqueue_messages'"
            answer = cluster.post(0, "/db/query?level=strong", [sql]).json()
            if answer["results"][0]["values"][0][0]:
                cluster.execute([f"DELETE FROM {name}" for name in names])
                cluster.execute(["UPDATE localqueue_meta SET value = 0 WHERE name = 'last_id'"])
        return cluster.urls

    def write(self, store: str, sql: str, *parameters: Any) -> None:
        _cluster(self._nodes, store).execute([[sql, *parameters]])


@cache
def _cluster(nodes: int, store: str) -> RealCluster:
    stack = contextlib.ExitStack()
    folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
    cluster = stack.enter_context(RealCluster(Path(folder), nodes))
    atexit.register(stack.close)
    return cluster


class WithoutHTTP(RqliteBackend):
    """The statements on SQLite without HTTP between: fast enough to try many histories."""

    def __init__(self) -> None:
        super().__init__()
        self._databases: dict[str, Database] = {}

    def urls(self, store: str) -> Sequence[str]:
        return [f"http://{store}:4001"]

    def _database(self, store: str) -> Database:
        if store not in self._databases:
            self._databases[store] = Database(V10)
        return self._databases[store]

    def _queue(self, store: str, name: str, options: dict[str, Any]) -> BaseQueue:
        from django_localqueue.backends.rqlite import RqliteQueue

        queue = super()._queue(store, name, options)
        assert isinstance(queue, RqliteQueue)
        client = queue._store().client
        client._post = partial(_apply, self._database(store))  # type: ignore[method-assign]
        return queue

    def write(self, store: str, sql: str, *parameters: Any) -> None:
        self._database(store).rows(sql, *parameters)

    def opening_code(self) -> str:
        raise NotImplementedError

    def end(self) -> None:
        super().end()
        while self._databases:
            self._databases.popitem()[1].close()


def _apply(database: Database, request: Request) -> Answer:
    endpoint = urlsplit(request.url).path.rpartition("/")[2]
    body = json.loads(request.body)
    slots = database.query(body) if endpoint == "query" else getattr(database, endpoint)(body, True)
    headers = {"x-rqlite-version": database.version.header}
    return Answer(200, headers, json.dumps({"results": slots}).encode())
