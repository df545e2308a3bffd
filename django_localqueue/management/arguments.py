"""What the arguments of the two commands have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandParser

from django_localqueue.worker.options import Kind


def argument_type(kind: Kind) -> Callable[[str], Any]:
    """Return a ``type`` for arguments that take values of this kind."""

    def parse(given: str) -> Any:
        try:
            return kind.parse(given)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{given!r} can't be: {error}") from None

    return parse


class MixedParser(CommandParser):
    """Takes what has no flag also behind flags: ``failed retry --queue emails ID``."""

    _is_mixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; see ``ArgumentParser.parse_known_intermixed_args``, which calls this again."""
        if self._is_mixing:
            return super().parse_known_args(args, namespace)
        self._is_mixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_mixing = False


def add_action(actions: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    """Add a parser for an action of ``localqueue``, and return it."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    # Django's own options are the command's; people give them after the action too. --settings
    # and --pythonpath were read by Django before.
    for flag in ("--settings", "--pythonpath"):
        parser.add_argument(flag, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    for flag in ("--traceback", "--no-color", "--force-color", "--skip-checks"):
        parser.add_argument(
            flag, action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )
    return parser
