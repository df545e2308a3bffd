"""Test-suites of others: fetched by hash from the package index into a cache, never committed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

SECONDS = 300.0


class Unavailable(Exception):
    """A source distribution can't be had here; the message says why."""


@dataclass(frozen=True, slots=True)
class Source:
    """One source distribution; ``members`` is the folder in it that is unpacked."""

    project: str
    version: str
    sha256: str
    members: str

    @property
    def file(self) -> str:
        return f"{self.project.replace('-', '_')}-{self.version}.tar.gz"


DJANGO = {
    (6, 0): Source(
        "django",
        "6.0.10",
        "6005d030df924f85088454c18bd35dcf082b058aa355ad3df520d8de9aef9f41",
        "tests/tasks",
    ),
    (6, 1): Source(
        "django",
        "6.1.3",
        "b5d2d9e35295065d13b1927b3f19a59bd119f737aa6299def14ccca1ae3c8c0d",
        "tests/tasks",
    ),
}
TASKS_DB = Source(
    "django-tasks-db",
    "0.13.0",
    "09630d417cf722b07e1439b837403e18e86455908ba532fa6795b0d23dc3ff23",
    "tests",
)


def cache() -> Path:
    """Return the folder that keeps what was fetched, from run to run."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "django-localqueue" / "outside"


def unpack(source: Source, folder: Path) -> Path:
    """Fetch a source distribution where it isn't in the cache, and unpack its tests.

    Returns:
        The folder that holds ``source.members``.

    Raises:
        Unavailable: the index can't be reached, or what it gave has another hash.
    """
    archive = cache() / source.file
    if not archive.is_file() or _hash(archive) != source.sha256:
        _fetch(source, archive)
    with tarfile.open(archive) as tar:
        root = f"{source.project.replace('-', '_')}-{source.version}"
        wanted = [m for m in tar.getmembers() if m.name.startswith(f"{root}/{source.members}/")]
        if hasattr(tarfile, "data_filter"):  # not before CPython 3.11.4
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(folder, members=wanted)
    return folder / root / source.members


def _fetch(source: Source, archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as name:
        folder = Path(name)
        pinned = folder / "requirements.txt"
        pinned.write_text(f"{source.project}=={source.version} --hash=sha256:{source.sha256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--no-binary", source.project]
        command += ["--require-hashes", "--dest", name, "-r", str(pinned)]
        try:
            # pip asks the build backend for the metadata, which needs no compiler.
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{source.file}: the index doesn't answer") from error
        found = folder / source.file
        if done.returncode or not found.is_file():
            said = done.stderr.strip().splitlines() or ["pip said nothing"]
            raise Unavailable(f"{source.file} can't be downloaded: {said[-1]}")
        found.replace(archive)  # several test processes may do this at once


def _hash(archive: Path) -> str:
    return hashlib.sha256(archive.read_bytes()).hexdigest()
