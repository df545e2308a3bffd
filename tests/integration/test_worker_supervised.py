"""Several worker processes under one command: killed, recycled, hung, told to stop."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.integration.worker_site import Site, WorkerProcess

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")


def started(site: Site, worker: WorkerProcess, processes: int) -> list[int]:
    site.wait_until(lambda: worker.log.count(" serves default") >= processes, "every process")
    return worker.children()


def test_jobs_are_done_by_several_processes_each_once(site: Site) -> None:
    for number in range(200):
        site.put("work", number, 0.005)
    worker = site.start("--processes", "3", "--burst")
    assert worker.wait() == 0
    assert sorted(site.ledger("begun"), key=int) == [str(number) for number in range(200)]
    assert "200 done, 0 failed" in worker.log
    names = {site.queue.lookup(record.id).worker for record in site.acked()}
    assert len(names) > 1


def test_a_killed_process_is_replaced_and_its_job_taken_back_at_once(site: Site) -> None:
    id = site.put("wait_for_gate", "a")
    worker = site.start("--processes", "2", "--lease", "3600")
    started(site, worker, 2)
    site.wait_until(lambda: site.ledger("begun") == ["a"], "the job")
    runner = site.queue.lookup(id).worker
    number = int(runner.rpartition("/")[2])
    os.kill(pid_of(site, runner), signal.SIGKILL)
    site.wait_until(lambda: site.ledger("begun") == ["a", "a"], "the job once more")
    site.open_gate()
    site.wait_until(lambda: site.queue.lookup(id).state == "acked", "the ack")
    assert site.queue.lookup(id).attempts == 2
    site.wait_until(lambda: worker.log.count(f"Worker process {number} is ") == 2, "a new process")
    assert "SIGKILL" in worker.log
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def pid_of(site: Site, name: str) -> int:
    (found,) = [worker for worker in site.queue.workers() if worker.name == name]
    return found.pid


def test_every_process_is_reported_and_forgotten_at_the_end(site: Site) -> None:
    worker = site.start("--processes", "2", "--name", "w", "--threads", "3")
    started(site, worker, 2)
    site.wait_until(lambda: len(site.queue.workers()) == 2, "two reports")
    reports = site.queue.workers()
    assert [report.name for report in reports] == ["w/1", "w/2"]
    assert [report.alive for report in reports] == [True, True]
    assert {report.pid for report in reports} == set(worker.children())
    assert [report.concurrency for report in reports] == [3, 3]
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert site.queue.workers() == []


def test_a_job_past_its_timeout_is_ended_and_fails(site: Site) -> None:
    id = site.put("hang", "a")
    worker = site.start("--job-timeout", "0.5")
    site.wait_until(lambda: site.queue.lookup(id).state == "failed", "the failure")
    error = site.queue.lookup(id).error
    assert error.error_class == "django_localqueue.exceptions.JobTimeout"
    assert "0.5 seconds" in error.message
    good = site.put("work", "good")
    site.wait_until(lambda: site.queue.lookup(good).state == "acked", "the next job")
    assert site.ledger("begun").count("a") == 1
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def test_a_job_that_never_gives_the_interpreter_up_is_ended_too(site: Site) -> None:
    id = site.put("hang_with_the_lock", "a")
    site.start("--job-timeout", "0.5")
    site.wait_until(lambda: site.queue.lookup(id).state == "failed", "the failure")
    assert "JobTimeout" in site.queue.lookup(id).error.error_class


def test_other_jobs_of_an_ended_process_go_back_uncounted(site: Site) -> None:
    other = site.put("wait_for_gate", "b")
    site.start("--job-timeout", "1", "--threads", "2")
    site.wait_until(lambda: site.ledger("begun") == ["b"], "the other job")
    record = site.queue.lookup(other)
    hung = site.queue.put(
        {"args": ["a"], "kwargs": {}},
        task="shop.tasks.hang",
        headers={"timeout": 0.2},
    )
    site.wait_until(lambda: site.queue.lookup(hung).state == "failed", "the failure")
    site.open_gate()
    site.wait_until(lambda: site.queue.lookup(other).state == "acked", "the other job's ack")
    assert record.attempts == site.queue.lookup(other).attempts == 1


def test_processes_are_renewed_after_so_many_jobs(site: Site) -> None:
    for number in range(9):
        site.put("work", number)
    worker = site.start("--processes", "1", "--job-timeout", "60", "--max-jobs", "3")
    site.wait_until(lambda: site.queue.stats().acked == 9, "every job")
    site.wait_until(lambda: worker.log.count("Worker process 1 is ") >= 3, "new processes")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert "9 done" in worker.log


def test_a_second_signal_gives_the_jobs_of_every_process_back(site: Site) -> None:
    ids = [site.put("wait_for_gate", name) for name in "ab"]
    worker = site.start("--processes", "2", "--threads", "1")
    site.wait_until(lambda: len(site.ledger("begun")) == 2, "both jobs")
    worker.send(signal.SIGTERM)
    worker.wait_for_log("The worker stops")
    time.sleep(1.1)  # nearer ones count as the first, by design
    worker.send(signal.SIGTERM)
    assert worker.wait() == 1
    records = [site.queue.lookup(id) for id in ids]
    assert [(record.state, record.attempts) for record in records] == [("ready", 0)] * 2


def test_a_process_that_crashes_at_once_is_not_started_without_end(site: Site) -> None:
    site.put("die")
    worker = site.start("--processes", "2")
    worker.wait_for_log("the next one starts in 0.5 s")
    worker.send(signal.SIGTERM)
    worker.wait()


def test_stacks_of_every_process_are_shown(site: Site) -> None:
    site.put("wait_for_gate", "a")
    worker = site.start("--processes", "2")
    started(site, worker, 2)
    site.wait_until(lambda: site.ledger("begun"), "the job")
    asked = 0.0

    def shown() -> bool:  # a busy machine may mix what two processes write: so ask again
        nonlocal asked
        if time.monotonic() - asked > 1:
            asked = time.monotonic()
            worker.send(signal.SIGUSR1)
        return "in wait_for_gate" in worker.log

    site.wait_until(shown, "the stack of the job")


def test_burst_with_processes_ends_with_4_where_a_job_failed(site: Site) -> None:
    site.put("fail")
    assert site.start("--processes", "2", "--burst", "--fail-on-error").wait() == 4
