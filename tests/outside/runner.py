"""Runs a suite of others with Django's runner; what is left out is skipped by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unittest
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from django.test.runner import DiscoverRunner
from django.test.utils import iter_test_cases

MARK = "OUTCOME "


class OutsideRunner(DiscoverRunner):
    """``skipped`` maps ``Class.test`` or ``Class`` to the reason why it isn't run."""

    def __init__(self, skipped: Mapping[str, str], **options: Any) -> None:
        super().__init__(interactive=False, **options)
        self._skipped = skipped

    def build_suite(self, *args: Any, **options: Any) -> Any:
        suite = super().build_suite(*args, **options)
        left = set(self._skipped)
        for test in iter_test_cases(suite):
            kind, name = type(test).__name__, test._testMethodName
            for key in (f"{kind}.{name}", kind):
                if key in self._skipped:
                    left.discard(key)
                    skip: Callable[[Any], Any] = unittest.skip(self._skipped[key])
                    setattr(test, name, skip(getattr(test, name)))
                    break
        if left:
            raise LookupError(f"These tests, which are to be skipped, aren't there: {left}")
        return suite

    def run_suite(self, suite: Any, **options: Any) -> Any:
        total = suite.countTestCases()  # CPython 3.12.1 leaves skipped ones out of testsRun
        result = super().run_suite(suite, **options)
        outcome = {
            "run": total - len(result.skipped),
            "skipped": len(result.skipped),
            "failed": [str(test) for test, _ in [*result.failures, *result.errors]],
        }
        print(MARK + json.dumps(outcome), flush=True)
        return result


def outcome(command: Sequence[str], folder: Path, **variables: str) -> dict[str, Any]:
    """Run a suite in a process of its own; return its outcome: ``run``, ``skipped``, ``failed``.

    The process inherits nothing of the pytest that starts it: under xdist the suite would take
    a queue of its own, and its workers wouldn't.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**inherited, **variables},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    found: dict[str, Any] = json.loads(line.removeprefix(MARK))
    return found
