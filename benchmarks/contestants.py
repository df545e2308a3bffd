"""One small adaptor a queue, so that each does the same work through its public interface.

Only the queue in question is imported, for the peers live in an environment of
their own. All are called with JSON data; those whose interface takes text or
bytes get ``json.dumps`` of it.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

PAYLOAD = {"task": "send-email", "to": "hello@example.com", "n": 0, "body": "x" * 40}


class Contestant:
    """A queue under test.

    Args:
        folder: an existing folder of its own.
        durability: ``"normal"`` (survives the process) or ``"full"`` (survives a power cut).
        groups: 0, or in how many groups the jobs are put.
    """

    #: Those that it can be asked for.
    durabilities: tuple[str, ...] = ("normal", "full")

    def __init__(self, folder: Path, durability: str, groups: int) -> None:
        raise NotImplementedError

    def put(self) -> Any:
        """Store one job."""
        raise NotImplementedError

    def get(self) -> Any:
        """Return a job, or None where there is none."""
        raise NotImplementedError

    def ack(self, job: Any) -> Any:
        """Say that the job is done."""

    def exchange(self, job: Any) -> Any:
        """Ack ``job`` unless it is None, and return the next or None, in one step."""
        raise NotImplementedError

    def wait(self) -> Any:
        """``get``, waiting a little where the queue knows how to wait."""
        return self.get()

    def fill(self, count: int) -> None:
        """Store ``count`` jobs as fast as the interface allows; may be stopped between two."""
        for _ in range(count):
            self.put()

    def close(self) -> None:
        """Let the file go."""


class Ours(Contestant):
    def __init__(self, folder: Path, durability: str, groups: int) -> None:
        from django_localqueue import Empty, SimpleQueue, _native
        from django_localqueue.types import Settle

        if _native.BUILD_PROFILE == "debug":
            raise SystemExit(
                "The engine is a debug build; build it with maturin develop --release."
            )
        self._queue = SimpleQueue(folder / "store", durability=durability)
        self._empty = Empty
        self._settle = Settle
        self._groups = groups
        self._count = 0
        self.put = self._put_in_group if groups else self._put  # type: ignore[method-assign]
        self.ack = self._queue.ack  # type: ignore[method-assign]
        self.close = self._queue.close  # type: ignore[method-assign]

    def _put(self) -> Any:
        return self._queue.put(PAYLOAD)

    def _put_in_group(self) -> Any:
        self._count += 1
        return self._queue.put(PAYLOAD, group_id=f"g{self._count % self._groups}")

    def get(self) -> Any:
        try:
            return self._queue.get_nowait()
        except self._empty:
            return None

    def wait(self) -> Any:
        try:
            return self._queue.get(timeout=0.02)
        except self._empty:
            return None

    def exchange(self, job: Any) -> Any:
        settled = () if job is None else (self._settle(job, "ack"),)
        jobs = self._queue.exchange(settled, 1).jobs
        return jobs[0] if jobs else None

    def fill(self, count: int) -> None:
        for start in range(0, count, 1_000):
            self._queue.put_many([PAYLOAD] * min(1_000, count - start))


class Honker(Contestant):
    durabilities = ("normal",)

    def __init__(self, folder: Path, durability: str, groups: int) -> None:
        import honker

        self._db = honker.open(str(folder / "honker.db"))
        self._queue = self._db.queue("bench")

    def put(self) -> Any:
        return self._queue.enqueue(PAYLOAD)

    def get(self) -> Any:
        return self._queue.claim_one("worker")

    def ack(self, job: Any) -> Any:
        return job.ack()

    def fill(self, count: int) -> None:
        for start in range(0, count, 1_000):
            with self._db.transaction() as transaction:
                for _ in range(min(1_000, count - start)):
                    self._queue.enqueue(PAYLOAD, tx=transaction)


class LocalQueue(Contestant):
    def __init__(self, folder: Path, durability: str, groups: int) -> None:
        from localqueue import DurabilityMode, Empty, SimpleQueue

        mode = DurabilityMode.DURABLE if durability == "full" else DurabilityMode.RELAXED
        self._queue = SimpleQueue(str(folder / "localqueue"), durability=mode)
        self._empty = Empty

    def put(self) -> Any:
        return self._queue.put(PAYLOAD)

    def get(self) -> Any:
        try:
            return self._queue.get_nowait()
        except self._empty:
            return None

    def ack(self, job: Any) -> Any:
        return self._queue.ack(job)

    def fill(self, count: int) -> None:
        for start in range(0, count, 1_000):
            self._queue.put_many([PAYLOAD] * min(1_000, count - start))

    def close(self) -> None:
        self._queue.close()


class Huey(Contestant):
    """Its SQLite storage alone, without tasks around it; deletes on get."""

    def __init__(self, folder: Path, durability: str, groups: int) -> None:
        from huey.storage import SqliteStorage

        class Storage(SqliteStorage):  # type: ignore[misc]
            def _create_connection(self) -> Any:
                # Its fsync=False means synchronous=OFF, which promises less than the others.
                connection = super()._create_connection()
                connection.execute(f"PRAGMA synchronous = {durability}")
                return connection

        self._storage = Storage("bench", filename=str(folder / "huey.db"))

    def put(self) -> Any:
        return self._storage.enqueue(json.dumps(PAYLOAD).encode())

    def get(self) -> Any:
        data = self._storage.dequeue()
        return None if data is None else json.loads(data)

    def close(self) -> None:
        self._storage.close()


class PersistQueue(Contestant):
    """Its SQLite queue with acks, which keeps SQLite's default ``synchronous=FULL``."""

    durabilities = ("full",)

    def __init__(self, folder: Path, durability: str, groups: int) -> None:
        import persistqueue
        from persistqueue.serializers import json as serializer

        self._empty = persistqueue.Empty
        self._queue = persistqueue.SQLiteAckQueue(
            str(folder / "persist"), auto_commit=True, multithreading=True, serializer=serializer
        )

    def put(self) -> Any:
        return self._queue.put(PAYLOAD)

    def get(self) -> Any:
        try:
            return self._queue.get(block=False, raw=True)
        except self._empty:
            return None

    def ack(self, job: Any) -> Any:
        return self._queue.ack(id=job["pqid"])

    def close(self) -> None:
        self._queue.close()


class SimpleBroker(Contestant):
    """Deletes on get."""

    def __init__(self, folder: Path, durability: str, groups: int) -> None:
        from simplebroker import Queue, resolve_config

        config = resolve_config(override={"BROKER_SYNC_MODE": durability.upper()})
        path = str(folder / "broker.db")
        self._queue = Queue("bench", db_path=path, persistent=True, config=config)

    def put(self) -> Any:
        return self._queue.write(json.dumps(PAYLOAD))

    def get(self) -> Any:
        text = self._queue.read()
        return None if text is None else json.loads(text)

    def close(self) -> None:
        self._queue.close()


class PlainSQLite(Contestant):
    """The least that Python's sqlite3 can do: one INSERT, one DELETE by primary key."""

    def __init__(self, folder: Path, durability: str, groups: int) -> None:
        self._db = sqlite3.connect(
            folder / "plain.db", isolation_level=None, timeout=30, check_same_thread=False
        )
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA synchronous = {durability}")
        self._db.execute("CREATE TABLE IF NOT EXISTS jobs(id INTEGER PRIMARY KEY, payload BLOB)")

    def put(self) -> Any:
        return self._db.execute("INSERT INTO jobs(payload) VALUES (?)", (json.dumps(PAYLOAD),))

    def get(self) -> Any:
        rows = self._db.execute(
            "DELETE FROM jobs WHERE id = (SELECT id FROM jobs ORDER BY id LIMIT 1)"
            " RETURNING payload"
        ).fetchall()
        return json.loads(rows[0][0]) if rows else None

    def fill(self, count: int) -> None:
        self._db.execute("BEGIN")
        super().fill(count)
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()


CONTESTANTS: dict[str, type[Contestant]] = {
    "ours": Ours,
    "honker": Honker,
    "localqueue": LocalQueue,
    "huey": Huey,
    "persist-queue": PersistQueue,
    "simplebroker": SimpleBroker,
    "sqlite3": PlainSQLite,
}
OWN = ("ours", "sqlite3")  # they run in this interpreter; the others in the peers' environment
