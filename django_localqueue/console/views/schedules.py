"""The schedules: when they run, pausing them, running one now."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from django_localqueue.console import audit, permissions
from django_localqueue.console.audit import Act
from django_localqueue.console.display import moment
from django_localqueue.console.redact import HIDDEN, redacted
from django_localqueue.console.shared import ScheduleEntry, schedules_of
from django_localqueue.console.stores import Unreadable, tell
from django_localqueue.console.views.base import APP, ConsoleView
from django_localqueue.schedules.acts import new_job
from django_localqueue.schedules.cron import Timing
from django_localqueue.types import JobRecord

#: Microseconds that a schedule may be late before the page says so.
LATE = 60_000_000
#: A schedule that no worker found in the code for so long is likely to be gone from it.
UNSEEN = 86_400_000_000


#: The permission that each act needs.
NEEDS = {
    "pause_schedule": "pause_schedule",
    "resume_schedule": "pause_schedule",
    "run_schedule": "run_schedule",
}


class SchedulesView(ConsoleView):
    """Every schedule of the stores, with its last and next run.

    The admin's log leads here too, with the schedule that the act was on.
    """

    template_name = f"admin/{APP}/schedules.html"
    is_watched = True

    def get(self, request: HttpRequest, object_id: str = "") -> HttpResponse:
        names = permissions.require_some(request, "view_schedule")
        found, unreadable = schedules_of(names)
        context = {
            "rows": [self.row(entry) for entry in found],
            "unreadable": unreadable,
            "act_url": self.url("schedule_act"),
        }
        return self.render(_("Schedules"), context, crumbs=())

    def row(self, entry: ScheduleEntry) -> dict[str, Any]:
        """Return what the table shows of a schedule."""
        record, now = entry.record, entry.now

        def may(action: str) -> bool:
            return permissions.has_permission(self.request, action, entry.alias)

        can_link = record.last_id is not None and may("view_job")
        arguments = HIDDEN
        if not (record.args or record.kwargs):
            arguments = ""
        elif may("view_job_payload"):
            empty = JobRecord(record.name, record.queue, "ready", b"", (0, 0), 0, task=record.task)
            data = redacted({"args": list(record.args), "kwargs": dict(record.kwargs)}, empty)
            arguments = json.dumps(data, ensure_ascii=False, default=str)
        return {
            "record": record,
            "alias": entry.alias,
            "arguments": arguments,
            "next_at": moment(record.next_at) if record.next_at and not record.paused else "-",
            "last_at": moment(record.last_at),
            "last_url": self.job_url(entry.alias, str(record.last_id)) if can_link else "",
            "is_late": not record.paused and 0 < record.next_at < now - LATE,
            "is_unseen": bool(record.seen_at) and record.seen_at < now - UNSEEN,
            "can_pause": may("pause_schedule"),
            "can_run": may("run_schedule"),
        }


class ScheduleActView(ConsoleView):
    """Pause a schedule, let it go on, or put its job now."""

    http_method_names = ("post",)

    def post(self, request: HttpRequest) -> HttpResponse:
        action = request.POST.get("act", "")
        if action not in NEEDS:
            raise Http404(_("There is no such act."))
        names = permissions.require_some(request, NEEDS[action])
        name = request.POST.get("schedule", "")
        found, _unreadable = schedules_of(names)
        entry = next((one for one in found if one.record.name == name), None)
        if entry is None:
            raise Http404(_("There is no such schedule."))
        permissions.require(request, NEEDS[action], entry.alias)
        if action == "run_schedule":
            self.run(entry)
        else:
            self.pause(entry, action == "pause_schedule")
        return self.back(self.url("schedule_changelist"))

    def pause(self, entry: ScheduleEntry, paused: bool) -> None:
        """Pause it or let it go on."""
        name = entry.record.name
        timing = Timing(entry.record.expression, entry.record.timezone)
        # times that passed meanwhile are not made up for
        next_at = None if paused else timing.after(entry.now)
        answer = tell(
            entry.alias, lambda queue: queue.pause_schedule(name, paused, next_at=next_at)
        )
        if isinstance(answer, Unreadable):
            messages.error(self.request, answer.error)
            return
        action = "pause_schedule" if paused else "resume_schedule"
        audit.record(self.request, Act(action, [entry.alias], name=name))
        text = _("The schedule “%s” is paused.") if paused else _("The schedule “%s” goes on.")
        messages.success(self.request, text % name)

    def run(self, entry: ScheduleEntry) -> None:
        """Put its job now; its own times stay as they are. Nothing is imported for that."""
        record = entry.record
        job = new_job(record, entry.now)
        answer = tell(entry.alias, lambda queue: queue.put_many([job]))
        if isinstance(answer, Unreadable):
            messages.error(self.request, answer.error)
            return
        ids = [(entry.alias, str(job.job_id))]
        audit.record(self.request, Act("run_schedule", [entry.alias], ids=ids, name=record.name))
        messages.success(self.request, _("A job of the schedule “%s” was put.") % record.name)
