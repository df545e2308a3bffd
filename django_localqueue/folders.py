"""What can be told of a queue's folder without making or opening anything."""

from __future__ import annotations

import os

from django_localqueue.conf import FILE_NAME

MOUNTS = "/proc/self/mountinfo"
NETWORK_FILE_SYSTEMS = frozenset(
    {
        *("9p", "afs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs"),
        *("glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs"),
        "vboxsf",
    }
)


def unusable(folder: str) -> tuple[str, str] | None:
    """Return what is wrong with the folder and the mend; nothing is made or opened."""
    file = os.path.join(folder, FILE_NAME)
    parent = os.path.dirname(folder)
    if os.path.isdir(folder):
        if not os.access(folder, os.W_OK | os.X_OK):
            if hasattr(os, "statvfs") and os.statvfs(folder).f_flag & os.ST_RDONLY:
                return "on a read-only file system.", "Mount it writable, or move the folder."
            return "which can't be written.", f"Give this process' user the right: {folder}."
        if os.path.exists(file) and not os.access(file, os.R_OK | os.W_OK):
            return (
                f"and its {FILE_NAME} can't be written.",
                f"Give this user the right: {file}.",
            )
        return None
    if os.path.lexists(folder):
        return "which is not a folder.", "LOCATION is a folder; the file is made in it."
    if not os.path.isdir(parent):
        return "whose parent is missing.", f"Make the folder {parent}, or correct LOCATION."
    if not os.access(parent, os.W_OK | os.X_OK):
        return "which is missing and can't be made.", f"Make it, or let this user write {parent}."
    return None


def file_system(folder: str) -> str:
    """Return the type of the file system under the folder; empty where that can't be known."""
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as mounts:
            lines = mounts.read().splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in lines:
        mount, _, rest = line.partition(" - ")
        point = mount.split()[4].replace("\\040", " ")
        if len(point) >= len(best) and is_inside(folder, point):
            best, kind = point, rest.split()[0]
    return kind


def is_inside(path: str, folder: str) -> bool:
    folder = os.path.realpath(folder)
    path = os.path.realpath(path)
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
