"""Editing the arguments of a job that waits or failed, and retrying it."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from django_localqueue.console import audit, permissions
from django_localqueue.console.acts import Deed, on_chosen
from django_localqueue.console.audit import Act
from django_localqueue.console.keys import from_url
from django_localqueue.console.redact import redacted
from django_localqueue.console.stores import Unreadable, ask, known, tell
from django_localqueue.console.views.base import APP, ConsoleView
from django_localqueue.serializers import JSONSerializer
from django_localqueue.types import Applied, JobFilter, JobRecord

EDITABLE = ("ready", "delayed", "blocked", "failed")


def why_not(record: JobRecord, serializer: object) -> str:
    """Return why the payload can't be edited here, "" where it can."""
    if record.state not in EDITABLE:
        return _("Only a job that waits or failed can be edited.")
    if not isinstance(serializer, JSONSerializer):
        return _("The queue's serializer is not JSON, so its payloads can't be edited here.")
    try:
        data = json.loads(record.payload.decode())
    except (ValueError, RecursionError):
        return _("The payload is not JSON, so it can't be edited here.")
    if redacted(data, record) != data:
        return _("The payload has values that are hidden, so it can't be edited here.")
    return ""


class EditJobView(ConsoleView):
    """A form with the payload as JSON; its own permission, since arguments steer what code does.

    Only the payload changes: neither the task nor the queue can be named here.
    """

    template_name = f"admin/{APP}/edit.html"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        alias, id = from_url(kwargs["object_id"])
        for action in ("view_job", "view_job_payload", "edit_job"):
            permissions.require(request, action, known(alias))
        record: JobRecord | Unreadable | None = ask(alias, lambda queue: queue.lookup(id))
        if record is None:
            raise Http404(_("There is no such job."))
        if isinstance(record, Unreadable):
            messages.error(request, record.error)
            return HttpResponseRedirect(self.url("job_changelist"))
        self.alias, self.record = alias, record
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self.form(self.text(), "")

    def back_url(self) -> str:
        """Return the address of the job's page."""
        return self.with_list(self.job_url(self.alias, self.record.id))

    def text(self) -> str:
        """Return the payload as the form shows it; "" where it isn't JSON."""
        try:
            return json.dumps(json.loads(self.record.payload), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            return ""

    def form(self, text: str, error: str, status: int = 200) -> HttpResponse:
        """Answer with the form."""
        serializer = ask(self.alias, lambda queue: queue.serializer)
        blocked = why_not(self.record, serializer)
        address = self.back_url()
        context = {
            "job": self.record,
            "text": "" if blocked else text,
            "blocked": blocked,
            "error": error,
            "back_url": address,
            "before": self.record.payload.decode("utf-8", "replace"),
            "can_retry": self.record.state == "failed"
            and permissions.has_permission(self.request, "retry_job", self.alias),
        }
        title = _("Edit job %s") % self.record.id
        crumbs = [self.list_crumb("job"), (address, self.record.id)]
        return self.render(title, context, crumbs=crumbs, status=status)

    def post(self, request: HttpRequest, object_id: str) -> HttpResponse:
        text = request.POST.get("payload", "")
        serializer = ask(self.alias, lambda queue: queue.serializer)
        if blocked := why_not(self.record, serializer):
            messages.error(request, blocked)
            return HttpResponseRedirect(self.back_url())
        if request.POST.get("before", "") != self.record.payload.decode("utf-8", "replace"):
            return self.form(text, _("The payload was changed meanwhile; look at it again."), 409)
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            return self.form(text, _("This is not JSON: %s") % error, 400)
        is_retried = "retry" in request.POST
        if is_retried:
            permissions.require(request, "retry_job", self.alias)
        answer = tell(self.alias, lambda queue: queue.edit(self.record.id, data))
        if isinstance(answer, Unreadable):
            return self.form(text, answer.error, 400)
        done = Applied(done=1) if answer else Applied(changed=1)
        ids = [(self.alias, self.record.id)]
        act = Act("edit", [self.alias], {self.alias: done}, ids=ids)
        audit.record(request, act)
        self.report(act)
        if is_retried and answer:
            self.retry()
        return HttpResponseRedirect(self.back_url())

    def retry(self) -> None:
        """Retry the job that was just edited."""
        if self.record.state != "failed":
            raise PermissionDenied
        now = ask(self.alias, lambda queue: queue.now())
        if isinstance(now, Unreadable):
            return
        act = on_chosen(Deed("retry"), [(self.alias, self.record.id)], JobFilter(), now)
        audit.record(self.request, act)
        self.report(act)
