"""The seed's Worker, and the same for several queues, stores and threads."""

from __future__ import annotations

import contextvars
import logging
import signal
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from django_localqueue import InvalidInput, Job, SimpleQueue, SQLiteQueue, Worker
from django_localqueue.types import JobFilter
from django_localqueue.worker import current
from tests.unit.worker_tools import Run, running, wait_until


def nothing(job: Job) -> None:
    """A handler that does nothing."""


def test_a_job_whose_handler_returns_is_acked(queue: SQLiteQueue) -> None:
    id = queue.put({"app": "jarvis"})
    seen = []
    summary = Worker(queue, lambda job: seen.append(job.data), burst=True).run()
    assert seen == [{"app": "jarvis"}]
    assert queue.lookup(id).state == "acked"
    assert (summary.done, summary.failed, summary.retried) == (1, 0, 0)


def test_what_the_handler_returns_is_kept_as_the_result(queue: SQLiteQueue) -> None:
    id = queue.put(1)
    Worker(queue, lambda job: {"pages": 3}, burst=True).run()
    assert queue.lookup(id).result == b'{"pages":3}'


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), "x" * (2 << 20)])
def test_a_result_that_the_queue_cant_carry_is_left_out(queue: SQLiteQueue, value: object) -> None:
    id = queue.put(1)
    Worker(queue, lambda job: value, burst=True).run()
    record = queue.lookup(id)
    assert (record.state, record.result) == ("acked", None)


def test_a_job_whose_handler_raises_is_nacked_with_the_exception(tmp_path: Path) -> None:
    def fail(job: Job) -> None:
        raise ValueError("no such page")

    with SimpleQueue(tmp_path / "q", max_retries=2) as queue:
        id = queue.put(1)
        summary = Worker(queue, fail, burst=True, name="w1").run()
        record = queue.lookup(id)
    assert (record.state, record.reason, record.attempts) == ("failed", "exhausted", 3)
    assert record.error.error_class == "ValueError"
    assert record.error.message == "no such page"
    assert "in fail" in record.history[-1].error.traceback
    assert [(a.outcome, a.worker) for a in record.history] == [("nack", "w1")] * 3
    assert (summary.retried, summary.failed) == (2, 1)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_a_job_that_raises_a_base_exception_fails_alone(
    queue: SQLiteQueue, error: BaseException
) -> None:
    def handler(job: Job) -> None:
        if job.data == "bad":
            raise error

    bad = queue.put("bad", max_retries=0)
    good = queue.put("good")
    Worker(queue, handler, burst=True).run()
    assert queue.lookup(bad).error.error_class == type(error).__name__
    assert queue.lookup(good).state == "acked"


def test_a_coroutine_function_can_be_the_handler(queue: SQLiteQueue) -> None:
    seen = []

    async def handler(job: Job) -> str:
        seen.append(job.data)
        return "done"

    id = queue.put(1)
    Worker(queue, handler, burst=True).run()
    assert seen == [1]
    assert queue.lookup(id).result == b'"done"'


def test_an_undecodable_job_does_not_stop_the_worker(tmp_path: Path) -> None:
    with SimpleQueue(tmp_path / "q") as queue:
        queue.put("x")
        good = queue.put("good")
    with sqlite3.connect(tmp_path / "q" / "localqueue.db") as connection:
        connection.execute("UPDATE messages SET payload = x'FF' WHERE payload = x'227822'")
    connection.close()
    with SimpleQueue(tmp_path / "q") as queue:
        Worker(queue, nothing, burst=True).run()
        assert queue.lookup(good).state == "acked"
        (failed,) = queue.list_failed()
        assert failed.reason == "undecodable"


def test_burst_ends_when_the_queue_is_empty(queue: SQLiteQueue) -> None:
    queue.put_many(range(50))
    summary = Worker(queue, nothing, burst=True, threads=4).run()
    assert summary.done == 50
    assert queue.stats().ready == 0


def test_burst_runs_what_its_own_jobs_put(queue: SQLiteQueue) -> None:
    def split(job: Job) -> None:
        if job.data:
            queue.put_many([job.data - 1, job.data - 1])

    queue.put(5)
    summary = Worker(queue, split, burst=True, threads=4).run()
    assert summary.done == 2**6 - 1


def test_burst_over_two_stores_runs_what_one_puts_into_the_other(tmp_path: Path) -> None:
    with SimpleQueue(tmp_path / "a", "a") as a, SimpleQueue(tmp_path / "b", "b") as b:

        def ping_pong(job: Job) -> None:
            if job.data:
                (b if job.queue.name == "a" else a).put(job.data - 1)

        a.put(20)
        summary = Worker([a, b], ping_pong, burst=True, threads=2).run()
        assert summary.done == 21
        assert a.stats().ready == b.stats().ready == 0


def test_burst_does_not_wait_for_delayed_jobs(queue: SQLiteQueue) -> None:
    queue.put(1, delay=3600)
    assert Worker(queue, nothing, burst=True).run().done == 0


def test_stop_from_another_thread_finishes_the_running_job(queue: SQLiteQueue) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def handler(job: Job) -> None:
        begun.set()
        assert go_on.wait(30)

    first, second = queue.put(1), queue.put(2)
    run = Run(worker := Worker(queue, handler))
    assert begun.wait(30)
    worker.stop()
    wait_until(lambda: worker._stop_began is not None, "stopping")
    go_on.set()
    summary = run.wait()
    assert summary.done == 1
    assert summary.exit_code == 0
    assert queue.lookup(first).state == "acked"
    assert queue.lookup(second).state == "ready"
    assert queue.lookup(second).attempts == 0


def test_stop_ends_a_worker_that_waits_for_work(queue: SQLiteQueue) -> None:
    began = time.monotonic()
    with running(Worker(queue, nothing, threads=4)) as run:
        queue.put(1)
        wait_until(lambda: queue.stats().acked == 1)
        run.stop()
    assert time.monotonic() - began < 25  # far below the longest wait in the store


def test_stop_before_run_makes_run_end_at_once(queue: SQLiteQueue) -> None:
    worker = Worker(queue, nothing)
    worker.stop()
    assert worker.run().exit_code == 0


def test_a_worker_can_run_again_after_it_was_stopped(queue: SQLiteQueue) -> None:
    worker = Worker(queue, nothing)
    Run(worker).stop()
    queue.put(1)
    with running(worker):
        wait_until(lambda: queue.stats().acked == 1)


def test_a_finished_job_is_settled_while_another_thread_waits_for_work(queue: SQLiteQueue) -> None:
    go_on = threading.Event()

    def handler(job: Job) -> None:
        assert go_on.wait(30)

    with running(worker := Worker(queue, handler, threads=4)):
        id = queue.put(1)
        wait_until(lambda: queue.lookup(id).state == "processing")
        wait_until(lambda: worker._claimers[0]._waiting, "another thread waits")
        began = time.monotonic()
        go_on.set()
        wait_until(lambda: queue.lookup(id).state == "acked")
        assert time.monotonic() - began < 10


def test_no_more_jobs_are_claimed_than_threads_are_free(queue: SQLiteQueue) -> None:
    go_on = threading.Event()
    running_now: list[int] = []

    def handler(job: Job) -> None:
        running_now.append(1)
        assert go_on.wait(30)

    queue.put(0)
    with running(Worker(queue, handler, threads=3)):
        wait_until(lambda: len(running_now) == 1)
        queue.put_many(range(1, 10))
        wait_until(lambda: len(running_now) == 3)
        assert queue.stats().processing == 3
        assert queue.stats().ready == 7
        go_on.set()
        wait_until(lambda: queue.stats().acked == 10)


def test_threads_run_jobs_at_the_same_time(queue: SQLiteQueue) -> None:
    together = threading.Barrier(4)
    queue.put_many(range(4))
    summary = Worker(queue, lambda job: together.wait(30) and None, threads=4, burst=True).run()
    assert summary.done == 4


def test_a_group_runs_one_at_a_time_and_in_order(queue: SQLiteQueue) -> None:
    seen: list[int] = []
    busy = threading.Lock()

    def handler(job: Job) -> None:
        assert busy.acquire(blocking=False), "two jobs of one group at a time"
        seen.append(job.data)
        busy.release()

    for number in range(30):
        queue.put(number, group_id="g")
    Worker(queue, handler, threads=4, burst=True).run()
    assert seen == list(range(30))


def test_named_queues_are_served_in_strict_order(tmp_path: Path) -> None:
    with SimpleQueue(tmp_path / "q", "high") as high, SimpleQueue(tmp_path / "q", "low") as low:
        low.put_many(["low"] * 3)
        high.put_many(["high"] * 3)
        seen: list[str] = []
        Worker([high, low], lambda job: seen.append(job.data), burst=True).run()
    assert seen == ["high"] * 3 + ["low"] * 3


def test_round_robin_takes_turns_between_the_queues(tmp_path: Path) -> None:
    with SimpleQueue(tmp_path / "q", "a") as a, SimpleQueue(tmp_path / "q", "b") as b:
        a.put_many(["a"] * 3)
        b.put_many(["b"] * 3)
        seen: list[str] = []
        Worker([a, b], lambda job: seen.append(job.data), burst=True, round_robin=True).run()
    assert sorted(seen[:2]) == sorted(seen[2:4]) == sorted(seen[4:]) == ["a", "b"]


def test_context_variables_of_one_job_are_not_seen_by_the_next(queue: SQLiteQueue) -> None:
    variable = contextvars.ContextVar("variable", default=0)
    seen = []

    def handler(job: Job) -> None:
        seen.append(variable.get())
        variable.set(job.data)

    queue.put_many([1, 2])
    Worker(queue, handler, burst=True).run()
    assert seen == [0, 0]


def test_a_job_can_ask_what_it_runs_as(queue: SQLiteQueue) -> None:
    seen = []
    id = queue.put(1)
    Worker(queue, lambda job: seen.append(current()), burst=True, name="w7").run()
    assert (seen[0].job.id, seen[0].worker) == (id, "w7")
    assert current() is None


def test_old_results_are_pruned_by_the_worker(tmp_path: Path) -> None:
    with SimpleQueue(tmp_path / "q", retention_seconds=0) as queue:
        queue.put(1)
        queue.ack(queue.get())
        assert queue.stats().acked == 1
        with running(Worker(queue, nothing)):
            wait_until(lambda: queue.stats().acked == 0, "pruning")


def test_log_records_carry_the_id_and_the_queue_of_the_job(
    queue: SQLiteQueue, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "django_localqueue.jobs")
    id = queue.put(1)
    Worker(queue, nothing, burst=True).run()
    (record,) = [record for record in caplog.records if hasattr(record, "job_id")]
    assert (record.job_id, record.queue) == (id, "default")
    assert id in record.getMessage()
    assert "default" in record.getMessage()


def test_a_failing_job_is_logged_with_its_traceback(
    queue: SQLiteQueue, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(job: Job) -> None:
        raise ValueError("no such page")

    queue.put(1, max_retries=0)
    Worker(queue, fail, burst=True).run()
    (record,) = [record for record in caplog.records if record.exc_info]
    assert "no such page" in str(record.exc_info[1])
    assert record.levelno == logging.WARNING


def test_on_the_main_thread_the_old_signal_handlers_come_back(queue: SQLiteQueue) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
    before = [signal.getsignal(number) for number in numbers]
    seen = []
    queue.put(1)
    Worker(queue, lambda job: seen.append(signal.getsignal(signal.SIGTERM)), burst=True).run()
    assert seen[0] not in before
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_job_that_purged_itself_is_logged_and_the_worker_goes_on(
    queue: SQLiteQueue, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(job: Job) -> None:
        if job.data == "first":
            queue.fail(job, "by hand")
            queue.apply("purge", JobFilter(state="failed"))

    queue.put("first")
    second = queue.put("second")
    summary = Worker(queue, handler, burst=True).run()
    assert queue.lookup(second).state == "acked"
    assert (summary.done, summary.lost) == (1, 1)
    assert "its lease was lost" in caplog.text


@pytest.mark.parametrize(
    "arguments",
    [
        {"threads": 0},
        {"threads": 1.5},
        {"heartbeat_interval": 0},
        {"heartbeat_interval": float("nan")},
        {"lease_seconds": -1},
        {"shutdown_timeout": float("inf")},
        {"name": ""},
        {"name": "x" * 300},
    ],
)
def test_absurd_arguments_are_refused(queue: SQLiteQueue, arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(arguments))):
        Worker(queue, nothing, **arguments)


def test_a_worker_without_a_queue_or_handler_is_refused(queue: SQLiteQueue) -> None:
    with pytest.raises(InvalidInput, match="needs a queue"):
        Worker([], nothing)
    with pytest.raises(InvalidInput, match="handler"):
        Worker(queue, None)
