"""Private folders, locks, and objects whose writes are atomic."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sqlite3
import threading
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from crp_integrations.errors import RequestError, StoreBusy, StoreError

FILE_MODE = 0o600
FOLDER_MODE = 0o700
# More than one window and its receipt, which contains the texts of the window, take on disk.
MIN_FREE_BYTES = 1 << 20
# SQLite's log and shared-memory files. A process that only reads can have made them, read-only.
_SIDE_FILES = ("-wal", "-shm")
# Check access for the effective user where the system supports it.
_USE_EFFECTIVE_IDS = os.access in os.supports_effective_ids


def refuse_unwritable(path: Path, namespace: str, *, there: bool) -> None:
    """Refuse a namespace that is not writable, since its answers could not be sealed."""
    reason = _describe_read_only(path) if there else _describe_locked(path.parent)
    if reason:
        raise StoreError(
            f"{reason}, so no answer in namespace {namespace!r:.80} could be sealed; let this user "
            "write it, or copy the store to where it can be written"
        )
    place = path if there else _nearest(path.parent)
    if reason := describe_full(place):
        raise StoreBusy(
            f"{reason}, so no answer in namespace {namespace!r:.80} could be sealed; make room, or "
            "move the store"
        )


def describe_full(place: Path) -> str:
    """A sentence on a disk with too little room to seal an answer; empty if there is enough."""
    left = _free_bytes(place)
    if left is None or left >= MIN_FREE_BYTES:
        return ""
    return f"{place} has {left} bytes left on its disk, wanted {MIN_FREE_BYTES}"


def _describe_read_only(path: Path) -> str:
    """A sentence on the database file that cannot be written; empty if all can."""
    name = str(path)
    if not _has_access(name, os.W_OK):
        return f"{name} is read-only for this user, or on a read-only disk"
    for end in _SIDE_FILES:
        if not _has_access(name + end, os.W_OK) and _has_access(name + end, os.F_OK):
            return f"{name}{end} is read-only for this user"
    return ""


def _describe_locked(folder: Path) -> str:
    """A sentence on the folder in which nothing can be created; empty if it is writable."""
    place = _nearest(folder)
    if _has_access(str(place), os.W_OK | os.X_OK):
        return ""
    return f"{place} is a folder in which this user cannot create files"


def _has_access(path: str, how: int) -> bool:
    return os.access(path, how, effective_ids=_USE_EFFECTIVE_IDS)


def _nearest(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _free_bytes(place: Path) -> int | None:
    """Bytes that this user can still write; None if the system does not report it."""
    if not hasattr(os, "statvfs"):
        return None
    try:
        disk = os.statvfs(place)
    except OSError:
        # Removed a moment ago; the write that follows reports what is wrong.
        return None
    # A file system without a size of its own, such as some in memory, reports no blocks.
    if not disk.f_blocks:
        return None
    return disk.f_frsize * (disk.f_bavail if os.geteuid() else disk.f_bfree)


def make_folder(path: Path) -> None:
    """Make a folder that only its owner can enter, and its parents; an existing one stays as is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=FOLDER_MODE, exist_ok=True)


def sync_folder(path: Path) -> None:
    """Make a new name in a folder survive a power loss, if the system supports that."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_folder(folder: Path, removed: Path) -> None:
    """Remove a folder that is gone at once, and whose files the next opening removes after a kill.

    Args:
        removed: folder on the same disk, into which it is renamed first.
    """
    make_folder(removed)
    folder.rename(removed / secrets.token_hex(16))
    sync_folder(folder.parent)
    sync_folder(removed)
    empty_folder(removed)


def empty_folder(removed: Path, *, strict: bool = True) -> None:
    """Finish removals that were interrupted; a store that may not be written opens all the same."""
    # Another process may finish the same ones.
    with suppress(FileNotFoundError if strict else OSError):
        for path in removed.iterdir():
            shutil.rmtree(path)
        sync_folder(removed)


@contextmanager
def file_held(path: Path, busy_seconds: float) -> Iterator[None]:
    """Lock a file that has no lock of its own against other processes and threads for the block.

    The lock is an exclusive transaction on an empty SQLite database next to the file. It works on
    every system and is released when its process dies.
    """
    name = path.with_name(path.name + ".lock")
    try:
        connection = sqlite3.connect(name, timeout=busy_seconds, isolation_level=None)
    except sqlite3.Error as error:
        raise StoreError(f"lock file {name} cannot be made: {error}") from error
    with closing(connection):
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise StoreBusy(
                    f"file {path} is being written by another process; "
                    f"gave up after {busy_seconds:g} s"
                ) from error
            raise StoreError(f"lock file {name} cannot be used: {error}") from error
        yield


_PART = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}"
_KEY = re.compile(rf"{_PART}(/{_PART}){{0,15}}")
# No key begins with a dot, so a half-written file is never taken for an object.
_TEMPORARY = ".writing-"


def checked_key(key: str) -> str:
    """Return the key if it can be a path in any store, else raise."""
    if not _KEY.fullmatch(key):
        raise RequestError(
            f"object name {key!r:.80} is not parts of letters, digits and ._- with / between"
        )
    return key


class FolderObjects:
    """Objects as files that only their owner can read, in folders that only the owner can enter.

    The first write makes the folder. An object is written under a temporary name, synced, and
    linked to its own name, which fails if that name is taken.
    """

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)

    @property
    def name(self) -> str:
        """Kind and location."""
        return f"folder:{self._root}"

    def create(self, key: str, data: bytes) -> bool:
        """Write an object that does not exist yet; return whether it was written."""
        path = self._root / checked_key(key)
        try:
            if path.exists():
                return False
            self._make_folders(path.parent)
            temporary = path.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}")
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(temporary, path)
            except FileExistsError:
                return False
            finally:
                temporary.unlink(missing_ok=True)
            sync_folder(path.parent)
        except OSError as error:
            raise self._failed("write", key, error) from error
        return True

    def get(self, key: str) -> bytes | None:
        """An object's bytes."""
        try:
            return (self._root / checked_key(key)).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._failed("read", key, error) from error

    def delete(self, key: str) -> None:
        """Remove an object, and the folders that become empty."""
        path = self._root / checked_key(key)
        try:
            path.unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as error:
            raise self._failed("remove", key, error) from error
        for folder in path.parents:
            if folder == self._root:
                return
            try:
                folder.rmdir()
            except OSError:
                # The folder has other objects, or one is being written.
                return

    def list(self, prefix: str) -> Iterator[str]:
        """Names of the objects in a folder and its subfolders."""
        place = self._root / checked_key(prefix)
        try:
            names = sorted(
                path.relative_to(self._root).as_posix()
                for path in place.rglob("*")
                if path.is_file() and not path.name.startswith(".")
            )
        except OSError as error:
            raise self._failed("list", prefix, error) from error
        yield from names

    def _make_folders(self, folder: Path) -> None:
        """Make the folders down to this one, each of mode 0700."""
        missing = [folder]
        while missing[-1] != self._root and not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for path in reversed(missing):
            make_folder(path)

    def _failed(self, verb: str, key: str, error: OSError) -> StoreError:
        return StoreError(f"cannot {verb} object {key!r:.120} in {self.name}: {error.strerror}")


class MemoryObjects:
    """Objects that are lost when the process ends; thread-safe."""

    name = "memory"

    def __init__(self) -> None:
        self._held: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def create(self, key: str, data: bytes) -> bool:
        """Keep an object that does not exist yet; return whether it was kept."""
        with self._lock:
            if checked_key(key) in self._held:
                return False
            self._held[key] = bytes(data)
            return True

    def get(self, key: str) -> bytes | None:
        """An object's bytes."""
        return self._held.get(checked_key(key))

    def delete(self, key: str) -> None:
        """Remove an object."""
        with self._lock:
            self._held.pop(checked_key(key), None)

    def list(self, prefix: str) -> Iterator[str]:
        """Names that begin with the prefix and a slash."""
        with self._lock:
            names = sorted(self._held)
        start = f"{checked_key(prefix)}/"
        for name in names[bisect_left(names, start) :]:
            if not name.startswith(start):
                return
            yield name
