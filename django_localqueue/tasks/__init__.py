"""The backend for ``django.tasks``, and for the ``django-tasks`` backport on Django 5.2.

TASKS = {"default": {"BACKEND": "django_localqueue.tasks.LocalQueueBackend"}}
"""

from __future__ import annotations

from django_localqueue.tasks.backend import LocalQueueBackend, enqueue_many
from django_localqueue.tasks.backoff import exponential
from django_localqueue.tasks.calls import Call, call
from django_localqueue.tasks.context import JobContext, progress, should_stop
from django_localqueue.tasks.options import JobOptions, job_options
from django_localqueue.tasks.results import LocalTaskResult
from django_localqueue.tasks.runner import run_task, settle_error
from django_localqueue.tasks.signals import job_dead_lettered, job_retried

__all__ = [
    "Call",
    "JobContext",
    "JobOptions",
    "LocalQueueBackend",
    "LocalTaskResult",
    "call",
    "enqueue_many",
    "exponential",
    "job_dead_lettered",
    "job_options",
    "job_retried",
    "progress",
    "run_task",
    "settle_error",
    "should_stop",
]
