"""What a queue says of a lost lease."""

from __future__ import annotations

from typing import cast

from django_localqueue.exceptions import LeaseExpired, LeaseLoss
from django_localqueue.types import Job

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
