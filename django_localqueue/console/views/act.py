"""Acts on several jobs, and every act that can't be undone: confirmed first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from django.contrib import messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_localqueue.console import audit, permissions
from django_localqueue.console.acts import (
    NEEDS,
    PURGE_WORD,
    SAMPLE,
    count_text,
    on_all,
    on_chosen,
    preview,
)
from django_localqueue.console.audit import Act
from django_localqueue.console.display import local, moment
from django_localqueue.console.filters import (
    FINISHED_STATES,
    STATE_LABELS,
    FilterForm,
    FinishedState,
)
from django_localqueue.console.keys import from_form
from django_localqueue.console.stores import Unreadable, ask, known
from django_localqueue.console.views.base import APP, ConsoleView
from django_localqueue.console.views.detail import WAITING, page_time
from django_localqueue.types import Action, JobFilter, JobRecord

QUESTIONS = {
    "retry": gettext_lazy("Retry these jobs?"),
    "purge": gettext_lazy("Purge these jobs?"),
    "discard": gettext_lazy("Discard these jobs?"),
}
CONSEQUENCES = {
    "retry": gettext_lazy("Each becomes ready again, its attempts at 0 and its history kept."),
    "purge": gettext_lazy("They are removed with payload and history. This cannot be undone."),
    "discard": gettext_lazy("Each becomes a dead letter and is not run, unless it is retried."),
}
BUTTONS = {
    "retry": gettext_lazy("Yes, retry"),
    "purge": gettext_lazy("Yes, purge"),
    "discard": gettext_lazy("Yes, discard"),
}
ACTS = ("retry-selected", "retry-all", "purge-selected", "purge-all", "discard-selected")


@dataclass(frozen=True, slots=True)
class Plan:
    """An act that is understood and allowed: what the page says of it, and how to do it."""

    action: Action
    is_for_all: bool
    as_of: int
    lines: list[str]
    count_text: str
    sample: list[str]
    run: Callable[[], Act]
    unreadable: tuple[Unreadable, ...] = ()

    @property
    def needs_word(self) -> bool:
        """Whether the operator must type a word: it removes what nobody has looked at."""
        return self.is_for_all and self.action == "purge"


class JobActView(ConsoleView):
    """Retry, purge or discard: chosen jobs, or all that match the filter as of the page's time.

    The first POST answers with the confirmation page, whose own POST does it.
    """

    http_method_names = ("post",)
    template_name = f"admin/{APP}/confirm.html"

    def post(self, request: HttpRequest) -> HttpResponse:
        act = request.POST.get("act", "")
        state = request.POST.get("state", "failed")
        if act not in ACTS or state not in FINISHED_STATES:
            return HttpResponseBadRequest(_("There is no such act."), content_type="text/plain")
        action, _dash, scope = act.partition("-")
        build = self.plan_all if scope == "all" else self.plan_selected
        plan = build(cast(Action, action), cast(FinishedState, state))
        default = self.url("job_changelist")
        if plan is None:
            return self.back(default)
        is_confirmed = "confirmed" in request.POST
        word = request.POST.get("word", "").strip()
        if is_confirmed and (not plan.needs_word or word == PURGE_WORD):
            done = plan.run()
            audit.record(request, done)
            self.report(done)
            return self.back(default)
        context = {
            "plan": plan,
            "question": QUESTIONS[action],
            "consequence": CONSEQUENCES[action],
            "button": BUTTONS[action],
            "count_text": plan.count_text,
            "as_of_time": moment(plan.as_of),
            "act_url": self.url("job_act"),
            "act": act,
            "state": state,
            "selected": request.POST.getlist("selected") if scope == "selected" else [],
            "filter": request.POST.get("filter", "") if scope == "all" else "",
            "as_of": str(plan.as_of),
            "next": self.way_back(default),
            "word": PURGE_WORD,
            "word_is_wrong": is_confirmed,
        }
        return self.render(str(QUESTIONS[action]), context, crumbs=[self.list_crumb("job")])

    def plan_selected(self, action: Action, state: FinishedState) -> Plan | None:
        """Return the plan for the ticked jobs, or None (and a message) where none is."""
        chosen = [from_form(value) for value in self.request.POST.getlist("selected")]
        chosen = list(dict.fromkeys(chosen))
        if not chosen:
            messages.warning(self.request, _("No job was selected, so nothing was done."))
            return None
        names = list(dict.fromkeys(alias for alias, _id in chosen))
        for alias in names:
            permissions.require(self.request, NEEDS[action], known(alias))
        time = page_time(self.request, names)
        filter = JobFilter(state=state)
        if action == "discard":
            waiting = self.waiting_filter(chosen)
            if waiting is None:
                return None
            filter = waiting
        return Plan(
            action,
            False,
            time,
            [f"{_('Queue')}: {', '.join(names)}", f"{_('State')}: {STATE_LABELS[filter.state]}"],
            count_text(len(chosen)),
            [f"{alias}: {id}" for alias, id in chosen[:SAMPLE]],
            lambda: on_chosen(action, chosen, filter, time),
        )

    def waiting_filter(self, chosen: list[tuple[str, str]]) -> JobFilter | None:
        """Return the filter of the one waiting job that is to be discarded."""
        alias, id = chosen[0]
        record: JobRecord | Unreadable | None = ask(alias, lambda queue: queue.lookup(id))
        if len(chosen) != 1 or not isinstance(record, JobRecord) or record.state not in WAITING:
            messages.warning(self.request, _("The job is not waiting any more; nothing was done."))
            return None
        return JobFilter(state=record.state)

    def plan_all(self, action: Action, state: FinishedState) -> Plan | None:
        """Return the plan for all that match, or None (and a message) where the filter is wrong."""
        query = QueryDict(self.request.POST.get("filter", ""))
        needed = NEEDS[action]
        named = query.getlist("queue")
        for alias in named:
            permissions.require(self.request, needed, known(alias))
        # a filter that names no queue means those that its page could show
        names = named or permissions.allowed(
            self.request, needed, permissions.require_some(self.request, "view_job")
        )
        if not names:
            raise PermissionDenied
        form = FilterForm(query, names)
        if not form.is_valid():
            messages.error(self.request, _("The filter was not understood; nothing was done."))
            return None
        if "as_of" not in self.request.POST:
            raise BadRequest("An act on all that match needs the time of its page.")
        time = page_time(self.request, names)
        filter = form.job_filter(state)
        lines = [f"{_('State')}: {STATE_LABELS[state]}", *form.describe()]
        described = "; ".join([*lines, f"{_('as of')} {local(time).isoformat(' ')}"])
        found = preview(names, filter, time)
        return Plan(
            action,
            True,
            time,
            lines,
            found.text,
            found.lines,
            lambda: on_all(action, names, filter, time, described),
            tuple(found.unreadable),
        )
