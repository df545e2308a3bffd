"""The workers: what they run, how they are, and asking them to be quiet or to stop."""

from __future__ import annotations

import datetime
from functools import cached_property
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_localqueue.console import audit, permissions
from django_localqueue.console.audit import Act
from django_localqueue.console.display import age, moment
from django_localqueue.console.shared import (
    WorkerEntry,
    alias_near,
    aliases_by_queue,
    workers_of,
)
from django_localqueue.console.stores import Unreadable, tell
from django_localqueue.console.views.base import APP, ConsoleView
from django_localqueue.records import RunningJob, WorkerCommand

STATES = {
    "running": gettext_lazy("running"),
    "quiet": gettext_lazy("quiet: claims no jobs"),
    "stopping": gettext_lazy("stopping"),
}
#: What the buttons send, what that asks the worker for, and what it is called.
COMMANDS: dict[str, tuple[WorkerCommand, Any]] = {
    "quiet": ("quiet", gettext_lazy("Quiet")),
    "unquiet": ("resume", gettext_lazy("Resume")),
    "stop": ("stop", gettext_lazy("Stop")),
}


def since(now: int, then: int) -> str:
    """Return how long ago that was, in words."""
    return age(datetime.timedelta(microseconds=max(0, now - then)))


class WorkersView(ConsoleView):
    """Every worker of the stores, those that are gone flagged.

    The admin's log leads here too, with the worker that the act was on.
    """

    template_name = f"admin/{APP}/workers.html"
    is_watched = True

    def get(self, request: HttpRequest, object_id: str = "") -> HttpResponse:
        names = permissions.require_some(request, "view_worker")
        found, unreadable = workers_of(names)
        context = {
            "rows": [self.row(entry) for entry in found],
            "unreadable": unreadable,
            "command_url": self.url("worker_command"),
        }
        return self.render(_("Workers"), context, crumbs=())

    def row(self, entry: WorkerEntry) -> dict[str, Any]:
        """Return what the table shows of a worker."""
        record, now = entry.record, entry.now
        is_dead, is_silent = entry.is_dead, entry.is_silent
        may = permissions.has_permission(self.request, "stop_worker", entry.alias)
        offered = []
        if may and not is_dead:
            wanted = record.command or ""
            if record.state == "running":
                offered = ["quiet", "stop"]
            elif record.state == "quiet":
                offered = ["unquiet", "stop"]
            offered = [name for name in offered if COMMANDS[name][0] != wanted]
        if may and (is_dead or is_silent):
            offered = ["forget"]
        busy = len(record.running)
        return {
            "record": record,
            "alias": entry.alias,
            "state": STATES.get(record.state, record.state),
            "is_dead": is_dead,
            "is_silent": is_silent,
            "seen": since(now, record.seen_at),
            "seen_at": moment(record.seen_at),
            "started_at": moment(record.started_at) if record.started_at else "-",
            "memory": filesizeformat(record.rss) if record.rss else "-",
            "use": f"{busy}/{record.concurrency}",
            "percent": round(100 * busy / max(1, record.concurrency)),
            "jobs": [self.job(entry, job) for job in record.running],
            "counts": sorted(record.counts.items()),
            "asked": COMMAND_LABELS.get(record.command or "", ""),
            "commands": [
                {"name": name, "label": LABELS[name], "is_dangerous": name in ("stop", "forget")}
                for name in offered
            ],
        }

    @cached_property
    def known(self) -> dict[tuple[str, str], str]:
        """The aliases of all queues, asked for once a page."""
        return aliases_by_queue()

    def job(self, entry: WorkerEntry, job: RunningJob) -> dict[str, Any]:
        """Return what is shown of a job that the worker runs; its page for who may see it."""
        alias = alias_near(entry.alias, job.queue, self.known)
        may = alias is not None and permissions.has_permission(self.request, "view_job", alias)
        return {
            "id": job.id if may else "",
            "task": job.task or "-",
            "age": since(entry.now, job.started_at),
            "is_overdue": job.overdue,
            "url": self.job_url(alias, job.id) if may and alias else "",
        }


LABELS: dict[str, Any] = {name: label for name, (_command, label) in COMMANDS.items()}
LABELS["forget"] = gettext_lazy("Forget")
COMMAND_LABELS: dict[str, Any] = {
    "quiet": gettext_lazy("asked to be quiet"),
    "resume": gettext_lazy("asked to resume"),
    "stop": gettext_lazy("asked to stop"),
}
DONE = {
    "quiet": gettext_lazy("“%s” is asked to claim no more jobs; what it runs goes on."),
    "unquiet": gettext_lazy("“%s” is asked to claim jobs again."),
    "stop": gettext_lazy("“%s” is asked to stop, once its jobs have ended or their time is up."),
    "forget": gettext_lazy("“%s” is forgotten."),
}


class WorkerCommandView(ConsoleView):
    """Ask one worker for something, or forget one that is gone."""

    http_method_names = ("post",)

    def post(self, request: HttpRequest) -> HttpResponse:
        names = permissions.require_some(request, "stop_worker")
        command = request.POST.get("command", "")
        if command not in LABELS:
            return HttpResponseBadRequest(_("There is no such act."), content_type="text/plain")
        name = request.POST.get("worker", "")
        alias = self.alias_for(name, names)
        if command == "forget":
            answer = tell(alias, lambda queue: queue.forget_worker(name))
        else:
            wanted = COMMANDS[command][0]
            answer = tell(alias, lambda queue: queue.command_worker(name, wanted))
        if isinstance(answer, Unreadable):
            messages.error(request, answer.error)
        elif not answer:
            messages.warning(request, _("There is no such worker any more."))
        else:
            audit.record(request, Act(command, [alias], name=name))
            messages.success(request, DONE[command] % name)
        return self.back(self.url("worker_changelist"))

    def alias_for(self, name: str, names: list[str]) -> str:
        """Return a queue of the store that has this worker, of those that the user may use."""
        found, _unreadable = workers_of(names)
        for entry in found:
            if entry.record.name == name:
                return entry.alias
        raise Http404(_("There is no such worker."))
