"""Children of every start method, pools and servers that fork: each has connections of its own."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from django_localqueue import SimpleQueue
from tests.contract.helpers import PATIENCE
from tests.contract.processes import Processes
from tests.crash import scan
from tests.unit.worker_tools import wait_until

WORK = """
import os, sys
from django_localqueue import SimpleQueue

def child(queue, number):
    job = queue.get(timeout=30)
    queue.ack(job, result=os.getpid())
    queue.put(f"from child {number}")
    return os.getpid()

def of_a_pool(number):
    queue.put(number)
    return os.getpid()
"""


def run(tmp_path: Path, code: str) -> str:
    """Run a script in a process of its own, with the module ``work`` beside it."""
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "script.py").write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "script.py", "store"],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(scan.faults(tmp_path / "store" / "localqueue.db")) == []
    return done.stdout


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_queue_given_to_a_child_works_there_and_here(method: str, tmp_path: Path) -> None:
    run(
        tmp_path,
        f"""
        import multiprocessing, sys
        from django_localqueue import SimpleQueue
        from work import child

        if __name__ == "__main__":
            queue = SimpleQueue(sys.argv[1], max_retries=7)
            context = multiprocessing.get_context("{method}")
            ids = queue.put_many(range(4))
            children = [context.Process(target=child, args=(queue, n)) for n in range(4)]
            for process in children:
                process.start()
            queue.put("from the parent meanwhile")
            for process in children:
                process.join(50)
                assert process.exitcode == 0, process.exitcode
            assert queue.stats().acked == 4
            assert queue.stats().ready == 5
            assert len({{queue.lookup(id).result for id in ids}}) == 4
        """,
    )


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_pool_of_processes_shares_the_store(method: str, tmp_path: Path) -> None:
    run(
        tmp_path,
        f"""
        import multiprocessing, sys
        from concurrent.futures import ProcessPoolExecutor
        import work
        from django_localqueue import SimpleQueue

        def open_it(queue):
            work.queue = queue

        if __name__ == "__main__":
            queue = SimpleQueue(sys.argv[1])
            queue.put("before")
            context = multiprocessing.get_context("{method}")
            with ProcessPoolExecutor(3, context, open_it, (queue,)) as pool:
                pids = set(pool.map(work.of_a_pool, range(60)))
            assert pids
            assert queue.stats().ready == 61
            queue.put("after")
        """,
    )


def test_a_queue_in_memory_is_not_sent(tmp_path: Path) -> None:
    with SimpleQueue(":memory:") as queue, pytest.raises(TypeError, match="another process"):
        pickle.dumps(queue)


def test_a_queue_that_was_sent_has_the_settings_of_its_sender(tmp_path: Path) -> None:
    with SimpleQueue(
        tmp_path / "store", "mail", lease_seconds=3, max_retries=9, durability="normal",
        busy_timeout=4, max_payload_bytes=99, retention_seconds=None, max_running=1, rate="9/s",
    ) as queue:  # fmt: skip
        again = pickle.loads(pickle.dumps(queue))
        for name in ("name", "lease_seconds", "max_retries", "durability", "max_payload_bytes"):
            assert getattr(again, name) == getattr(queue, name)
        assert again.retention_seconds is None
        assert (again.max_running, again.rate, again._limits) == (1, "9/s", queue._limits)
        queue.put({"to": "a"})
        assert again.get_nowait().data == {"to": "a"}
        again.close()


PREFORK = """
import signal
queue = SimpleQueue(folder)
queue.put("preloaded")          # before the fork, as a server does that preloads its application
assert queue.stats().ready == 1

def serve():
    pid = os.fork()
    if pid:
        return pid
    try:
        while True:
            job = queue.get(timeout=60)
            if job.data == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            queue.ack(job)
            if job.data == "end":
                os._exit(0)
    finally:
        os._exit(1)

children = {serve() for _ in range(4)}
for number in range(40):
    queue.put(number)
for _ in range(3):
    queue.put("die", max_retries=0)
    pid, status = os.wait()
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, status
    children.remove(pid)
    queue.put("amid")
    children.add(serve())       # as a server does that keeps the number of its workers
while queue.stats().ready:
    time.sleep(0.01)
for _ in children:
    queue.put("end")
for _ in children:
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
say([queue.stats().acked, queue.stats().processing])
"""


def test_a_server_that_forks_its_workers_loses_nothing_when_they_die(tmp_path: Path) -> None:
    with ExitStack() as stack:
        processes = Processes(tmp_path / "store", stack)
        server = processes.start(PREFORK)
        assert server.hear() == [1 + 40 + 3 + 4, 3]
        server.end()
    assert list(scan.faults(tmp_path / "store" / "localqueue.db")) == []


APPLICATION = """
import json, os
from django_localqueue import SimpleQueue

queue = SimpleQueue(os.environ["STORE"])
queue.put("at import")
before = queue.stats()  # every connection is open when the server forks

def application(environ, start_response):
    id = queue.put("from a request")
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"pid": os.getpid(), "ready": queue.stats().ready}).encode()]
"""


@contextmanager
def gunicorn(folder: Path) -> Iterator[str]:
    """Serve the application with --preload and three workers; yield its address."""
    pytest.importorskip("gunicorn")
    (folder / "application.py").write_text(APPLICATION)
    log = folder / "log"
    command = [sys.executable, "-W", "ignore", "-m", "gunicorn", "--preload", "--workers", "3"]
    command += ["--bind", "127.0.0.1:0", "--log-file", str(log), "--no-control-socket"]
    environment = dict(os.environ) | {"STORE": str(folder / "store")}
    server = subprocess.Popen([*command, "application:application"], cwd=folder, env=environment)
    try:
        wait_until(lambda: log.exists() and "Listening at: " in log.read_text())
        yield log.read_text().partition("Listening at: ")[2].split()[0]
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0
    finally:
        server.kill()
        server.wait()


def test_gunicorn_with_preload(tmp_path: Path) -> None:
    with gunicorn(tmp_path) as address:
        pids = set()
        deadline = time.monotonic() + PATIENCE
        count = 0
        killed = False
        while (count < 60 or len(pids) < 2) and time.monotonic() < deadline:
            with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
                told = json.load(answer)
            count += 1
            assert told["ready"] >= count
            pids.add(told["pid"])
            if count == 30 and not killed:
                os.kill(told["pid"], signal.SIGKILL)  # gunicorn starts another
                killed = True
    with SimpleQueue(tmp_path / "store") as queue:
        assert queue.stats().ready == count + 1
    assert list(scan.faults(tmp_path / "store" / "localqueue.db")) == []


INTERPRETER = """
import os, sys
import django_localqueue.backends.sqlite
code = '''
try:
    import django_localqueue.backends.sqlite
except ImportError as error:
    text = str(error)
else:
    text = "loaded"
with open("told", "w") as file:
    file.write(text)
'''
try:
    import _interpreters as interpreters
    other = interpreters.create("legacy")
except ImportError:
    import _xxsubinterpreters as interpreters
    other = interpreters.create(isolated=False)
interpreters.run_string(other, code)
print(open("told").read())
"""


def test_a_second_interpreter_of_a_process_is_refused_by_name(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETER],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE,
        env=dict(os.environ) | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "engine of django-localqueue can't be loaded in this interpreter" in done.stdout
    assert "GLOBAL" in done.stdout
