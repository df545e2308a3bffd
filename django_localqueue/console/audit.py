"""What is kept of every act: a log line, a signal, and an entry in the admin's log."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from django.conf import settings
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import router, transaction
from django.http import HttpRequest
from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from django_localqueue import models
from django_localqueue.console.keys import make_key
from django_localqueue.console.signals import job_action
from django_localqueue.types import Applied

logger = logging.getLogger("django_localqueue.audit")

QUEUE_ACTIONS = {
    "pause": gettext_noop("Paused."),
    "resume": gettext_noop("Resumed."),
}
JOB_ACTIONS = {
    "retry": gettext_noop("Retried."),
    "run_now": gettext_noop("Made ready to run now."),
    "delay": gettext_noop("Delayed."),
    "move": gettext_noop("Moved to another queue."),
    "cancel": gettext_noop("Cancelled."),
    "purge": gettext_noop("Purged."),
    "discard": gettext_noop("Discarded."),
    "edit": gettext_noop("Edited."),
    "export": gettext_noop("Exported."),
}
WORKER_ACTIONS = {
    "quiet": gettext_noop("Asked to claim no more jobs."),
    "unquiet": gettext_noop("Asked to claim jobs again."),
    "stop": gettext_noop("Asked to stop."),
    "forget": gettext_noop("Forgotten."),
}
SCHEDULE_ACTIONS = {
    "pause_schedule": gettext_noop("Paused."),
    "resume_schedule": gettext_noop("Resumed."),
    "run_schedule": gettext_noop("Run now."),
}
#: The model that an action is about, where it isn't a job.
_MODELS: dict[str, type[models.Marker]] = {
    **dict.fromkeys(QUEUE_ACTIONS, models.Queue),
    **dict.fromkeys(WORKER_ACTIONS, models.Worker),
    **dict.fromkeys(SCHEDULE_ACTIONS, models.Schedule),
}


def added(total: Applied, part: Applied) -> Applied:
    """Return the sum; ``more`` is what the last part says."""
    return Applied(
        total.done + part.done,
        total.changed + part.changed,
        total.not_found + part.not_found,
        part.more,
    )


@dataclass(frozen=True, slots=True)
class Act:
    """One act of an operator.

    ``counts`` holds what became of it in each queue; ``ids`` the chosen jobs, as
    (alias, public id), or None for an act on all that match ``filter``, which is the
    filter in words; ``errors`` what queues answered that could not do it.
    """

    action: str
    queues: Sequence[str]
    counts: Mapping[str, Applied] = field(default_factory=dict)
    ids: Sequence[tuple[str, str]] | None = None
    filter: str = ""
    #: The worker or schedule that the act was on.
    name: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)

    @property
    def total(self) -> Applied:
        """The sum over the queues."""
        parts = self.counts.values()
        return Applied(
            done=sum(part.done for part in parts),
            changed=sum(part.changed for part in parts),
            not_found=sum(part.not_found for part in parts),
            more=any(part.more for part in parts),
        )

    def and_then(self, part: Act) -> Act:
        """Return this act together with a later part of it."""
        counts = dict(self.counts)
        for alias, own in part.counts.items():
            counts[alias] = added(counts.get(alias, Applied()), own)
        return replace(self, counts=counts, errors={**self.errors, **part.errors})


def record(request: HttpRequest, act: Act, before: Act | None = None, entry: Any = None) -> Any:
    """Keep the act. It has happened: whatever fails here is logged and goes no further.

    An act on many jobs may take several requests: ``before`` is what it did until then, and
    ``entry`` the key of its entry in the admin's log, which is brought up to date. Returns the
    key of the entry, None where there is none.
    """
    total = act.total
    logger.info(
        "%s by %r in %s%s: %d done, %d changed meanwhile, %d not found%s%s",
        act.action,
        str(request.user),
        list(act.queues),
        f" ({act.name!r})" if act.name else "",
        total.done,
        total.changed,
        total.not_found,
        f"; jobs {list(act.ids)!r}" if act.ids is not None else f"; {act.filter!r}",
        f"; {dict(act.errors)!r}" if act.errors else "",
    )
    sender = _MODELS.get(act.action, models.Job)
    job_action.send_robust(
        sender,
        action=act.action,
        user=request.user,
        queues=list(act.queues),
        ids=act.ids,
        filter=act.filter,
        counts=dict(act.counts),
        name=act.name,
    )
    try:
        return _write_entry(request, act if before is None else before.and_then(act), entry)
    except Exception:
        logger.exception("The act %r is done, but the admin's log could not be written.", act)
        return None


def _write_entry(request: HttpRequest, act: Act, entry: Any) -> Any:
    with (
        translation.override(settings.LANGUAGE_CODE),
        transaction.atomic(using=router.db_for_write(LogEntry)),
    ):
        model, object_id, object_repr, message = _entry(act)
        own = LogEntry.objects.filter(pk=entry, user_id=cast(int, request.user.pk))
        if entry is not None and own.update(object_repr=object_repr[:200], change_message=message):
            return entry
        return LogEntry.objects.create(
            user_id=cast(int, request.user.pk),
            content_type=ContentType.objects.get_for_model(model, for_concrete_model=False),
            object_id=object_id,
            object_repr=object_repr[:200],
            action_flag=DELETION if act.action == "purge" else CHANGE,
            change_message=message,
        ).pk


def _entry(act: Act) -> tuple[type[models.Marker], str | None, str, str]:
    """Return model, id, name and message of the entry: one job, one queue, or many jobs."""
    if act.action in QUEUE_ACTIONS:
        alias = act.queues[0]
        return models.Queue, alias, alias, _(QUEUE_ACTIONS[act.action])
    if act.action in WORKER_ACTIONS:
        return models.Worker, act.name, act.name, _(WORKER_ACTIONS[act.action])
    if act.action in SCHEDULE_ACTIONS:
        details = [_(SCHEDULE_ACTIONS[act.action]), *(make_key(*pair) for pair in act.ids or ())]
        return models.Schedule, act.name, act.name, " ".join(details)
    errors = [f"{alias}: {error}" for alias, error in act.errors.items()]
    if act.ids is not None and len(act.ids) == 1:
        key = make_key(*act.ids[0])
        outcome = _(JOB_ACTIONS[act.action]) if act.total.done else describe(act)
        return models.Job, key, key, "\n".join([outcome, *errors])
    which = act.filter if act.ids is None else ", ".join(make_key(*pair) for pair in act.ids)
    details = [describe(act), which, *errors]
    alias_or_none = act.queues[0] if len(act.queues) == 1 else None
    return models.Queue, alias_or_none, headline(act), "\n".join(details)


def headline(act: Act) -> str:
    """Return what was done, with the number of jobs."""
    done = act.total.done
    texts = {
        "retry": ngettext("Retried %d failed job", "Retried %d failed jobs", done),
        "run_now": ngettext("Made %d job ready to run", "Made %d jobs ready to run", done),
        "delay": ngettext("Delayed %d job", "Delayed %d jobs", done),
        "move": ngettext("Moved %d job", "Moved %d jobs", done),
        "cancel": ngettext("Cancelled %d job", "Cancelled %d jobs", done),
        "edit": ngettext("Edited %d job", "Edited %d jobs", done),
        "export": ngettext("Exported %d job", "Exported %d jobs", done),
        "purge": ngettext("Purged %d job", "Purged %d jobs", done),
        "discard": ngettext("Discarded %d job", "Discarded %d jobs", done),
    }
    return texts[act.action] % done


def describe(act: Act) -> str:
    """Return the outcome in one sentence for each part of it that isn't empty."""
    total = act.total
    parts = [f"{headline(act)}."]
    if total.changed:
        text = ngettext(
            "%d job had changed meanwhile and was left alone.",
            "%d jobs had changed meanwhile and were left alone.",
            total.changed,
        )
        parts.append(text % total.changed)
    if total.not_found:
        text = ngettext("%d job was not found.", "%d jobs were not found.", total.not_found)
        parts.append(text % total.not_found)
    if total.more:
        parts.append(_("More jobs match than one act takes; do it again for the rest."))
    return " ".join(parts)
