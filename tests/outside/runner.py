"""Runs a suite of others with Django's runner; what is left out is skipped by name."""

from __future__ import annotations

import json
import unittest
from collections.abc import Callable, Mapping
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


def outcome(said: str) -> dict[str, Any]:
    """Return what a suite's process printed of its outcome: ``run``, ``skipped`` and ``failed``."""
    (line,) = [line for line in said.splitlines() if line.startswith(MARK)]
    found: dict[str, Any] = json.loads(line.removeprefix(MARK))
    return found
