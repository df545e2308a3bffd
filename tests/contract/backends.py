"""The queues that the contract suite runs over.

A further kind of queue is one more class here and its entries in ``BACKENDS``.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import QueueClosed


class Clock(Protocol):
    """The store's clock, moved by the test alone."""

    def advance(self, seconds: float) -> None:
        """Let time pass for everything."""

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forth or back, and leave the clock of the leases alone."""

    def now(self) -> int:
        """Return the wall time in microseconds."""


class Backend(ABC):
    """One store of one kind, made for one test, with any number of queues in it."""

    #: Leases run on the boot clock of one machine, so a reboot ends them all.
    boot_clock: ClassVar[bool] = False

    clock: Clock

    def __init__(self) -> None:
        self._opened: list[BaseQueue] = []

    def open(self, name: str = "default", **options: Any) -> BaseQueue:
        """Open the queue ``name`` of the store; the same store every time."""
        queue = self._open(name, options)
        self._opened.append(queue)
        return queue

    def close(self) -> None:
        """Close every queue, and with the last one the store; ``open`` finds it again."""
        while self._opened:
            self._opened.pop().close()

    def end(self) -> None:
        """Close every queue and stop what the store ran on; the test is over."""
        self.close()

    @abstractmethod
    def _open(self, name: str, options: dict[str, Any]) -> BaseQueue: ...

    @abstractmethod
    def open_elsewhere(self) -> BaseQueue:
        """Open a queue in another store of this kind."""

    @abstractmethod
    def corrupt_payload(self, queue: BaseQueue, id: str, payload: bytes) -> None:
        """Overwrite the stored payload of one job behind the queue's back."""

    @abstractmethod
    def opening_code(self) -> str:
        """Return Python text that binds ``queue``: the default queue of a store, on real clocks.

        For a test that needs a process of its own.
        """

    def reboot(self) -> None:
        """Close the store and restart the machine under it."""
        raise NotImplementedError


class SQLiteBackend(Backend):
    boot_clock = True

    def __init__(self, folder: Path, durability: str) -> None:
        from django_localqueue._native import ManualClock

        super().__init__()
        self.clock: ManualClock = ManualClock()
        self._folder = folder
        self._durability = durability

    def _open(self, name: str, options: dict[str, Any]) -> BaseQueue:
        return self._queue("store", name, options)

    def open_elsewhere(self) -> BaseQueue:
        queue = self._queue("other", "default", {})
        self._opened.append(queue)
        return queue

    def _queue(self, store: str, name: str, options: dict[str, Any]) -> BaseQueue:
        from django_localqueue.backends.sqlite import SQLiteQueue

        options = {"durability": self._durability, "clock": self.clock, **options}
        return SQLiteQueue(self._folder / store, name, **options)

    def corrupt_payload(self, queue: BaseQueue, id: str, payload: bytes) -> None:
        # In another process: two SQLite libraries in one process drop each other's locks.
        code = (
            "import sqlite3, sys\n"
            "path, id, payload = sys.argv[1:]\n"
            "connection = sqlite3.connect(path, timeout=30)\n"
            "with connection:\n"
            "    done = connection.execute('UPDATE messages SET payload = ? WHERE id = ?',\n"
            "                              (bytes.fromhex(payload), int(id))).rowcount\n"
            "connection.close()\n"
            "sys.exit(done != 1)\n"
        )
        path = self._folder / "store" / "localqueue.db"
        command = [sys.executable, "-c", code, str(path), id, payload.hex()]
        subprocess.run(command, check=True, timeout=60)

    def opening_code(self) -> str:
        return (
            "from django_localqueue import SimpleQueue\n"
            f"queue = SimpleQueue({str(self._folder / 'process')!r},"
            f" durability={self._durability!r})\n"
        )

    def end(self) -> None:
        for queue in {queue.store_key: queue for queue in self._opened}.values():
            with contextlib.suppress(QueueClosed):
                assert queue.check() == []
        self.close()

    def reboot(self) -> None:
        self.close()
        self.clock.reboot()


def _stand_in(version: str) -> Callable[[Path], Backend]:
    def make(folder: Path) -> Backend:
        from tests.contract.rqlite_backends import StandIn

        return StandIn(version)

    return make


def _real_nodes(nodes: int) -> Callable[[Path], Backend]:
    def make(folder: Path) -> Backend:
        from tests.contract.rqlite_backends import RealNodes

        return RealNodes(nodes)

    return make


def _without_http(folder: Path) -> Backend:
    from tests.contract.rqlite_backends import WithoutHTTP

    return WithoutHTTP()


BACKENDS: dict[str, Callable[[Path], Backend]] = {
    "sqlite-full": lambda folder: SQLiteBackend(folder, "full"),
    "sqlite-normal": lambda folder: SQLiteBackend(folder, "normal"),
    "rqlite-v8": _stand_in("v8"),
    "rqlite-v9": _stand_in("v9"),
    "rqlite-v10": _stand_in("v10"),
    "rqlite-node": _real_nodes(1),
    "rqlite-cluster": _real_nodes(3),
}
_MARKS: dict[str, Any] = {
    "rqlite-v8": pytest.mark.slow,
    "rqlite-v9": pytest.mark.slow,
    "rqlite-node": pytest.mark.rqlite,
    "rqlite-cluster": pytest.mark.rqlite,
}
#: Only for the test against the model: the others wait for it too long.
MODELLED: dict[str, Callable[[Path], Backend]] = {
    **{name: make for name, make in BACKENDS.items() if not name.startswith("rqlite")},
    "rqlite-without-http": _without_http,
}
#: The names of the backends, as parameters of a test.
NAMES = [pytest.param(name, marks=_MARKS.get(name, ())) for name in BACKENDS]
