"""What a transport raises beside the package's own exceptions.

Each says which of the three outcomes a write had: *not applied* (all that derive from
``NotStored``), *unknown* (``OutcomeUnknown``), *applied* (``AppliedUnread``). No message
ever holds a password; nodes are named by their URL without credentials.
"""

from __future__ import annotations

from django_localqueue.exceptions import (
    LocalQueueError,
    NotStored,
    OutcomeUnknown,
    StoreUnavailable,
)


class MissingExtra(LocalQueueError, ImportError):
    """The HTTP library of this transport is not installed."""


class ClusterUnavailable(StoreUnavailable):
    """No node answered, or no leader was elected, before the deadline; nothing was changed."""


class AccessRefused(StoreUnavailable):
    """rqlite refused the user, the password or a permission; nothing was changed."""


class NotRqlite(StoreUnavailable):
    """What answers at this address is not rqlite; nothing was changed."""


class TlsFailed(StoreUnavailable):
    """The TLS handshake failed; nothing was changed."""


class RequestRefused(NotStored):
    """rqlite refused the request before it looked at the data; nothing was changed."""


class StatementFailed(NotStored):
    """SQLite refused a statement and nothing of the request was applied."""


class ConstraintFailed(StatementFailed):
    """A statement broke a constraint of its table; nothing was changed."""


class GuardFailed(ConstraintFailed):
    """A request that is applied once at most was refused by its own guard.

    Either an earlier copy of it was applied, or what it presumes isn't so. This copy did nothing
    of what is guarded; what it held beside that may be sent again.
    """


class TableMissing(StatementFailed):
    """A statement named a table or a column that is not there; nothing was changed."""


class PartlyApplied(OutcomeUnknown):
    """A statement failed and others of the same request may have been applied."""


class AppliedUnread(LocalQueueError):
    """The write was applied, but rqlite could not send its result."""
