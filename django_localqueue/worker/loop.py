"""One event loop a process, on which the coroutines of all its jobs run."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any


class Loop:
    """An event loop in a thread of its own, started when it is first needed.

    A worker enters it as a context; the last one that leaves ends it.
    """

    _lock: threading.Lock
    _users: int
    _loop: asyncio.AbstractEventLoop | None
    _thread: threading.Thread | None

    def __init__(self) -> None:
        self._forget()

    def __enter__(self) -> Loop:
        with self._lock:
            self._users += 1
        return self

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._users -= 1
            loop, thread = self._loop, self._thread
            if self._users > 0 or loop is None or thread is None:
                return
            self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join(1)  # a coroutine that blocks the loop must not keep the worker

    def run(self, function: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        """Run a coroutine function on the loop and return what it returns or raise what it raises.

        It sees the context variables of the caller.
        """

        async def guarded() -> tuple[Any, BaseException | None]:
            # SystemExit out of a task would end the loop, and with it everybody's jobs.
            try:
                return await function(*args, **kwargs), None
            except BaseException as error:
                return None, error

        value, error = asyncio.run_coroutine_threadsafe(guarded(), self._started()).result()
        if error is not None:
            raise error
        return value

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._serve, args=(loop,), name="localqueue-loop", daemon=True
                )
                self._thread.start()
            return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    def _forget(self) -> None:
        """Begin anew; a forked child has its parent's loop and not its thread."""
        self._lock = threading.Lock()
        self._users = 0
        self._loop = self._thread = None


coroutines = Loop()
os.register_at_fork(after_in_child=coroutines._forget)
