"""How many jobs wait in the outbox, where the project has one."""

from __future__ import annotations

import logging

from django.apps import apps

APP, MODEL = "django_localqueue_outbox", "OutboxJob"
logger = logging.getLogger("django_localqueue.console")


def waiting() -> int | None:
    """Return the number of jobs in the outbox, None where there is no outbox."""
    try:
        model = apps.get_model(f"{APP}.{MODEL}")
    except LookupError:
        return None
    try:
        return int(model._default_manager.count())
    except Exception:
        logger.exception("The outbox could not be read.")
        return None
