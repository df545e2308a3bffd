"""Workers as processes: killed, stopped, stopped twice, and their exit codes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tests.integration.worker_site import Site

HOLD_THE_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


def test_what_a_killed_worker_left_is_finished_by_another(site: Site) -> None:
    ids = [site.put("work", number, 0.1) for number in range(60)]
    first = site.start("--threads", "4")
    site.wait_until(lambda: len(site.ledger("ended")) >= 8, "jobs of the first worker")
    first.send(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    interrupted = set(site.ledger("begun")) - set(site.ledger("ended"))
    assert interrupted
    second = site.start("--threads", "4")
    site.wait_until(lambda: site.queue.stats().acked == len(ids), "every job acked")
    second.send(signal.SIGTERM)
    assert second.wait() == 0
    assert set(site.ledger("ended")) == {str(number) for number in range(60)}
    stats = site.queue.stats()
    assert (stats.ready, stats.processing, stats.failed) == (0, 0, 0)
    attempts = [site.queue.lookup(id).attempts for id in ids]
    assert 1 <= attempts.count(2) <= 4  # no more than the threads held
    assert attempts.count(1) == len(ids) - attempts.count(2)


def test_two_workers_run_each_job_once(site: Site) -> None:
    for number in range(300):
        site.put("work", number)
    workers = [site.start("--threads", "2") for _ in range(2)]
    site.wait_until(lambda: site.queue.stats().acked == 300, "every job acked")
    for worker in workers:
        worker.wait_for_log("serves default, emails")
        worker.send(signal.SIGTERM)
    assert [worker.wait() for worker in workers] == [0, 0]
    assert sorted(site.ledger("begun"), key=int) == [str(number) for number in range(300)]


def test_a_job_of_five_leases_runs_once(site: Site) -> None:
    id = site.put("work", "long", 7.5)
    workers = [site.start(), site.start()]
    site.wait_until(lambda: site.queue.lookup(id).state == "acked", "the long job")
    for worker in workers:
        worker.wait_for_log("serves default, emails")
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    assert site.ledger("begun") == ["long"]
    assert site.queue.lookup(id).attempts == 1


def test_a_job_that_kills_its_worker_becomes_a_dead_letter_saying_so(site: Site) -> None:
    id = site.put("die")
    for _ in range(3):  # max_retries is 2
        assert site.start().wait() == 9
    good = site.put("work", "good")
    site.start()
    site.wait_until(lambda: site.queue.lookup(id).state == "failed", "the dead letter")
    site.wait_until(lambda: site.queue.lookup(good).state == "acked", "the good job")
    record = site.queue.lookup(id)
    assert (record.reason, record.attempts) == ("exhausted", 3)
    assert "worker died" in record.error.message
    assert site.ledger("begun").count("die") == 3
    assert [attempt.outcome for attempt in record.history] == ["lapsed"] * 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_first_signal_finishes_the_running_job(site: Site, number: signal.Signals) -> None:
    running, waiting = site.put("wait_for_gate", "a"), site.put("work", "b")
    worker = site.start("--threads", "1")
    site.wait_until(lambda: site.ledger("begun"), "the job")
    worker.send(number)
    worker.wait_for_log(f"received {number.name}")
    site.open_gate()
    assert worker.wait() == 0
    assert site.queue.lookup(running).state == "acked"
    record = site.queue.lookup(waiting)
    assert (record.state, record.attempts) == ("ready", 0)
    assert "1 done, 0 failed, 0 retried" in worker.log


def test_two_signals_at_once_count_as_one(site: Site) -> None:
    id = site.put("wait_for_gate", "a")
    worker = site.start()
    site.wait_until(lambda: site.ledger("begun"), "the job")
    worker.send(signal.SIGINT)
    worker.send(signal.SIGTERM)  # as a terminal and a supervisor do
    worker.wait_for_log("The worker stops")
    site.open_gate()
    assert worker.wait() == 0
    assert site.queue.lookup(id).state == "acked"


def test_a_second_signal_gives_running_jobs_back_uncounted(site: Site) -> None:
    id = site.put("wait_for_gate", "a")
    worker = site.start()
    site.wait_until(lambda: site.ledger("begun"), "the job")
    worker.send(signal.SIGTERM)
    worker.wait_for_log("The worker stops")
    time.sleep(1.1)  # nearer ones count as the first, by design
    worker.send(signal.SIGTERM)
    assert worker.wait() == 1
    record = site.queue.lookup(id)
    assert (record.state, record.attempts) == ("ready", 0)
    assert "was given back" in worker.log
    assert id in worker.log
    assert site.ledger("ended") == []


def test_quit_gives_running_jobs_back_at_once(site: Site) -> None:
    id = site.put("wait_for_gate", "a")
    worker = site.start("--threads", "3")
    site.wait_until(lambda: site.ledger("begun"), "the job")
    worker.send(signal.SIGQUIT)
    assert worker.wait() == 1
    assert site.queue.lookup(id).state == "ready"


def test_the_shutdown_timeout_gives_running_jobs_back(site: Site) -> None:
    id = site.put("wait_for_gate", "a")
    worker = site.start("--shutdown-timeout", "0.2")
    site.wait_until(lambda: site.ledger("begun"), "the job")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 1
    record = site.queue.lookup(id)
    assert (record.state, record.attempts) == ("ready", 0)


def test_an_idle_worker_ends_at_the_first_signal(site: Site) -> None:
    worker = site.start()
    worker.wait_for_log("serves default, emails")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def test_an_idle_worker_takes_a_job_put_by_another_process(site: Site) -> None:
    worker = site.start()
    worker.wait_for_log("serves default, emails")
    site.queue.put({"n": 1})
    site.wait_until(lambda: site.ledger("handled") == ["{'n': 1}"], "the job")


def test_a_job_done_while_another_process_holds_the_lock_is_acked_once(site: Site) -> None:
    id = site.put("wait_for_gate", "a")
    worker = site.start()
    site.wait_until(lambda: site.ledger("begun"), "the job")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK, str(site.folder / "queue" / "localqueue.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        site.open_gate()
        site.wait_until(lambda: site.ledger("ended"), "the job's end")
        assert site.queue.lookup(id).state == "processing"
    finally:
        holder.communicate(b"go on\n", timeout=60)
    site.wait_until(lambda: site.queue.lookup(id).state == "acked", "the ack")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert site.ledger("begun") == ["a"]


def test_burst_ends_with_0_when_the_queues_are_empty(site: Site) -> None:
    site.put("work", 1)
    site.put("fail")
    worker = site.start("--burst")
    assert worker.wait() == 0
    assert "1 done, 1 failed" in worker.log


def test_fail_on_error_ends_with_4_where_a_job_failed(site: Site) -> None:
    site.put("fail")
    assert site.start("--burst", "--fail-on-error").wait() == 4


def test_an_unknown_queue_ends_with_2_and_the_known_names(site: Site) -> None:
    worker = site.start("--queue", "nowhere")
    assert worker.wait() == 2
    assert "'nowhere'" in worker.log
    assert "default, emails" in worker.log
    assert "Traceback" not in worker.log


def test_absurd_options_and_settings_end_with_2(site: Site) -> None:
    assert site.start("--threads", "0").wait() == 2
    broken = site.start(DJANGO_SETTINGS_MODULE="shop.broken_settings")
    assert broken.wait() == 2
    assert "LOCATOIN" in broken.log


def test_a_store_that_is_no_database_ends_with_3_and_is_left_alone(site: Site) -> None:
    site.queue.close()
    noise = b"this is no database, and it is long enough to be told apart from one" * 100
    for path in (site.folder / "queue").iterdir():
        path.unlink()
    path = site.folder / "queue" / "localqueue.db"
    path.write_bytes(noise)
    worker = site.start()
    assert worker.wait() == 3
    assert "localqueue.db" in worker.log
    assert "Traceback" not in worker.log
    assert path.read_bytes() == noise
