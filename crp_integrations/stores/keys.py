"""Where the master key is kept. It is made by the operating system's random source."""

from __future__ import annotations

import json
import os
import secrets
import threading
from pathlib import Path

from crp_integrations.errors import ConfigError, StoreError

MASTER_BYTES = 32
SCHEMA = "keys/1"
FILE_MODE = 0o600
FOLDER_MODE = 0o700
# Beside the key file: what a store keeps, sealed with the key.
NAMESPACES = "namespaces"


class FixedKeyRing:
    """A master key that the caller keeps."""

    def __init__(self, master: bytes) -> None:
        if len(master) < MASTER_BYTES:
            raise ConfigError(
                f"the master key has {len(master)} bytes; give at least {MASTER_BYTES}"
            )
        self._master = bytes(master)

    def master(self) -> bytes:
        """The key that was given."""
        return self._master

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class MemoryKeyRing(FixedKeyRing):
    """A new master key that ends with the process."""

    def __init__(self) -> None:
        super().__init__(secrets.token_bytes(MASTER_BYTES))


class FileKeyRing:
    """A master key in a file that only its owner can read, made when it is first asked for.

    The file lies in the store's folder. Where namespaces lie beside it already, a missing file is
    a lost one, and is not replaced: what it sealed would never verify again.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._lock = threading.Lock()
        self._master: bytes | None = None

    @property
    def path(self) -> Path:
        """The key's file, there or not."""
        return self._path

    def master(self) -> bytes:
        """The key in the file; a missing file of a new store is made first.

        Raises:
            ConfigError: the file holds no key that this version can use, or is missing from a
                store that was written.
            StoreError: the file cannot be read or made.
        """
        with self._lock:
            if self._master is None:
                self._master = self._read_or_make()
            return self._master

    def __repr__(self) -> str:
        return f"FileKeyRing({str(self._path)!r})"

    def _read_or_make(self) -> bytes:
        try:
            try:
                return self._parse(self._path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                if not self._guards_something():
                    make_folder(self._path.parent)
                    self._make()
                elif not self._path.exists():
                    # Another process would have made the key before the first namespace.
                    raise ConfigError(
                        f"key file {self._path} is missing, but {self._path.parent} holds what was "
                        "sealed with a key; restore the file from a copy, or give the key"
                    ) from None
                return self._parse(self._path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise ConfigError(f"key file {self._path} is not text") from error
        except OSError as error:
            raise StoreError(
                f"key file {self._path} cannot be read or made: {error.strerror}"
            ) from error

    def _guards_something(self) -> bool:
        folder = self._path.parent / NAMESPACES
        return folder.is_dir() and any(folder.glob("*/*"))

    def _make(self) -> None:
        """Write a whole key under another name, then give it its name unless it is taken.

        Two processes that start together both end with the key of the one that was first.
        """
        temporary = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        key = secrets.token_bytes(MASTER_BYTES)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"schema": SCHEMA, "master": key.hex()}, file)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, self._path)
            except FileExistsError:
                return
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(self._path.parent)

    def _parse(self, text: str) -> bytes:
        try:
            fields = json.loads(text)
            schema, master = fields["schema"], bytes.fromhex(fields["master"])
        except (ValueError, TypeError, KeyError):
            raise ConfigError(f"key file {self._path} holds no key; restore it from a copy") from (
                None
            )
        if schema != SCHEMA:
            raise ConfigError(f"key file {self._path} has schema {schema!r}, wanted {SCHEMA!r}")
        if len(master) < MASTER_BYTES:
            raise ConfigError(
                f"key file {self._path} holds {len(master)} bytes, wanted at least {MASTER_BYTES}"
            )
        return master


def make_folder(path: Path) -> None:
    """Make a folder that only its owner can enter, and its parents; one that is there stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=FOLDER_MODE, exist_ok=True)


def sync_folder(path: Path) -> None:
    """Make a new name in a folder survive a loss of power, where the system can do that."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
