"""What all checks share."""

from __future__ import annotations

from collections.abc import Sequence

from django.apps import AppConfig

from django_localqueue import conf

TAG = "localqueue"
FILES_TAG = "localqueue_files"

Apps = Sequence[AppConfig] | None


def every_queue() -> list[conf.QueueSettings]:
    """Return the settings of each alias."""
    return list(conf.queue_settings().values())
