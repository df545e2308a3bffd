"""Dead letters grouped by what went wrong."""

from __future__ import annotations

import time
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.formats import localize
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from django_localqueue.console import charts, permissions
from django_localqueue.console.acts import NEEDS
from django_localqueue.console.display import in_line, moment, short
from django_localqueue.console.stores import Unreadable, as_of, ask
from django_localqueue.console.views.base import APP, ConsoleView
from django_localqueue.console.views.jobs import button, state_tabs
from django_localqueue.types import FailureGroup, JobFilter

GROUPS = 100
#: How long a page may look for what one job of each group says.
SAMPLE_SECONDS = 0.25


class ErrorsView(ConsoleView):
    """The groups of all queues, the one seen last first, with what can be done with a group."""

    template_name = f"admin/{APP}/errors.html"
    is_watched = True
    deadline = 0.0

    def get(self, request: HttpRequest) -> HttpResponse:
        names = permissions.require_some(request, "view_job")
        chosen = [alias for alias in request.GET.getlist("queue") if alias in names] or names
        page_time = as_of(chosen)
        unreadable: list[Unreadable] = []
        groups: list[tuple[str, FailureGroup]] = []
        for alias in chosen:
            answer = ask(alias, lambda queue: queue.failures(GROUPS))
            if isinstance(answer, Unreadable):
                unreadable.append(answer)
            else:
                groups += [(alias, group) for group in answer]
        groups.sort(key=lambda item: item[1].last_at, reverse=True)
        order = request.GET.get("order", "last")
        if order == "total":
            groups.sort(key=lambda item: item[1].total, reverse=True)
        self.deadline = time.monotonic() + SAMPLE_SECONDS
        context = {
            "rows": [self.row(alias, group) for alias, group in groups[:GROUPS]],
            "is_cut": len(groups) >= GROUPS,
            "limit": GROUPS,
            "unreadable": unreadable,
            "as_of": str(page_time),
            "act_url": self.url("job_act"),
            "orders": self.orders(order),
            "tabs": state_tabs(self, "errors"),
        }
        return self.render(_("Errors"), context, crumbs=[self.list_crumb("job")])

    def orders(self, current: str) -> list[dict[str, Any]]:
        """Return the links to the orders of the list, the queues kept."""
        queues = self.request.GET.getlist("queue")
        return [
            {
                "url": f"?{urlencode({'order': name, 'queue': queues}, doseq=True)}",
                "label": label,
                "is_current": current == name,
            }
            for name, label in (("last", _("Seen last")), ("total", _("Most")))
        ]

    def message(self, alias: str, group: FailureGroup) -> str:
        """Return what the newest dead letter of a group says; "" where time is up."""
        if time.monotonic() > self.deadline:
            return ""
        filter = JobFilter(state="failed", failure=group.key)
        page = ask(alias, lambda queue: queue.list(filter, limit=1))
        if isinstance(page, Unreadable) or not page.records:
            return ""
        error = page.records[0].error
        return "" if error is None else in_line(error.message)

    def row(self, alias: str, group: FailureGroup) -> dict[str, Any]:
        """Return what the table shows of a group, and what may be done with it."""
        query = urlencode({"state": "failed", "queue": alias, "failure": group.key})
        text = _("%(n)s in the last week, by six hours") % {"n": localize(group.week)}
        return {
            "alias": alias,
            "group": group,
            "message": self.message(alias, group),
            "place": short(group.place),
            "first_at": moment(group.first_at),
            "last_at": moment(group.last_at),
            "spark": charts.spark(group.series, text),
            "url": f"{self.url('job_changelist')}?{query}",
            "filter": query,
            "actions": [
                button(action)
                for action in ("retry", "discard")
                if permissions.has_permission(self.request, NEEDS[action], alias)
            ],
        }
