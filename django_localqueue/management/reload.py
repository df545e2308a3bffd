"""Starting the worker anew when code changes, for development."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from django.utils.autoreload import get_child_arguments, iter_all_python_module_files

INTERVAL = 1.0


class Watch:
    """Looks whether the files of imported modules changed.

    Args:
        say: told of a changed file, or of one that can't be compiled.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._times: dict[Path, float] = {}
        self._next = 0.0
        self._look()

    def changed(self) -> bool:
        """Return whether a file changed, and each compiles; looks once a second at most."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + INTERVAL
        changed = self._look()
        if not changed:
            return False
        for path in changed:
            if path.suffix == ".py" and not self._compiles(path):
                return False  # it will change again
        self._say(f"{changed[0]} changed; the worker starts anew.")
        return True

    def _look(self) -> list[Path]:
        changed = []
        for path in iter_all_python_module_files():
            try:
                modified = path.stat().st_mtime
            except OSError:
                continue
            before = self._times.setdefault(path, modified)
            if modified != before:
                changed.append(path)
                self._times[path] = modified
        return changed

    def _compiles(self, path: Path) -> bool:
        try:
            compile(path.read_bytes(), str(path), "exec")
        except (SyntaxError, ValueError, OSError) as error:
            self._say(f"{path} changed and can't be compiled: {error}. Waiting for its mend.")
            return False
        return True


def start_anew() -> None:
    """Take the place of this process with the same command; never returns."""
    sys.stdout.flush()
    sys.stderr.flush()
    arguments = get_child_arguments()
    os.execv(arguments[0], arguments)
