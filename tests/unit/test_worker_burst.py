"""When a burst is over."""

from __future__ import annotations

import threading

from django_localqueue import SQLiteQueue, Worker
from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import StoreBusy
from django_localqueue.worker.burst import Burst
from django_localqueue.worker.chores import Chore


def test_a_burst_is_over_when_every_store_was_found_empty() -> None:
    burst = Burst(2)
    assert not burst.found_empty(1, burst.look())
    assert burst.found_empty(2, burst.look())


def test_a_store_found_empty_twice_is_one_store() -> None:
    burst = Burst(2)
    assert not burst.found_empty(1, burst.look())
    assert not burst.found_empty(1, burst.look())


def test_a_burst_is_not_over_while_a_job_runs() -> None:
    burst = Burst(1)
    burst.claimed(1)
    assert burst.look() is None
    assert not burst.found_empty(1, burst.look())
    burst.finished()
    assert burst.found_empty(1, burst.look())


def test_a_look_from_before_a_job_ran_does_not_count() -> None:
    burst = Burst(1)
    look = burst.look()
    burst.claimed(1)  # by another thread, and the job puts another one
    burst.finished()
    assert not burst.found_empty(1, look)


def test_a_store_found_empty_before_a_job_ran_is_looked_at_again() -> None:
    burst = Burst(2)
    burst.found_empty(1, burst.look())
    burst.claimed(1)  # of the second store; it may put a job into the first
    burst.finished()
    assert not burst.found_empty(2, burst.look())
    assert burst.found_empty(1, burst.look())


class Feeder(Chore):
    """Puts a job when it runs for the first time, as the outbox does; notes in which thread."""

    name = "feeder"

    def __init__(self, queue: BaseQueue, *, fails: bool = False) -> None:
        self._queue = queue
        self._fails = fails
        self.ran_in: list[threading.Thread] = []

    def run(self, worker: str, ended: threading.Event) -> float:
        self.ran_in.append(threading.current_thread())
        if self._fails:
            raise StoreBusy("locked")
        if len(self.ran_in) == 1:
            self._queue.put("fed")
        return 60


def test_chores_that_feed_the_queues_are_done_before_a_burst_looks_for_jobs() -> None:
    with SQLiteQueue(":memory:") as queue:
        feeder = Feeder(queue)
        assert Worker(queue, lambda job: None, burst=True, chores=[feeder]).run().done == 1
    # Not in a thread of its own, which might be late.
    assert feeder.ran_in[0] is threading.current_thread()


def test_a_burst_goes_on_where_such_a_chore_fails() -> None:
    with SQLiteQueue(":memory:") as queue:
        queue.put("there")
        feeder = Feeder(queue, fails=True)
        assert Worker(queue, lambda job: None, burst=True, chores=[feeder]).run().done == 1
