"""What tests of the worker share."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from django_localqueue import SQLiteQueue, Worker
from django_localqueue.worker import Summary

PATIENCE = 30  # seconds: only a test that fails waits so long


def wait_until(condition: Callable[[], Any], what: str = "the condition") -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {PATIENCE} s")
        time.sleep(0.005)


class Run:
    """A worker that runs in a thread."""

    summary: Summary | None = None

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        self.summary = self.worker.run()

    def stop(self) -> Summary:
        self.worker.stop()
        return self.wait()

    def wait(self) -> Summary:
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "the worker did not end"
        assert self.summary is not None
        return self.summary


@contextlib.contextmanager
def running(worker: Worker) -> Iterator[Run]:
    run = Run(worker)
    try:
        yield run
    finally:
        run.stop()


class FaultyQueue(SQLiteQueue):
    """A queue whose exchange fails as a test wants.

    ``fault`` gets the settlements of the exchange and returns the error to raise, or
    None.
    """

    fault: Callable[[list[Any]], Exception | None] = staticmethod(lambda settlements: None)

    def _exchange(self, settlements: list[Any], *args: Any, **options: Any) -> Any:
        error = self.fault(settlements)
        if error is not None:
            raise error
        return super()._exchange(settlements, *args, **options)
