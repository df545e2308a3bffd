"""Zip and tar archives, and files within files, read under limits and never unpacked to disk."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import tarfile
import threading
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import PurePosixPath
from typing import IO, Any

from testproject.catalogue import kinds
from testproject.catalogue.kinds import HEAD, Kind, detect
from testproject.catalogue.limits import (
    ArchiveTooDeep,
    ArchiveTooLarge,
    FileTooLarge,
    NotARegularFile,
    limits,
)


class Archive(ABC):
    """An open archive: the names of its files, and their contents."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of the regular files in it, each once.

        Raises:
            ArchiveTooLarge: too many, or too many bytes together.
        """

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return one file's contents; raises ``KeyError`` or ``FileTooLarge``."""

    @abstractmethod
    def close(self) -> None: ...

    @staticmethod
    def _check(members: int, unpacked: int) -> None:
        limit = limits()
        if members > limit.members:
            raise ArchiveTooLarge(
                f"The archive has {members} or more members; at most {limit.members} are read."
            )
        if unpacked > limit.unpacked_bytes:
            raise ArchiveTooLarge(
                f"The archive unpacks to {unpacked} bytes or more;"
                f" at most {limit.unpacked_bytes} are read."
            )

    @staticmethod
    def _check_member(name: str, size: int) -> None:
        allowed = limits().file_bytes
        if size > allowed:
            raise FileTooLarge(f"{name} has {size} bytes; at most {allowed} are read.")


class ZipArchive(Archive):
    def __init__(self, stream: IO[bytes]) -> None:
        self._zip = zipfile.ZipFile(stream)

    def names(self) -> list[str]:
        members = self._zip.infolist()
        self._check(len(members), sum(member.file_size for member in members))
        return list(dict.fromkeys(m.filename for m in members if not m.is_dir()))

    def read(self, name: str) -> bytes:
        member = self._zip.getinfo(name)
        self._check_member(name, member.file_size)
        return self._zip.read(member)  # reads no more than the size checked above

    def close(self) -> None:
        self._zip.close()


class TarArchive(Archive):
    def __init__(self, stream: IO[bytes]) -> None:
        self._unpacked = _unpacked(stream)
        self._tar = tarfile.TarFile(fileobj=self._unpacked)

    def names(self) -> list[str]:
        names: dict[str, None] = {}
        unpacked = 0
        for count, member in enumerate(self._tar, start=1):
            unpacked += member.size
            self._check(count, unpacked)
            if member.isreg():
                names[member.name] = None
        return list(names)

    def read(self, name: str) -> bytes:
        member = self._tar.getmember(name)
        self._check_member(name, member.size)
        stream = self._tar.extractfile(member)
        if stream is None:
            raise KeyError(f"{name} is not a regular file of the archive")
        with stream:
            return stream.read()

    def close(self) -> None:
        self._tar.close()
        self._unpacked.close()


def _unpacked(stream: IO[bytes]) -> Any:
    """Return the plain tar in a stream that may be compressed, refusing to unpack too much."""
    head = stream.read(6)
    stream.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return _Bounded(gzip.GzipFile(fileobj=stream))
    if head.startswith(b"BZh"):
        return _Bounded(bz2.BZ2File(stream))
    if head.startswith(b"\xfd7zXZ\x00"):
        return _Bounded(lzma.LZMAFile(stream))
    return _Bounded(stream, owned=False)


class _Bounded:
    """The part of a file that ``tarfile`` uses, ending with an error at the unpacked limit."""

    def __init__(self, stream: Any, *, owned: bool = True) -> None:
        self._stream = stream
        self._owned = owned
        self._limit = limits().unpacked_bytes
        self.tell = stream.tell

    def close(self) -> None:
        if self._owned:
            self._stream.close()

    def read(self, size: int) -> bytes:
        self._check(self.tell() + size)
        data: bytes = self._stream.read(size)
        return data

    def seek(self, position: int) -> int:
        self._check(position)
        place: int = self._stream.seek(position)
        return place

    def _check(self, position: int) -> None:
        # tarfile's own blocks go past the contents that the members add up to.
        if position > self._limit + (1 << 20):
            raise ArchiveTooLarge(f"The archive unpacks to more than {self._limit} bytes.")


def open_regular(path: str) -> IO[bytes]:
    """Open a file on disk for reading, without waiting for the other end of a pipe.

    Raises:
        OSError: it isn't there, or may not be read.
        NotARegularFile: it is a pipe, a socket, a device or a folder.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotARegularFile(f"{path!r} is not a regular file.")
    return os.fdopen(descriptor, "rb")


def open_archive(kind: Kind, stream: IO[bytes]) -> Archive:
    """Open the archive in a stream, which must stay open as long as the archive.

    Raises:
        ArchiveTooLarge: it has more bytes than an archive may.
        zipfile.BadZipFile, tarfile.ReadError, EOFError, zlib.error, …: malformed.
    """
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    allowed = limits().archive_bytes
    if size > allowed:
        raise ArchiveTooLarge(f"The archive has {size} bytes; at most {allowed} are read.")
    return ZipArchive(stream) if kind.mime_type == kinds.ZIP else TarArchive(stream)


class _Opened:
    """One archive with everything it lies in, kept open."""

    def __init__(self, path: str, chain: Sequence[str]) -> None:
        with ExitStack() as stack:
            stream: IO[bytes] = stack.enter_context(open_regular(path))
            found = os.fstat(stream.fileno())
            self.key = (path, tuple(chain), found.st_ino, found.st_mtime_ns, found.st_size)
            archive = self._enter(stack, path, stream)
            for name in chain:
                archive = self._enter(stack, name, io.BytesIO(archive.read(name)))
            self.archive = archive
            self._stack = stack.pop_all()
        self.close = self._stack.close

    @staticmethod
    def _enter(stack: ExitStack, name: str, stream: IO[bytes]) -> Archive:
        head = stream.read(HEAD)
        archive = open_archive(detect(PurePosixPath(name).name, head), stream)
        stack.callback(archive.close)
        return archive


_kept = threading.local()


def read_member(path: str, members: Sequence[str]) -> bytes:
    """Return the contents of a file in an archive.

    The archive stays open for this thread's next job: the members of an archive come one
    after the other, and a compressed tar can only be read forwards.

    Args:
        path: the archive on disk.
        members: the member's name, after the names of the archives in archives around it.

    Raises:
        ArchiveTooDeep: more archives around it than are opened.
        As ``open_regular``, ``open_archive`` and ``Archive.read``.
    """
    allowed = limits().depth
    if len(members) > allowed:
        raise ArchiveTooDeep(
            f"The file lies in {len(members)} archives; at most {allowed} are opened."
        )
    *chain, name = members
    kept: _Opened | None = getattr(_kept, "opened", None)
    found = os.stat(path)
    key = (path, tuple(chain), found.st_ino, found.st_mtime_ns, found.st_size)
    if kept is None or kept.key != key:
        close_kept()
        kept = _kept.opened = _Opened(path, chain)
    try:
        return kept.archive.read(name)
    except BaseException:
        close_kept()  # whatever broke, the next job starts with a fresh one
        raise


def close_kept() -> None:
    """Close the archive that this thread keeps open, if any."""
    kept: _Opened | None = getattr(_kept, "opened", None)
    _kept.opened = None
    if kept is not None:
        kept.close()
