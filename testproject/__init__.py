"""A small real site: a file catalogue filled by background jobs, with the console beside it."""

from __future__ import annotations
