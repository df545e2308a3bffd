"""The outbox: jobs written in a database transaction, and moved to their queues afterwards.

An app of its own, for projects that must not lose a job between a commit and its put. Its
table belongs to each database whose transactions enqueue; a worker moves what is in it.
"""

from __future__ import annotations

from django.apps import apps as project  # ``apps`` is a module of this package

APP = "django_localqueue.outbox"


def is_used() -> bool:
    """Whether this project has an outbox to look after."""
    return project.is_installed(APP)
