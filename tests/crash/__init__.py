"""Kills the processes of a store at any moment, cuts its power, fills its disk; then audits it."""

from __future__ import annotations
