"""Small steps that the tests of the contract share."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import Empty, LeaseExpired
from django_localqueue.types import Job, JobFilter, JobRecord

#: Every verb that needs the live receipt of a job.
VERBS: dict[str, Callable[[BaseQueue, Job], object]] = {
    "ack": lambda queue, job: queue.ack(job),
    "nack": lambda queue, job: queue.nack(job),
    "fail": lambda queue, job: queue.fail(job),
    "release": lambda queue, job: queue.release(job),
    "extend_lease": lambda queue, job: queue.extend_lease(job, 60),
}
SETTLING = [verb for verb in VERBS if verb != "extend_lease"]

PATIENCE = 30.0  # seconds of real time after which a test gives up waiting


@contextmanager
def lost(reason: str) -> Iterator[None]:
    """The block must raise ``LeaseExpired`` for this reason."""
    with pytest.raises(LeaseExpired) as caught:
        yield
    assert caught.value.reason == reason


def empty(queue: BaseQueue) -> bool:
    """Return whether ``get`` finds nothing."""
    try:
        queue.get_nowait()
    except Empty:
        return True
    return False


def data(jobs: list[Job]) -> list[Any]:
    return [job.data for job in jobs]


def in_turn(queue: BaseQueue) -> list[Any]:
    """Get and ack job by job until nothing is ready; return what was delivered."""
    delivered = []
    while jobs := queue.get_many(1):
        delivered.append(jobs[0].data)
        queue.ack(jobs[0])
    return delivered


def with_receipt(job: Job, receipt: str) -> Job:
    """Return the job as somebody would hold it who has another receipt."""
    forged = copy.copy(job)
    forged.receipt = receipt
    return forged


def record(queue: BaseQueue, id: str) -> JobRecord:
    found = queue.lookup(id)
    assert found is not None
    return found


def pages(queue: BaseQueue, filter: JobFilter, limit: int) -> Iterator[list[JobRecord]]:
    """Read a list page by page to its end."""
    after = None
    while True:
        page = queue.list(filter, limit=limit, after=after)
        assert len(page.records) <= limit
        yield page.records
        if page.next is None:
            return
        after = page.next


def listed(queue: BaseQueue, limit: int = 1_000, **filter: Any) -> list[JobRecord]:
    """Return all that a filter finds."""
    return [one for page in pages(queue, JobFilter(**filter), limit) for one in page]


class InThread(threading.Thread):
    """Runs a function in a thread; ``outcome()`` waits for what it returned or raised."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self._value: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as error:
            self._error = error

    def outcome(self) -> Any:
        self.join(PATIENCE)
        assert not self.is_alive(), "the thread still waits"
        if self._error is not None:
            raise self._error
        return self._value

    def wait_until_asleep(self) -> None:
        """Return once the thread sleeps in the kernel, where the machine shows that."""
        status = Path(f"/proc/self/task/{self.native_id}/stat")
        wait_for_sleep(status)


def wait_for_sleep(status: Path) -> None:
    """Wait until a ``/proc/…/stat`` says sleeping, several looks in a row."""
    if not status.exists():
        return
    asleep = 0
    give_up = time.monotonic() + PATIENCE
    while asleep < 5:
        assert time.monotonic() < give_up, "it never came to rest"
        state = status.read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        threading.Event().wait(0.002)  # the pace of looking, not a wait for the outcome
