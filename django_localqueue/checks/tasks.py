"""Checks of TASKS and of schedules: whether tasks reach the queue, and safely."""

from __future__ import annotations

import contextlib
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning, register
from django.utils.module_loading import autodiscover_modules

from django_localqueue import conf
from django_localqueue.checks.common import TAG, Apps

TASK_BACKEND = "django_localqueue.tasks.LocalQueueBackend"
TASK_BACKENDS = (TASK_BACKEND, "django_localqueue.tasks.backend.LocalQueueBackend")


@register(TAG)
def check_tasks(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """Whether tasks reach the queue, and safely (E005, E008, W003, W004, W007).

    That QUEUES names aliases which LOCALQUEUE has is the task backend's check (E009).
    """
    ours = {
        alias: entry
        for alias, entry in conf.tasks().items()
        if entry.get("BACKEND") in TASK_BACKENDS
    }
    messages: list[CheckMessage] = [
        Error(
            f"TASKS[{alias!r}]['BACKEND'] is {path!r}, which isn't there.",
            hint=f"Set it to '{TASK_BACKEND}'.",
            id="django_localqueue.E008",
        )
        for alias, entry in conf.tasks().items()
        if str(path := entry.get("BACKEND")).startswith("django_localqueue.")
        and path not in TASK_BACKENDS
    ]
    if ours and find_spec("django.tasks") is None:
        if find_spec("django_tasks") is None:
            hint = "Install it: pip install 'django-localqueue[tasks]', or use Django 6.0 or later."
            messages.append(_backport("is not installed", hint))
        elif not apps.is_installed("django_tasks"):
            messages.append(
                _backport("is not in INSTALLED_APPS", "Add 'django_tasks' to INSTALLED_APPS.")
            )
    for alias, entry in ours.items():
        where = f"TASKS[{alias!r}]"
        if "QUEUES" in entry and not entry["QUEUES"]:
            messages.append(
                Warning(
                    f"{where}['QUEUES'] is empty: a task may then name a queue that LOCALQUEUE"
                    " doesn't have.",
                    hint="Leave QUEUES out: it is then every alias of LOCALQUEUE.",
                    id="django_localqueue.W003",
                )
            )
        options = entry.get("OPTIONS") or {}
        at_once = not any(key in options for key in ("enqueue_on_commit", "outbox"))
        if at_once and (database := _atomic_requests()):
            messages.append(
                Warning(
                    f"DATABASES[{database!r}] has ATOMIC_REQUESTS, and {where} enqueues at once:"
                    " a worker may run a task before the request's transaction is committed, or"
                    " one that was rolled back.",
                    hint=f"Set 'enqueue_on_commit' in {where}['OPTIONS'] to True, or 'outbox' to"
                    " lose none between commit and enqueue; to False where at once is meant.",
                    id="django_localqueue.W004",
                )
            )
    if _tasks_are_possible() and conf.tasks_are_the_default():
        messages.append(
            Warning(
                "TASKS is Django's default, which runs tasks at once in the process that enqueues"
                " them: the worker has nothing to do.",
                hint=f"Set TASKS = {{'default': {{'BACKEND': '{TASK_BACKEND}'}}}}, or silence this"
                " check where only plain jobs are put.",
                id="django_localqueue.W007",
            )
        )
    return messages


@register(TAG)
def check_schedules(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """Schedules that can't be: expressions, time zones, tasks, names (E011)."""
    if not _tasks_are_possible():
        return []
    from django_localqueue.schedules.declared import problems

    # What can't be imported is told by whoever needs it, as the worker does.
    with contextlib.suppress(Exception):
        autodiscover_modules("tasks")
    return [Error(message, hint=hint, id="django_localqueue.E011") for message, hint in problems()]


def register_those_of_tasks() -> None:
    """Have Django ask the task backends too (E009, E020, E021), where one of them is ours.

    It registers that check when ``django.tasks`` is imported, which ``check`` by itself doesn't
    do. The backport's app does it for its own.
    """
    ours = any(entry.get("BACKEND") in TASK_BACKENDS for entry in conf.tasks().values())
    if ours and find_spec("django.tasks") is not None:
        import_module("django.tasks.checks")


def _atomic_requests() -> str | None:
    for alias, database in conf.setting("DATABASES", {}).items():
        if database.get("ATOMIC_REQUESTS"):
            return str(alias)
    return None


def _tasks_are_possible() -> bool:
    return find_spec("django.tasks") is not None or apps.is_installed("django_tasks")


def _backport(state: str, hint: str) -> Error:
    return Error(
        f"TASKS uses {TASK_BACKEND}, this Django has no django.tasks, and the django-tasks"
        f" backport {state}.",
        hint=hint,
        id="django_localqueue.E005",
    )
