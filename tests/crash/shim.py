"""The shim (``shim.c``): built where it is needed, loaded into new processes, spoken to in them."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("shim.c")
WRITE, SYNC, TRUNCATE, OPEN, UNLINK, SYNCED, APPEND = 1, 2, 4, 8, 16, 32, 64
#: In place of an ``errno``: the process is killed.
DIE = -1

compiler = shutil.which("cc")
needed = pytest.mark.skipif(
    compiler is None or sys.platform != "linux", reason="the shim needs Linux and a C compiler (cc)"
)


@cache
def library() -> Path:
    """Return the shim, built once a process."""
    assert compiler is not None
    folder = Path(tempfile.mkdtemp(prefix="shim-"))
    built = folder / "shim.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(built), str(SOURCE)]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    return built


def environment(store: Path, record: Path | None = None) -> dict[str, str]:
    """Return the environment of a process whose dealings with ``store`` go through the shim."""
    own = {"LD_PRELOAD": str(library()), "SHIM_FOLDER": str(store), "PYTHONPATH": str(ROOT)}
    return dict(os.environ) | own | ({"SHIM_LOG": str(record)} if record else {})


def run(store: Path, code: str, record: Path | None = None) -> str:
    """Run code in a process with the shim; ``folder`` there is the store's. Return its output."""
    opening = (
        "import os, sys, errno, threading\n"
        "from django_localqueue import SimpleQueue, exceptions\n"
        "from tests.crash.shim import *\n"
        "folder = os.environ['SHIM_FOLDER']\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", opening + textwrap.dedent(code)],
        cwd=store.parent, env=environment(store, record), capture_output=True, text=True,
        timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ---- inside of a process that has the shim


def fail(
    file: str,
    kinds: int,
    *,
    skip: int = 0,
    count: int = 1,
    error: int = errno.EIO,
    torn: bool = False,
) -> None:
    """Let calls fail.

    Args:
        file: part of the name of the files concerned.
        kinds: of the calls, as a sum of ``WRITE`` and its like.
        skip: calls that go well before.
        count: calls that fail then; -1 for all.
        error: the ``errno``, or ``DIE``.
        torn: the first half of a write is done before it fails.
    """
    _shim().shim_fail(file.encode(), kinds, ctypes.c_long(skip), ctypes.c_long(count), error, torn)


def heal() -> int:
    """Let no call fail any more; return how many calls of the kind there were since ``fail``."""
    count = seen()
    fail("", 0)
    return count


def seen() -> int:
    """Return how many calls of the kind there were since ``fail``."""
    return int(_shim().shim_seen())


@contextlib.contextmanager
def failing(file: str, kinds: int, **how: Any) -> Iterator[None]:
    """Let calls fail within a ``with`` block."""
    fail(file, kinds, **how)
    try:
        yield
    finally:
        heal()


def step_wall_clock(seconds: float) -> None:
    """Set this process' wall clock forth or back."""
    offset = ctypes.c_longlong.in_dll(_shim(), "shim_wall_offset")
    offset.value += round(seconds * 1e6)


def _shim() -> Any:
    shim = ctypes.CDLL(None)
    shim.shim_seen.restype = ctypes.c_long
    return shim
