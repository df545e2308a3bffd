"""``RqliteTransport``: a queue replicated by Raft, over ``requests``."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from django_localqueue.transports.answers import Level, Result
from django_localqueue.transports.client import RqliteClient
from django_localqueue.transports.cluster import Timeouts
from django_localqueue.transports.messages import Lease, Messages
from django_localqueue.transports.nodes import NodeFacts
from django_localqueue.transports.statements import Statement
from django_localqueue.transports.tls import Tls


class RqliteTransport:
    """Groups of messages on an rqlite cluster: one in flight a group, oldest first, in turn.

    Every verb is sent again until its outcome is known or the total timeout has passed, and is
    safe to send again. Every verb raises a subclass of ``NotStored`` if it surely did not
    happen (the cluster was away, the user was refused), ``OutcomeUnknown`` if that cannot be
    known, ``InvalidInput`` for an argument it refuses. Safe across threads and ``fork``.

    Made by ``from_url``; the constructor takes a client whose database has the tables.
    """

    def __init__(self, client: RqliteClient) -> None:
        self.client = client
        self._messages = Messages(client.cluster, client.clock)

    @classmethod
    def from_url(
        cls,
        url: str | Sequence[str],
        *,
        auth: tuple[str, str] | None = None,
        tls: Tls | None = None,
        timeouts: Timeouts | None = None,
        wait: float = 30.0,
    ) -> Self:
        """Return a transport as soon as rqlite is up and has elected a leader.

        ``url`` is one URL or a list, one for each node of the cluster; ``auth`` a user and
        password, which may also stand in the URL. Waits up to ``wait`` seconds, then raises
        ``ClusterUnavailable``; a mistake that waiting cannot mend is raised at once. Creates the
        tables that are missing; raises ``ForeignDatabase`` if others have their names.
        """
        transport = cls(RqliteClient(url, auth=auth, tls=tls, timeouts=timeouts))
        try:
            transport.client.run(transport._messages.prepare(wait))
        except BaseException:
            transport.close()
            raise
        return transport

    def __repr__(self) -> str:
        urls = ", ".join(node.url for node in self.nodes())
        return f"<{type(self).__name__} {urls}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def publish(
        self, group_id: str, event: str, priority: int = 0, *, publish_id: str | None = None
    ) -> None:
        """Append ``event``, a JSON text kept as it is, to its group.

        ``priority``, 0 to 4, counts only if the group has no message yet. After
        ``OutcomeUnknown`` publish again with the same ``publish_id``, an id of the caller's: a
        message of that id is stored once, as long as it waits and for a day after.
        """
        self.client.run(self._messages.publish(group_id, event, priority, publish_id))

    def claim(self, worker_id: str, visibility: float, min_priority: int = 0) -> Lease | None:
        """Lease the next message for ``visibility`` seconds; return None if there is none.

        The next one is of the group that was served longest ago and has none in flight, among
        groups of at least ``min_priority``. The time is the leader's.
        """
        return self.client.run(self._messages.claim(worker_id, visibility, min_priority))

    def ack(self, lease: Lease) -> None:
        """Remove the message, and its group with the last one.

        Raises ``LeaseExpired`` if the lease was lost, with the reason, and changes nothing.
        A lease is lost when another claim took the message after the deadline, not before.
        """
        self.client.run(self._messages.ack(lease))

    def nack(self, lease: Lease, delay: float = 0) -> None:
        """Give the message back; with a ``delay`` its group rests for so many seconds.

        Raises ``LeaseExpired`` as ``ack`` does.
        """
        self.client.run(self._messages.nack(lease, delay))

    def extend(self, lease: Lease, seconds: float) -> None:
        """Keep the lease until ``seconds`` from now at least; it is never made shorter.

        Raises ``LeaseExpired`` as ``ack`` does.
        """
        self.client.run(self._messages.extend(lease, seconds))

    def nodes(self) -> list[NodeFacts]:
        """Return what is known of each node: who leads, versions, failures, last error."""
        return self.client.nodes()

    def close(self) -> None:
        """Close the HTTP sessions."""
        self.client.close()

    def _execute(
        self, statements: Sequence[Statement], *, repeatable: bool = False
    ) -> tuple[Result, ...]:
        """Apply ``[sql, *params]`` statements in one transaction, on ``/db/execute``.

        Sent again after an unknown outcome only if ``repeatable``.
        """
        return self.client.execute(statements, repeatable=repeatable)

    def _query(
        self, sql: str, params: Sequence[Any] = (), *, level: Level = "strong"
    ) -> list[dict[str, Any]]:
        """Read rows through the leader, on ``/db/query?level=strong``."""
        (result,) = self.client.query([[sql, *params]], level=level)
        return [dict(zip(result.columns, row, strict=True)) for row in result.rows]
