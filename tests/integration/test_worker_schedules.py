"""Schedules with workers as processes: started, killed and started again."""

from __future__ import annotations

import signal

from django_localqueue.records import ScheduleRecord
from tests.integration.worker_site import Site

DUE_TIMES = 6


def tick(site: Site) -> ScheduleRecord:
    (found,) = [record for record in site.queue.schedules() if record.name == "tick"]
    return found


def test_each_due_time_gives_one_job_though_three_workers_restart(site: Site) -> None:
    workers = [site.start() for _ in range(3)]
    for worker in workers:
        worker.wait_for_log("serves default, emails")
    site.wait_until(site.queue.schedules, "the schedule")
    due = []
    for number in range(DUE_TIMES):
        moment = site.queue.now() + 200_000
        site.queue.pause_schedule("tick", False, next_at=moment)
        due.append(moment)
        site.wait_until(lambda: tick(site).last_at == due[-1], f"due time {number}")
        workers[number % 3].send(signal.SIGKILL if number % 2 else signal.SIGTERM)
        workers[number % 3].wait()
        workers[number % 3] = site.start()
        workers[number % 3].wait_for_log("serves default, emails")
    site.wait_until(lambda: len(site.ledger("ended")) >= DUE_TIMES, "every job")
    for worker in workers:
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    stats = site.queue.stats()
    assert (stats.ready, stats.processing) == (0, 0)
    assert stats.acked == DUE_TIMES


def test_an_old_due_time_is_made_up_for_once_when_a_worker_starts(site: Site) -> None:
    first = site.start()
    first.wait_for_log("serves default, emails")
    site.wait_until(site.queue.schedules, "the schedule")
    first.send(signal.SIGTERM)
    assert first.wait() == 0
    site.queue.pause_schedule("tick", False, next_at=site.queue.now() - 86_400_000_000)
    second = site.start()
    site.wait_until(lambda: site.ledger("ended") == ["tick"], "the job")
    assert "missed 1 times while no worker ran" in second.log
    second.send(signal.SIGTERM)
    assert second.wait() == 0
    assert site.queue.stats().acked == 1
