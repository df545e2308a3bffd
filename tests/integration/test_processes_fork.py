"""fork: a child has connections of its own and never touches its parent's.

Each test forks in a process of its own, so that nothing of the test-suite is forked.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from django_localqueue import SimpleQueue

PATIENCE = 60.0  # seconds; a hang shows as this much

OPENING = """
import gc, multiprocessing, os, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # that a process with threads forks is the test
from django_localqueue import SimpleQueue
folder = sys.argv[1]

def child(work):
    '''Fork a child that does the work; return its pid.'''
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid

def wait_for(pids):
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0, "a child failed"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def run(folder: Path, code: str) -> str:
    """Run the code in a process, then check the file from outside; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", OPENING + textwrap.dedent(code), str(folder)],
        cwd=folder.parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    check = (
        "import sqlite3, sys; connection = sqlite3.connect(sys.argv[1]);"
        "print(connection.execute('PRAGMA integrity_check').fetchone()[0])"
    )
    whole = subprocess.run(
        [sys.executable, "-c", check, str(folder / "localqueue.db")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert whole.stdout == "ok\n", whole.stdout + whole.stderr
    return done.stdout


def test_parent_and_children_use_the_queue_after_a_fork(folder: Path) -> None:
    run(
        folder,
        """
        with SimpleQueue(folder) as queue:
            def work():
                queue.put("child")
                queue.ack(queue.get_nowait())
                queue.put("child")

            for _ in range(20):
                queue.put("parent")
                pids = [child(work) for _ in range(4)]
                queue.put("parent")
                wait_for(pids)
        """,
    )
    with SimpleQueue(folder) as queue:
        stats = queue.stats()
    assert (stats.ready, stats.acked, stats.processing) == (120, 80, 0)


def test_a_child_that_only_ends_leaves_the_parents_work_alone(folder: Path) -> None:
    run(
        folder,
        """
        queue = SimpleQueue(folder)
        stop = threading.Event()
        count = 0

        def put():
            global count
            while not stop.is_set():
                queue.put(count)
                count += 1

        putting = threading.Thread(target=put)
        putting.start()
        for _ in range(40):
            wait_for([child(lambda: None)])
        for _ in range(10):
            pid = os.fork()
            if pid == 0:
                sys.exit(0)  # with everything that runs at an exit
            wait_for([pid])
        stop.set()
        putting.join()
        assert queue.stats().ready == count > 0
        assert [job.data for job in queue.get_many(count)] == list(range(count))
        """,
    )


@pytest.mark.parametrize(
    "work",
    ["globals().pop('queue'); gc.collect()", "queue.close()", "queue.stats(); queue.close()"],
    ids=["drops it", "closes it", "uses and closes it"],
)
def test_a_child_that_lets_go_of_the_queue_takes_nothing_from_the_parent(
    work: str, folder: Path
) -> None:
    run(
        folder,
        f"""
        queue = SimpleQueue(folder)
        queue.put_many(range(10))
        held = queue.get_nowait()

        def work():
            global queue, held
            held = None
            {work}

        wait_for([child(work) for _ in range(3)])
        queue.ack(held)
        queue.put("after")
        stats = queue.stats()
        assert (stats.ready, stats.acked) == (10, 1), stats
        """,
    )


def test_a_multiprocessing_child_uses_its_parents_queue(folder: Path) -> None:
    run(
        folder,
        """
        queue = SimpleQueue(folder)
        queue.put("from the parent")

        def work():
            job = queue.get(timeout=20)
            queue.ack(job, result=os.getpid())
            queue.put("from the child")

        context = multiprocessing.get_context("fork")
        process = context.Process(target=work)
        process.start()
        process.join(20)
        assert process.exitcode == 0, process.exitcode
        assert queue.get_nowait().data == "from the child"
        """,
    )


def test_a_fork_while_a_thread_waits_in_get_harms_neither(folder: Path) -> None:
    run(
        folder,
        """
        queue = SimpleQueue(folder)
        got = []
        waiting = threading.Thread(target=lambda: got.append(queue.get(timeout=20).data))
        waiting.start()

        def work():
            other = SimpleQueue(folder, "other")
            other.put(1)
            assert other.get(timeout=20).data == 1

        wait_for([child(work) for _ in range(5)])
        wait_for([child(lambda: queue.put("woken by a child"))])
        waiting.join(20)
        assert got == ["woken by a child"], got
        """,
    )


def test_a_fork_amid_the_work_of_other_threads_does_not_hang_the_child(folder: Path) -> None:
    run(
        folder,
        """
        queue = SimpleQueue(folder)
        stop = threading.Event()

        def churn():
            while not stop.is_set():
                queue.put(1)
                for job in queue.get_many(1):
                    queue.ack(job)

        threads = [threading.Thread(target=churn) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(30):
            wait_for([child(lambda: SimpleQueue(folder, "children").put(1))])
        stop.set()
        for thread in threads:
            thread.join()
        assert SimpleQueue(folder, "children").stats().ready == 30
        """,
    )


def test_a_receipt_is_good_in_a_child(folder: Path) -> None:
    run(
        folder,
        """
        queue = SimpleQueue(folder)
        id = queue.put(1)
        job = queue.get_nowait()
        wait_for([child(lambda: queue.ack(job, result="by the child"))])
        assert queue.lookup(id).state == "acked"
        """,
    )


def test_children_of_children_work_too(folder: Path) -> None:
    run(
        folder,
        """
        queue = SimpleQueue(folder)
        queue.put("parent")

        def work():
            queue.put("child")
            wait_for([child(lambda: queue.put("grandchild"))])
            queue.put("child")

        wait_for([child(work)])
        assert sorted(job.data for job in queue.get_many(9)) == [
            "child", "child", "grandchild", "parent"
        ]
        """,
    )
