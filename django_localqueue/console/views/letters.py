"""The dead letters of the queues, merged, newest first."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from django_localqueue.console import permissions
from django_localqueue.console.acts import count
from django_localqueue.console.display import in_row, moment
from django_localqueue.console.filters import COUNT_CAP, REASON_LABELS, FilterForm
from django_localqueue.console.keys import to_form
from django_localqueue.console.stores import (
    Cursor,
    Unreadable,
    as_of,
    ask,
    search,
)
from django_localqueue.console.views.base import APP, ConsoleView
from django_localqueue.types import JobRecord


class DeadLettersView(ConsoleView):
    """A page of dead letters, the filter in its address."""

    template_name = f"admin/{APP}/dead_letters.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        names = permissions.require_some(request, "view_job")
        form = FilterForm(request.GET, names)
        context: dict[str, Any] = {
            "form": form,
            "act_url": self.url("job_act"),
            "find_url": self.url("job_find"),
            "clear_url": self.url("job_changelist"),
            "is_filtered": bool(form.query()),
        }
        if form.is_valid():
            context |= self.listing(form)
        return self.render(_("Dead letters"), context, status=200 if form.is_valid() else 400)

    def listing(self, form: FilterForm) -> dict[str, Any]:
        """Return the rows and what may be done with them."""
        chosen = form.chosen()
        page_time = as_of(chosen)  # before the records are read; see as_of
        after = Cursor.parse(self.request.GET.get("after", ""))
        page = search(chosen, form.job_filter(), form.per_page(), after)
        retryable = set(permissions.allowed(self.request, "retry_job", chosen))
        purgeable = set(permissions.allowed(self.request, "purge_queue", chosen))
        return {
            "rows": [self.row(alias, record, retryable) for alias, record in page.records],
            "is_partial": page.partial,
            "unreadable": page.unreadable,
            "searched_until": moment(page.next.at) if page.partial and page.next else "",
            "as_of": str(page_time),
            "query": form.query(),
            "next_url": self.page_url(form, page.next) if page.next else "",
            "first_url": self.page_url(form, None) if after else "",
            "can_retry": bool(retryable),
            "can_purge": bool(purgeable),
            **self.count(form, chosen),
        }

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

    def row(self, alias: str, record: JobRecord, retryable: set[str]) -> dict[str, Any]:
        """Return what the table shows of a job."""
        here = self.request.GET.urlencode()
        link = self.job_url(alias, record.id)
        return {
            "key": to_form(alias, record.id),
            "id": record.id,
            "alias": alias,
            "task": record.task,
            "error": in_row(record.error),
            "reason": REASON_LABELS.get(record.reason or "", record.reason),
            "attempts": record.attempts,
            "failed_at": moment(record.finished_at),
            "url": f"{link}?{urlencode({'list': here})}" if here else link,
            "retry_url": self.retry_url(alias, record.id) if alias in retryable else "",
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
