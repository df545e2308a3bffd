"""Flags and signals of the worker command, each with a process of its own."""

from __future__ import annotations

import json
import re
import signal
import urllib.error
import urllib.request

import pytest

from tests.integration.worker_site import Site, WorkerProcess


def page(port: str, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def port_of(worker: WorkerProcess) -> str:
    worker.wait_for_log("/live and /ready")
    found = re.search(r"127\.0\.0\.1:(\d+)/live", worker.log)
    assert found
    return found[1]


def test_max_jobs_ends_the_worker_with_0(site: Site) -> None:
    for number in range(5):
        site.put("work", number)
    worker = site.start("--max-jobs", "3", "--threads", "1")
    assert worker.wait() == 0
    assert site.queue.stats().acked == 3
    assert "max-jobs was reached" in worker.log


def test_max_idle_ends_an_idle_worker_with_0(site: Site) -> None:
    site.put("work", 1)
    worker = site.start("--max-idle", "0.5")
    assert worker.wait() == 0
    assert site.queue.stats().acked == 1
    assert "max-idle was reached" in worker.log


def test_max_lifetime_ends_the_worker_with_0(site: Site) -> None:
    worker = site.start("--max-lifetime", "0.5")
    assert worker.wait() == 0
    assert "max-lifetime was reached" in worker.log


def test_max_memory_ends_the_worker_after_the_job_that_exceeds_it(site: Site) -> None:
    id = site.put("eat", 300)
    worker = site.start("--max-memory", "250")
    assert worker.wait() == 0
    assert site.queue.lookup(id).state == "acked"
    assert "max-memory was reached" in worker.log


def test_a_quiet_worker_claims_nothing_and_goes_on_when_told(site: Site) -> None:
    worker = site.start("--name", "w")
    worker.wait_for_log("serves default, emails")
    worker.send(signal.SIGTSTP)
    worker.wait_for_log("claims no more jobs")
    id = site.put("work", 1)
    site.wait_until(lambda: site.queue.workers()[0].state == "quiet", "the report")
    assert site.queue.lookup(id).state == "ready"
    worker.send(signal.SIGCONT)
    site.wait_until(lambda: site.queue.lookup(id).state == "acked", "the job")
    worker.send(signal.SIGUSR2)
    site.wait_until(lambda: worker.log.count("claims no more jobs") == 2, "quiet again")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def test_a_worker_does_what_the_console_asks(site: Site) -> None:
    worker = site.start("--name", "w")
    site.wait_until(lambda: [w.name for w in site.queue.workers()] == ["w"], "the report")
    assert site.queue.command_worker("w", "quiet")
    site.wait_until(lambda: site.queue.workers()[0].state == "quiet", "quiet")
    assert site.queue.command_worker("w", "resume")
    site.wait_until(lambda: site.queue.workers()[0].state == "running", "running")
    assert site.queue.command_worker("w", "stop")
    assert worker.wait() == 0
    assert site.queue.workers() == []


def test_a_report_shows_what_runs(site: Site) -> None:
    id = site.put("wait_for_gate", "a")
    worker = site.start("--name", "w", "--threads", "2")
    site.wait_until(lambda: site.ledger("begun"), "the job")
    worker.send(signal.SIGTSTP)  # a change of state is reported at once
    site.wait_until(lambda: site.queue.workers()[0].running, "the running job")
    (report,) = site.queue.workers()
    (running,) = report.running
    assert (running.id, running.task, running.queue) == (id, "shop.tasks.wait_for_gate", "default")
    assert (report.pid, report.concurrency) == (worker.process.pid, 2)
    assert report.rss > 1_000_000


def test_hup_is_ignored_with_a_warning(site: Site) -> None:
    worker = site.start()
    worker.wait_for_log("serves default, emails")
    worker.send(signal.SIGHUP)
    worker.wait_for_log("Received SIGHUP, which is ignored")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def test_usr1_shows_all_stacks_and_the_worker_goes_on(site: Site) -> None:
    site.put("wait_for_gate", "a")
    worker = site.start()
    site.wait_until(lambda: site.ledger("begun"), "the job")
    worker.send(signal.SIGUSR1)
    worker.wait_for_log("in wait_for_gate")
    site.open_gate()
    site.wait_until(lambda: site.queue.stats().acked == 1, "the job's end")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_health_port_answers(site: Site, processes: str) -> None:
    worker = site.start("--health-port", "0", "--processes", processes)
    port = port_of(worker)
    site.wait_until(lambda: page(port, "/ready") == 200, "ready")
    assert page(port, "/live") == 200
    assert page(port, "/") == 404
    id = site.put("wait_for_gate", "a")
    site.wait_until(lambda: site.ledger("begun"), "the job")
    worker.send(signal.SIGTERM)
    site.wait_until(lambda: page(port, "/ready") == 503, "no longer ready")
    assert page(port, "/live") == 200
    site.open_gate()
    assert worker.wait() == 0
    assert site.queue.lookup(id).state == "acked"


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_health_file_is_there_while_the_worker_lives(site: Site, processes: str) -> None:
    path = site.folder / "alive"
    worker = site.start("--health-file", str(path), "--processes", processes)
    site.wait_until(path.exists, "the file")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert not path.exists()


def test_a_pidfile_holds_a_second_worker_off(site: Site) -> None:
    path = site.folder / "worker.pid"
    worker = site.start("--pidfile", str(path))
    worker.wait_for_log("serves default, emails")
    assert path.read_text() == f"{worker.process.pid}\n"
    second = site.start("--pidfile", str(path))
    assert second.wait() == 2
    assert str(worker.process.pid) in second.log
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert not path.exists()


def test_a_pidfile_that_a_killed_worker_left_is_taken_over(site: Site) -> None:
    path = site.folder / "worker.pid"
    worker = site.start("--pidfile", str(path))
    worker.wait_for_log("serves default, emails")
    worker.send(signal.SIGKILL)
    worker.wait()
    third = site.start("--pidfile", str(path), "--burst")
    assert third.wait() == 0


def test_check_starts_nothing(site: Site) -> None:
    id = site.put("work", 1)
    worker = site.start("--check")
    assert worker.wait() == 0
    assert "can start" in worker.log
    assert site.queue.lookup(id).state == "ready"
    assert site.start("--check", "--queue", "nowhere").wait() == 2


def test_the_log_can_be_json_with_the_job_in_fields(site: Site) -> None:
    id = site.put("work", 1)
    worker = site.start("--burst", "--log-format", "json")
    assert worker.wait() == 0
    lines = [json.loads(line) for line in worker.log.splitlines() if line.startswith("{")]
    (ended,) = [line for line in lines if line.get("outcome") == "ack"]
    assert ended["job_id"] == id
    assert ended["queue"] == "default"
    assert ended["task"] == "shop.tasks.work"
    assert ended["seconds"] >= 0


def test_code_that_cant_be_compiled_is_waited_out(site: Site) -> None:
    worker = site.start("--reload")
    worker.wait_for_log("serves default, emails")
    tasks = site.folder / "shop" / "tasks.py"
    good = tasks.read_text()
    tasks.write_text(good + "\ndef broken(:\n")
    worker.wait_for_log("can't be compiled")
    tasks.write_text(good + "\nMENDED = True\n")
    site.wait_until(lambda: worker.log.count("serves default, emails") == 2, "a new start")


def test_async_tasks_share_one_loop(site: Site) -> None:
    for number in range(8):
        site.put("note_loop", number)
    left = site.put("leave")
    assert site.start("--burst", "--threads", "4").wait() == 0
    assert len(site.ledger("loop")) == 8
    assert len(set(site.ledger("loop"))) == 1
    assert site.queue.lookup(left).error.error_class == "SystemExit"


def test_a_name_that_a_live_worker_has_is_refused(site: Site) -> None:
    first = site.start("--name", "w")
    site.wait_until(lambda: site.queue.workers(), "the report")
    second = site.start("--name", "w")
    assert second.wait() == 2
    assert "is alive already" in second.log
    first.send(signal.SIGTERM)
    assert first.wait() == 0


def test_a_thread_past_its_timeout_is_warned_of_and_shown(site: Site) -> None:
    site.queue.put(
        {"args": ["a"], "kwargs": {}}, task="shop.tasks.wait_for_gate", headers={"timeout": 0.2}
    )
    worker = site.start("--name", "w")
    worker.wait_for_log("has run longer than its timeout of 0.2 seconds")
    worker.send(signal.SIGTSTP)
    site.wait_until(
        lambda: any(job.overdue for job in site.queue.workers()[0].running), "it is shown"
    )
    site.open_gate()
