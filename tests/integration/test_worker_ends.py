"""Signals to a command with several processes, and ends that a store or a limit brings about."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from tests.integration.worker_site import Site, WorkerProcess

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")


def two_processes(site: Site, *arguments: str) -> WorkerProcess:
    worker = site.start("--processes", "2", "--name", "w", *arguments)
    site.wait_until(lambda: worker.log.count(" serves default") == 2, "both processes")
    site.wait_until(lambda: len(site.queue.workers()) == 2, "both reports")
    return worker


def states(site: Site) -> set[str]:
    return {worker.state for worker in site.queue.workers()}


def damage(site: Site) -> None:
    """Overwrite all pages of the store but the first."""
    for _ in range(20):
        site.queue.put_many(["x" * 500] * 10)
    site.queue.close()
    path = site.folder / "queue" / "localqueue.db"
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[16:18], "big")
    content[size:] = b"\xff" * (len(content) - size)
    path.write_bytes(content)


def test_a_supervisor_passes_signals_on(site: Site) -> None:
    worker = two_processes(site)
    worker.send(signal.SIGHUP)
    worker.wait_for_log("Received SIGHUP, which is ignored")
    for quiet in (signal.SIGTSTP, signal.SIGUSR2):
        worker.send(quiet)
        site.wait_until(lambda: states(site) == {"quiet"}, "both quiet")
        id = site.put("work", quiet.name)
        assert site.queue.lookup(id).state == "ready"
        worker.send(signal.SIGCONT)
        site.wait_until(lambda: states(site) == {"running"}, "both running")
        site.wait_until(lambda id=id: site.queue.lookup(id).state == "acked", "the job")
    worker.send(signal.SIGINT)
    assert worker.wait() == 0
    assert site.queue.workers() == []


def test_quit_gives_back_what_every_process_runs(site: Site) -> None:
    worker = two_processes(site, "--threads", "1")
    ids = [site.put("wait_for_gate", name) for name in "ab"]
    site.wait_until(lambda: len(site.ledger("begun")) == 2, "both jobs")
    worker.send(signal.SIGQUIT)
    assert worker.wait() == 1
    records = [site.queue.lookup(id) for id in ids]
    assert [(record.state, record.attempts) for record in records] == [("ready", 0)] * 2


def test_the_shutdown_timeout_holds_for_every_process(site: Site) -> None:
    worker = two_processes(site, "--threads", "1", "--shutdown-timeout", "0.2")
    ids = [site.put("wait_for_gate", name) for name in "ab"]
    site.wait_until(lambda: len(site.ledger("begun")) == 2, "both jobs")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 1
    assert [site.queue.lookup(id).state for id in ids] == ["ready", "ready"]


@pytest.mark.parametrize(
    ("limit", "value"), [("--max-memory", "1"), ("--max-lifetime", "0.3"), ("--max-jobs", "1")]
)
def test_a_supervisor_renews_a_process_that_reached_a_limit(
    site: Site, limit: str, value: str
) -> None:
    for number in range(4):
        site.put("work", number)
    worker = site.start("--processes", "2", limit, value)
    site.wait_until(lambda: worker.log.count("Worker process ") >= 6, "new processes")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert "ended with" not in worker.log  # as a crash is told


def test_a_supervisor_ends_when_its_processes_were_idle_for_long(site: Site) -> None:
    site.put("work", 1)
    worker = site.start("--processes", "2", "--max-idle", "0.5")
    assert worker.wait() == 0
    assert "1 done" in worker.log


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_store_that_turns_out_damaged_ends_with_3(site: Site, processes: str) -> None:
    damage(site)
    worker = site.start("--processes", processes)
    assert worker.wait() == 3
    assert "localqueue.db" in worker.log
    assert "Traceback" not in worker.log


def test_the_check_of_a_store_that_cant_be_used_ends_with_3(site: Site) -> None:
    damage(site)
    worker = site.start("--check")
    assert worker.wait() == 3
    assert "Traceback" not in worker.log


def test_an_rqlite_that_is_not_there_ends_with_3(site: Site) -> None:
    site.append(
        "settings",
        """
        LOCALQUEUE["default"] = {
            "BACKEND": "django_localqueue.backends.rqlite.RqliteQueue",
            "LOCATION": "http://127.0.0.1:9",
            "OPTIONS": {"timeouts": {"total": 0.3}},
        }
        """,
    )
    worker = site.start("--check")
    assert worker.wait() == 3
    assert "127.0.0.1:9" in worker.log
    assert "Traceback" not in worker.log


@pytest.mark.parametrize("flag", ["--pidfile", "--health-file"])
def test_a_file_that_cant_be_written_ends_with_2(site: Site, flag: str) -> None:
    worker = site.start(flag, str(site.folder / "nowhere" / "file"))
    assert worker.wait() == 2
    assert "nowhere" in worker.log
    assert "Traceback" not in worker.log


def test_a_port_that_is_taken_ends_with_2(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        worker = site.start("--health-port", str(taken.getsockname()[1]))
        assert worker.wait() == 2
    assert "Traceback" not in worker.log
