"""The worker and a store that can't be used for a while, or at all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from django_localqueue import (
    ForeignDatabase,
    InvalidInput,
    Job,
    LocalQueueError,
    NewerSchema,
    NotStored,
    OutcomeUnknown,
    Settle,
    StoreBusy,
    StoreCorrupt,
    StoredNotSynced,
    StoreFull,
    StoreUnavailable,
    Worker,
)
from django_localqueue.worker import Executor, Running
from tests.unit.worker_tools import FaultyQueue, Run, running, wait_until


def nothing(job: Job) -> None:
    """A handler that does nothing."""


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[FaultyQueue]:
    with FaultyQueue(tmp_path / "q") as queue:
        yield queue


class Trouble:
    """Raises ``error`` for the first exchanges that settle something."""

    def __init__(self, error: Exception, times: int, any_exchange: bool = False) -> None:
        self.error = error
        self.left = times
        self.any_exchange = any_exchange

    def __call__(self, settlements: list[Any]) -> Exception | None:
        if self.left and (settlements or self.any_exchange):
            self.left -= 1
            return self.error
        return None


@pytest.mark.parametrize("error", [StoreBusy(), NotStored(), StoreFull(), OutcomeUnknown()])
def test_a_finished_job_is_settled_again_until_the_store_takes_it(
    faulty: FaultyQueue, error: LocalQueueError
) -> None:
    faulty.fault = Trouble(error, 3)
    runs = []
    id = faulty.put(1)
    with running(Worker(faulty, lambda job: runs.append(1))):
        wait_until(lambda: faulty.lookup(id).state == "acked")
    assert runs == [1]
    assert faulty.fault.left == 0


def test_trouble_with_the_store_is_logged_once_a_period(
    faulty: FaultyQueue, caplog: pytest.LogCaptureFixture
) -> None:
    faulty.fault = Trouble(StoreUnavailable("the disk is gone"), 4, any_exchange=True)
    id = faulty.put(1)
    with running(Worker(faulty, nothing)):
        wait_until(lambda: faulty.lookup(id).state == "acked")
    told = [record for record in caplog.records if "the disk is gone" in record.getMessage()]
    assert len(told) == 1
    assert told[0].levelno == logging.ERROR


def test_the_worker_goes_on_when_the_store_can_be_used_again(faulty: FaultyQueue) -> None:
    faulty.fault = Trouble(StoreUnavailable(), 3, any_exchange=True)
    faulty.put_many(range(20))
    with running(Worker(faulty, nothing, threads=3)):
        wait_until(lambda: faulty.stats().acked == 20)


def test_an_error_that_nobody_expected_does_not_end_the_worker(
    faulty: FaultyQueue, caplog: pytest.LogCaptureFixture
) -> None:
    faulty.fault = Trouble(RuntimeError("a fault of ours"), 2)
    id = faulty.put(1)
    with running(Worker(faulty, nothing)):
        wait_until(lambda: faulty.lookup(id).state == "acked")
    assert "a fault of ours" in caplog.text


def test_a_settle_that_is_stored_and_not_synced_is_sent_again_and_counts_once(
    faulty: FaultyQueue,
) -> None:
    class Unsynced(FaultyQueue):
        errors = 2

        def _exchange(self, settlements: list[Any], *args: Any, **options: Any) -> Any:
            result = super()._exchange(settlements, *args, **options)
            if settlements and self.errors:
                self.errors -= 1
                raise StoredNotSynced("a power cut may lose it")
            return result

    runs = []
    with Unsynced(faulty.store_key, "unsynced") as queue:
        queue.put(1)
        summary = Worker(queue, lambda job: runs.append(1), burst=True).run()
        assert queue.errors == 0
        assert queue.stats().acked == 1
    assert (summary.done, summary.lost) == (1, 0)
    assert runs == [1]


@pytest.mark.parametrize("error", [StoreCorrupt(), ForeignDatabase(), NewerSchema()])
def test_a_store_that_stays_unusable_ends_the_worker(
    faulty: FaultyQueue, error: LocalQueueError
) -> None:
    faulty.fault = Trouble(error, 1_000, any_exchange=True)
    summary = Run(Worker(faulty, nothing, threads=3)).wait()
    assert summary.error is error
    assert summary.exit_code == 3


def test_a_worker_whose_queue_is_closed_ends_with_an_error(faulty: FaultyQueue) -> None:
    run = Run(Worker(faulty, nothing))
    faulty.close()
    assert run.wait().exit_code == 3


def test_stopping_gives_up_a_result_when_its_lease_has_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FaultyQueue(tmp_path / "q", lease_seconds=0.3) as queue:
        queue.fault = Trouble(StoreBusy("locked for ever"), 1_000_000)
        ran = threading.Event()
        queue.put(1)
        # No renewals either: the lock would stop them too.
        queue.extend_lease = lambda job, seconds: (_ for _ in ()).throw(StoreBusy())
        run = Run(Worker(queue, lambda job: ran.set()))
        assert ran.wait(30)
        assert run.stop().lost == 1
    assert "which can't be stored" in caplog.text


def test_a_settle_that_the_queue_refuses_fails_its_job_and_no_other(faulty: FaultyQueue) -> None:
    class Odd(Executor):
        def run(self, running: Running) -> Settle:
            delay = float("nan") if running.job.data == "bad" else 0
            return Settle(running.job, "nack" if delay else "ack", delay=delay)

    bad, good = faulty.put("bad"), faulty.put("good")
    Worker(faulty, Odd(), threads=2, burst=True).run()
    assert faulty.lookup(bad).state == "failed"
    assert faulty.lookup(bad).error.error_class == f"{InvalidInput.__module__}.InvalidInput"
    assert faulty.lookup(good).state == "acked"


def test_an_executor_that_breaks_nacks_its_job(faulty: FaultyQueue) -> None:
    class Broken(Executor):
        def run(self, running: Running) -> Settle:
            raise SystemExit("broken")

    id = faulty.put(1, max_retries=0)
    Worker(faulty, Broken(), burst=True).run()
    assert faulty.lookup(id).reason == "exhausted"


def test_every_executor_thread_closes_what_it_held(faulty: FaultyQueue) -> None:
    class Closing(Executor):
        closed: list[threading.Thread]

        def run(self, running: Running) -> Settle:
            return Settle(running.job, "ack")

        def close_thread(self) -> None:
            self.closed.append(threading.current_thread())  # idents are used again
            raise OSError("a fault in closing")

    executor = Closing()
    executor.closed = []
    faulty.put_many(range(10))
    summary = Worker(faulty, executor, threads=3, burst=True).run()
    assert summary.done == 10
    assert len(set(executor.closed)) == 3
