"""How tasks do: run times, waits and failures of the jobs that ended last."""

from __future__ import annotations

from operator import methodcaller
from statistics import median
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from django_localqueue.console import permissions
from django_localqueue.console.display import duration, moment
from django_localqueue.console.stores import Unreadable, ask
from django_localqueue.console.views.base import APP, ConsoleView
from django_localqueue.console.views.jobs import state_tabs
from django_localqueue.types import JobFilter, JobRecord, Page, State

#: How many done and how many failed jobs of each queue are looked at.
LAST = 500


class TasksView(ConsoleView):
    """Each task of the jobs that ended last, the one that ran longest in all first.

    Nothing is summed up as jobs end, so the page reads a bounded number of them. Done and failed
    ones are compared over one time: that which what was read of each kind reaches back to.
    """

    template_name = f"admin/{APP}/tasks.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        names = permissions.require_some(request, "view_job")
        records, since, unreadable = last_ended(names)
        tasks: dict[str, list[JobRecord]] = {}
        for record in records:
            tasks.setdefault(record.task or "", []).append(record)
        rows = sorted(
            (self.row(task, ended) for task, ended in tasks.items()),
            key=lambda row: (-row["total"], row["task"]),
        )
        context = {
            "rows": rows,
            "since": moment(since) if since else "",
            "last": LAST,
            "unreadable": unreadable,
            "tabs": state_tabs(self, "tasks"),
        }
        return self.render(_("Tasks"), context, crumbs=[self.list_crumb("job")])

    def row(self, task: str, ended: list[JobRecord]) -> dict[str, Any]:
        """Return what the table shows of a task."""
        failed = sum(record.state == "failed" for record in ended)
        runs = [
            record.finished_at - record.started_at
            for record in ended
            if record.finished_at is not None and record.started_at is not None
        ]
        return {
            "task": task,
            "done": len(ended) - failed,
            "failed": failed,
            "percent": round(100 * failed / len(ended)),
            "total": sum(runs),
            "median": duration(median(runs)) if runs else "-",
            "slowest": duration(max(runs)) if runs else "-",
            "done_url": self.list_url("acked", task),
            "failed_url": self.list_url("failed", task),
        }

    def list_url(self, state: State, task: str) -> str:
        """Return the address of the jobs of a task, "" where they can't be asked for."""
        query = urlencode({"state": state, "task": task})
        return f"{self.url('job_changelist')}?{query}" if task else ""


def last_ended(names: list[str]) -> tuple[list[JobRecord], int, list[Unreadable]]:
    """Return the jobs that ended last, since when they are all of them, and who wasn't read.

    That time is 0 where nothing older was left out. Discarded and cancelled jobs, which did not
    end by themselves, are not among them.
    """
    found: list[JobRecord] = []
    unreadable: list[Unreadable] = []
    since = 0
    states: tuple[State, ...] = ("acked", "failed")
    for alias in names:
        for state in states:
            question = methodcaller("list", JobFilter(state), limit=LAST)
            page: Page | Unreadable = ask(alias, question)
            if isinstance(page, Unreadable):
                unreadable.append(page)
                break
            found += page.records
            if page.next is not None and page.records:
                since = max(since, page.records[-1].finished_at or 0)
    return (
        [
            record
            for record in found
            if (record.finished_at or 0) >= since
            and record.reason not in ("discarded", "cancelled", "expired")
        ],
        since,
        unreadable,
    )
