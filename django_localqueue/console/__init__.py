"""The admin console: see the queues, repair what failed.

It hangs on Django's admin: ``register_console`` puts it on a site. Nothing else of
the package imports it, so a project without ``django.contrib.admin`` runs without.
"""

from __future__ import annotations

from django_localqueue.console.permissions import has_permission, user_has_permission
from django_localqueue.console.signals import job_action
from django_localqueue.console.site import (
    JobAdmin,
    QueueAdmin,
    ScheduleAdmin,
    WorkerAdmin,
    register_console,
)

__all__ = [
    "JobAdmin",
    "QueueAdmin",
    "ScheduleAdmin",
    "WorkerAdmin",
    "has_permission",
    "job_action",
    "register_console",
    "user_has_permission",
]
