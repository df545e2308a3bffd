"""The page of tasks: run times and failures of what ended last."""

from __future__ import annotations

import pytest

from django_localqueue import queues
from django_localqueue.console.display import duration
from django_localqueue.console.views import tasks
from django_localqueue.types import JobRecord
from tests.unit.test_console.tools import LIST, Page

TASKS = f"{LIST}tasks/"


def record(task, state, started, took, **values):
    """Return a job that ran from ``started`` seconds for ``took``."""
    begin, end = round(started * 1_000_000), round((started + took) * 1_000_000)
    return JobRecord(
        f"{task}{started}",
        "default",
        state,
        b"1",
        (end, 1),
        1,
        task=task,
        started_at=begin,
        finished_at=end,
        **values,
    )


def test_each_task_has_its_run_times_and_failures(viewer, monkeypatch):
    ended = [
        record("shop.slow", "acked", 1, 90),
        record("shop.quick", "acked", 1, 0.002),
        record("shop.quick", "acked", 2, 0.004),
        record("shop.quick", "failed", 3, 3),
    ]
    monkeypatch.setattr(tasks, "last_ended", lambda names: (ended, 0, []))
    response = viewer.get(TASKS)
    slow, quick = response.context["rows"]
    assert (slow["task"], slow["done"], slow["failed"], slow["percent"]) == ("shop.slow", 1, 0, 0)
    assert (quick["done"], quick["failed"], quick["percent"]) == (2, 1, 33)
    assert (quick["median"], quick["slowest"]) == ("4.0 ms", "3.0 s")
    assert Page(response.content.decode()).forbidden == []
    assert "state=failed&task=shop.quick" in quick["failed_url"]


def test_done_and_failed_jobs_are_counted_over_the_same_time(fail, monkeypatch):
    monkeypatch.setattr(tasks, "LAST", 2)
    queue = queues["default"]
    fail(1, task="app.run")
    for number in range(3):
        queue.put(number, task="app.run")
        queue.ack(queue.get_nowait())
    found, since, unreadable = tasks.last_ended(["default"])
    assert [one.state for one in found] == ["acked", "acked"], "the failed one is older than both"
    assert since == found[-1].finished_at
    assert unreadable == []


def test_what_did_not_run_to_its_end_is_not_counted(fail, operator):
    queue = queues["default"]
    fail(1, task="app.run")
    queue.put("x", task="app.run")
    queue.cancel(queue.put("y", task="app.run"))
    rows = operator.get(TASKS).context["rows"]
    assert [(row["task"], row["done"], row["failed"]) for row in rows] == [("app.run", 0, 1)]
    assert Page(operator.get(f"{LIST}?state=failed").content.decode()).links.count(TASKS) == 1


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [(900, "0.9 ms"), (12_340, "12.3 ms"), (1_250_000, "1.2 s"), (120_000_000, "2\xa0minutes")],
)
def test_a_duration_is_as_exact_as_anybody_reads(microseconds, text):
    assert duration(microseconds) == text
