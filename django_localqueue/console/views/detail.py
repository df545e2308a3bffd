"""One job, in whatever state it is."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth import get_user_model
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import BadRequest
from django.db import router, transaction
from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_localqueue import models
from django_localqueue.console import audit, permissions
from django_localqueue.console.acts import NEEDS, Deed, on_chosen, suits
from django_localqueue.console.display import cut, in_row, moment, shown
from django_localqueue.console.filters import REASON_LABELS, STATE_LABELS
from django_localqueue.console.keys import from_url, make_key, to_form
from django_localqueue.console.redact import redacted
from django_localqueue.console.stores import Unreadable, as_of, ask, known
from django_localqueue.console.tracebacks import parts
from django_localqueue.console.views.base import APP, ConsoleView
from django_localqueue.console.views.edit import EDITABLE
from django_localqueue.console.views.jobs import AT_ONCE, LABELS, button, do_label
from django_localqueue.types import Attempt, ErrorRecord, JobFilter, JobRecord

logger = logging.getLogger("django_localqueue.console")

LOG_ENTRIES = 20
MAX_TITLE = 80

OUTCOMES: Mapping[str, Any] = {
    "ack": gettext_lazy("succeeded"),
    "nack": gettext_lazy("failed, to be tried again"),
    "fail": gettext_lazy("failed"),
    "lapsed": gettext_lazy("lease ran out: the worker died or stalled"),
}


class JobView(ConsoleView):
    """All that is known of a job."""

    template_name = f"admin/{APP}/job.html"
    is_watched = True

    def get(self, request: HttpRequest, object_id: str) -> HttpResponse:
        alias, id = from_url(object_id)
        permissions.require(request, "view_job", known(alias))
        time = as_of([alias])
        record: JobRecord | Unreadable | None = ask(alias, lambda queue: queue.lookup(id))
        context: dict[str, Any] = {
            "alias": alias,
            "id": id,
            "list_url": self.back_to_list(),
            "log_entries": self.log_entries(alias, id),
        }
        crumbs = [self.list_crumb("job")]
        title = _("Job %s") % Truncator(id).chars(MAX_TITLE)
        if isinstance(record, Unreadable):
            return self.render(title, context | {"error": record.error}, crumbs=crumbs, status=503)
        if record is None:
            return self.render(title, context, crumbs=crumbs, status=404)
        context |= self.job(alias, record) | {"as_of": str(time)}
        return self.render(title, context, crumbs=crumbs)

    def job(self, alias: str, record: JobRecord) -> dict[str, Any]:
        """Return what the page shows of the job, and what may be done with it."""

        def may(action: str) -> bool:
            return permissions.has_permission(self.request, action, alias)

        can_view_payload = may("view_job_payload")
        state = record.state
        actions = [
            button(action)
            for action in LABELS
            if suits(action, state) and may(NEEDS[action]) and action not in ("retry", "run_now")
        ]
        at_once = AT_ONCE.get(state, "")
        may_at_once = bool(at_once) and may(NEEDS[at_once])
        return {
            "job": record,
            "facts": facts(alias, record),
            "times": times(record),
            "can_view_payload": can_view_payload,
            "payload": shown(record.payload, record) if can_view_payload else None,
            "result": shown(record.result, record) if can_view_payload and record.result else None,
            "has_result": record.result is not None,
            "headers": [
                (name, cut(json.dumps(value, ensure_ascii=True, default=str))[0])
                for name, value in self.headers(record).items()
            ],
            "last_error": error_block(last_error(record)),
            "attempts": [attempt_row(attempt) for attempt in record.history],
            "key": to_form(alias, record.id),
            "act_url": self.url("job_act"),
            "do_url": self.do_url(alias, record.id, at_once) if may_at_once else "",
            "do_label": do_label(record),
            "actions": actions,
            "timeline": timeline(record),
            "progress": self.progress(record),
            "original": shown(record.original_payload, record)
            if can_view_payload and record.original_payload is not None
            else None,
            "edit_url": self.with_list(self.url("job_edit", quote(make_key(alias, record.id))))
            if state in EDITABLE and can_view_payload and may("edit_job")
            else "",
            "next_run": moment(record.due_at) if record.due_at else "",
            "same_error_url": self.same_error_url(alias, record),
        }

    def progress(self, record: JobRecord) -> dict[str, Any] | None:
        """Return how far the job is, as its worker last said."""
        found = record.progress
        if found is None:
            return None
        percent = round(100 * found.done / found.total) if found.total else None
        return {
            "done": found.done,
            "total": found.total,
            "percent": percent,
            "note": found.note,
            "at": moment(found.at) if found.at else "",
        }

    def headers(self, record: JobRecord) -> dict[str, Any]:
        """Return the headers without what is to be hidden."""
        found = redacted(dict(record.headers), record)
        return found if isinstance(found, dict) else {"": found}

    def same_error_url(self, alias: str, record: JobRecord) -> str:
        """Return the address of the dead letters with the same error, "" where it has none."""
        if record.failure is None:
            return ""
        query = urlencode({"state": "failed", "queue": alias, "failure": record.failure})
        return f"{self.url('job_changelist')}?{query}"

    def back_to_list(self) -> str:
        """Return the address of the list that the page was opened from."""
        query = QueryDict(self.request.GET.get("list", "")).urlencode()
        url = self.url("job_changelist")
        return f"{url}?{query}" if query else url

    def log_entries(self, alias: str, id: str) -> list[dict[str, Any]]:
        """Return what operators did with this job alone, newest first.

        The log and the users may be in databases of their own, so nothing is joined.
        """
        try:
            with transaction.atomic(using=router.db_for_read(LogEntry)):
                entries = LogEntry.objects.filter(
                    content_type=ContentType.objects.get_for_model(models.Job),
                    object_id=make_key(alias, id),
                )
                found = list(entries.order_by("-action_time")[:LOG_ENTRIES])
            users = get_user_model()._default_manager.in_bulk({entry.user_id for entry in found})
        except Exception:
            logger.exception("The admin's log could not be read.")
            return []
        return [
            {
                "action_time": entry.action_time,
                "user": users.get(entry.user_id, entry.user_id),
                "message": entry.get_change_message(),
            }
            for entry in found
        ]


class RetryJobView(ConsoleView):
    """Retry one dead letter, at once."""

    http_method_names = ("post",)
    deed = Deed("retry")
    filter = JobFilter()

    def post(self, request: HttpRequest, object_id: str) -> HttpResponse:
        alias, id = from_url(object_id)
        permissions.require(request, NEEDS[self.deed.action], known(alias))
        act = on_chosen(self.deed, [(alias, id)], self.filter, page_time(request, [alias]))
        audit.record(request, act)
        self.report(act)
        return self.back(self.url("job_changelist"))


class RunJobView(RetryJobView):
    """Run one delayed job now."""

    deed = Deed("run_now")
    filter = JobFilter(state="delayed")


def page_time(request: HttpRequest, names: list[str]) -> int:
    """Return the time of the page that the form was on; now where it names none or a later one.

    Raises ``BadRequest`` for what isn't a time: taking it for now would act on more jobs.
    """
    now = as_of(names)
    given = request.POST.get("as_of")
    if given is None:
        return now
    if not (given.isascii() and given.isdigit() and len(given) < 19):
        raise BadRequest("The time of the page is not a number of microseconds.")
    return min(int(given), now)


def facts(alias: str, record: JobRecord) -> list[tuple[str, Any]]:
    """Return label and value of what is set."""
    rows: list[tuple[str, Any]] = [
        (_("Id"), record.id),
        (_("Queue"), alias),
        (_("State"), STATE_LABELS[record.state]),
        (_("Reason"), REASON_LABELS.get(record.reason or "", record.reason)),
        (_("Task"), record.task),
        (_("Attempts"), str(record.attempts)),
        (_("Retries at most"), None if record.max_retries is None else str(record.max_retries)),
        (_("Priority"), str(record.priority)),
        (_("Group"), record.group_id),
        (_("Worker"), record.worker),
        (_("Cancellation"), _("asked for") if record.cancel_requested else None),
    ]
    return [(label, value) for label, value in rows if value not in (None, "")]


def times(record: JobRecord) -> list[tuple[str, Any]]:
    """Return label and value of the times that are set."""
    rows = [
        (_("Put"), record.created_at),
        (_("Waiting since"), record.waiting_since),
        (_("Due"), record.due_at),
        (_("Started"), record.started_at),
        (_("Lease ends"), record.lease_expires_at),
        (_("Finished"), record.finished_at),
    ]
    return [(label, moment(value)) for label, value in rows if value is not None]


def timeline(record: JobRecord) -> list[tuple[SafeString | str, str]]:
    """Return what happened to the job, oldest first: each time and a sentence."""
    events: list[tuple[int, str]] = [(record.created_at, _("Put into the queue."))]
    for attempt in record.history:
        worker = attempt.worker or _("a worker")
        numbers = {"n": attempt.number, "worker": worker}
        if attempt.started_at:
            events.append((attempt.started_at, _("Attempt %(n)d began on %(worker)s.") % numbers))
        outcome = OUTCOMES.get(attempt.outcome, attempt.outcome)
        text = _("Attempt %(n)d ended: %(outcome)s.")
        events.append((attempt.ended_at, text % {"n": attempt.number, "outcome": outcome}))
    if record.state == "processing" and record.started_at:
        numbers = {"n": record.attempts, "worker": record.worker or _("a worker")}
        text = _("Attempt %(n)d began on %(worker)s and runs.")
        events.append((record.started_at, text % numbers))
    if record.state == "failed" and record.finished_at:
        reason = REASON_LABELS.get(record.reason or "", record.reason)
        events.append((record.finished_at, _("Became a dead letter: %s.") % reason))
    if record.due_at:
        events.append((record.due_at, _("Due to run.")))
    events.sort(key=lambda event: event[0])
    return [(moment(at), text) for at, text in events]


def last_error(record: JobRecord) -> ErrorRecord | None:
    """Return why the job failed; the traceback may be kept with the last attempt only."""
    error = record.error
    of_attempt = record.history[-1].error if record.history else None
    if error is None or of_attempt is None or error.traceback:
        return error
    is_same = (error.error_class, error.message) == (of_attempt.error_class, of_attempt.message)
    return of_attempt if is_same else error


def error_block(error: ErrorRecord | None) -> dict[str, Any] | None:
    """Return the parts of an error, cut to what a page should hold."""
    if error is None:
        return None
    text, note = cut(error.traceback)
    return {
        "error_class": error.error_class,
        "message": cut(error.message)[0],
        "in_row": in_row(error),
        "place": error.place,
        "parts": parts(text) if text else [],
        "note": note,
    }


def attempt_row(attempt: Attempt) -> dict[str, Any]:
    """Return what the table shows of an attempt."""
    return {
        "number": attempt.number,
        "worker": attempt.worker or "-",
        "started": moment(attempt.started_at),
        "ended": moment(attempt.ended_at),
        "outcome": OUTCOMES.get(attempt.outcome, attempt.outcome),
        "error": error_block(attempt.error),
    }
