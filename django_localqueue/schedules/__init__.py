"""Recurring jobs: a cron expression, a time zone, and the task that is enqueued each time."""

from __future__ import annotations

from django_localqueue.schedules.acts import pause, resume, run_now
from django_localqueue.schedules.declared import schedule

__all__ = ["pause", "resume", "run_now", "schedule"]
