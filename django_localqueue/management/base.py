"""What the commands share."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, SystemCheckError

#: Exit codes of both: usage or configuration; a store that can't be used.
USAGE, STORE = 2, 3


class QueueCommand(BaseCommand):
    """A command that a failing system check ends as wrong usage does."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the checks and the command; raises ``SystemCheckError`` with that exit code."""
        try:
            return super().execute(*args, **options)
        except SystemCheckError as error:
            error.returncode = USAGE
            raise
