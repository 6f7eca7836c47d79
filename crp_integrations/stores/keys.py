"""Sources of the master key, and of the earlier keys that a rotation leaves.

The operating system's random source makes a key. Every ring contains one key for each epoch: the
last one seals, the earlier ones still verify what they sealed. No ring shows a key when it is
printed.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from crp_integrations.errors import ConfigError, CRPError, StoreError
from crp_integrations.stores.files import FILE_MODE, make_folder, sync_folder

MASTER_BYTES = 32
SCHEMA = "keys/1"
# Schema of a file that also contains keys of earlier epochs.
ROTATED_SCHEMA = "keys/2"
# Folder next to the key file with the store's namespaces, which are sealed with the key.
NAMESPACES = "namespaces"
DEFAULT_VARIABLE = "CRP_MASTER_KEYS"


class Unwrap(Protocol):
    """Asks a key service for the data key that it wrapped once."""

    def __call__(self, wrapped: bytes, /) -> bytes:
        """The data key in clear, at least 32 bytes."""
        ...


class _EpochKeys(ABC):
    """Master keys, oldest first, read once when they are first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: tuple[bytes, ...] = ()

    def master(self) -> bytes:
        """The key of the current epoch, at least 32 bytes."""
        return self._all()[-1]

    def retired(self) -> tuple[bytes, ...]:
        """The keys of earlier epochs, oldest first; none before the first rotation."""
        return self._all()[:-1]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    @abstractmethod
    def _get(self) -> tuple[bytes, ...]:
        """All keys, oldest first."""

    def _all(self) -> tuple[bytes, ...]:
        with self._lock:
            if not self._keys:
                self._keys = self._get()
            return self._keys


class FixedKeyRing(_EpochKeys):
    """Master keys that the caller passes in."""

    def __init__(self, master: bytes, *, retired: Sequence[bytes] = ()) -> None:
        """Check and keep the keys."""
        super().__init__()
        self._keys = _usable((*retired, master), "the master key")

    def _get(self) -> tuple[bytes, ...]:
        return self._keys


class MemoryKeyRing(FixedKeyRing):
    """A new master key that is lost when the process ends."""

    def __init__(self) -> None:
        super().__init__(secrets.token_bytes(MASTER_BYTES))


class EnvironmentKeyRing(_EpochKeys):
    """Master keys in an environment variable: hexadecimal, separated by commas, oldest first."""

    def __init__(self, variable: str = DEFAULT_VARIABLE) -> None:
        super().__init__()
        self._variable = variable

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._variable!r})"

    def _get(self) -> tuple[bytes, ...]:
        value = os.environ.get(self._variable, "")
        if not value.strip():
            raise ConfigError(
                f"{self._variable} is not set; it holds {2 * MASTER_BYTES} hexadecimal digits for "
                "each key, with commas between, the current one last"
            )
        try:
            keys = [bytes.fromhex(part.strip()) for part in value.split(",")]
        except ValueError:
            raise ConfigError(f"{self._variable} has a character that is not hexadecimal") from None
        return _usable(keys, self._variable)


class WrappedKeyRing(_EpochKeys):
    """Data keys wrapped by a key service; they are unwrapped once and kept only in memory."""

    def __init__(self, wrapped: bytes, unwrap: Unwrap, *, retired: Sequence[bytes] = ()) -> None:
        """Keep the wrapped keys; the service is called when a key is first needed."""
        super().__init__()
        self._wrapped = (*retired, wrapped)
        self._unwrap = unwrap

    def _get(self) -> tuple[bytes, ...]:
        try:
            keys = [bytes(self._unwrap(wrapped)) for wrapped in self._wrapped]
        except CRPError:
            raise
        except Exception as error:  # noqa: BLE001 - any client's; only its name is shown
            # The service's own message may quote what was sent or received.
            raise StoreError(
                f"the key service did not unwrap the master key: {type(error).__name__}"
            ) from None
        return _usable(keys, "the unwrapped master key")


class FileKeyRing(_EpochKeys):
    """Master keys in a file that only its owner can read; a missing file is created on first use.

    The file is in the store's folder. If that folder already has namespaces, a missing file was
    lost and is not replaced: with a new key, existing seals would never verify again.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self._path = Path(path)

    @property
    def path(self) -> Path:
        """Path of the key file, which need not exist."""
        return self._path

    def rotate(self) -> None:
        """Begin a new epoch: a new key seals from now on; earlier keys are kept to verify.

        A process that has the store open keeps using the key it knows until it meets an event of
        the new epoch; from then on its writes are refused. Reopen its relay.

        Raises:
            ConfigError: the file holds no key that this version can use.
            StoreError: another rotation is under way, or the file cannot be written.
        """
        self.master()
        claim = self._path.with_name(f"{self._path.name}.rotating")
        try:
            os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
        except FileExistsError:
            raise StoreError(
                f"key file {self._path} is being rotated; remove {claim} if no process does that"
            ) from None
        except OSError as error:
            raise _out_of_reach(self._path, error) from error
        try:
            # Read again: another process may have rotated the key meanwhile.
            keys = (*self._read(), _new())
            self._write(keys).replace(self._path)
            sync_folder(self._path.parent)
        except OSError as error:
            raise _out_of_reach(self._path, error) from error
        finally:
            claim.unlink(missing_ok=True)
        with self._lock:
            self._keys = keys

    def __repr__(self) -> str:
        return f"FileKeyRing({str(self._path)!r})"

    def _get(self) -> tuple[bytes, ...]:
        try:
            try:
                return self._read()
            except FileNotFoundError:
                if not self._guards_something():
                    make_folder(self._path.parent)
                    self._make()
                elif not self._path.exists():
                    # Namespaces exist, so the key was lost: a key is made before the first one.
                    raise ConfigError(
                        f"key file {self._path} is missing, but {self._path.parent} has data "
                        "that was sealed with a key; restore the file from a copy, or give the key"
                    ) from None
                return self._read()
        except OSError as error:
            raise _out_of_reach(self._path, error) from error

    def _guards_something(self) -> bool:
        folder = self._path.parent / NAMESPACES
        return folder.is_dir() and any(folder.glob("*/*"))

    def _make(self) -> None:
        """Write a key file under a temporary name, then link it to its name unless that is taken.

        Two processes that start together both use the key of the first.
        """
        temporary = self._write((_new(),))
        try:
            try:
                os.link(temporary, self._path)
            except FileExistsError:
                return
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(self._path.parent)

    def _write(self, keys: Sequence[bytes]) -> Path:
        """Write a complete key file under a temporary name and return its path."""
        temporary = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        *retired, master = (key.hex() for key in keys)
        fields: dict[str, object] = {"schema": SCHEMA, "master": master}
        if retired:
            fields = {"schema": ROTATED_SCHEMA, "master": master, "retired": retired}
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(fields, file)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary

    def _read(self) -> tuple[bytes, ...]:
        try:
            fields = json.loads(self._path.read_text(encoding="utf-8"))
            schema, hex_keys = fields["schema"], [fields["master"]]
            if schema == ROTATED_SCHEMA:
                hex_keys = [*fields["retired"], *hex_keys]
            keys = [bytes.fromhex(key) for key in hex_keys]
        except (ValueError, TypeError, KeyError):
            raise ConfigError(f"key file {self._path} holds no key; restore it from a copy") from (
                None
            )
        if schema not in (SCHEMA, ROTATED_SCHEMA):
            raise ConfigError(
                f"key file {self._path} has schema {schema!r}, wanted {SCHEMA!r} or "
                f"{ROTATED_SCHEMA!r}"
            )
        return _usable(keys, f"key file {self._path}")


def _usable(keys: Sequence[bytes], where: str) -> tuple[bytes, ...]:
    """The keys, checked to be long enough and all different."""
    for key in keys:
        if len(key) < MASTER_BYTES:
            raise ConfigError(f"{where} has {len(key)} bytes; give at least {MASTER_BYTES}")
    if len(set(keys)) < len(keys):
        raise ConfigError(f"{where} holds the same key for two epochs; give each its own")
    return tuple(bytes(key) for key in keys)


def _new() -> bytes:
    return secrets.token_bytes(MASTER_BYTES)


def _out_of_reach(path: Path, error: OSError) -> StoreError:
    return StoreError(f"key file {path} cannot be read or made: {error.strerror}")
