"""Statements as SQLite reads them, spelled for PostgreSQL; and how values travel.

PostgreSQL keeps no NUL in a text, and texts are strangers' here. One is sent as SUB and `0`, and a
SUB of its own as SUB and `1`, so that every text comes back as it was and equal texts stay equal.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from psycopg import Connection as RawConnection
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.pq import Format
from psycopg.types import TypeInfo
from psycopg.types.array import ListBinaryDumper
from psycopg.types.array import ListDumper as TextListDumper
from psycopg.types.string import StrBinaryDumper, StrDumper, StrDumperUnknown

from crp_integrations.stores.statements import AMONG, Among, PackedVector
from crp_integrations.stores.statements import TOUCHED_SQL as SQLITE_TOUCHED_SQL

ESCAPE = "\x1a"
TOUCHED_SQL = SQLITE_TOUCHED_SQL.replace("max(", "greatest(", 1)
# What SQLite calls otherwise, and hints to its planner.
_SPELLINGS = (
    (AMONG, "= ANY(?)"),
    (SQLITE_TOUCHED_SQL, TOUCHED_SQL),
    ("instr(", "strpos("),
    ("CROSS JOIN", "JOIN"),
    (" INDEXED BY facts_retrievable", ""),
    (" NOT INDEXED", ""),
    ("%", "%%"),
    ("?", "%s"),
)


@lru_cache(maxsize=512)
def spelled(statement: str) -> str:
    """A statement of `stores/sqlite` as PostgreSQL reads it.

    >>> spelled("SELECT 1 FROM facts WHERE fact_id = ?")
    'SELECT 1 FROM facts WHERE fact_id = %s'
    """
    for theirs, ours in _SPELLINGS:
        statement = statement.replace(theirs, ours)
    return statement


def escaped(text: str) -> str:
    """A text without NUL; equal ones stay equal."""
    if "\0" in text or ESCAPE in text:
        return text.replace(ESCAPE, f"{ESCAPE}1").replace("\0", f"{ESCAPE}0")
    return text


def unescaped(text: str) -> str:
    """What `escaped` was given."""
    if ESCAPE in text:
        return text.replace(f"{ESCAPE}0", "\0").replace(f"{ESCAPE}1", ESCAPE)
    return text


class _Unknown(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class _Text(StrDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class _BinaryText(StrBinaryDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class _TextLoader(Loader):
    def load(self, data: Buffer) -> str:
        return unescaped(bytes(data).decode())


class _BinaryTextLoader(_TextLoader):
    format = Format.BINARY


def vector_sent(packed: bytes) -> bytes:
    """Little-endian bytes of a row as a `vector`: its length, two zero bytes, big-endian rows."""
    row = np.frombuffer(packed, dtype="<f4")
    return len(row).to_bytes(2, "big") + b"\0\0" + row.astype(">f4").tobytes()


class _VectorDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: bytes) -> Buffer | None:
        return vector_sent(obj)


class _VectorLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return np.frombuffer(data, dtype=">f4", offset=4).astype("<f4").tobytes()


def adapt(connection: RawConnection[Any], vector_oid: int) -> None:
    """Teach a connection how texts, lists and vectors travel."""
    adapters = connection.adapters
    for dumper in (_BinaryText, _Text, _Unknown):
        adapters.register_dumper(str, dumper)
    for kind in ("text", "name"):
        adapters.register_loader(kind, _TextLoader)
        adapters.register_loader(kind, _BinaryTextLoader)
    adapters.register_dumper(Among, ListBinaryDumper)
    adapters.register_dumper(Among, TextListDumper)
    if vector_oid:
        vectors = type("VectorDumper", (_VectorDumper,), {"oid": vector_oid})
        adapters.register_dumper(PackedVector, vectors)
        adapters.register_loader(vector_oid, _VectorLoader)
        adapters.types.add(TypeInfo("vector", vector_oid, 0))
