"""What an act on many jobs has done so far, carried from request to request in a signed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.core import signing
from django.core.exceptions import BadRequest
from django.http import HttpRequest

from django_localqueue.console.audit import Act
from django_localqueue.types import Applied

FIELD = "so_far"
_SALT = "django_localqueue.console.progress"


@dataclass(frozen=True, slots=True)
class Progress:
    """The act so far, the key of its entry in the admin's log, and when it began."""

    act: Act
    entry: Any
    began: int

    def signed(self, request: HttpRequest) -> str:
        """Return it as a form's value that only this user can send back."""
        counts = {
            alias: [part.done, part.changed, part.not_found]
            for alias, part in self.act.counts.items()
        }
        entry = None if self.entry is None else str(self.entry)
        value = {
            "action": self.act.action,
            "queues": list(self.act.queues),
            "filter": self.act.filter,
            "counts": counts,
            "errors": dict(self.act.errors),
            "entry": entry,
            "began": self.began,
            "user": str(request.user.pk),
        }
        return signing.dumps(value, salt=_SALT, compress=True)


def read(request: HttpRequest) -> Progress | None:
    """Return what the form carries, None on the first request; raises ``BadRequest``."""
    given = request.POST.get(FIELD)
    if given is None:
        return None
    try:
        value = signing.loads(given, salt=_SALT, max_age=86_400)
    except signing.BadSignature as error:
        raise BadRequest("What was done so far can't be read.") from error
    if value["user"] != str(request.user.pk):
        raise BadRequest("What was done so far was somebody else's.")
    act = Act(
        value["action"],
        value["queues"],
        {alias: Applied(*numbers) for alias, numbers in value["counts"].items()},
        filter=value["filter"],
        errors=value["errors"],
    )
    return Progress(act, value["entry"], value["began"])
