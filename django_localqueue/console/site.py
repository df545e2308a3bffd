"""The console's entries on an admin site."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.contrib.admin import AdminSite, ModelAdmin
from django.http import HttpRequest, HttpResponseBase
from django.urls import URLPattern, path

from django_localqueue import models
from django_localqueue.console import permissions
from django_localqueue.console.views.act import JobActView
from django_localqueue.console.views.base import APP, ConsoleView
from django_localqueue.console.views.detail import JobView, RetryJobView, RunJobView
from django_localqueue.console.views.export import ExportView
from django_localqueue.console.views.jobs import FindJobView, JobsView
from django_localqueue.console.views.overview import (
    OverviewView,
    PauseView,
    PurgeByAgeView,
    QueueView,
    ResumeView,
)

if TYPE_CHECKING:
    Base = ModelAdmin[Any]
else:
    Base = ModelAdmin


class ConsoleAdmin(Base):
    """A model without a table: its pages are views of the console, its rows are in queues."""

    view_action = ""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(permissions.allowed(request, self.view_action))

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def route(self, address: str, view: type[ConsoleView], name: str) -> URLPattern:
        """Return the pattern of a view, behind the admin site's login, never cached."""
        handle: Callable[..., HttpResponseBase] = view.as_view(model_admin=self)
        return path(address, self.admin_site.admin_view(handle), name=f"{APP}_{name}")


class QueueAdmin(ConsoleAdmin):
    """The queues: overview, pause and resume, purge by age."""

    view_action = "view_queue"
    overview_view = OverviewView

    def get_urls(self) -> list[URLPattern]:
        return [
            self.route("", self.overview_view, "queue_changelist"),
            self.route("pause/", PauseView, "queue_pause"),
            self.route("resume/", ResumeView, "queue_resume"),
            self.route("purge/", PurgeByAgeView, "queue_purge"),
            self.route("<path:object_id>/change/", QueueView, "queue_change"),
        ]


class JobAdmin(ConsoleAdmin):
    """The jobs: lists by state, errors, a page for each job, and what can be done with them."""

    view_action = "view_job"
    jobs_view = JobsView
    job_view = JobView

    def get_urls(self) -> list[URLPattern]:
        return [
            self.route("", self.jobs_view, "job_changelist"),
            self.route("find/", FindJobView, "job_find"),
            self.route("act/", JobActView, "job_act"),
            self.route("export/", ExportView, "job_export"),
            self.route("<path:object_id>/change/", self.job_view, "job_change"),
            self.route("<path:object_id>/retry/", RetryJobView, "job_retry"),
            self.route("<path:object_id>/run/", RunJobView, "job_run"),
        ]


def register_console(site: AdminSite) -> None:
    """Put the console on an admin site.

    Django's default site has it by itself, unless ``LOCALQUEUE_CONSOLE`` says
    ``{"AUTO_REGISTER": False}``.
    """
    site.register(models.Queue, QueueAdmin)
    site.register(models.Job, JobAdmin)
