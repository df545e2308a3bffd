"""Leases of running jobs: renewed, lost, given back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_localqueue import Job, SimpleQueue, SQLiteQueue, StoreBusy, Worker
from django_localqueue._native import ManualClock
from django_localqueue.worker import current
from tests.unit.worker_tools import PATIENCE, Run, running, wait_until

LEASE = 30
INTERVAL = 0.02  # of the machine's clock, where leases are of the manual one


@pytest.fixture
def leased(tmp_path: Path, clock: ManualClock) -> Iterator[SQLiteQueue]:
    with SimpleQueue(tmp_path / "q", lease_seconds=LEASE, max_retries=3, clock=clock) as queue:
        yield queue


class Slow:
    """A handler that runs until it is let go."""

    def __init__(self) -> None:
        self.runs: list[Job] = []
        self.cancelled = False
        self.go_on = threading.Event()

    def __call__(self, job: Job) -> None:
        self.runs.append(job)
        assert self.go_on.wait(PATIENCE)


def lease_end(queue: SQLiteQueue, id: str) -> int:
    record = queue.lookup(id)
    assert record is not None
    return record.lease_expires_at or 0


def test_a_job_of_five_leases_runs_once(leased: SQLiteQueue, clock: ManualClock) -> None:
    slow = Slow()
    id = leased.put(1)
    with running(Worker(leased, slow, INTERVAL)):
        wait_until(lambda: slow.runs)
        for _ in range(10):
            clock.advance(LEASE / 2)
            full = clock.now() + LEASE * 1_000_000
            wait_until(lambda full=full: lease_end(leased, id) >= full, "a renewal")
        slow.go_on.set()
        wait_until(lambda: leased.lookup(id).state == "acked")
    assert len(slow.runs) == 1
    assert leased.lookup(id).attempts == 1


def test_the_lease_that_the_worker_was_given_is_the_one_renewed(
    leased: SQLiteQueue, clock: ManualClock
) -> None:
    slow = Slow()
    id = leased.put(1)
    with running(Worker(leased, slow, INTERVAL, lease_seconds=500)):
        wait_until(lambda: slow.runs)
        clock.advance(100)
        full = clock.now() + 500 * 1_000_000
        wait_until(lambda: lease_end(leased, id) >= full, "a renewal")
        slow.go_on.set()


def test_a_heartbeat_never_shortens_what_the_job_extended_itself(
    leased: SQLiteQueue, clock: ManualClock
) -> None:
    renewals = threading.Semaphore(0)
    extend = leased.extend_lease

    def counting(job: Job, seconds: float) -> bool:
        try:
            return extend(job, seconds)
        finally:
            renewals.release()

    leased.extend_lease = counting
    slow = Slow()
    id = leased.put(1)
    with running(Worker(leased, slow, INTERVAL)):
        wait_until(lambda: slow.runs)
        slow.runs[0].extend_lease(1000)
        for _ in range(3):
            assert renewals.acquire(timeout=PATIENCE)
        assert lease_end(leased, id) >= clock.now() + 1000 * 1_000_000
        slow.go_on.set()


def test_a_lost_lease_is_logged_and_the_worker_goes_on(
    leased: SQLiteQueue, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    slow = Slow()
    id = leased.put(1)
    # The heartbeat comes too late, as if the machine had slept.
    with running(Worker(leased, slow, heartbeat_interval=3600)) as run:
        wait_until(lambda: slow.runs)
        clock.advance(LEASE + 1)
        other = leased.get(block=False)
        assert other.id == id
        slow.go_on.set()
        next_one = leased.put(2)
        wait_until(lambda: leased.lookup(next_one).state == "acked")
        summary = run.stop()
    assert (summary.done, summary.lost) == (1, 1)
    assert f"Job {id} of default ended with ack, which did not count" in caplog.text
    leased.ack(other)  # the delivery that holds the lease is not disturbed


def test_a_job_that_runs_without_its_lease_is_not_renewed_again(
    leased: SQLiteQueue, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Job] = []
    extend = leased.extend_lease

    def counting(job: Job, seconds: float) -> bool:
        calls.append(job)
        return extend(job, seconds)

    leased.extend_lease = counting
    slow = Slow()
    leased.put(1)
    with running(Worker(leased, slow, INTERVAL, threads=2)):
        wait_until(lambda: slow.runs)
        clock.advance(10 * LEASE)
        wait_until(lambda: "lost its lease while it runs" in caplog.text)
        # The same job comes again to this worker, and is renewed as a new delivery.
        wait_until(lambda: len(slow.runs) == 2)
        first, second = (job.receipt for job in slow.runs)
        before = sum(job.receipt == first for job in calls)
        wait_until(lambda: sum(job.receipt == second for job in calls) > 3)
        assert sum(job.receipt == first for job in calls) == before
        slow.go_on.set()


def test_a_renewal_that_the_store_refuses_is_tried_again(
    leased: SQLiteQueue, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    extend = leased.extend_lease
    errors = [StoreBusy("locked"), StoreBusy("locked"), RuntimeError("odd")]

    def failing(job: Job, seconds: float) -> bool:
        if errors:
            raise errors.pop()
        return extend(job, seconds)

    leased.extend_lease = failing
    slow = Slow()
    id = leased.put(1)
    with running(Worker(leased, slow, INTERVAL)):
        wait_until(lambda: slow.runs)
        clock.advance(LEASE / 2)
        full = clock.now() + LEASE * 1_000_000
        wait_until(lambda: lease_end(leased, id) >= full, "a renewal")
        slow.go_on.set()
    assert caplog.text.count("could not be given more time") == 1


def test_a_running_job_hears_that_it_was_cancelled(leased: SQLiteQueue) -> None:
    seen = []

    def handler(job: Job) -> None:
        running = current()
        leased.cancel(job.id)
        wait_until(lambda: running.cancel_requested, "the request")
        seen.append(running.cancel_requested)
        raise RuntimeError("stopped as asked")

    id = leased.put(1)
    Worker(leased, handler, INTERVAL, burst=True).run()
    assert seen == [True]
    assert leased.lookup(id).reason == "cancelled"
    assert leased.lookup(id).attempts == 1


def test_the_shutdown_timeout_gives_running_jobs_back_uncounted(leased: SQLiteQueue) -> None:
    slow = Slow()
    id = leased.put(1)
    run = Run(Worker(leased, slow, INTERVAL, threads=2, shutdown_timeout=0.05))
    wait_until(lambda: slow.runs)
    summary = run.stop()
    record = leased.lookup(id)
    assert (record.state, record.attempts) == ("ready", 0)
    assert (summary.forced, summary.exit_code, summary.released) == (True, 1, 1)
    slow.go_on.set()  # the thread that was left behind ends, and settles nothing
    wait_until(
        lambda: not [t for t in threading.enumerate() if t.name.startswith("localqueue-executor")]
    )
    assert leased.lookup(id).state == "ready"


def test_a_job_that_the_same_worker_gets_again_is_renewed_again(
    leased: SQLiteQueue, clock: ManualClock
) -> None:
    first, second = Slow(), Slow()

    def handler(job: Job) -> None:
        (first if job.attempts == 1 else second)(job)

    id = leased.put(1)
    with running(Worker(leased, handler, INTERVAL, threads=2)):
        wait_until(lambda: first.runs)
        clock.advance(LEASE * 2)  # as if the whole process had slept
        wait_until(lambda: second.runs)
        for _ in range(10):
            clock.advance(LEASE / 2)
            full = clock.now() + LEASE * 1_000_000
            wait_until(lambda full=full: lease_end(leased, id) >= full, "a renewal")
        first.go_on.set()
        second.go_on.set()
        wait_until(lambda: leased.lookup(id).state == "acked")
    assert leased.lookup(id).attempts == 2
