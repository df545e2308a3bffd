"""The signals of a worker, and what each asks for."""

from __future__ import annotations

import contextlib
import faulthandler
import signal
import sys
import threading
from collections.abc import Callable, Iterator


def _known(*names: str) -> frozenset[int]:
    return frozenset(getattr(signal, name) for name in names if hasattr(signal, name))


STOP = _known("SIGINT", "SIGTERM")
STOP_NOW = _known("SIGQUIT")
QUIET = _known("SIGTSTP", "SIGUSR2")
RESUME = _known("SIGCONT")
STACKS = _known("SIGUSR1")
IGNORED = _known("SIGHUP")
ALL = STOP | STOP_NOW | QUIET | RESUME | STACKS | IGNORED


@contextlib.contextmanager
def taken(handle: Callable[[int], None], *, also_stacks: bool = False) -> Iterator[None]:
    """Call ``handle`` with each signal of a worker, in the main thread; elsewhere do nothing.

    It must be safe in a signal handler. The old handlers are put back at the end. USR1 is
    answered below Python, so that even a process that hangs shows its stacks; ``handle`` hears
    of it only if asked to.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = STOP | STOP_NOW | QUIET | RESUME | IGNORED | (STACKS if also_stacks else frozenset())
    old = {number: signal.signal(number, lambda n, _: handle(n)) for number in numbers}
    stacks = _show_stacks(also_stacks)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ALL)  # where ``held`` was left by a fork
    try:
        yield
    finally:
        if stacks:
            for number in STACKS:
                faulthandler.unregister(number)
        for number, handler in old.items():
            if handler is not None:  # None: not set from Python, so not to be put back
                signal.signal(number, handler)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Keep signals waiting: for a fork, so that the child loses none before it takes them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _show_stacks(chain: bool) -> bool:
    try:
        for number in STACKS:
            stderr = sys.__stderr__ or sys.stderr
            faulthandler.register(number, file=stderr, all_threads=True, chain=chain)
    except (AttributeError, ValueError, OSError):  # no such signals, or no stderr to show them on
        return False
    return True
