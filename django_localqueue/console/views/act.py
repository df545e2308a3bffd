"""Acts on several jobs, and every act that can't be undone: confirmed first, done in slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, QueryDict
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_localqueue.console import audit, permissions, progress
from django_localqueue.console.acts import (
    NEEDS,
    PURGE_WORD,
    SAMPLE,
    SLICE_SECONDS,
    Deed,
    count_text,
    on_all,
    on_chosen,
    preview,
    store_of,
    suits,
)
from django_localqueue.console.audit import Act
from django_localqueue.console.display import local, moment
from django_localqueue.console.filters import (
    ACT_LIMIT,
    STATE_LABELS,
    DelayForm,
    FilterForm,
    TargetForm,
)
from django_localqueue.console.keys import from_form
from django_localqueue.console.stores import Unreadable, known
from django_localqueue.console.views.base import APP, ConsoleView
from django_localqueue.console.views.detail import page_time
from django_localqueue.console.views.jobs import DANGEROUS
from django_localqueue.queues import queues
from django_localqueue.types import STATES, Action, JobFilter, State

QUESTIONS: Mapping[str, Any] = {
    "retry": gettext_lazy("Retry these jobs?"),
    "run_now": gettext_lazy("Run these jobs now?"),
    "delay": gettext_lazy("Delay these jobs?"),
    "move": gettext_lazy("Move these jobs to another queue?"),
    "cancel": gettext_lazy("Cancel these jobs?"),
    "purge": gettext_lazy("Purge these jobs?"),
    "discard": gettext_lazy("Discard these jobs?"),
}
CONSEQUENCES: Mapping[str, Any] = {
    "retry": gettext_lazy("Each becomes ready again, its attempts at 0 and its history kept."),
    "run_now": gettext_lazy("Each becomes ready at once instead of at its due time."),
    "delay": gettext_lazy("None of them runs before that time is over, counted from now."),
    "move": gettext_lazy(
        "Each goes on waiting, or stays a dead letter, in the other queue of the same store."
        " One whose id that queue has stays where it is."
    ),
    "cancel": gettext_lazy(
        "Those that wait become dead letters and don't run. Those that run are asked to stop, which"
        " a task may heed or not."
    ),
    "purge": gettext_lazy("They are removed with payload and history. This cannot be undone."),
    "discard": gettext_lazy(
        "Each becomes a dead letter that is not run, and is removed after the retention. Until then"
        " Retry restores it."
    ),
}
BUTTONS: Mapping[str, Any] = {
    "retry": gettext_lazy("Yes, retry"),
    "run_now": gettext_lazy("Yes, run now"),
    "delay": gettext_lazy("Yes, delay"),
    "move": gettext_lazy("Yes, move"),
    "cancel": gettext_lazy("Yes, cancel them"),
    "purge": gettext_lazy("Yes, purge"),
    "discard": gettext_lazy("Yes, discard"),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """An act that is understood and allowed: what the page says of it, and how to do it."""

    action: Action
    is_for_all: bool
    as_of: int
    names: list[str]
    filter: JobFilter
    lines: list[str]
    count_text: str
    sample: list[str]
    run: Callable[[Deed, int], Act]
    unreadable: tuple[Unreadable, ...] = ()

    @property
    def needs_word(self) -> bool:
        """Whether the operator must type a word: it removes what nobody has looked at."""
        return self.is_for_all and self.action == "purge"

    @property
    def is_dangerous(self) -> bool:
        """Whether the button is to warn."""
        return self.action in DANGEROUS


class JobActView(ConsoleView):
    """Do one thing to chosen jobs, or to all that match the filter as of the page's time.

    The first POST answers with the confirmation page, whose own POST does it. What takes longer
    than some seconds goes on in further POSTs, which the progress page sends.
    """

    http_method_names = ("post",)
    template_name = f"admin/{APP}/confirm.html"

    def post(self, request: HttpRequest) -> HttpResponse:
        action, _dash, scope = request.POST.get("act", "").rpartition("-")
        state = request.POST.get("state") or "failed"
        is_known = action in NEEDS and scope in ("selected", "all") and state in STATES
        if not is_known or not suits(action, cast(State, state)):
            return HttpResponseBadRequest(_("There is no such act."), content_type="text/plain")
        build = self.plan_all if scope == "all" else self.plan_selected
        plan = build(cast(Action, action), cast(State, state))
        default = self.url("job_changelist")
        if plan is None:
            return self.back(default)
        form = self.arguments_form(plan)
        is_confirmed = "confirmed" in request.POST
        word = request.POST.get("word", "").strip()
        has_arguments = form is None or (is_confirmed and form.is_valid())
        if is_confirmed and has_arguments and (not plan.needs_word or word == PURGE_WORD):
            return self.carry_out(plan, Deed(plan.action, self.arguments(plan, form)), default)
        context = {
            "plan": plan,
            "arguments_form": form,
            "question": QUESTIONS[action],
            "consequence": CONSEQUENCES[action],
            "button": BUTTONS[action],
            "count_text": plan.count_text,
            "as_of_time": moment(plan.as_of),
            "act_url": self.url("job_act"),
            "act": f"{action}-{scope}",
            "state": state,
            "selected": request.POST.getlist("selected") if scope == "selected" else [],
            "filter": request.POST.get("filter", "") if scope == "all" else "",
            "as_of": str(plan.as_of),
            "next": self.way_back(default),
            "word": PURGE_WORD,
            "word_is_wrong": is_confirmed and plan.needs_word and word != PURGE_WORD,
        }
        return self.render(str(QUESTIONS[action]), context, crumbs=[self.list_crumb("job")])

    # ---- doing it

    def carry_out(self, plan: Plan, deed: Deed, default: str) -> HttpResponse:
        """Do it, or the next part of it; answer with the list or with the progress page."""
        before = progress.read(self.request)
        began = before.began if before else self.model_now(plan)
        done_before = before.act.total.done if before else 0
        part = plan.run(deed, max(1, ACT_LIMIT - done_before))
        entry = audit.record(
            self.request, part, before.act if before else None, before.entry if before else None
        )
        act = before.act.and_then(part) if before else part
        goes_on = (
            plan.is_for_all
            and deed.can_be_cut(plan.filter)
            and part.total.more
            and part.total.done > 0
            and act.total.done < ACT_LIMIT
        )
        if goes_on:
            return self.show_progress(plan, act, progress.Progress(act, entry, began))
        self.report(act)
        if deed.action == "discard" and act.total.done:
            self.offer_undo(act, began)
        return self.back(default)

    def show_progress(self, plan: Plan, act: Act, so_far: progress.Progress) -> HttpResponse:
        """Answer with what is done so far and a form that goes on."""
        again = [
            (name, value)
            for name, values in self.request.POST.lists()
            if name not in ("csrfmiddlewaretoken", progress.FIELD)
            for value in values
        ]
        context = {
            "act": act,
            "described": audit.headline(act),
            "fields": [*again, (progress.FIELD, so_far.signed(self.request))],
            "act_url": self.url("job_act"),
            "next": self.way_back(self.url("job_changelist")),
            "limit": ACT_LIMIT,
        }
        self.template_name = f"admin/{APP}/progress.html"
        return self.render(_("Still at work"), context, crumbs=[self.list_crumb("job")])

    def offer_undo(self, act: Act, began: int) -> None:
        """Tell where the discarded jobs are, to be restored."""
        query = {"state": "failed", "reason": "discarded", "queue": list(act.queues)}
        query["since"] = local(began).replace(tzinfo=None, microsecond=0).isoformat()
        address = f"{self.url('job_changelist')}?{urlencode(query, doseq=True)}"
        text = _("Undo: show what was discarded, to restore it by Retry")
        messages.info(self.request, format_html('<a href="{}">{}</a>', address, text))

    def model_now(self, plan: Plan) -> int:
        """Return the time of the first of the queues' stores."""
        return queues[plan.names[0]].now() if plan.names else plan.as_of

    # ---- what an action needs to know

    def arguments_form(self, plan: Plan) -> forms.Form | None:
        """Return the form for the delay or the target queue."""
        data = self.request.POST if "confirmed" in self.request.POST else None
        if plan.action == "delay":
            return DelayForm(data, auto_id="lq-%s")
        if plan.action == "move":
            return TargetForm(data, self.targets(plan), auto_id="lq-%s")
        return None

    def targets(self, plan: Plan) -> list[str]:
        """Return the queues of the same store in which the user may put jobs."""
        stores = {store_of(alias) for alias in plan.names}
        return [
            alias
            for alias in permissions.allowed(self.request, "move_job")
            if alias not in plan.names and stores == {store_of(alias)}
        ]

    def arguments(self, plan: Plan, form: forms.Form | None) -> dict[str, Any]:
        """Return what ``apply`` needs besides the filter."""
        if isinstance(form, DelayForm):
            return {"delay": form.seconds()}
        if isinstance(form, TargetForm):
            return {"target": queues[form.cleaned_data["target"]].name}
        return {}

    # ---- which jobs

    def plan_selected(self, action: Action, state: State) -> Plan | None:
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
        return Plan(
            action,
            False,
            time,
            names,
            filter,
            [f"{_('Queue')}: {', '.join(names)}", f"{_('State')}: {STATE_LABELS[state]}"],
            count_text(len(chosen)),
            [f"{alias}: {id}" for alias, id in chosen[:SAMPLE]],
            lambda deed, limit: on_chosen(deed, chosen, filter, time),
        )

    def plan_all(self, action: Action, state: State) -> Plan | None:
        """Return the plan for all that match, or None (and a message) where the filter is wrong."""
        query = QueryDict(self.request.POST.get("filter", ""), mutable=True)
        query["state"] = state
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
        if form.cleaned_data["args"]:
            raise BadRequest("A search in arguments has a bound: it can't name all that match.")
        if "as_of" not in self.request.POST:
            raise BadRequest("An act on all that match needs the time of its page.")
        time = page_time(self.request, names)
        filter = form.job_filter()
        lines = [f"{_('State')}: {STATE_LABELS[state]}", *form.describe()]
        described = "; ".join([*lines, f"{_('as of')} {local(time).isoformat(' ')}"])
        is_going_on = progress.FIELD in self.request.POST
        found = None if is_going_on else preview(names, filter, time)
        return Plan(
            action,
            True,
            time,
            names,
            filter,
            lines,
            found.text if found else "",
            found.lines if found else [],
            lambda deed, limit: on_all(
                deed, names, filter, time, described, limit, seconds=SLICE_SECONDS
            ),
            tuple(found.unreadable) if found else (),
        )
