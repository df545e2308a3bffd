"""The task of ``outbox_site``."""

from __future__ import annotations

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task
def note(number: int) -> None:
    """Never called: the site takes jobs itself."""
