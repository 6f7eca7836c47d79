"""Derived files of one namespace, each with a manifest that is checked before the file is used.

A file's name contains the start of its hash, and the manifest names the file. So replacing the
manifest changes file and manifest in one step.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from pydantic import JsonValue, SkipValidation, ValidationError

from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import CachedFile, Transaction
from crp_integrations.records import Record
from crp_integrations.seals import sha256_hex
from crp_integrations.stores.files import FILE_MODE, make_folder, sync_folder

FOLDER = "cache"
# A file without a manifest that was unchanged for this long belongs to a process that has ended.
ABANDONED_SECONDS = 3600.0
# Number of tries, because the file may be replaced while it is being checked.
ATTEMPTS = 3
_NAME = re.compile(r"[a-z0-9_-]{1,64}")
_log = logging.getLogger("crp_integrations.stores")


class CacheManifest(Record):
    """The properties that a derived file must have to be used.

    Attributes:
        namespace: SHA-256 of the namespace's name, as in its folder's name.
        file: the file's name within the folder.
        length: size in bytes.
        sha256: SHA-256 of the bytes, 64 hexadecimal digits.
        about_sha256: SHA-256 of `about` as sorted JSON.
    """

    SCHEMA = "cache/1"

    name: str
    namespace: str
    file: str
    length: int
    sha256: str
    about_sha256: str
    # Not validated: it comes from JSON or from the caller, and its hash is checked.
    about: dict[str, SkipValidation[JsonValue]]


class _Damaged(Exception):
    """Raised for a file or manifest that is not valid; the text says why."""


class FileCache:
    """Keeps the derived files of a namespace in a folder next to its database."""

    def __init__(
        self,
        folder: Path,
        namespace: str,
        begin: Callable[[], AbstractContextManager[Transaction]],
    ) -> None:
        """Point at a folder; nothing is created before the first save."""
        self._folder = folder
        self._namespace = sha256_hex(namespace)
        self._begin = begin

    def load(self, name: str) -> CachedFile | None:
        """A file whose manifest was checked; None if there is none or it is damaged."""
        self._checked(name)
        for _ in range(ATTEMPTS):
            before = self._manifest_bytes(name)
            try:
                return self._verified(name, before)
            except _Damaged as error:
                # Another process may have replaced it meanwhile.
                if self._manifest_bytes(name) == before:
                    _log.warning(
                        "cache file %s of namespace %s is not used: %s",
                        name,
                        self._namespace[:12],
                        error,
                    )
                    self._remove_all(self._useless(name, before))
                    return None
        return None

    def save(
        self,
        name: str,
        about: Mapping[str, JsonValue],
        write: Callable[[str], None],
        still_valid: Callable[[Transaction], bool],
    ) -> bool:
        """Write a file under a temporary name, sync it, and rename it if it is still valid."""
        self._checked(name)
        unique = f"{name}.{os.getpid()}-{secrets.token_hex(4)}"
        data, sheet = self._folder / f"{unique}.tmp", self._folder / f"{unique}.json.tmp"
        try:
            make_folder(self._folder)
        except OSError as error:
            raise self._refused(error) from error
        self._remove_abandoned(name)
        try:
            write(str(data))
            manifest = self._described(name, about, data)
            _write_synced(sheet, manifest.model_dump_json().encode())
            with self._begin() as transaction:
                if not still_valid(transaction):
                    return False
                data.replace(self._folder / manifest.file)
                sheet.replace(self._manifest_path(name))
                sync_folder(self._folder)
                # While the lock is held: after it, another writer may have made a newer file.
                _remove(*(path for path in self._files(name) if _replaced(path, manifest.file)))
        except FileNotFoundError:
            # Another process dropped the cache, temporary files included, during the write.
            return False
        except OSError as error:
            raise self._refused(error) from error
        finally:
            _remove(data, sheet)
        return True

    def drop(self, name: str | None = None) -> None:
        """Remove a file, or all of them, including temporary ones of other processes."""
        if name is not None:
            self._checked(name)
        self._remove_all(self._files(name))

    def check(self) -> list[str]:
        """Problems of the files, one sentence each; nothing is removed.

        A file without a manifest is not a problem: a killed process leaves one, no one uses it, and
        it is removed when that name is saved or dropped, or loaded an hour later.
        """
        problems = []
        for name in sorted({path.name.split(".")[0] for path in self._files(None)}):
            raw = self._manifest_bytes(name)
            try:
                if raw is not None:
                    self._verified(name, raw)
            except _Damaged as error:
                problems.append(f"cache file {name} is not usable: {error}")
        return problems

    # --- checking -----------------------------------------------------------------------

    def _verified(self, name: str, raw: bytes | None) -> CachedFile | None:
        """The file that a manifest describes, checked against it."""
        if raw is None:
            if any(path.suffix != ".tmp" for path in self._files(name)):
                raise _Damaged("it has no manifest")
            return None
        manifest = self._manifest(name, raw)
        path = self._folder / manifest.file
        try:
            length, digest = _measured(path)
        except OSError as error:
            raise _Damaged(f"it cannot be read: {error.strerror}") from error
        if length != manifest.length:
            raise _Damaged(f"it has {length} bytes, wanted {manifest.length}")
        if digest != manifest.sha256:
            raise _Damaged("its SHA-256 is not that of its manifest")
        return CachedFile(str(path), manifest.about)

    def _manifest(self, name: str, raw: bytes) -> CacheManifest:
        """A manifest that is valid and belongs to this name."""
        try:
            manifest = CacheManifest.model_validate(json.loads(raw))
        except (ValidationError, ValueError, RecursionError):
            raise _Damaged("its manifest cannot be read") from None
        if manifest.name != name or manifest.namespace != self._namespace:
            raise _Damaged("its manifest is that of another file")
        if manifest.file != _file_name(name, manifest.sha256):
            raise _Damaged("its manifest names another file")
        if manifest.about_sha256 != _about_hash(manifest.about):
            raise _Damaged("the description in its manifest was changed")
        return manifest

    def _described(self, name: str, about: Mapping[str, JsonValue], data: Path) -> CacheManifest:
        data.chmod(FILE_MODE)
        with data.open("rb") as file:
            os.fsync(file.fileno())
        length, digest = _measured(data)
        return CacheManifest(
            name=name,
            namespace=self._namespace,
            file=_file_name(name, digest),
            length=length,
            sha256=digest,
            about_sha256=_about_hash(about),
            about=dict(about),
        )

    # --- files --------------------------------------------------------------------------

    def _manifest_path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _manifest_bytes(self, name: str) -> bytes | None:
        try:
            return self._manifest_path(name).read_bytes()
        except OSError:
            return None

    def _files(self, name: str | None) -> list[Path]:
        """All files of a name, or of every name."""
        try:
            paths = list(self._folder.iterdir())
        except OSError:
            return []
        # A name has no dot, so the part before the first dot is the whole name.
        return sorted(path for path in paths if name is None or path.name.split(".")[0] == name)

    def _remove_all(self, paths: Iterable[Path]) -> None:
        # The manifest goes first: if the process is killed, the rest is not taken for a valid file.
        chosen = sorted(paths, key=lambda path: path.suffix != ".json")
        _remove(*chosen)
        if chosen:
            with suppress(OSError):
                sync_folder(self._folder)

    def _useless(self, name: str, manifest: bytes | None) -> list[Path]:
        """Files to remove when the manifest is damaged or missing.

        A file without a manifest may be one that another process is about to describe, because it
        moves the file first. So such a file is removed only after it was unchanged for long.
        """
        left = [path for path in self._files(name) if path.suffix != ".tmp"]
        return left if manifest is not None else [path for path in left if _is_abandoned(path)]

    def _remove_abandoned(self, name: str) -> None:
        for path in self._files(name):
            if path.suffix == ".tmp" and _is_abandoned(path):
                _remove(path)

    def _refused(self, error: OSError) -> StoreError:
        return StoreError(f"cache folder {self._folder} cannot be written: {error.strerror}")

    def _checked(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise StoreError(
                f"cache name {name!r:.80} is not usable; wanted lower-case letters, digits, - and _"
            )


def _about_hash(about: Mapping[str, JsonValue]) -> str:
    return sha256_hex(json.dumps(about, sort_keys=True))


def _file_name(name: str, sha256: str) -> str:
    return f"{name}.{sha256[:16]}.bin"


def _is_abandoned(path: Path) -> bool:
    try:
        return path.stat().st_mtime < time.time() - ABANDONED_SECONDS
    except OSError:
        return False


def _replaced(path: Path, current: str) -> bool:
    return path.suffix == ".bin" and path.name != current


def _measured(path: Path) -> tuple[int, str]:
    """Length and SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return file.tell(), digest.hexdigest()


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        path.chmod(FILE_MODE)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _remove(*paths: Path) -> None:
    for path in paths:
        # On some systems a file that is being read cannot be removed; it is tried again next time.
        with suppress(OSError):
            path.unlink()
