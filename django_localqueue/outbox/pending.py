"""A job that is put later than it was asked for."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from django_localqueue.exceptions import InvalidInput
from django_localqueue.types import MICROSECONDS, NewJob


@dataclass(slots=True)
class PendingJob:
    """What ``put`` is to be told of a job; ``due`` (None: at once) and ``made_at`` in microseconds.

    Times that were given in seconds, as ``expires``, count from ``made_at``.
    """

    job: dict[str, Any]
    made_at: int
    due: int | None = None

    def new_job(self, now: int) -> NewJob:
        """Return the job as it is to be put at ``now``; raises ``InvalidInput``."""
        job = self.job
        if self.due is None and "expires" not in job and "unique_seconds" not in job:
            return NewJob(**job)
        job = dict(job)
        waited = max(0, now - self.made_at) / MICROSECONDS
        if self.due is not None:
            job["delay"] = max(0.0, (self.due - now) / MICROSECONDS)
        if "expires" in job:
            if self.due is not None and job["expires"] <= (self.due - self.made_at) / MICROSECONDS:
                raise InvalidInput(
                    f"The task {job['task']} would expire before its run_after; give expires more"
                    " seconds."
                )
            # One that is late already expires in its queue, where people look for it.
            job["expires"] = max(job.get("delay", 0.0) + 0.001, job["expires"] - waited)
        if job.get("unique_seconds"):
            job["unique_seconds"] = max(0.0, job["unique_seconds"] - waited)
        return NewJob(**job)

    def dumps(self) -> str:
        """Return it as JSON text."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> PendingJob:
        """Return what ``dumps`` made text of."""
        return cls(**json.loads(text))
