"""Every exception of the package; the native engine raises these classes too.

The docstring of a class is its default message.
"""

from __future__ import annotations

import queue
from typing import Literal

LeaseLoss = Literal["expired", "settled", "unknown"]


class LocalQueueError(Exception):
    """Something went wrong in django-localqueue."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


class Empty(LocalQueueError, queue.Empty):
    """No job is ready in this queue."""


class LeaseExpired(LocalQueueError):
    """The receipt is not the live one of its job; nothing was changed.

    ``reason`` says why: ``"expired"`` (the deadline passed, the job runs again or
    will), ``"settled"`` (the job was already acked, nacked, failed or released by
    another verb) or ``"unknown"`` (no job ever had this receipt, or it is gone).
    """

    def __init__(self, message: str | None = None, reason: LeaseLoss = "unknown") -> None:
        super().__init__(message)
        self.reason: LeaseLoss = reason


class InvalidInput(LocalQueueError, ValueError):
    """An argument was refused; nothing was stored."""


class SerializationError(InvalidInput, TypeError):
    """The payload cannot be carried by the queue's serializer; nothing was stored."""


class PayloadTooLarge(InvalidInput):
    """The payload is larger than the queue's max_payload_bytes; nothing was stored."""


class UndecodablePayload(LocalQueueError):
    """A stored payload cannot be decoded; its raw bytes are kept with the job."""


class JobNotFound(LocalQueueError, LookupError):
    """The queue has no job with this id."""


class UnknownQueue(LocalQueueError, LookupError):
    """LOCALQUEUE has no queue with this alias."""


class NotStored(LocalQueueError):
    """The operation did not happen; nothing was stored or changed."""


class StoreBusy(NotStored, TimeoutError):
    """The write lock of the store was not to be had within the timeout."""


class StoreFull(NotStored):
    """The disk that holds the store is full; nothing was stored."""


class StoreUnavailable(NotStored):
    """The store cannot be opened, read or written."""


class StoreCorrupt(StoreUnavailable):
    """The store's file is not a database, or it is damaged."""


class ForeignDatabase(StoreUnavailable):
    """The file is a database that something other than django-localqueue owns."""


class NewerSchema(StoreUnavailable):
    """The store was written by a newer version of django-localqueue."""


class JobTimeout(LocalQueueError, TimeoutError):
    """The job ran longer than it may, so its process was ended."""


class QueueClosed(NotStored):
    """The queue was closed; open it again before using it."""


class OutcomeUnknown(LocalQueueError):
    """Whether the operation happened cannot be known; it is safe to send again."""


class StoredNotSynced(LocalQueueError):
    """The operation is stored, but the disk failed to confirm it: a power cut may lose it."""
