"""Schedules through both changes of summer time, with three workers as processes that restart.

The stores of the site have a clock that stands still until the test moves it.
"""

from __future__ import annotations

import datetime
import os
import signal
from collections.abc import Callable

import pytest

from django_localqueue.backends.rqlite import RqliteQueue
from django_localqueue.records import ScheduleRecord
from tests.integration.worker_site import Site, WorkerProcess

MINUTE = 60_000_000
#: The night of each change in Berlin, from two hours before it, and when the clock on the wall
#: there says half past two, or goes past it: by what the pages say, one job, at this time.
SPRING = ("2026-03-28T23:00", "2026-03-29T01:00")
AUTUMN = ("2026-10-24T23:00", "2026-10-25T00:30")
CLOCK = """
from django_localqueue.backends.{module} import {name}
from django_localqueue.schedules import chore
from shop.ledger import BASE_DIR

chore.LONGEST = 0.05  # seconds between two looks, for the clock goes in jumps


class MovedQueue({name}):
    def now(self):
        return int((BASE_DIR / "clock").read_text())
"""
SETTINGS = """
LOCALQUEUE["default"]["BACKEND"] = "shop.clock.MovedQueue"
LOCALQUEUE_SCHEDULES = {{
    name: {{
        "TASK": "shop.tasks.work",
        "CRON": cron,
        "TIMEZONE": "Europe/Berlin",
        "ARGS": [name],
        "MISSED": missed,
    }}
    for name, cron, missed in {schedules}
}}
"""


def at(text: str) -> int:
    """Microseconds of a UTC time."""
    moment = datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
    return round(moment.timestamp()) * 1_000_000


class Clock:
    """The clock of the site's stores."""

    def __init__(self, site: Site, schedules: list[tuple[str, str, str]], start: int) -> None:
        self._path = site.folder / "clock"
        kind = type(site.queue)
        module = "rqlite" if kind is RqliteQueue else "sqlite"
        (site.folder / "shop" / "clock.py").write_text(
            CLOCK.format(module=module, name=kind.__name__)
        )
        site.append("settings", SETTINGS.format(schedules=schedules))
        self.now = start
        self.move_to(start)

    def move_to(self, moment: int) -> None:
        self.now = moment
        new = self._path.with_suffix(".new")
        new.write_text(str(moment))
        os.replace(new, self._path)


def stored(site: Site) -> dict[str, ScheduleRecord]:
    return {record.name: record for record in site.queue.schedules()}


def all_done(site: Site, clock: Clock) -> Callable[[], bool]:
    """Whether whatever was due by the clock is put and run."""

    def look() -> bool:
        stats = site.queue.stats()
        due = any(record.next_at <= clock.now for record in stored(site).values())
        return not due and not stats.ready and not stats.processing

    return look


def stop(*workers: WorkerProcess) -> None:
    for worker in workers:
        worker.send(signal.SIGTERM)
    assert [worker.wait() for worker in workers] == [0] * len(workers)


@pytest.mark.parametrize(("start", "daily"), [SPRING, AUTUMN], ids=["spring", "autumn"])
def test_three_workers_that_restart_put_one_job_a_due_time_through_a_change(
    any_site: Site, start: str, daily: str
) -> None:
    site = any_site
    schedules = [("daily", "30 2 * * *", "once"), ("halves", "*/30 * * * *", "once")]
    clock = Clock(site, schedules, at(start))
    workers = [site.start() for _ in range(3)]
    for worker in workers:
        worker.wait_for_log("serves default, emails")
    site.wait_until(lambda: len(stored(site)) == 2, "the schedules")
    seen: dict[str, list[int]] = {"daily": [], "halves": []}
    halves = [at(start) + half * 30 * MINUTE for half in range(1, 9)]
    for number, moment in enumerate(halves):
        clock.move_to(moment)
        # One of them ends in the middle of it, and its successor begins there.
        leaving = workers[number % 3]
        leaving.send(signal.SIGKILL if number % 2 else signal.SIGTERM)
        leaving.wait()
        workers[number % 3] = site.start()
        site.wait_until(all_done(site, clock), f"what is due at step {number}")
        for name, record in stored(site).items():
            if record.last_at is not None and record.last_at not in seen[name]:
                seen[name].append(record.last_at)
    for worker in workers:
        worker.wait_for_log("serves default, emails")
    stop(*workers)
    assert seen == {"daily": [at(daily)], "halves": halves}
    assert site.queue.stats().acked == 9
    assert sorted(set(site.ledger("ended"))) == ["daily", "halves"]
    jobs = site.acked()
    assert sum('"daily"' in job.payload.decode() for job in jobs) == 1


@pytest.mark.parametrize("change", ["2026-03-29", "2026-10-25"], ids=["spring", "autumn"])
def test_what_three_workers_find_missed_over_a_change_follows_the_policy(
    any_site: Site, change: str
) -> None:
    site = any_site
    began = at(f"{change}T12:00") - 2 * 24 * 60 * MINUTE
    schedules = [
        ("daily", "30 2 * * *", "all"),
        ("halves", "*/30 * * * *", "all"),
        ("last", "*/30 * * * *", "once"),
        ("none", "*/30 * * * *", "skip"),
    ]
    clock = Clock(site, schedules, began)
    first = site.start()
    site.wait_until(lambda: len(stored(site)) == 4, "the schedules")
    first.wait_for_log("serves default, emails")
    stop(first)
    clock.move_to(began + 3 * 24 * 60 * MINUTE + 10 * MINUTE)
    workers = [site.start() for _ in range(3)]
    site.wait_until(all_done(site, clock), "what was missed")
    for worker in workers:
        worker.wait_for_log("serves default, emails")
    stop(*workers)
    ended = site.ledger("ended")
    names = ("daily", "halves", "last", "none")
    assert {name: ended.count(name) for name in names} == {
        "daily": 3,
        "halves": 3 * 48,
        "last": 1,
        "none": 0,
    }
    assert stored(site)["last"].last_at == clock.now - 10 * MINUTE
    assert site.queue.stats().acked == 3 + 3 * 48 + 1
