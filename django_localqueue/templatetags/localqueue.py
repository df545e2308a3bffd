"""``{% failed_jobs %}``: how many jobs have failed, for the admin's index and other dashboards."""

from __future__ import annotations

from typing import Any

from django import template
from django.urls import NoReverseMatch, reverse
from django.utils.http import urlencode

from django_localqueue.conf import console

register = template.Library()


@register.inclusion_tag("admin/django_localqueue/notice.html", takes_context=True)
def failed_jobs(context: dict[str, Any], hours: float | None = None) -> dict[str, Any]:
    """Show what failed in the last ``hours``, or ever, to who may see it; else nothing."""
    from django_localqueue.console import notice

    request = context.get("request")
    if request is None or not getattr(request, "user", None):
        return {"failures": []}
    found = notice.for_request(request, None if hours is None else round(hours * 3_600))
    site = getattr(request, "current_app", None)
    try:
        base = reverse("admin:django_localqueue_job_changelist", current_app=site)
        errors = reverse("admin:django_localqueue_job_errors", current_app=site)
    except NoReverseMatch:  # the console is on no site here
        base = errors = ""
    rows = [
        {"alias": one.alias, "text": one.text, "url": f"{base}?{urlencode({'queue': one.alias})}"}
        for one in found
    ]
    return {"failures": rows, "errors_url": errors, "base": base}


@register.inclusion_tag("admin/django_localqueue/notice.html", takes_context=True)
def failed_jobs_on_index(context: dict[str, Any]) -> dict[str, Any]:
    """``failed_jobs``, unless ``LOCALQUEUE_CONSOLE`` says ``{"INDEX_NOTICE": False}``."""
    return failed_jobs(context) if console().index_notice else {"failures": []}
