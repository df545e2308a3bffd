"""The two examples that the package is known by run as they stand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from django_localqueue import SimpleQueue

PATIENCE = 60

QUEUE_EXAMPLE = """
from django_localqueue import SimpleQueue

with SimpleQueue("./data", lease_seconds=30, max_retries=3) as q:
    q.put({"type": "deploy", "app": "jarvis", "revision": "abc123"})

    job = q.get()
    try:
        process(job.data)
    except Exception:
        q.nack(job)
    else:
        q.ack(job)
"""

WORKER_EXAMPLE = """
from django_localqueue import SimpleQueue, Worker

def deploy(job):
    print(f"Deploying {job.data['app']}@{job.data['revision']}")
    # Optional: renews the lease of long jobs
    job.extend_lease(60)

q = SimpleQueue("./data")
worker = Worker(q, deploy, heartbeat_interval=10)
worker.run()
"""


@pytest.mark.parametrize(
    ("process", "state", "attempts"),
    [("process = print", "acked", 1), ("def process(data): raise OSError", "ready", 1)],
)
def test_the_queue_example_runs(tmp_path: Path, process: str, state: str, attempts: int) -> None:
    subprocess.run(
        [sys.executable, "-c", process + "\n" + QUEUE_EXAMPLE],
        cwd=tmp_path,
        check=True,
        timeout=PATIENCE,
    )
    with SimpleQueue(tmp_path / "data") as queue:
        assert queue.stats()[state] == 1
        if state == "ready":
            assert queue.get().attempts == attempts + 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_worker_example_runs_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with SimpleQueue(tmp_path / "data") as queue:
        queue.put({"type": "deploy", "app": "jarvis", "revision": "abc123"})
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER_EXAMPLE],
            cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            deadline = time.monotonic() + PATIENCE
            while not queue.stats().acked:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            process.send_signal(number)
            out, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
            process.wait(PATIENCE)
    assert out == "Deploying jarvis@abc123\n"
    assert errors == ""
    assert process.returncode == 0
