"""Schedules: when they are due, what the code declares, what a worker does at each look."""

from __future__ import annotations

import datetime
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_localqueue import InvalidInput, JobFilter, queues
from django_localqueue.records import ScheduleRecord
from django_localqueue.schedules import declared, pause, resume, run_now, schedule
from django_localqueue.schedules.chore import KEPT, Scheduler
from django_localqueue.schedules.cron import Timing
from django_localqueue.schedules.declared import problems
from tests.unit.task_samples import add, patient, send

MINUTE = 60_000_000


def at(text: str) -> int:
    """Microseconds of a UTC time."""
    moment = datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
    return round(moment.timestamp()) * 1_000_000


def utc(moment: int) -> str:
    return datetime.datetime.fromtimestamp(moment // 1_000_000, datetime.UTC).strftime(
        "%m-%d %H:%M"
    )


def times(expression: str, zone: str, start: str, count: int) -> list[str]:
    timing = Timing(expression, zone)
    moment, found = at(start), []
    for _ in range(count):
        moment = timing.after(moment)
        found.append(utc(moment))
    return found


class TestTimes:
    def test_a_time_of_day_is_of_its_time_zone(self) -> None:
        assert times("0 3 * * *", "Europe/Berlin", "2026-01-10T00:00", 2) == [
            "01-10 02:00",
            "01-11 02:00",
        ]

    def test_a_time_that_spring_skips_is_run_right_after_the_gap(self) -> None:
        # On 2026-03-29 Berlin goes from 02:00 to 03:00, which is 01:00 UTC.
        assert times("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00", 3) == [
            "03-28 01:30",
            "03-29 01:00",
            "03-30 00:30",
        ]

    def test_a_time_that_comes_twice_in_autumn_is_run_once(self) -> None:
        # On 2026-10-25 Berlin goes from 03:00 back to 02:00, which is 01:00 UTC.
        assert times("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", 2) == [
            "10-25 00:30",
            "10-26 01:30",
        ]

    @pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
    def test_what_runs_every_half_hour_does_so_through_the_change(self, day: str) -> None:
        timing = Timing("*/30 * * * *", "Europe/Berlin")
        found = list(timing.until(timing.after(at(f"{day}T00:00") - 1), at(f"{day}T03:00")))
        assert found == [at(f"{day}T00:00") + half * 30 * MINUTE for half in range(7)]

    def test_a_shorthand_is_what_it_says(self) -> None:
        assert times("@daily", "UTC", "2026-01-10T00:00", 1) == ["01-11 00:00"]

    def test_without_the_extra_it_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "cronsim", None)  # as where it isn't installed
        with pytest.raises(InvalidInput, match=r"django-localqueue\[schedules\]"):
            Timing("0 3 * * *", "UTC")

    @pytest.mark.parametrize(
        "expression", ["", "* * * *", "61 * * * *", "a b c d e", "* * * * * *", "0 0 30 2 *", None]
    )
    def test_a_wrong_expression_is_refused(self, expression: Any) -> None:
        with pytest.raises(InvalidInput, match="cron expression"):
            Timing(expression, "UTC")

    @pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd"])
    def test_an_unknown_time_zone_is_refused(self, zone: str) -> None:
        with pytest.raises(InvalidInput, match="time zone"):
            Timing("* * * * *", zone)


@pytest.fixture
def _nothing_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared, "_declared", {})


class Clock:
    """The store's clock, as the scheduler reads it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, now: str) -> None:
        self.now = at(now)
        self._patch = monkeypatch
        for queue in queues.all():
            monkeypatch.setattr(queue, "now", lambda: self.now)

    def go_on(self, minutes: float) -> None:
        self.now += round(minutes * MINUTE)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, _nothing_declared: None) -> Iterator[Clock]:
    queues.close_all()
    yield Clock(monkeypatch, "2026-01-10T00:00")
    queues.close_all()


def look() -> float:
    return Scheduler(queues.all()).run("w", threading.Event())


def waiting(alias: str = "default") -> list[Any]:
    records = queues[alias].list(JobFilter(state="ready")).records
    return [record.task for record in records]


def row(name: str) -> ScheduleRecord:
    (found,) = [one for one in queues["default"].schedules() if one.name == name]
    return found


class TestLooks:
    def test_a_job_is_put_when_it_is_due_and_not_before(self, clock: Clock) -> None:
        schedule("*/5 * * * *", args=(1,))(add)
        look()
        clock.go_on(4.9)
        look()
        assert waiting() == []
        clock.go_on(0.2)
        look()
        assert waiting() == ["tests.unit.task_samples.add"]
        job = queues["default"].get_nowait()
        assert job.data == {"args": [1], "kwargs": {}}
        assert job.headers["schedule"] == "tests.unit.task_samples.add"
        found = row("tests.unit.task_samples.add")
        assert (found.last_at, found.last_id) == (at("2026-01-10T00:05"), job.id)
        assert found.next_at == at("2026-01-10T00:10")

    def test_many_looks_and_many_workers_make_one_job_a_due_time(self, clock: Clock) -> None:
        schedule("*/5 * * * *", args=(1,))(add)
        for _ in range(60):
            clock.go_on(0.5)
            look()
            look()
        assert len(waiting()) == 6

    def test_it_is_put_into_the_queue_of_its_task(self, clock: Clock) -> None:
        schedule("*/5 * * * *", args=("ann",))(send)
        look()
        clock.go_on(5)
        look()
        assert waiting("emails") == ["tests.unit.task_samples.send"]
        assert waiting() == []

    def test_its_result_is_found_by_its_id(self, clock: Clock) -> None:
        schedule("* * * * *", args=(1,))(add)
        look()
        clock.go_on(1)
        look()
        assert str(add.get_result(row(add.module_path).last_id).status) == "READY"

    @pytest.mark.parametrize(("missed", "jobs"), [("skip", 0), ("once", 1), ("all", 12)])
    def test_what_was_missed_follows_the_policy(self, clock: Clock, missed: str, jobs: int) -> None:
        schedule("*/5 * * * *", args=(1,), missed=missed)(add)
        look()
        clock.go_on(62)  # the last due time is two minutes ago
        look()
        assert len(waiting()) == jobs
        assert row(add.module_path).next_at == at("2026-01-10T01:05")

    def test_the_last_of_the_missed_is_the_one_that_is_run(self, clock: Clock) -> None:
        schedule("*/5 * * * *", args=(1,), missed="once")(add)
        look()
        clock.go_on(62)
        look()
        assert row(add.module_path).last_at == at("2026-01-10T01:00")

    def test_skipping_what_was_missed_still_runs_what_is_due_now(self, clock: Clock) -> None:
        schedule("*/5 * * * *", args=(1,), missed="skip")(add)
        look()
        clock.go_on(60.5)
        look()
        assert len(waiting()) == 1

    def test_a_job_does_not_overlap_the_one_before_if_told_so(self, clock: Clock) -> None:
        schedule("* * * * *", args=(1,), overlap="skip")(add)
        look()
        for _ in range(3):
            clock.go_on(1)
            look()
        assert len(waiting()) == 1
        queues["default"].ack(queues["default"].get_nowait())
        clock.go_on(1)
        look()
        assert len(waiting()) == 1

    def test_across_summer_time_there_is_one_job_a_day(self, clock: Clock) -> None:
        clock.now = at("2026-03-27T12:00")
        schedule("30 2 * * *", timezone="Europe/Berlin", args=(1,))(add)
        fired = []
        for _ in range(24 * 4 * 4):
            look()
            last = row(add.module_path).last_at
            if last is not None and last not in fired:
                fired.append(last)
            clock.go_on(15)
        assert [utc(moment) for moment in fired] == [
            "03-28 01:30",
            "03-29 01:00",
            "03-30 00:30",
            "03-31 00:30",
        ]
        assert len(waiting()) == 4

    def test_a_paused_one_puts_nothing_and_goes_on_without_making_up(self, clock: Clock) -> None:
        schedule("*/5 * * * *", args=(1,), missed="all")(add)
        look()
        pause(add.module_path)
        clock.go_on(62)
        look()
        assert waiting() == []
        assert resume(add.module_path) == at("2026-01-10T01:05")
        look()
        assert waiting() == []
        clock.go_on(4)
        look()
        assert len(waiting()) == 1

    def test_it_can_be_run_now(self, clock: Clock) -> None:
        schedule("0 0 1 1 *", args=(7,))(add)
        look()
        before = row(add.module_path)
        id = run_now(add.module_path)
        assert queues["default"].get_nowait().id == id
        assert row(add.module_path) == before

    def test_one_that_no_code_has_stays_for_days_and_puts_nothing(
        self, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        schedule("*/5 * * * *", args=(1,))(add)
        look()
        monkeypatch.setattr(declared, "_declared", {})
        clock.go_on(24 * 60)
        look()
        assert waiting() == []
        assert row(add.module_path)
        clock.now = row(add.module_path).seen_at + KEPT + MINUTE
        look()
        assert queues["default"].schedules() == []

    def test_the_settings_declare_schedules_too(self, clock: Clock) -> None:
        entry = {"TASK": add.module_path, "CRON": "*/5 * * * *", "ARGS": [3]}
        with override_settings(LOCALQUEUE_SCHEDULES={"threes": entry}):
            look()
            clock.go_on(5)
            look()
        assert queues["default"].get_nowait().data == {"args": [3], "kwargs": {}}
        assert row("threes").task == add.module_path

    def test_the_time_zone_is_that_of_the_settings_unless_given(self, clock: Clock) -> None:
        schedule("0 3 * * *", args=(1,))(add)
        with override_settings(TIME_ZONE="Europe/Berlin"):
            look()
        assert row(add.module_path).next_at == at("2026-01-10T02:00")

    def test_a_wrong_one_does_not_keep_others(self, clock: Clock) -> None:
        schedule("nonsense", args=(1,))(add)
        schedule("* * * * *", args=("x",))(send)
        look()
        clock.go_on(1)
        look()
        assert waiting("emails") == ["tests.unit.task_samples.send"]


@pytest.mark.usefixtures("_nothing_declared")
class TestProblems:
    def test_none_of_a_good_one(self) -> None:
        schedule("@hourly", args=(1,))(add)
        assert list(problems()) == []

    def test_a_wrong_expression_names_its_task(self) -> None:
        schedule("99 * * * *", args=(1,))(add)
        ((message, _),) = problems()
        assert "@schedule of tests.unit.task_samples.add" in message
        assert "99 * * * *" in message

    @pytest.mark.parametrize(
        ("entry", "word"),
        [
            ({"CRON": "* * * * *"}, "task"),
            ({"CRON": "* * * * *", "TASK": "no.such.task"}, "no"),
            ({"CRON": "* * * * *", "TASK": add.module_path, "TIMEZONE": "Mars/X"}, "Mars"),
            ({"CRON": "* * * * *", "TASK": add.module_path, "MISSED": "never"}, "never"),
            ({"CRON": "* * * * *", "TASK": add.module_path, "KWARGS": {"a": object()}}, "JSON"),
            ({"CRON": "* * * * *", "TASK": add.module_path, "KWARG": {}}, "KWARGS"),
            ({"CRON": 5, "TASK": add.module_path}, "str"),
            ("* * * * *", "dict"),
        ],
    )
    def test_a_wrong_setting_is_told(self, entry: Any, word: str) -> None:
        with override_settings(LOCALQUEUE_SCHEDULES={"x": entry}):
            told = [" ".join(problem) for problem in problems()]
        assert told
        assert "LOCALQUEUE_SCHEDULES['x']" in told[0]
        assert word in told[0]

    def test_two_of_one_name_are_told(self) -> None:
        schedule("@daily", name="same", args=(1,))(add)
        schedule("@daily", name="same", args=("x",))(send)
        ((message, _),) = problems()
        assert "same name 'same'" in message

    def test_the_decorator_belongs_on_a_task(self) -> None:
        with pytest.raises(InvalidInput, match="above @task"):
            schedule("@daily")(len)


def test_an_unknown_schedule_is_named_with_the_known(clock: Clock) -> None:
    with pytest.raises(InvalidInput, match="there are none"):
        run_now("nobody")


def test_its_jobs_have_the_options_of_the_task(clock: Clock) -> None:
    schedule("* * * * *", args=("ann",))(patient)
    look()
    clock.go_on(1)
    look()
    job = queues["default"].get_nowait()
    assert job.headers["timeout"] == 7
    assert job.group_id == "mails"
