"""A tenant's archive: one file with everything that a store keeps of one namespace.

Its first line describes it; the rest is the namespace's database, as a folder would contain it.
So any store writes and reads it, and no row of another namespace can be in it.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from pydantic import Field, ValidationError

from crp_integrations.audit.records import JournalFacet
from crp_integrations.errors import ConfigError, StoreError
from crp_integrations.fabric.ports import Store
from crp_integrations.records import Record
from crp_integrations.seals import sha256_hex
from crp_integrations.stores.keys import NAMESPACES
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.stores.sqlite.schema import STEPS
from crp_integrations.stores.sqlite.store import DATABASE
from crp_integrations.stores.transfer import MoveResult, move

# Maximum bytes of the first line.
_MAX_HEADER = 65_536


class TenantArchive(Record):
    """The first line of an archive.

    Attributes:
        size, sha256: length and hash of the bytes after the line.
    """

    SCHEMA = "tenant-archive/1"

    namespace: str = Field(min_length=1)
    size: int = Field(ge=1)
    sha256: str


def export_namespace(store: Store, namespace: str, file: BinaryIO, beside: Path) -> MoveResult:
    """Write a namespace, as one transaction sees it, into a file opened for writing.

    Args:
        beside: folder for a temporary copy, which contains the tenant's texts.
    """
    if namespace not in store.namespaces():
        raise StoreError(f"{store.name} has no namespace {namespace!r:.80}; nothing was exported")
    with TemporaryDirectory(dir=beside, prefix=".crp-") as folder:
        with closing(SqliteStore(folder)) as copy:
            result = move(store, copy, namespace, lambda table, rows: None)
            # Moves the write-ahead log into the database.
            copy.compact(namespace)
        path = _database(folder, namespace)
        with path.open("rb") as database:
            about = TenantArchive(
                namespace=namespace,
                size=path.stat().st_size,
                sha256=hashlib.file_digest(database, "sha256").hexdigest(),
            )
            file.write(about.model_dump_json().encode() + b"\n")
            database.seek(0)
            shutil.copyfileobj(database, file)
    return result


def import_namespace(
    path: Path, store: Store, namespace: str, check: Callable[[str, JournalFacet], None]
) -> MoveResult:
    """Put an archive's namespace into a store that has none of that name, all or nothing.

    Args:
        namespace: the one that the archive must be of, since its header is not signed.
        check: raises if the store's key does not fit the trail of the namespace.

    Raises:
        StoreError: the file is torn or changed, or is of another namespace or has no trail, or the
            store has the namespace already.
    """
    with _unpacked(path) as (about, copy):
        if about.namespace != namespace:
            raise StoreError(
                f"{str(path)!r:.200} is of namespace {about.namespace!r:.80}, wanted "
                f"{namespace!r:.80}; name the one to import with --tenant or --shared"
            )
        with copy.begin(namespace, write=False) as transaction:
            if transaction.journal.tip() is None:
                raise StoreError(
                    f"{str(path)!r:.200} has no trail, so no key shows where its facts come from; "
                    "nothing was imported"
                )
            check(namespace, transaction.journal)
        return move(copy, store, about.namespace, lambda table, rows: None)


@contextmanager
def _unpacked(path: Path) -> Iterator[tuple[TenantArchive, SqliteStore]]:
    """The description of an archive, and a temporary store with its namespace."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigError(f"{str(path)!r:.200} cannot be read: {error.strerror}") from error
    with file, _folder_beside(path) as folder:
        try:
            about = TenantArchive.model_validate_json(file.readline(_MAX_HEADER))
        except ValidationError as error:
            raise StoreError(f"{str(path)!r:.200} is no archive of a tenant") from error
        database = _database(folder, about.namespace)
        database.parent.mkdir(parents=True)
        with database.open("wb+") as written:
            shutil.copyfileobj(file, written)
            size = written.tell()
            written.seek(0)
            hashed = hashlib.file_digest(written, "sha256").hexdigest()
        if (size, hashed) != (about.size, about.sha256):
            raise StoreError(
                f"{str(path)!r:.200} is torn or was changed: it has {size} bytes of hash "
                f"{hashed:.12}, wanted {about.size} of {about.sha256:.12}; nothing was imported"
            )
        if _schema_of(sqlite3.connect(database)) != _schema_of(_empty_database()):
            raise StoreError(
                f"{str(path)!r:.200} has other tables than this version of the package writes; "
                "export it with this version; nothing was imported"
            )
        with closing(SqliteStore(folder)) as copy:
            yield about, copy


def _folder_beside(path: Path) -> TemporaryDirectory[str]:
    """A folder for the unpacked database; the system's if none can be made beside the file."""
    try:
        return TemporaryDirectory(dir=path.parent, prefix=".crp-")
    except OSError:
        return TemporaryDirectory(prefix=".crp-")


def _schema_of(connection: sqlite3.Connection) -> set[tuple[str, ...]]:
    """Every table, index, view and trigger, read without running anything of them.

    A view or a trigger of a stranger could run for ever in a statement of ours.
    """
    with closing(connection):
        connection.execute("PRAGMA trusted_schema = OFF")
        try:
            return {*connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema")}
        except sqlite3.Error:
            return set()


def _empty_database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    for statement in chain.from_iterable(STEPS):
        connection.execute(statement)
    return connection


def _database(folder: str, namespace: str) -> Path:
    return Path(folder) / NAMESPACES / sha256_hex(namespace) / DATABASE
