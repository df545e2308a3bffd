"""The overview of the queues, pause and resume, and purging by age."""

from __future__ import annotations

import re

from django.contrib import messages
from django.contrib.admin.utils import quote, unquote
from django.http import HttpRequest, HttpResponse
from django.utils.formats import localize
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_localqueue.backends.base import BaseQueue
from django_localqueue.conf import queue_settings
from django_localqueue.console import audit, charts, outbox, permissions
from django_localqueue.console.acts import PURGE_WORD, preview
from django_localqueue.console.audit import Act
from django_localqueue.console.display import age, moment
from django_localqueue.console.filters import LISTED, STATE_LABELS, AgeForm
from django_localqueue.console.shared import schedules_of, workers_of
from django_localqueue.console.stores import QueueRow, Unreadable, as_of, ask, known, overview, tell
from django_localqueue.console.views.base import APP, ConsoleView
from django_localqueue.types import MICROSECONDS, JobFilter


class OverviewView(ConsoleView):
    """Every queue with its counts; a store that can't be read shows its error."""

    template_name = f"admin/{APP}/overview.html"
    is_watched = True

    def get(self, request: HttpRequest) -> HttpResponse:
        names = permissions.require_some(request, "view_queue")
        job_viewable = set(permissions.allowed(request, "view_job", names))
        pausable = set(permissions.allowed(request, "pause_queue", names))
        rows = [
            {
                "row": row,
                "oldest_age": age(row.oldest_age),
                "oldest_at": moment(row.stats.oldest_ready_at if row.stats else None),
                "dead_letters_url": self.letters_url(row.alias),
                "lists": lists(self, row.alias),
                "url": self.url("queue_change", quote(row.alias)),
                "can_view_jobs": row.alias in job_viewable,
                "can_pause": row.alias in pausable,
            }
            for row in overview(names)
        ]
        context = {
            "rows": rows,
            "errors_url": self.url("job_errors"),
            "workers": self.workers_running(),
            "schedules": self.schedules_due(),
            "outbox": outbox.waiting(),
            **chart(request, names),
            "pause_url": self.url("queue_pause"),
            "resume_url": self.url("queue_resume"),
            "purge_url": self.url("queue_purge"),
            "find_url": self.url("job_find"),
            "can_pause_some": bool(pausable),
            "can_purge_some": bool(permissions.allowed(request, "purge_queue", names)),
            "can_view_some_jobs": bool(job_viewable),
        }
        return self.render(_("Queues"), context, crumbs=())

    def letters_url(self, alias: str) -> str:
        """Return the address of one queue's dead letters."""
        return f"{self.url('job_changelist')}?{urlencode({'queue': alias})}"

    def workers_running(self) -> dict[str, object] | None:
        """Return how many workers run; None for who may not see them, or where none can be read."""
        names = permissions.allowed(self.request, "view_worker")
        found, unreadable = workers_of(names)
        if unreadable or not names:
            return None
        running = sum(not (entry.is_dead or entry.is_silent) for entry in found)
        return {"running": running, "known": len(found), "url": self.url("worker_changelist")}

    def schedules_due(self) -> dict[str, object] | None:
        """Return how many schedules there are, how many are overdue and which is next."""
        names = permissions.allowed(self.request, "view_schedule")
        found, _unreadable = schedules_of(names)
        if not found:
            return None
        waiting = [entry for entry in found if not entry.record.paused]
        upcoming = min(waiting, key=lambda entry: entry.record.next_at, default=None)
        return {
            "number": len(found),
            "due": sum(entry.record.next_at <= entry.now for entry in waiting),
            "paused": len(found) - len(waiting),
            "next": upcoming.record.name if upcoming else "",
            "next_at": moment(upcoming.record.next_at) if upcoming else "",
            "url": self.url("schedule_changelist"),
        }


def lists(view: ConsoleView, alias: str) -> dict[str, str]:
    """Return the address of the list of each state of a queue."""
    url = view.url("job_changelist")
    return {state: f"{url}?{urlencode({'state': state, 'queue': alias})}" for state in LISTED}


def chart(request: HttpRequest, names: list[str]) -> dict[str, object]:
    """Return the chart of what the queues did, its table, and the links to other spans."""
    span = charts.SPANS.get(request.GET.get("span", ""), charts.SPANS["hour"])
    found = []
    for alias in names:
        answer = ask(alias, lambda queue: queue.activity(*charts.steps_until(queue.now(), span)))
        if not isinstance(answer, Unreadable):
            found.append(answer)
    steps = charts.added(found)
    acked, failed = (sum(getattr(one, kind) for one in steps) for kind in ("acked", "failed"))
    return {
        "chart": charts.bars(steps, span),
        "chart_axis": charts.axis(steps, span),
        "chart_most": charts.most(steps),
        "chart_table": charts.table(steps, span),
        "acked_rate": charts.per_minute(acked, span),
        "failed_rate": charts.per_minute(failed, span),
        "acked_total": acked,
        "failed_total": failed,
        "spans": [
            {
                "url": f"?{urlencode({'span': one.name})}",
                "label": one.label,
                "is_current": one is span,
            }
            for one in charts.SPANS.values()
        ],
    }


class QueueView(ConsoleView):
    """One queue: its counts, what it did, and the settings in force."""

    template_name = f"admin/{APP}/queue.html"
    is_watched = True

    def get(self, request: HttpRequest, object_id: str) -> HttpResponse:
        alias = known(unquote(object_id))
        permissions.require(request, "view_queue", alias)
        (row,) = overview([alias])
        context = {
            "alias": alias,
            "unreadable": [row] if row.error else [],
            "stats": row.stats,
            "oldest_age": age(row.oldest_age),
            "states": self.counts(row),
            "settings": settings_of(alias),
            "can_pause": permissions.has_permission(request, "pause_queue", alias),
            "can_purge": permissions.has_permission(request, "purge_queue", alias),
            "pause_url": self.url("queue_pause"),
            "resume_url": self.url("queue_resume"),
            "purge_url": f"{self.url('queue_purge')}?{urlencode({'queue': alias})}",
            "errors_url": f"{self.url('job_errors')}?{urlencode({'queue': alias})}",
            **chart(request, [alias]),
        }
        title = _("Queue %s") % alias
        return self.render(title, context, crumbs=[self.list_crumb("queue")])

    def counts(self, row: QueueRow) -> list[tuple[str, int, str]]:
        """Return label, number and list of each state; no link for who may not see jobs."""
        stats = row.stats
        if stats is None:
            return []
        may = permissions.has_permission(self.request, "view_job", row.alias)
        addresses = lists(self, row.alias)
        numbers = dict(stats) | {"ready": row.ready}
        return [
            (str(STATE_LABELS[state]), numbers[state], addresses[state] if may else "")
            for state in LISTED
        ]


def settings_of(alias: str) -> list[tuple[str, object]]:
    """Return what is in force for a queue, by its names in the settings; nothing secret."""
    found = queue_settings()[alias]
    answer: BaseQueue | Unreadable = ask(alias, lambda queue: queue)
    rows: list[tuple[str, object]] = [("BACKEND", found.backend)]
    if isinstance(answer, Unreadable):
        return rows
    rows += [("NAME", answer.name), ("LOCATION", without_login(answer.store_key))]
    for name in (
        *("lease_seconds", "max_retries", "retention_seconds", "max_payload_bytes"),
        *("durability", "max_running", "rate"),
    ):
        value = getattr(answer, name, found.options.get(name))
        if value is not None or name in ("retention_seconds", "max_running", "rate"):
            rows.append((name, _("none") if value is None else localize(value)))
    return [*rows, ("serializer", type(answer.serializer).__name__)]


def without_login(location: str) -> str:
    """Return a location without the user and password that a URL may carry."""
    return re.sub(r"//[^/@\s]*@", "//", location)


class PauseView(ConsoleView):
    """Stop deliveries of one queue."""

    http_method_names = ("post",)
    action = "pause"
    done = gettext_lazy("The queue “%s” is paused: its jobs wait, and new ones are still taken.")

    def post(self, request: HttpRequest) -> HttpResponse:
        alias = known(request.POST.get("queue", ""))
        permissions.require(request, "pause_queue", alias)
        answer = tell(alias, lambda queue: getattr(queue, self.action)())
        if isinstance(answer, Unreadable):
            self.report(Act(self.action, [alias], errors={alias: answer.error}))
        else:
            audit.record(request, Act(self.action, [alias]))
            messages.success(request, self.done % alias)
        return self.back(self.url("queue_changelist"))


class ResumeView(PauseView):
    """Start deliveries of one queue again."""

    action = "resume"
    done = gettext_lazy("The queue “%s” is resumed.")


class PurgeByAgeView(ConsoleView):
    """Asks which finished jobs to purge, and says how many that would be.

    Only looks: the act itself is a POST to the view that does all acts on jobs.
    """

    template_name = f"admin/{APP}/purge.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        names = permissions.require_some(request, "purge_queue")
        form = AgeForm(request.GET if "state" in request.GET else None, names)
        context: dict[str, object] = {"form": form, "act_url": self.url("job_act")}
        if form.is_valid():
            context |= self.dry_run(form)
        return self.render(_("Purge by age"), context, crumbs=[self.list_crumb("queue")])

    def dry_run(self, form: AgeForm) -> dict[str, object]:
        """Return how many jobs are that old now, and what the act's form carries."""
        chosen = form.chosen()
        cutoff = max(0, as_of(chosen) - form.seconds() * MICROSECONDS)
        state = form.cleaned_data["state"]
        found = preview(chosen, JobFilter(state=state), cutoff)
        return {
            "preview": found,
            "count_text": found.text,
            "sample": found.lines,
            "word": PURGE_WORD,
            "cutoff": str(cutoff),
            "cutoff_time": moment(cutoff),
            "state": state,
            "state_label": STATE_LABELS[state],
            "chosen": chosen,
            "filter": urlencode({"queue": chosen}, doseq=True),
            "next": self.url("queue_changelist"),
        }
