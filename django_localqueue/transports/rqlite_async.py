"""``AsyncRqliteTransport``: the twin of ``RqliteTransport``, over ``httpx``."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from django_localqueue.transports.answers import Level, Result
from django_localqueue.transports.async_client import AsyncRqliteClient
from django_localqueue.transports.cluster import Timeouts
from django_localqueue.transports.messages import Lease, Messages
from django_localqueue.transports.nodes import NodeFacts
from django_localqueue.transports.statements import Statement
from django_localqueue.transports.tls import Tls


class AsyncRqliteTransport:
    """The same queue with every HTTP call awaited; ``RqliteTransport`` says what the verbs do.

    A verb whose task is cancelled may still happen; its outcome is then unknown. Needs asyncio.
    Made by ``await from_url(...)``; the constructor takes a client whose database has the tables.
    """

    def __init__(self, client: AsyncRqliteClient) -> None:
        self.client = client
        self._messages = Messages(client.cluster, client.clock)

    @classmethod
    async def from_url(
        cls,
        url: str | Sequence[str],
        *,
        auth: tuple[str, str] | None = None,
        tls: Tls | None = None,
        timeouts: Timeouts | None = None,
        wait: float = 30.0,
    ) -> Self:
        """Return a transport once there is a leader; see ``RqliteTransport.from_url``."""
        transport = cls(AsyncRqliteClient(url, auth=auth, tls=tls, timeouts=timeouts))
        try:
            await transport.client.run(transport._messages.prepare(wait))
        except BaseException:
            await transport.close()
            raise
        return transport

    def __repr__(self) -> str:
        urls = ", ".join(node.url for node in self.nodes())
        return f"<{type(self).__name__} {urls}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def publish(
        self, group_id: str, event: str, priority: int = 0, *, publish_id: str | None = None
    ) -> None:
        """Append a message to its group; see ``RqliteTransport.publish``."""
        await self.client.run(self._messages.publish(group_id, event, priority, publish_id))

    async def claim(self, worker_id: str, visibility: float, min_priority: int = 0) -> Lease | None:
        """Lease the next message, if any; see ``RqliteTransport.claim``."""
        return await self.client.run(self._messages.claim(worker_id, visibility, min_priority))

    async def ack(self, lease: Lease) -> None:
        """Remove the message; raises ``LeaseExpired`` if the lease was lost."""
        await self.client.run(self._messages.ack(lease))

    async def nack(self, lease: Lease, delay: float = 0) -> None:
        """Give the message back, now or after ``delay`` seconds; raises ``LeaseExpired``."""
        await self.client.run(self._messages.nack(lease, delay))

    async def extend(self, lease: Lease, seconds: float) -> None:
        """Keep the lease ``seconds`` from now at least; raises ``LeaseExpired``."""
        await self.client.run(self._messages.extend(lease, seconds))

    def nodes(self) -> list[NodeFacts]:
        """Return what is known of each node: who leads, versions, failures, last error."""
        return self.client.nodes()

    async def close(self) -> None:
        """Close the HTTP connections."""
        await self.client.close()

    async def _execute(
        self, statements: Sequence[Statement], *, repeatable: bool = False
    ) -> tuple[Result, ...]:
        """Apply ``[sql, *params]`` statements in one transaction, on ``/db/execute``.

        Sent again after an unknown outcome only if ``repeatable``.
        """
        return await self.client.execute(statements, repeatable=repeatable)

    async def _query(
        self, sql: str, params: Sequence[Any] = (), *, level: Level = "strong"
    ) -> list[dict[str, Any]]:
        """Read rows through the leader, on ``/db/query?level=strong``."""
        (result,) = await self.client.query([[sql, *params]], level=level)
        return [dict(zip(result.columns, row, strict=True)) for row in result.rows]
