"""The SQLite queue in forked children."""

from __future__ import annotations

import gc
import threading

import pytest

from django_localqueue import (
    QueueClosed,
    SQLiteQueue,
)
from django_localqueue.backends.sqlite import stores
from tests.unit.calls import Call, in_child

# Forking while the test runner has threads is the point of some of these tests.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def test_a_forked_child_goes_on_using_the_queue(queue: SQLiteQueue) -> None:
    queue.put("by the parent")

    def use() -> bool:
        queue.put("by the child")
        job = queue.get_nowait()
        queue.ack(job)
        return job.data == "by the parent"

    assert in_child(use) == 0
    assert queue.get_nowait().data == "by the child"
    assert queue.stats().acked == 1


def test_a_child_settles_a_job_that_its_parent_claimed(queue: SQLiteQueue) -> None:
    queue.put({})
    job = queue.get_nowait()
    assert in_child(lambda: queue.ack(job) is None) == 0
    assert queue.stats().acked == 1


def test_a_child_that_drops_everything_leaves_its_parent_alone(queue: SQLiteQueue) -> None:
    queue.put(1)

    def drop() -> bool:
        held = gc.get_objects()
        queues = [thing for thing in held if type(thing) is SQLiteQueue]
        for inherited in queues:
            inherited.close()
        del held, queues
        gc.collect()
        return True

    assert in_child(drop) == 0
    queue.put(2)
    assert [job.data for job in queue.get_many(5)] == [1, 2]


def test_a_child_of_a_child_goes_on_too(queue: SQLiteQueue) -> None:
    def grandchild() -> bool:
        queue.put("from below")
        return in_child(lambda: queue.get_nowait().data == "from below") == 0

    assert in_child(grandchild) == 0


def test_a_queue_in_memory_says_in_a_child_that_it_stayed_behind() -> None:
    with SQLiteQueue(":memory:shared") as queue:
        queue.put({})

        def use() -> bool:
            with pytest.raises(QueueClosed, match=r"memory of the process.* forked from"):
                queue.put({})
            SQLiteQueue(":memory:shared").put("a new one")
            with pytest.raises(QueueClosed, match="memory of the process"):
                queue.stats()
            return True

        assert in_child(use) == 0
        assert queue.stats().ready == 1


def test_a_lock_that_another_thread_holds_is_free_in_the_child(queue: SQLiteQueue) -> None:
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with stores.lock:
            taken.set()
            done.wait(0.05)

    call = Call(hold)
    taken.wait()
    assert in_child(lambda: queue.put({})) == 0
    done.set()
    call.result()
    assert queue.stats().ready == 1


def test_many_forks_while_other_threads_use_the_queue_lose_nothing(queue: SQLiteQueue) -> None:
    stop = threading.Event()
    stored: list[str] = []

    def put() -> None:
        while not stop.is_set():
            stored.append(queue.put("thread"))

    calls = [Call(put) for _ in range(2)]
    for _ in range(20):
        assert in_child(lambda: queue.put("child")) == 0
    stop.set()
    for call in calls:
        assert call.result() is None
    assert queue.stats().ready == len(stored) + 20
