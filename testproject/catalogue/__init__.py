"""The file catalogue: what every file is, and a full-text search over it."""

from __future__ import annotations
