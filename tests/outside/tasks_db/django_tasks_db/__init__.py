"""What the suite of django-tasks-db imports, on our backend."""

from __future__ import annotations

import uuid
from unittest import mock

from django_localqueue.tasks import LocalQueueBackend, calls, compat

__all__ = ["DatabaseBackend", "compat"]


def _new_id() -> str:
    return str(uuid.uuid4())


# Ours are UUIDs of version 7, ordered by time; the suite asks for any of version 4.
mock.patch.object(calls, "new_id", new=_new_id).start()


class DatabaseBackend(LocalQueueBackend):
    """Our backend under the name that the suite looks for."""
