"""Who may do what: one function, asked by views, templates and actions alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.utils.module_loading import import_string

from django_localqueue.conf import console
from django_localqueue.console.stores import aliases

#: Every action that ``has_permission`` is asked about; each is a permission's codename.
ACTIONS: Final = (
    "view_queue",
    "pause_queue",
    "purge_queue",
    "view_job",
    "view_job_payload",
    "retry_job",
    "discard_job",
    "edit_job",
    "run_job_now",
    "move_job",
    "export_job",
    "view_worker",
    "stop_worker",
    "view_schedule",
    "pause_schedule",
    "run_schedule",
)
#: Actions that change nothing: all that a console that is only for reading allows.
READING: Final = (
    "view_queue",
    "view_job",
    "view_job_payload",
    "export_job",
    "view_worker",
    "view_schedule",
)

_VIEWER = ("view_queue", "view_job", "view_worker", "view_schedule")
_OPERATOR = (
    *(*_VIEWER, "view_job_payload", "retry_job", "run_job_now", "discard_job", "pause_queue"),
    *("pause_schedule", "run_schedule"),
)
#: Groups that suit most teams, and the permissions of each; nothing makes them by itself.
ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "Queue viewer": _VIEWER,
    "Queue operator": _OPERATOR,
    "Queue developer": (*_OPERATOR, "edit_job", "move_job", "export_job", "stop_worker"),
}


def user_has_permission(request: HttpRequest, action: str, queue: str) -> bool:
    """The default rule: the user's permission of that codename, the same for every queue."""
    return request.user.has_perm(f"django_localqueue.{action}")


def has_permission(request: HttpRequest, action: str, queue: str) -> bool:
    """Return whether the request's user may do ``action`` (one of ``ACTIONS``) in a queue.

    ``queue`` is an alias. The rule is ``LOCALQUEUE_CONSOLE["HAS_PERMISSION"]``, the
    dotted path of a function with these three arguments; it replaces
    ``user_has_permission``, which it may call. Under ``READ_ONLY`` nobody may change anything.
    """
    if action not in ACTIONS:
        raise ValueError(f"There is no action {action!r}; use one of {', '.join(ACTIONS)}.")
    settings = console()
    if settings.read_only and action not in READING:
        return False
    path = settings.has_permission
    rule = import_string(path) if path else user_has_permission
    return bool(rule(request, action, queue))


def allowed(request: HttpRequest, action: str, among: Iterable[str] | None = None) -> list[str]:
    """Return those aliases (of ``among``, default all) in which the user may do ``action``."""
    names = aliases() if among is None else among
    return [alias for alias in names if has_permission(request, action, alias)]


def require(request: HttpRequest, action: str, queue: str) -> None:
    """Raise ``PermissionDenied`` unless the user may do ``action`` in the queue."""
    if not has_permission(request, action, queue):
        raise PermissionDenied


def require_some(request: HttpRequest, action: str) -> list[str]:
    """Return the aliases in which the user may do ``action``; raise where there is none."""
    found = allowed(request, action)
    if not found:
        raise PermissionDenied
    return found
