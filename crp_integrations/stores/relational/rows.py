"""Convert records to rows and back; a value that cannot be read back is reported as damage."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, TypeVar

import numpy as np
from pydantic import ValidationError

from crp_integrations.errors import StoreDamaged, StoreError
from crp_integrations.fabric.lifecycle import DECAY_KEY, carried
from crp_integrations.fabric.ports import FactBrief
from crp_integrations.fabric.records import MEMORY_KEY, Fact, age_start
from crp_integrations.fabric.state_hash import WAY_OUT
from crp_integrations.records import Record
from crp_integrations.seals import canonical, iso, sha256
from crp_integrations.stores.rules import Statements, pages
from crp_integrations.vocabulary import FactStatus

_Kind = TypeVar("_Kind")
# The key of nothing, that of an unknown source, and the number of rows whose keys are read at once.
NO_KEY: Final = bytes(8)
ANY_SOURCE: Final = b"\xff" * 8
_PAGE = 1_000
STATUSES = {status.value: status for status in FactStatus}


def number(value: Any, what: str) -> int:
    """A stored number as int; raises if it is not one."""
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise damaged(f"the stored {what} is {value!r:.40}, wanted a number") from error


def status_of(word: Any, fact_id: str) -> FactStatus:
    """The status of a fact."""
    status = STATUSES.get(word)
    if status is None:
        raise damaged(bogus_status(word, fact_id))
    return status


def bogus_status(word: Any, fact_id: str) -> str:
    """The sentence on a fact whose status is not valid."""
    return f"fact {fact_id} has the status {word!r:.40}, wanted one of {', '.join(STATUSES)}"


def from_json(text: Any, kind: type[_Kind], what: str) -> _Kind:
    """The value of a stored JSON text; raises if it is not of the type."""
    try:
        value = json.loads(text)
    except (TypeError, ValueError) as error:
        raise damaged(f"{what} are not JSON") from error
    if not isinstance(value, kind):
        raise damaged(f"{what} are a {type(value).__name__}, wanted a {kind.__name__}")
    return value


def damaged(sentence: str) -> StoreDamaged:
    """The error, with the advice what to do after the sentence."""
    return StoreDamaged(f"{sentence}; {WAY_OUT}")


def sortable(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC, always with microseconds."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="microseconds")


Stored = TypeVar("Stored", bound=Record)

# Columns of a `FactBrief`. Every schema version of a fact has these fields with the same meaning.
BRIEF_COLUMNS = (
    "schema, content_hash, fact_id, content, source_id, source_location, importance_weight, "
    "community_label, ingested_at, status, labels, expires_at, "
    # Only two entries of the metadata are read, and few facts have them.
    f"CASE WHEN instr(metadata, '\"{DECAY_KEY}\"') > 0 OR instr(metadata, '\"{MEMORY_KEY}\"') > 0 "
    "THEN metadata END"
)
_BRIEF_SCHEMAS = frozenset({"fact/1", "fact/2"})

# Fields with words, numbers and times: their wrong values may be shown in an error.
_MOMENTS = ("ingested_at", "modified_at", "last_accessed_at", "archived_at")
_SHOWABLE = ("status", "kind", "importance_weight", "access_count", "fact_count", "ttl", *_MOMENTS)

# Columns that contain JSON.
JSON_COLUMNS = frozenset({"labels", "metadata", "data"})


def columns(kind: type[Record]) -> tuple[str, ...]:
    """A record's column names in a fixed order: the schema tag, then its fields."""
    return ("schema", *kind.model_fields)


def insertion(table: str, kind: type[Record], *more: str) -> str:
    """The statement that adds a record to a table, with `more` columns before the record's."""
    names = (*more, *columns(kind))
    marks = ", ".join("?" * len(names))
    # All names are our own; every value is a parameter.
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})"  # noqa: S608


def replacing(statement: str, key: Sequence[str], others: Sequence[str]) -> str:
    """An insertion that replaces a row with the same key."""
    changes = ", ".join(f"{name} = excluded.{name}" for name in others if name not in key)
    return f"{statement} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}"


def row(record: Record) -> tuple[Any, ...]:
    """A record's values in the order of `columns`."""
    return (
        record.SCHEMA,
        *(_value(name, getattr(record, name)) for name in type(record).model_fields),
    )


def record(kind: type[Stored], values: Sequence[Any]) -> Stored:
    """The record of a row."""
    fields = dict(zip(columns(kind), values, strict=True))
    stored_hash = fields.get("content_hash")
    try:
        for name in JSON_COLUMNS & fields.keys():
            fields[name] = json.loads(fields[name])
        made = kind.model_validate(fields)
    except (ValidationError, ValueError, TypeError) as error:
        raise damaged(_unread(kind, fields, error)) from error
    if isinstance(made, Fact) and made.content_hash != stored_hash:
        raise StoreDamaged(f"the text of fact {made.fact_id} does not match its content hash")
    return made


def _unread(kind: type[Record], fields: Mapping[str, Any], error: Exception) -> str:
    """A sentence that names the unreadable record and shows its wrong field, never its text."""
    own = fields.get("fact_id") or fields.get("source_id") or ""
    message = f"a stored record of {kind.SCHEMA} does not read back: {own} {type(error).__name__}"
    if isinstance(error, ValidationError):
        wrong = [detail["loc"][0] for detail in error.errors(include_input=False) if detail["loc"]]
        shown = [f"its {name} is {fields[name]!r:.40}" for name in _SHOWABLE if name in wrong]
        message = f"{message}{''.join(f', {field}' for field in shown)}"
    return message


def read(kind: type[Stored], text: Any) -> Stored:
    """A record that was stored as JSON.

    Raises:
        StoreDamaged: the text is not a valid record.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise StoreDamaged(
            f"a stored record of {kind.SCHEMA} does not read back: {type(error).__name__}"
        ) from error


def brief(values: Sequence[Any]) -> FactBrief:
    """The `FactBrief` of a row, in the order of `BRIEF_COLUMNS`."""
    schema, stored_hash, id, content, source, location, importance, community, *more = values
    ingested_at, status, labels, expires_at, metadata = more
    try:
        read = {} if metadata is None else json.loads(metadata)
        if schema not in _BRIEF_SCHEMAS:
            raise ValueError(schema)
        if not (isinstance(importance, float) and 0.0 <= importance <= 1.0):
            raise ValueError(importance)
        if not content or not all(type(text) is str for text in (content, source, location)):
            raise TypeError
        made = FactBrief(
            id,
            content,
            source,
            location,
            importance,
            None if community is None else str(community),
            age_start(read, None if ingested_at is None else _moment(ingested_at)),
            status_of(status, id),
            () if labels == "[]" else _labels(labels),
            carried(read) if read else None,
            None if expires_at is None else _moment(expires_at),
        )
    except (LookupError, ValueError, TypeError) as error:
        raise StoreDamaged(
            f"a stored record of {Fact.SCHEMA} does not read back: {type(error).__name__}"
        ) from error
    if sha256(content) != stored_hash:
        raise StoreDamaged(f"the text of fact {id} does not match its content hash")
    return made


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    return moment.astimezone(UTC)


def _labels(text: str) -> tuple[str, ...]:
    labels = json.loads(text)
    if not (isinstance(labels, list) and all(isinstance(label, str) for label in labels)):
        raise TypeError
    return tuple(sorted(set(labels)))


def _value(name: str, value: Any) -> Any:
    if name == "data":
        # The canonical form is what the seal covers, so it is stored as is.
        try:
            return canonical(value).decode()
        except (TypeError, ValueError) as error:
            raise StoreError(f"event data cannot be written as canonical JSON: {error}") from error
    if name in JSON_COLUMNS:
        return json.dumps(value)
    if isinstance(value, datetime):
        return iso(value)
    return value


def keys_of(ids: Iterable[str]) -> bytes:
    """Eight bytes of the hash of each id.

    What a window or receipt names is stored as one block of keys. An index of ids would have a row
    for each of a hundred facts, and a call would write to as many pages. In return an erasure reads
    the keys of all rows: some .4 s of CPU for 100,000 receipts of 110 facts.
    """
    return b"".join(
        [blake2b(id_.encode(errors="surrogatepass"), digest_size=8).digest() for id_ in ids]
    )


def source_name(source_id: str) -> str:
    """A source's id as `keys_of` takes it; no fact id contains a NUL."""
    return f"\0{source_id}"


def naming(
    connection: Statements, table: str, number: str, fact_ids: Iterable[str], source_id: str
) -> dict[int, bytes]:
    """The keys of each row that names one of the facts or the source, by the row's number."""
    names = [*fact_ids, *([source_name(source_id)] if source_id else [])]
    any_source = ANY_SOURCE if source_id else b""
    wanted = np.frombuffer(keys_of(names) + any_source, dtype=np.uint64)
    rows: dict[int, bytes] = {}
    what = f"SELECT {number}, keys FROM {table} WHERE {number} > ? ORDER BY {number} LIMIT ?"  # noqa: S608
    for page in pages(connection, what, -1, _PAGE) if names else ():
        block = np.frombuffer(b"".join([keys for _, keys in page]), dtype=np.uint64)
        ends = np.cumsum([len(keys) // len(NO_KEY) for _, keys in page])
        places = np.searchsorted(ends, np.flatnonzero(np.isin(block, wanted)), side="right")
        rows |= {page[place][0]: page[place][1] for place in {*places.tolist()}}
    return rows
