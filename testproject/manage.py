#!/usr/bin/env python
"""Django's command line for the testproject: ``python -m testproject.manage``."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Run one management command with the testproject's settings."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    if __package__ in (None, ""):
        # Started as a file: its folder would shadow top-level names, its parent is what is wanted.
        sys.path[0] = str(Path(__file__).resolve().parents[1])
    main()
