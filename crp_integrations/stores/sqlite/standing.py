"""Whether a namespace's file can be written, told without writing: who may, and how much room is.

A few calls of the system, since every question asks it before a model is paid.
"""

from __future__ import annotations

import os
from pathlib import Path

from crp_integrations.errors import StoreError

# More than a window leaves on the disk with its receipt, which has the texts that it was shown.
ROOM_BYTES = 1 << 20
# SQLite's log and its locks. Whoever only read the file may have made them, as only read too.
_BESIDE = ("-wal", "-shm")
# What a process may is told by its effective user.
_EFFECTIVE = os.access in os.supports_effective_ids


def refuse_unwritable(path: Path, namespace: str, *, there: bool) -> None:
    """Refuse a namespace whose answers could not be sealed.

    Args:
        path: of its file.
        there: whether there is one.

    Raises:
        StoreError: this user may not write it, or not make it; or the disk is full.
    """
    found = _only_read(path) if there else _locked(path.parent)
    if found:
        raise StoreError(
            f"{found}, so no answer in namespace {namespace!r:.80} could be sealed; let this user "
            "write it, or copy the store to where it can be written"
        )
    place = path if there else _nearest(path.parent)
    left = _room(place)
    if left is not None and left < ROOM_BYTES:
        raise StoreError(
            f"{place} has {left} bytes left on its disk, wanted {ROOM_BYTES}, so no answer in "
            f"namespace {namespace!r:.80} could be sealed; make room, or move the store"
        )


def _only_read(path: Path) -> str:
    """Which of a database's files cannot be written; empty for none."""
    name = str(path)
    if not _may(name, os.W_OK):
        return f"{name} is only read by this user, or lies on a disk that is only read"
    for end in _BESIDE:
        if not _may(name + end, os.W_OK) and _may(name + end, os.F_OK):
            return f"{name}{end} is only read by this user"
    return ""


def _locked(folder: Path) -> str:
    """In which folder nothing can be made; empty for none."""
    place = _nearest(folder)
    if _may(str(place), os.W_OK | os.X_OK):
        return ""
    return f"{place} is a folder in which this user can make nothing"


def _may(path: str, how: int) -> bool:
    return os.access(path, how, effective_ids=_EFFECTIVE)


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _room(place: Path) -> int | None:
    """Bytes that this user can still write; None where the system does not tell."""
    if not hasattr(os, "statvfs"):
        return None
    try:
        disk = os.statvfs(place)
    except OSError:
        # Removed a moment ago; whoever writes is told what is wrong.
        return None
    # A file system without a size of its own, as some in memory are, has no blocks at all.
    if not disk.f_blocks:
        return None
    return disk.f_frsize * (disk.f_bavail if os.geteuid() else disk.f_bfree)
