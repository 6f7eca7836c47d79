"""Objects in a folder, or in memory: named bytes that are written whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
import threading
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from crp_integrations.errors import RequestError, StoreError
from crp_integrations.stores.files import FILE_MODE, make_folder, sync_folder

_PART = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}"
_KEY = re.compile(rf"{_PART}(/{_PART}){{0,15}}")
# No key begins with a dot, so nobody takes half an object for a whole one.
_TEMPORARY = ".writing-"


def checked_key(key: str) -> str:
    """A name that can be a path in any store."""
    if not _KEY.fullmatch(key):
        raise RequestError(
            f"object name {key!r:.80} is not parts of letters, digits and ._- with / between"
        )
    return key


class FolderObjects:
    """Objects as files that only their owner can read, in folders that only he can enter.

    The folder is made by the first write. An object is written under another name, synced, and
    linked under its own, which fails where that is taken.
    """

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)

    @property
    def name(self) -> str:
        """Kind and place."""
        return f"folder:{self._root}"

    def create(self, key: str, data: bytes) -> bool:
        """Write an object that is not there yet."""
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
        """Remove an object, and the folders that are empty then."""
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
                # Others lie there, or one is being written.
                return

    def list(self, prefix: str) -> Iterator[str]:
        """Names below a folder."""
        place = self._root / checked_key(prefix)
        try:
            found = sorted(
                path.relative_to(self._root).as_posix()
                for path in place.rglob("*")
                if path.is_file() and not path.name.startswith(".")
            )
        except OSError as error:
            raise self._failed("list", prefix, error) from error
        yield from found

    def _make_folders(self, folder: Path) -> None:
        """The folders down to this one, each of mode 0700."""
        missing = [folder]
        while missing[-1] != self._root and not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for one in reversed(missing):
            make_folder(one)

    def _failed(self, verb: str, key: str, error: OSError) -> StoreError:
        return StoreError(f"cannot {verb} object {key!r:.120} in {self.name}: {error.strerror}")


class MemoryObjects:
    """Objects that end with the process; safe under threads."""

    name = "memory"

    def __init__(self) -> None:
        self._held: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def create(self, key: str, data: bytes) -> bool:
        """Hold an object that is not there yet."""
        with self._lock:
            if checked_key(key) in self._held:
                return False
            self._held[key] = bytes(data)
            return True

    def get(self, key: str) -> bytes | None:
        """An object's bytes."""
        return self._held.get(checked_key(key))

    def delete(self, key: str) -> None:
        """Let go of an object."""
        with self._lock:
            self._held.pop(checked_key(key), None)

    def list(self, prefix: str) -> Iterator[str]:
        """Names that begin with whole parts."""
        with self._lock:
            names = sorted(self._held)
        start = f"{checked_key(prefix)}/"
        for name in names[bisect_left(names, start) :]:
            if not name.startswith(start):
                return
            yield name
