"""What a queue says of a lost lease, and of a delivery that can't be decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from django_localqueue.backends.arguments import Settlement
from django_localqueue.exceptions import (
    LeaseExpired,
    LeaseLoss,
    LocalQueueError,
    UndecodablePayload,
)
from django_localqueue.types import ErrorRecord, Exchange, Job

_LOSSES: dict[str, str] = {
    "expired": "its lease ran out: the job runs again, or will",
    "settled": "it was already acked, nacked, failed or released",
    "unknown": "no job has this receipt; it was purged, or is of another store",
}


def lost_lease(job: Job, loss: str) -> LeaseExpired:
    """Return the exception for a receipt that is not live."""
    return LeaseExpired(
        f"The receipt of the job {job.id} is not live any more: {_LOSSES[loss]}. Nothing was"
        " changed.",
        cast("LeaseLoss", loss),
    )


def outcome(
    settlements: Sequence[Settlement], losses: Sequence[str | None], jobs: list[Job]
) -> Exchange:
    """Return what an exchange tells: a lost lease or None for each settlement, and the jobs."""
    results: list[LocalQueueError | None] = [
        None if loss is None else lost_lease(item.job, loss)
        for item, loss in zip(settlements, losses, strict=True)
    ]
    return Exchange(results, jobs)


def undecodable(error: Exception) -> ErrorRecord | None:
    """Return what is kept of why a payload can't be decoded."""
    if not isinstance(error, UndecodablePayload):
        wrapped = UndecodablePayload(f"The payload can't be decoded: {error!r}.")
        error = wrapped.with_traceback(error.__traceback__)
    return ErrorRecord.of(error)
