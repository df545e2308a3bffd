"""What a project's workers do beside running jobs and looking after the stores."""

from __future__ import annotations

from collections.abc import Sequence

from django_localqueue.backends.base import BaseQueue
from django_localqueue.worker.chores import Chore


def project_chores(queues: Sequence[BaseQueue]) -> list[Chore]:
    """Return the chores of a worker that serves these queues."""
    return []
