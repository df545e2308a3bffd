"""``manage.py localqueue``: looks after the queues from the command line.

Exit codes: 0 where it was done; 1 where a check found something, or what was named isn't there;
2 for a fault of usage or configuration; 3 where a store can't be used.
"""

from __future__ import annotations

import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser

from django_localqueue.exceptions import InvalidInput, JobNotFound, LocalQueueError, UnknownQueue
from django_localqueue.management import queue_actions, worker_actions
from django_localqueue.management.arguments import MixedParser
from django_localqueue.management.base import STORE, USAGE, QueueCommand
from django_localqueue.management.output import NotFound, Output

FOUND = 1


class Command(QueueCommand):
    """See the module."""

    help = (
        "Looks after the queues of LOCALQUEUE. Exit codes: 0 done; 1 a check found something, or"
        " what was named isn't there; 2 usage or configuration; 3 a store can't be used."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(
            dest="action", required=True, metavar="action", parser_class=MixedParser
        )
        queue_actions.add_parsers(actions)
        worker_actions.add_parsers(actions)

    def handle(self, *args: Any, **options: Any) -> None:
        out = Output(self.stdout, as_json=options.get("json", False))
        try:
            sound = options["run"](out, options)
        except (UnknownQueue, ImproperlyConfigured, InvalidInput) as error:
            raise CommandError(str(error), returncode=USAGE) from error
        except (NotFound, JobNotFound) as error:
            raise CommandError(str(error), returncode=FOUND) from error
        except LocalQueueError as error:
            raise CommandError(str(error), returncode=STORE) from error
        if sound is False:
            sys.exit(FOUND)
