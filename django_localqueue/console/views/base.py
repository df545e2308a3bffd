"""What all views of the console share: context, addresses, the way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import django
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.utils import quote
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views import View

from django_localqueue.conf import console
from django_localqueue.console import permissions
from django_localqueue.console.audit import Act, describe
from django_localqueue.console.keys import make_key

APP = "django_localqueue"
#: Acts after which jobs run.
STARTS = ("retry", "run_now")
#: Breadcrumbs are a list from Django 6.1 on.
BREADCRUMBS = (
    f"admin/{APP}/breadcrumbs_list.html"
    if django.VERSION >= (6, 1)
    else f"admin/{APP}/breadcrumbs_line.html"
)


class ConsoleView(View):
    """A page or action of one ``ModelAdmin``; ``admin_view`` has let the user in already.

    Each view asks for its own permission besides.
    """

    model_admin = cast("ModelAdmin[Any]", None)
    template_name = ""
    #: Whether the page reads itself again.
    is_watched = False

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        request.current_app = self.model_admin.admin_site.name

    def url(self, name: str, *args: str) -> str:
        """Return the address of a view of the console on this admin site."""
        site = self.model_admin.admin_site.name
        return reverse(f"admin:{APP}_{name}", args=args, current_app=site)

    def job_url(self, alias: str, id: str) -> str:
        """Return the address of a job's page."""
        return self.url("job_change", quote(make_key(alias, id)))

    def with_list(self, address: str) -> str:
        """Return the address with the filter of the list that the page was opened from."""
        query = self.request.GET.get("list", "")
        return f"{address}?{urlencode({'list': query})}" if query else address

    def do_url(self, alias: str, id: str, action: str) -> str:
        """Return the address that retries a job or runs it now, "" for other actions."""
        names = {"retry": "job_retry", "run_now": "job_run"}
        return self.url(names[action], quote(make_key(alias, id))) if action in names else ""

    def render(
        self,
        title: str,
        context: dict[str, Any],
        *,
        crumbs: Sequence[tuple[str, str]] = (),
        status: int = 200,
    ) -> HttpResponse:
        """Return the page; ``crumbs`` are (address, text) between the application and it."""
        opts = self.model_admin.opts
        page = {
            **self.model_admin.admin_site.each_context(self.request),
            "title": title,
            "opts": opts,
            "app_label": opts.app_label,
            "crumbs": crumbs,
            "breadcrumbs_template": BREADCRUMBS,
            "here": self.request.get_full_path(),
            "refresh_seconds": console().refresh_seconds if self.is_watched else 0,
            **context,
        }
        return TemplateResponse(self.request, self.template_name, page, status=status)

    def list_crumb(self, model_name: str) -> tuple[str, str]:
        """Return the breadcrumb of a model's list."""
        model = self.model_admin.opts.app_config.get_model(model_name)
        return (
            self.url(f"{model_name}_changelist"),
            capfirst(str(model._meta.verbose_name_plural)),
        )

    def way_back(self, default: str) -> str:
        """Return the address in the form's ``next`` if it is one of this site, else ``default``."""
        wanted = self.request.POST.get("next", "")
        is_safe = url_has_allowed_host_and_scheme(
            wanted, allowed_hosts={self.request.get_host()}, require_https=self.request.is_secure()
        )
        return wanted if wanted and is_safe else default

    def back(self, default: str) -> HttpResponseRedirect:
        """Return to the page that the act was started from."""
        return HttpResponseRedirect(self.way_back(default))

    def may_watch(self) -> bool:
        """Whether the user may see the overview."""
        return bool(permissions.allowed(self.request, "view_queue"))

    def report(self, act: Act) -> None:
        """Tell the operator what became of the act."""
        total = act.total
        clean = not (total.changed or total.not_found or total.more)
        if act.counts:
            level = messages.SUCCESS if clean and total.done else messages.WARNING
            text = describe(act)
            if act.action in STARTS and total.done and self.may_watch():
                address = self.url("queue_changelist")
                text = format_html('{} <a href="{}">{}</a>', text, address, _("See what runs"))
            messages.add_message(self.request, level, text)
        for alias, error in act.errors.items():
            text = _("The queue “%(queue)s” could not do it: %(error)s")
            messages.error(self.request, text % {"queue": alias, "error": error})
