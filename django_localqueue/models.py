"""What the admin console hangs on: index entries, permissions and content types.

The jobs are in the queues' own store. These models have no table; they exist so
that Django's admin, permissions and log can name a queue, a job and a worker.
"""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models
from django.utils.translation import gettext_lazy as _


class MarkerManager(models.Manager["Marker"]):
    """Says where the jobs are instead of failing with an SQL error."""

    def get_queryset(self) -> NoReturn:
        raise NotImplementedError(
            f"{self.model.__name__} has no table: the jobs are in the queues. Use"
            " django_localqueue.queues[alias], its list(), lookup() and apply()."
        )


class EmptyManager(models.Manager["Marker"]):
    """For what walks over all models, as dumpdata does: there are no rows."""

    def get_queryset(self) -> models.QuerySet[Marker]:
        return super().get_queryset().none()


class Marker(models.Model):
    """The common part of the models without a table."""

    objects = MarkerManager()
    no_rows = EmptyManager()

    class Meta:
        abstract = True
        managed = False
        default_permissions = ("view",)
        default_manager_name = "no_rows"
        base_manager_name = "no_rows"

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: there is no table."""
        raise NotImplementedError(f"{type(self).__name__} has no table; nothing can be saved.")


class Queue(Marker):
    """A queue of the LOCALQUEUE setting, named by its alias."""

    alias = models.CharField(_("alias"), max_length=255, primary_key=True)

    class Meta(Marker.Meta):
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        permissions = (
            ("pause_queue", "Can pause and resume queue"),
            ("purge_queue", "Can purge jobs of queue"),
        )

    def __str__(self) -> str:
        return self.alias


class Job(Marker):
    """A job, named by its key: the alias of its queue and its public id."""

    key = models.CharField(_("key"), max_length=600, primary_key=True)

    class Meta(Marker.Meta):
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        permissions = (
            ("view_job_payload", "Can view payload of job"),
            ("retry_job", "Can retry job"),
            ("discard_job", "Can discard job"),
            ("edit_job", "Can edit job"),
            ("run_job_now", "Can run job now"),
            ("move_job", "Can move job to another queue"),
            ("export_job", "Can export jobs"),
        )

    def __str__(self) -> str:
        return self.key


class Worker(Marker):
    """A worker, named by its host, process and a random part."""

    name = models.CharField(_("name"), max_length=255, primary_key=True)

    class Meta(Marker.Meta):
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        permissions = (("stop_worker", "Can stop worker"),)

    def __str__(self) -> str:
        return self.name


class Schedule(Marker):
    """A recurring job, named by its name in the settings."""

    name = models.CharField(_("name"), max_length=255, primary_key=True)

    class Meta(Marker.Meta):
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        permissions = (
            ("pause_schedule", "Can pause and resume schedule"),
            ("run_schedule", "Can run schedule now"),
        )

    def __str__(self) -> str:
        return self.name
