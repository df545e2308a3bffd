"""A worker's death is seen by the lock that its process held."""

from __future__ import annotations

from pathlib import Path

from django_localqueue import SQLiteQueue, Worker
from django_localqueue.records import WorkerRecord
from tests.contract.processes import Processes

REPORT = """
from django_localqueue.records import WorkerRecord
queue = SimpleQueue(folder)
queue.report_worker(WorkerRecord(sys.argv[2]))
jobs = queue.get_many(10, worker=sys.argv[2])
say(len(jobs))
"""
THEN_WAIT = "sys.stdin.readline()\n"
THEN_FORK_A_SLEEPER = """
child = os.fork()
if child == 0:
    sys.stdin.readline()
    os._exit(0)
say(child)
sys.stdin.readline()
"""


def alive(queue: SQLiteQueue) -> dict[str, bool | None]:
    return {worker.name: worker.alive for worker in queue.workers()}


def test_a_live_worker_is_told_from_one_that_was_killed(
    processes: Processes, queue: SQLiteQueue
) -> None:
    workers = {name: processes.start(REPORT + THEN_WAIT, name) for name in ("a", "b", "c")}
    for worker in workers.values():
        worker.hear()
    assert alive(queue) == {"a": True, "b": True, "c": True}
    workers["b"].kill()
    assert alive(queue) == {"a": True, "b": False, "c": True}


def test_a_worker_that_ends_without_a_word_is_dead(
    processes: Processes, queue: SQLiteQueue
) -> None:
    worker = processes.start(REPORT, "a")
    worker.hear()
    worker.end()
    assert alive(queue) == {"a": False}


def test_jobs_of_a_killed_worker_are_taken_back_before_their_lease_ends(
    processes: Processes, queue: SQLiteQueue
) -> None:
    queue.put_many([1, 2, 3])
    worker = processes.start(REPORT + THEN_WAIT, "a")
    assert worker.hear() == 3
    assert queue.reclaim_from_dead() == 0
    worker.kill()
    assert queue.reclaim_from_dead() == 3
    assert queue.stats().ready == 3
    assert queue.get_nowait().attempts == 2


def test_a_child_that_a_killed_worker_left_does_not_keep_it_alive(
    processes: Processes, queue: SQLiteQueue
) -> None:
    worker = processes.start(REPORT + THEN_FORK_A_SLEEPER, "a")
    worker.hear()
    worker.hear()
    assert alive(queue) == {"a": True}
    worker.popen.kill()
    worker.popen.wait(30)
    assert alive(queue) == {"a": False}


def test_a_successor_of_the_same_name_is_alive(processes: Processes, queue: SQLiteQueue) -> None:
    first = processes.start(REPORT + THEN_WAIT, "a")
    first.hear()
    first.kill()
    second = processes.start(REPORT + THEN_WAIT, "a")
    second.hear()
    assert alive(queue) == {"a": True}


def test_a_worker_takes_back_the_jobs_of_a_dead_one_of_its_own_name(
    processes: Processes, queue: SQLiteQueue
) -> None:
    queue.put_many([1, 2, 3])
    first = processes.start(REPORT + THEN_WAIT, "a")
    assert first.hear() == 3
    first.kill()
    summary = Worker(queue, lambda job: None, name="a", burst=True).run()
    assert summary.done == 3


def test_workers_of_one_process_are_all_alive(queue: SQLiteQueue, tmp_path: Path) -> None:
    other = SQLiteQueue(tmp_path / "queue", "other")
    queue.report_worker(WorkerRecord("a"))
    other.report_worker(WorkerRecord("b"))
    assert alive(queue) == {"a": True, "b": True}
    other.close()
    queue.forget_worker("a")
    assert alive(queue) == {"b": True}


def test_forking_leaves_the_parent_alive_and_the_child_unnamed(
    processes: Processes, queue: SQLiteQueue
) -> None:
    code = """
    from django_localqueue.records import WorkerRecord
    queue = SimpleQueue(folder)
    queue.report_worker(WorkerRecord("parent"))
    child = os.fork()
    if child == 0:
        queue.report_worker(WorkerRecord("child"))
        os._exit(0)
    os.waitpid(child, 0)
    say("ready")
    sys.stdin.readline()
    """
    parent = processes.start(code)
    parent.hear()
    assert alive(queue) == {"child": False, "parent": True}
