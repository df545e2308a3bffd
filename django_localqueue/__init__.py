"""Background jobs for Django with no broker to run.

``SimpleQueue`` and ``Worker`` need no Django settings; ``queues`` holds the queues
of the LOCALQUEUE setting by their alias.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from django_localqueue.exceptions import (
    Empty,
    ForeignDatabase,
    InvalidInput,
    JobNotFound,
    JobTimeout,
    LeaseExpired,
    LocalQueueError,
    NewerSchema,
    NotStored,
    OutcomeUnknown,
    PayloadTooLarge,
    QueueClosed,
    SerializationError,
    StoreBusy,
    StoreCorrupt,
    StoredNotSynced,
    StoreFull,
    StoreUnavailable,
    UndecodablePayload,
    UnknownQueue,
)
from django_localqueue.queues import queues  # eager: as an attribute it hides its own module
from django_localqueue.types import (
    Applied,
    Attempt,
    ErrorRecord,
    Exchange,
    Job,
    JobFilter,
    JobId,
    JobRecord,
    NewJob,
    Page,
    Settle,
    Stats,
)

if TYPE_CHECKING:
    from django_localqueue.backends.base import BaseQueue
    from django_localqueue.backends.sqlite import SimpleQueue, SQLiteQueue
    from django_localqueue.worker import Worker

__all__ = [
    "Applied",
    "Attempt",
    "BaseQueue",
    "Empty",
    "ErrorRecord",
    "Exchange",
    "ForeignDatabase",
    "InvalidInput",
    "Job",
    "JobFilter",
    "JobId",
    "JobNotFound",
    "JobRecord",
    "JobTimeout",
    "LeaseExpired",
    "LocalQueueError",
    "NewJob",
    "NewerSchema",
    "NotStored",
    "OutcomeUnknown",
    "Page",
    "PayloadTooLarge",
    "QueueClosed",
    "SQLiteQueue",
    "SerializationError",
    "Settle",
    "SimpleQueue",
    "Stats",
    "StoreBusy",
    "StoreCorrupt",
    "StoreFull",
    "StoreUnavailable",
    "StoredNotSynced",
    "UndecodablePayload",
    "UnknownQueue",
    "Worker",
    "queues",
]

# Imported when first asked for: the engine is a native module, and a checkout that
# isn't built yet must still be importable by tools that only look.
_LAZY = {
    "BaseQueue": "django_localqueue.backends.base",
    "SQLiteQueue": "django_localqueue.backends.sqlite",
    "SimpleQueue": "django_localqueue.backends.sqlite",
    "Worker": "django_localqueue.worker",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
