"""How many jobs have failed, told where people look anyway: the admin's index, dashboards, mail."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from django.core.mail import mail_admins
from django.dispatch import Signal
from django.http import HttpRequest
from django.utils.formats import localize
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_localqueue.backends.base import BaseQueue
from django_localqueue.console import permissions
from django_localqueue.console.stores import Unreadable, aliases, ask
from django_localqueue.types import MICROSECONDS, FailureGroup, JobFilter

#: Sent by ``mail_failures`` where jobs have failed: ``failures`` is a list of ``Failed``.
jobs_failed = Signal()

CAP = 1_000
GROUPS = 5


@dataclass(frozen=True, slots=True)
class Failed:
    """What failed in a queue: how many jobs (at most ``CAP``), and the errors seen last."""

    alias: str
    number: int
    groups: Sequence[FailureGroup]

    @property
    def text(self) -> str:
        """The number of jobs in words."""
        more = "+" if self.number >= CAP else ""
        text = ngettext("%s failed job", "%s failed jobs", self.number)
        return text % f"{localize(self.number)}{more}"


def failed(
    names: Sequence[str], seconds: int | None = None, *, with_groups: bool = True
) -> list[Failed]:
    """Return what failed in the last ``seconds``, or ever; queues without failures are left out."""
    found = []
    for alias in names:
        number = ask(alias, lambda queue: _number(queue, seconds))
        if isinstance(number, Unreadable) or not number:
            continue
        groups = ask(alias, lambda queue: queue.failures(GROUPS)) if with_groups else []
        found.append(Failed(alias, number, [] if isinstance(groups, Unreadable) else groups))
    return found


def _number(queue: BaseQueue, seconds: int | None) -> int:
    """Return how many jobs failed in the last ``seconds``, or ever; at most ``CAP``."""
    since = None if seconds is None else queue.now() - seconds * MICROSECONDS
    return queue.count(JobFilter(state="failed", since=since), cap=CAP)


def for_request(request: HttpRequest, seconds: int | None = None) -> list[Failed]:
    """Return what failed in the queues whose jobs the user may see: the numbers alone."""
    return failed(permissions.allowed(request, "view_job"), seconds, with_groups=False)


def mail_failures(hours: float = 24) -> bool:
    """Mail to ADMINS what failed in the last ``hours``; False where nothing did.

    Nothing calls it by itself: call it from a schedule, or from cron. The signal
    ``jobs_failed`` is sent beside the mail.
    """
    span = datetime.timedelta(hours=hours)
    found = failed(aliases(), int(span.total_seconds()))
    if not found:
        return False
    jobs_failed.send_robust(Failed, failures=found)
    lines = []
    for one in found:
        lines.append(f"{one.alias}: {one.text}")
        lines += [
            f"    {group.total} x {group.error_class or '-'} {group.place} {group.task}"
            for group in one.groups
        ]
    mail_admins(_("Jobs have failed"), "\n".join(lines))
    return True
