"""The settings: the only package that reads them.

``keys`` says which there are, ``reading`` reads and checks their shape, and ``locations`` tells
where a queue's store is now.
"""

from __future__ import annotations

from django_localqueue.conf.keys import (
    FILE_NAME,
    IN_MEMORY,
    OPTIONS,
    QUEUE_KEYS,
    RQLITE_BACKEND,
    SQLITE_BACKEND,
    TEST_KEYS,
    ConsoleSettings,
    Problem,
    QueueSettings,
    WorkerSettings,
)
from django_localqueue.conf.reading import (
    console,
    queue_settings,
    schedules,
    section_problems,
    setting,
    suggestion,
    tasks,
    tasks_are_the_default,
    worker,
)

__all__ = [
    "FILE_NAME",
    "IN_MEMORY",
    "OPTIONS",
    "QUEUE_KEYS",
    "RQLITE_BACKEND",
    "SQLITE_BACKEND",
    "TEST_KEYS",
    "ConsoleSettings",
    "Problem",
    "QueueSettings",
    "WorkerSettings",
    "console",
    "queue_settings",
    "schedules",
    "section_problems",
    "setting",
    "suggestion",
    "tasks",
    "tasks_are_the_default",
    "worker",
]
