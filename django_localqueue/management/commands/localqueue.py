"""``manage.py localqueue``: looks after the queues from the command line.

Exit codes: 0 where it was done; 2 for a fault of usage or configuration; 3 where a store can't
be used.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_localqueue.backends.rqlite import RqliteQueue
from django_localqueue.exceptions import LocalQueueError, UnknownQueue
from django_localqueue.queues import queues

USAGE = 2
STORE = 3


class Command(BaseCommand):
    """See the module."""

    help = "Looks after the queues of LOCALQUEUE."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="action")
        adopt = actions.add_parser(
            "adopt",
            help="Move the messages that wait in the tables of RqliteTransport into a queue of the"
            " same cluster, once each. May be interrupted and run again.",
        )
        adopt.add_argument(
            "queue", nargs="?", default="default", help='An alias of LOCALQUEUE; "default".'
        )

    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["queue"]
        try:
            queue = queues[alias]
        except (UnknownQueue, ImproperlyConfigured) as error:
            raise CommandError(str(error), returncode=USAGE) from error
        if not isinstance(queue, RqliteQueue):
            raise CommandError(
                f"The queue {alias!r} is not on rqlite; adopt moves messages within one cluster."
                " Name an alias whose BACKEND is RqliteQueue.",
                returncode=USAGE,
            )
        try:
            adopted = queue.adopt()
        except LocalQueueError as error:
            raise CommandError(str(error), returncode=STORE) from error
        self.stdout.write(f"Moved {adopted.moved} messages into the queue {alias!r}.")
        if adopted.left:
            self.stdout.write(
                f"Left {adopted.left} messages of groups that are in flight: run this again when"
                " the workers of the transport have ended."
            )
