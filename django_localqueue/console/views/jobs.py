"""The jobs of the queues in every state, merged, and finding one by its id."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_localqueue.console import permissions
from django_localqueue.console.acts import NEEDS, count, suits
from django_localqueue.console.display import in_row, moment
from django_localqueue.console.filters import (
    COUNT_CAP,
    LISTED,
    REASON_LABELS,
    STATE_LABELS,
    FilterForm,
)
from django_localqueue.console.keys import to_form
from django_localqueue.console.stores import (
    Cursor,
    MergedPage,
    Unreadable,
    as_of,
    ask,
    search,
    search_arguments,
)
from django_localqueue.console.views.base import APP, ConsoleView
from django_localqueue.types import JobRecord, State

#: The list's buttons, which ask first: what is done, and what to call it.
LABELS = {
    "retry": gettext_lazy("Retry…"),
    "run_now": gettext_lazy("Run now…"),
    "delay": gettext_lazy("Delay…"),
    "move": gettext_lazy("Move…"),
    "cancel": gettext_lazy("Cancel…"),
    "discard": gettext_lazy("Discard…"),
    "purge": gettext_lazy("Purge…"),
}
DANGEROUS = ("cancel", "discard", "purge")
#: What one click does to one job, without a page that asks.
AT_ONCE = {"failed": "retry", "delayed": "run_now"}
AT_ONCE_LABELS = {"failed": gettext_lazy("Retry"), "delayed": gettext_lazy("Run now")}
#: What a state means that its name doesn't tell.
HINTS = {
    "failed": gettext_lazy("They failed for good: nothing runs them until somebody retries them."),
    "blocked": gettext_lazy("Each waits until the jobs of its group that came before it are done."),
}
#: The heading of the time by which a list is ordered.
TIMES = {
    "failed": gettext_lazy("Failed at"),
    "acked": gettext_lazy("Finished at"),
    "ready": gettext_lazy("Waiting since"),
    "delayed": gettext_lazy("Due at"),
    "blocked": gettext_lazy("Put at"),
    "processing": gettext_lazy("Started at"),
}


def time_of(record: JobRecord) -> int | None:
    """Return the time that the list shows of a job."""
    times = {
        "ready": record.waiting_since,
        "delayed": record.due_at,
        "blocked": record.created_at,
        "processing": record.started_at,
    }
    return times.get(record.state, record.finished_at)


def button(action: str) -> dict[str, Any]:
    """Return what a template needs for the button of an action."""
    return {"name": action, "label": LABELS[action], "is_dangerous": action in DANGEROUS}


def do_label(record: JobRecord) -> str:
    """Return what to call that which one click does to a job, "" where there is no such thing."""
    if record.reason == "discarded":
        return _("Restore")
    return str(AT_ONCE_LABELS.get(record.state, ""))


#: Parts of a filter that another state can't have, or has other times for.
NOT_KEPT = ("state", "reason", "failure", "error", "since", "until")


def state_tabs(view: ConsoleView, current: str, query: str = "") -> list[dict[str, Any]]:
    """Return a link for the errors, the tasks and each state, there with ``query`` kept."""
    tabs = [
        {"url": view.url(f"job_{name}"), "label": label, "is_current": name == current}
        for name, label in (("errors", _("Errors")), ("tasks", _("Tasks")))
    ]
    for state in LISTED:
        kept = QueryDict(query, mutable=True)
        kept["state"] = state
        address = f"{view.url('job_changelist')}?{kept.urlencode()}"
        is_current = state == current
        tabs.append({"url": address, "label": str(STATE_LABELS[state]), "is_current": is_current})
    return tabs


class JobsView(ConsoleView):
    """A page of jobs of one state, the filter in its address."""

    template_name = f"admin/{APP}/jobs.html"
    is_watched = True

    def get(self, request: HttpRequest) -> HttpResponse:
        names = permissions.require_some(request, "view_job")
        form = FilterForm(request.GET, names)
        is_valid = form.is_valid()
        state: State = form.state_name() if "state" in form.cleaned_data else "failed"
        context: dict[str, Any] = {
            "form": form,
            "state": state,
            "state_label": STATE_LABELS[state],
            "tabs": state_tabs(self, state, form.query(without=NOT_KEPT)),
            "hint": HINTS.get(state, ""),
            "act_url": self.url("job_act"),
            "find_url": self.url("job_find"),
            "clear_url": f"{self.url('job_changelist')}?{urlencode({'state': state})}",
            "is_filtered": bool(form.query(without=("state", "per"))),
            "can_search_arguments": bool(permissions.allowed(request, "view_job_payload")),
        }
        if is_valid:
            context |= self.listing(form, state)
            context["described"] = form.describe() if context["is_filtered"] else []
        title = _("Dead letters") if state == "failed" else _("Jobs: %s") % STATE_LABELS[state]
        return self.render(title, context, status=200 if is_valid else 400)

    def listing(self, form: FilterForm, state: State) -> dict[str, Any]:
        """Return the rows and what may be done with them."""
        chosen = form.chosen()
        needle = form.cleaned_data["args"]
        if needle:  # who may not see payloads may not guess them either
            chosen = permissions.allowed(self.request, "view_job_payload", chosen)
        page_time = as_of(chosen)  # before the records are read; see as_of
        after = Cursor.parse(self.request.GET.get("after", ""))
        page, looked_at = self.search(form, chosen, needle, after)
        may = {
            action: set(permissions.allowed(self.request, needed, chosen))
            for action, needed in NEEDS.items()
            if suits(action, state)
        }
        actions = [button(action) for action in LABELS if may.get(action)]
        can_export = bool(permissions.allowed(self.request, "export_job", chosen))
        return {
            "rows": [self.row(alias, record, may) for alias, record in page.records],
            "time_heading": TIMES[state],
            "has_single": bool(may.get(AT_ONCE.get(state, ""))),
            "is_partial": page.partial,
            "unreadable": page.unreadable,
            "searched_until": self.reach(page),
            "looked_at": looked_at,
            "as_of": str(page_time),
            "query": form.query(),
            "next_url": self.page_url(form, page.next) if page.next else "",
            "first_url": self.page_url(form, None) if after else "",
            "actions": actions,
            "can_act_on_all": bool(actions) and not needle,
            "exports": self.exports(form) if can_export and not needle and page.records else [],
            **({} if needle else self.count(form, chosen)),
        }

    def search(
        self, form: FilterForm, chosen: list[str], needle: str, after: Cursor | None
    ) -> tuple[MergedPage, int | None]:
        """Return the page, and how many jobs a search in arguments has looked at."""
        if needle:
            found = search_arguments(chosen, form.job_filter(), needle, form.per_page(), after)
            return found.page, found.looked_at
        return search(chosen, form.job_filter(), form.per_page(), after), None

    def reach(self, page: MergedPage) -> str:
        """Return until when a search that stopped early has looked, where times order the list."""
        if not (page.partial and page.next):
            return ""
        return moment(page.next.at) if page.next.at < 1 << 54 else "…"

    def exports(self, form: FilterForm) -> list[tuple[str, str]]:
        """Return the address of each kind of file, and what to call it."""
        kinds = (("csv", "CSV"), ("jsonl", "JSON lines"))
        url = self.url("job_export")
        return [(f"{url}?{form.query()}&{urlencode({'as': kind})}", name) for kind, name in kinds]

    def count(self, form: FilterForm, chosen: list[str]) -> dict[str, Any]:
        """Return the number of matches where it is cheap or was asked for, else a link to it."""
        if form.needs_scan() and "count" not in self.request.GET:
            return {"count_url": f"{self.page_url(form, None)}&count=1"}
        number, capped, _unreadable = count(chosen, form.job_filter())
        return {"count": number, "count_is_capped": capped, "count_cap": COUNT_CAP}

    def page_url(self, form: FilterForm, after: Cursor | None) -> str:
        """Return the address of a page of the same filter."""
        query = QueryDict(form.query(), mutable=True)
        if after:
            query["after"] = str(after)
        return f"{self.url('job_changelist')}?{query.urlencode()}"

    def row(self, alias: str, record: JobRecord, may: dict[str, set[str]]) -> dict[str, Any]:
        """Return what the table shows of a job."""
        here = self.request.GET.urlencode()
        link = self.job_url(alias, record.id)
        at_once = AT_ONCE.get(record.state, "")
        may_at_once = at_once in may and alias in may[at_once]
        return {
            "key": to_form(alias, record.id),
            "id": record.id,
            "alias": alias,
            "task": record.task,
            "error": in_row(record.error),
            "reason": REASON_LABELS.get(record.reason or "", record.reason),
            "worker": record.worker,
            "group": record.group_id,
            "priority": record.priority,
            "attempts": record.attempts,
            "time": moment(time_of(record)),
            "url": f"{link}?{urlencode({'list': here})}" if here else link,
            "do_url": self.do_url(alias, record.id, at_once) if may_at_once else "",
            "do_label": do_label(record),
        }


class FindJobView(ConsoleView):
    """Opens a job by its id, in whatever state and queue it is."""

    template_name = f"admin/{APP}/find.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        names = permissions.require_some(request, "view_job")
        id = request.GET.get("id", "")
        found: list[str] = []
        unreadable: list[Unreadable] = []
        for alias in names if id else ():
            answer: JobRecord | Unreadable | None = ask(alias, lambda queue: queue.lookup(id))
            if isinstance(answer, Unreadable):
                unreadable.append(answer)
            elif answer is not None:
                found.append(alias)
        if len(found) == 1 and not unreadable:
            return HttpResponseRedirect(self.job_url(found[0], id))
        context = {
            "id": id,
            "found": [(alias, self.job_url(alias, id)) for alias in found],
            "unreadable": unreadable,
            "find_url": self.url("job_find"),
        }
        return self.render(_("Find a job"), context, crumbs=[self.list_crumb("job")])
