"""Carries conversations with a cluster over ``httpx``."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from django_localqueue.exceptions import QueueClosed
from django_localqueue.transports.answers import Answer, Broken, Level, Result
from django_localqueue.transports.carrier import Carrier, missing
from django_localqueue.transports.client import MAX_ANSWER_BYTES
from django_localqueue.transports.cluster import Pause, Request, Steps, Timeouts
from django_localqueue.transports.statements import Statement
from django_localqueue.transports.tls import Tls, refused_by_peer, tls_error, tls_text

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


class AsyncRqliteClient(Carrier):
    """A cluster, carried over ``httpx``: one set of connections an event loop and process.

    The twin of ``RqliteClient``, whose methods say more. Raises ``MissingExtra`` without
    ``httpx``.
    """

    def __init__(
        self,
        location: str | Sequence[str],
        *,
        auth: tuple[str, str] | None = None,
        tls: Tls | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise missing("AsyncRqliteTransport", "httpx", "rqlite-async") from error
        super().__init__(location, auth, tls, timeouts)
        self._httpx = httpx
        self._clients: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[int, httpx.AsyncClient]
        ] = weakref.WeakKeyDictionary()

    async def execute(
        self, statements: Sequence[Statement], *, repeatable: bool = False, guard: str = ""
    ) -> tuple[Result, ...]:
        """Apply writes in one transaction; see ``Cluster.execute``."""
        steps = self.cluster.execute(statements, repeatable=repeatable, guard=guard)
        return await self.run(steps)

    async def request(
        self, statements: Sequence[Statement], *, repeatable: bool = False
    ) -> tuple[Result, ...]:
        """Apply writes and reads in one transaction; see ``Cluster.request``."""
        return await self.run(self.cluster.request(statements, repeatable=repeatable))

    async def query(
        self, statements: Sequence[Statement], *, level: Level = "strong"
    ) -> tuple[Result, ...]:
        """Read; see ``Cluster.query``."""
        return await self.run(self.cluster.query(statements, level=level))

    async def close(self) -> None:
        """Close the connections of this event loop; every later verb raises ``QueueClosed``.

        A client that several loops have used is to be closed in each of them.
        """
        self._closed = True
        pid, client = self._clients.pop(asyncio.get_running_loop(), (0, None))
        if client is not None and pid == os.getpid():
            await client.aclose()

    async def run(self, steps: Steps[T]) -> T:
        """Carry a conversation to its end and return or raise what it does."""
        reply: Answer | Broken | None = None
        try:
            while True:
                try:
                    step = steps.send(reply)
                except StopIteration as end:
                    return cast(T, end.value)
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    reply = None
                else:
                    reply = await self._post(step)
        finally:
            steps.close()

    async def _post(self, request: Request) -> Answer | Broken:
        timeout = self._httpx.Timeout(request.read_timeout, connect=request.connect_timeout)
        sent = False

        async def trace(event: str, info: object) -> None:
            nonlocal sent
            sent = sent or event.endswith("send_request_headers.started")

        try:
            async with (
                asyncio.timeout(request.budget),
                self._client().stream(
                    "POST",
                    request.url,
                    content=request.body,
                    headers=request.headers,
                    timeout=timeout,
                    extensions={"trace": trace},
                ) as response,
            ):
                headers = {name.lower(): value for name, value in response.headers.items()}
                body = bytearray()
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > MAX_ANSWER_BYTES:
                        return Broken(True, "the answer is too long")
                return Answer(response.status_code, headers, bytes(body))
        except TimeoutError:
            what = "answer" if sent else "connection"
            return Broken(sent, f"no {what} within the timeout")
        except (self._httpx.RequestError, OSError) as error:  # a TLS alert arrives as it is
            return self._broken(error)

    def _broken(self, error: httpx.RequestError | OSError) -> Broken:
        tls = tls_error(error)
        if tls is not None:
            return Broken(not refused_by_peer(tls), tls_text(tls), tls=True)
        if isinstance(error, (self._httpx.ConnectTimeout, self._httpx.PoolTimeout)):
            return Broken(False, "no connection within the timeout")
        if isinstance(error, self._httpx.ConnectError):
            return Broken(False, f"no connection ({error})")
        if isinstance(error, self._httpx.TimeoutException):
            return Broken(True, "no answer within the timeout")
        return Broken(True, f"the connection broke ({str(error) or type(error).__name__})")

    def _client(self) -> httpx.AsyncClient:
        """Return this event loop's client; a forked child never uses its parent's connections."""
        if self._closed:
            raise QueueClosed("This rqlite client was closed.")
        loop = asyncio.get_running_loop()
        pid, client = self._clients.get(loop, (0, None))
        if client is None or pid != os.getpid():
            client = self._httpx.AsyncClient(
                verify=self._context, trust_env=False, follow_redirects=False
            )
            self._clients[loop] = (os.getpid(), client)
        return client
