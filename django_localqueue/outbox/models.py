"""The table of the outbox."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _


class OutboxJob(models.Model):
    """A job on its way to a queue; moved in the order of its key, and then deleted."""

    id = models.BigAutoField(primary_key=True)
    job_id = models.CharField(_("job"), max_length=36, unique=True)
    queue = models.CharField(_("queue"), max_length=255)
    backend = models.CharField(_("task backend"), max_length=255)
    task = models.CharField(_("task"), max_length=1000)
    #: A ``PendingJob`` as JSON.
    pending = models.TextField(_("job as put"))
    #: Why it can't be moved; empty for what is to be moved.
    error = models.TextField(_("error"), default="", blank=True)

    objects: ClassVar[models.Manager[Any]] = models.Manager()

    class Meta:
        verbose_name = _("outbox job")
        verbose_name_plural = _("outbox jobs")
        ordering: ClassVar[list[str]] = ["id"]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["queue", "id"], name="localqueue_outbox_queue")
        ]

    def __str__(self) -> str:
        return f"{self.task} {self.job_id}"
