"""The Django application."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class LocalQueueConfig(AppConfig):
    """Registers the system checks; opens nothing."""

    name = "django_localqueue"
    label = "django_localqueue"
    verbose_name = _("Local queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_localqueue import checks

        checks.tasks.register_those_of_tasks()
