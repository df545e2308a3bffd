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
from django_localqueue.console.views.edit import EditJobView
from django_localqueue.console.views.export import ExportView
from django_localqueue.console.views.failures import ErrorsView
from django_localqueue.console.views.jobs import FindJobView, JobsView
from django_localqueue.console.views.overview import (
    OverviewView,
    PauseView,
    PurgeByAgeView,
    QueueView,
    ResumeView,
)
from django_localqueue.console.views.schedules import ScheduleActView, SchedulesView
from django_localqueue.console.views.tasks import TasksView
from django_localqueue.console.views.workers import WorkerCommandView, WorkersView

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
    queue_view = QueueView

    def get_urls(self) -> list[URLPattern]:
        return [
            self.route("", self.overview_view, "queue_changelist"),
            self.route("pause/", PauseView, "queue_pause"),
            self.route("resume/", ResumeView, "queue_resume"),
            self.route("purge/", PurgeByAgeView, "queue_purge"),
            self.route("<path:object_id>/change/", self.queue_view, "queue_change"),
        ]


class JobAdmin(ConsoleAdmin):
    """The jobs: lists by state, errors, a page for each job, and what can be done with them."""

    view_action = "view_job"
    jobs_view = JobsView
    job_view = JobView
    errors_view = ErrorsView
    tasks_view = TasksView

    def get_urls(self) -> list[URLPattern]:
        return [
            self.route("", self.jobs_view, "job_changelist"),
            self.route("errors/", self.errors_view, "job_errors"),
            self.route("tasks/", self.tasks_view, "job_tasks"),
            self.route("find/", FindJobView, "job_find"),
            self.route("act/", JobActView, "job_act"),
            self.route("export/", ExportView, "job_export"),
            self.route("<path:object_id>/change/", self.job_view, "job_change"),
            self.route("<path:object_id>/retry/", RetryJobView, "job_retry"),
            self.route("<path:object_id>/edit/", EditJobView, "job_edit"),
            self.route("<path:object_id>/run/", RunJobView, "job_run"),
        ]


class WorkerAdmin(ConsoleAdmin):
    """The workers, and asking them to be quiet or to stop."""

    view_action = "view_worker"
    workers_view = WorkersView

    def get_urls(self) -> list[URLPattern]:
        return [
            self.route("", self.workers_view, "worker_changelist"),
            self.route("command/", WorkerCommandView, "worker_command"),
            self.route("<path:object_id>/change/", WorkersView, "worker_change"),
        ]


class ScheduleAdmin(ConsoleAdmin):
    """The schedules: pause, resume, run now."""

    view_action = "view_schedule"
    schedules_view = SchedulesView

    def get_urls(self) -> list[URLPattern]:
        return [
            self.route("", self.schedules_view, "schedule_changelist"),
            self.route("act/", ScheduleActView, "schedule_act"),
            self.route("<path:object_id>/change/", SchedulesView, "schedule_change"),
        ]


def register_console(site: AdminSite) -> None:
    """Put the console on an admin site.

    Django's default site has it by itself, unless ``LOCALQUEUE_CONSOLE`` says
    ``{"AUTO_REGISTER": False}``.
    """
    site.register(models.Queue, QueueAdmin)
    site.register(models.Job, JobAdmin)
    site.register(models.Worker, WorkerAdmin)
    site.register(models.Schedule, ScheduleAdmin)
    if site.index_template is None:  # a site with an index of its own includes the notice itself
        site.index_template = "admin/django_localqueue/index.html"
