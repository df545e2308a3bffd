"""The app of the outbox."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class OutboxConfig(AppConfig):
    """INSTALLED_APPS = [..., "django_localqueue", "django_localqueue.outbox"]"""

    name = "django_localqueue.outbox"
    label = "django_localqueue_outbox"
    verbose_name = _("Local queue outbox")
    default_auto_field = "django.db.models.BigAutoField"
