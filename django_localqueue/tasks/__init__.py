"""The backend for ``django.tasks``, and for the ``django-tasks`` backport on Django 5.2.

TASKS = {"default": {"BACKEND": "django_localqueue.tasks.LocalQueueBackend"}}
"""

from __future__ import annotations

from django_localqueue.tasks.backend import LocalQueueBackend
from django_localqueue.tasks.runner import run_task

__all__ = ["LocalQueueBackend", "run_task"]
