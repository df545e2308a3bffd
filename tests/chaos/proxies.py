"""TCP proxies between the clients and the nodes, and between the nodes: where the network fails.

A client's proxy understands just enough HTTP to lose a request before it reaches the node, or
its answer after it was applied, or to deliver it when the client has long given up. A client
is known by the loopback address that it connects from, a node by its process id.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tests.chaos.sockets import owner_of

T = TypeVar("T")

HOST = "127.0.0.1"
#: Where the clients' proxies listen too; the nodes don't know themselves by this address.
STRANGE = "127.0.0.2"
FATES = ("before", "after", "late", "slow")
#: Seconds that a late request or a slow answer waits: from hardly noticed to after a timeout.
LATEST = 6.0


class Network:
    """All proxies, run by a thread of their own; ``rng`` decides what is lost.

    ``cut`` holds pairs (who, node) that hear nothing of each other: ``who`` is a client's
    address or the index of a node. ``loss`` is the share of the clients' requests that meet a
    fate of ``FATES``; ``lost`` counts them.
    """

    def __init__(self, rng: random.Random) -> None:
        self.loss = 0.0
        self.lost = dict.fromkeys(FATES, 0)
        self.pids: dict[int, int] = {}
        self._rng = rng
        self._cut: dict[tuple[str | int, int], bool] = {}
        self._loop = asyncio.new_event_loop()
        self._healed = asyncio.Event()
        self._writers: set[tuple[str | int, int, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    # ---- called by the schedule, from its thread

    def serve_clients(self, node: int, port: int, target: int) -> None:
        """Listen on ``port`` for clients of ``node``, whose own HTTP port is ``target``."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            source = str(writer.get_extra_info("peername")[0])
            await self._client(source, node, target, reader, writer)

        hosts = [HOST, STRANGE]
        self._run(asyncio.start_server(self._guarded(serve), hosts, port, limit=1 << 24))

    def serve_peers(self, node: int, port: int, target: int) -> None:
        """Listen on ``port`` for the peers of ``node``, whose own Raft port is ``target``."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            pid = owner_of(writer.get_extra_info("peername")[1], set(self.pids.values()))
            who = next((index for index, known in self.pids.items() if known == pid), -1)
            await self._peer(who, node, target, reader, writer)

        self._run(asyncio.start_server(self._guarded(serve), HOST, port))

    def cut(self, pairs: set[tuple[str | int, int]], *, reset: bool) -> None:
        """Part these pairs: connections are reset and refused, or hang until it is healed."""

        async def part() -> None:
            self._cut.update(dict.fromkeys(pairs, reset))
            if reset:
                for who, node, writer in list(self._writers):
                    if (who, node) in pairs:
                        writer.transport.abort()

        self._run(part())

    def heal(self) -> None:
        """Let everybody hear everybody; what hung goes on, late as it is."""

        async def heal() -> None:
            self._cut.clear()
            self._healed.set()
            self._healed = asyncio.Event()

        self._run(heal())

    def close(self) -> None:
        """Break every connection and stop."""

        async def stop() -> None:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self._run(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # ---- in the thread of the loop

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _guarded(
        self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await serve(reader, writer)
            except (OSError, EOFError, asyncio.CancelledError):
                pass  # either side went away
            finally:
                writer.transport.abort()
                self._tasks.discard(task)

        return guarded

    async def _open(self, who: str | int, node: int) -> None:
        """Return when the two hear each other; raise if they are parted by resets."""
        while (who, node) in self._cut:
            if self._cut[who, node]:
                raise ConnectionResetError
            await self._healed.wait()

    async def _client(
        self,
        source: str,
        node: int,
        target: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        entry = (source, node, writer)
        self._writers.add(entry)
        upstream: asyncio.StreamWriter | None = None
        try:
            while True:
                request = await _message(reader)
                await self._open(source, node)
                fate = self._fate()
                if fate == "before":
                    return
                if fate == "late":
                    # The client hears that the connection broke, or nothing at all.
                    if self._rng.random() < 0.5:
                        writer.transport.abort()
                    await asyncio.sleep(self._rng.uniform(0, LATEST))
                if upstream is None:
                    answers, upstream = await asyncio.open_connection(HOST, target, limit=1 << 24)
                upstream.write(request)
                answer = await _message(answers)
                if fate == "after":
                    return
                if fate == "slow":
                    await asyncio.sleep(self._rng.uniform(0, LATEST))
                await self._open(source, node)
                writer.write(answer)
                await writer.drain()
        finally:
            self._writers.discard(entry)
            if upstream is not None:
                upstream.close()

    def _fate(self) -> str:
        if self._rng.random() >= self.loss:
            return ""
        fate = self._rng.choice(FATES)
        self.lost[fate] += 1
        return fate

    async def _peer(
        self,
        who: int,
        node: int,
        target: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        await self._open(who, node)
        answers, upstream = await asyncio.open_connection(HOST, target)
        entries = {(who, node, writer), (node, who, upstream)}
        self._writers |= entries
        there = asyncio.create_task(self._pump(who, node, reader, upstream))
        back = asyncio.create_task(self._pump(node, who, answers, writer))
        try:
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._writers -= entries
            for pump in (there, back):
                pump.cancel()
                with contextlib.suppress(OSError, asyncio.CancelledError):
                    await pump
            upstream.transport.abort()

    async def _pump(
        self, who: int, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while chunk := await reader.read(1 << 16):
            await self._open(who, node)
            writer.write(chunk)
            await writer.drain()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Read one HTTP request or answer, whole."""
    head = await reader.readuntil(b"\r\n\r\n")
    fields = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
    }
    if fields.get(b"transfer-encoding") == b"chunked":
        parts = [head]
        while True:
            size = await reader.readuntil(b"\r\n")
            parts += [size, await reader.readexactly(int(size, 16) + 2)]
            if int(size, 16) == 0:
                return b"".join(parts)
    return head + await reader.readexactly(int(fields.get(b"content-length", b"0")))
