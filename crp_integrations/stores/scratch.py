"""Bytes put down for the length of a call: in a file without a name, or in memory."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import IO

from crp_integrations.errors import StoreError


class FileScratch:
    """Bytes in a file that nobody else can open; the system frees it, also after a kill."""

    def __init__(self, file: IO[bytes]) -> None:
        """Take the file, which is written without a buffer so that a full disk is noticed."""
        self._file = file
        self._end = 0

    def put(self, data: bytes) -> int | None:
        """Where the bytes begin; None when the disk has no room for them."""
        start = self._end
        try:
            self._file.seek(start)
            if self._file.write(data) != len(data):
                return None
        except OSError:
            return None
        self._end += len(data)
        return start

    def get(self, start: int, size: int) -> bytes:
        """Bytes that were put.

        Raises:
            StoreError: they cannot be read back.
        """
        try:
            self._file.seek(start)
            found = self._file.read(size)
        except OSError as error:
            raise StoreError(f"a scratch file cannot be read: {error.strerror}") from error
        if len(found) != size:
            raise StoreError(f"a scratch file gave {len(found)} of {size} bytes")
        return found

    def close(self) -> None:
        """Forget everything."""
        self._file.close()


def beside(folder: Path) -> FileScratch | None:
    """A scratch on the disk of a store's folder, which may not be there yet; None without room."""
    there = next((one for one in (folder, *folder.absolute().parents) if one.is_dir()), None)
    return None if there is None else _unnamed(str(there))


def anywhere() -> FileScratch | None:
    """A scratch where this machine keeps temporary files."""
    return _unnamed(None)


def in_memory() -> FileScratch:
    """A scratch that is no file."""
    return FileScratch(io.BytesIO())


def _unnamed(folder: str | None) -> FileScratch | None:
    try:
        return FileScratch(tempfile.TemporaryFile(buffering=0, dir=folder))
    except OSError:
        return None
