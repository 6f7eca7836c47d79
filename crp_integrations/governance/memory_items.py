"""Memory items as records, their validity at a time, and the facts that store them.

There is no second store: a memory item is a fact whose metadata contain the fields that a fact does
not have. Its labels, ttl, validity and source are the fact's, so guard, erasure, search and journal
treat it as any other fact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, ValidationError, model_validator
from pydantic_core import ErrorDetails

from crp_integrations.errors import FactRejected
from crp_integrations.fabric.ingest.fact_upsert import named
from crp_integrations.fabric.lifecycle import DECAY_KEY
from crp_integrations.fabric.lifecycle import decay as decay_of
from crp_integrations.fabric.records import MEMORY_KEY, Duration, Fact, Moment, source_id
from crp_integrations.records import Part, Record
from crp_integrations.seals import canonical, sha256
from crp_integrations.vocabulary import PersonalCategory, SourceKind

MemoryType = Literal["episodic", "procedural", "semantic"]
# Categories of each type; an item may have one of them.
TAXONOMY: Mapping[MemoryType, tuple[str, ...]] = {
    "episodic": ("transcript", "user-action", "tool-output"),
    "procedural": ("playbook", "tool-recipe", "policy-step"),
    "semantic": ("graph-node", "graph-edge", "document", "embedding", "tool-spec"),
}

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_LABEL = re.compile(r"[a-z][a-z0-9_.-]{0,63}:\S{1,128}")


def _check_id(text: str) -> str:
    if not _UUID.fullmatch(text) and not _ULID.fullmatch(text):
        raise ValueError("is neither a UUID in lower case nor a ULID in upper case")
    return text


def _check_decay(text: str) -> str:
    return decay_of(text).written


def _check_label(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError(f"label {text!r:.60} is not written as name:value, such as pii:low")
    return text


# Messages for a writer, by pydantic's error type.
_FAULTS = {
    "missing": "is missing",
    "extra_forbidden": "is not a field of a memory item",
    "model_type": "wanted an object",
    "tuple_type": "wanted a list",
    "string_type": "wanted a text",
    "datetime_parsing": "wanted a time such as 2026-05-25T10:00:00Z",
    "datetime_from_date_parsing": "wanted a time such as 2026-05-25T10:00:00Z",
    "timezone_aware": "wanted a time with its zone, such as 2026-05-25T10:00:00Z",
}
_CONTENT_TYPES = ("string_type", "dict_type", "list_type")

Name = Annotated[str, Field(min_length=1, max_length=256)]
Label = Annotated[str, AfterValidator(_check_label)]


class Scope(Part):
    """Owner of a memory; `org`, `project` and `session` are empty if it is wider."""

    tenant: Name
    org: str = ""
    project: str = ""
    session: str = ""


class Provenance(Part):
    """The origin of an item and its signer.

    Attributes:
        source_uri: URI of the document, tool call or session that it comes from.
        checksum: `sha256:…` of the canonical content; filled in if empty, else it must match.
        signer: name of the subject that wrote it; filled in by the writer if empty.
        policy_tags: tags of the policies under which it was recorded.
    """

    source_uri: Name
    checksum: str = Field(default="", pattern=r"^(sha256:[0-9a-f]{64})?$")
    signer: str = Field(default="", max_length=256)
    policy_tags: tuple[Name, ...] = ()


class PiiFlag(Part):
    """Personal data in one field.

    Attributes:
        field: where it is, such as `content` or `content.email`.
    """

    field: Name
    category: PersonalCategory


class DroppedSpan(Part):
    """A range of the content's canonical text, in characters, that a summary leaves out."""

    start: int = Field(ge=0)
    end: int = Field(ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> DroppedSpan:
        if self.end <= self.start:
            raise ValueError(f"span {self.start} to {self.end} is empty")
        return self


class ItemSummary(Part):
    """A shorter form of the content, with the ranges that it leaves out."""

    text: str = Field(min_length=1)
    dropped: tuple[DroppedSpan, ...] = ()


class MemoryItem(Record):
    """One thing that an agent remembers.

    Spec: Summit §Unified MemoryItem Schema

    Attributes:
        id: UUID or ULID; it stays with the item, and names the fact that the item is stored as.
        type: `episodic`, `procedural` or `semantic`.
        category: one of the type's in `TAXONOMY`, or empty.
        scope: owner of the memory.
        created_at, updated_at: times with a time zone.
        ttl: ISO 8601 duration after which it is STALE, such as `P90D`.
        decay_fn: how its weight in selection falls with age, such as `half-life@1:P30D`.
        confidence: confidence of its writer, [0, 1].
        provenance: source, checksum, signer, policy tags.
        security_label: access labels as `name:value`, at least one; a `tenant` label must match
            the scope's tenant.
        pii_flags: personal data by field.
        embedding_ref: id of the vector; that of the fact if empty.
        graph_refs: ids of nodes and edges of a graph.
        content: text, or a JSON object or list.
        summary: optional shorter form.
        valid_from, valid_to: when it is true in the world; None for no bound.
        supersedes: id of the item that this one corrects.
    """

    SCHEMA = "memory-item/1"

    id: Annotated[str, AfterValidator(_check_id)]
    type: MemoryType
    category: str = ""
    scope: Scope
    created_at: Moment
    updated_at: Moment
    ttl: Duration | None = None
    decay_fn: Annotated[str, AfterValidator(_check_decay)] | None = None
    # Strict: strings and booleans are refused, as by the published schema.
    confidence: float = Field(ge=0.0, le=1.0, strict=True)
    provenance: Provenance
    security_label: Annotated[tuple[Label, ...], Field(min_length=1)]
    pii_flags: tuple[PiiFlag, ...] = ()
    embedding_ref: str = ""
    graph_refs: tuple[Name, ...] = ()
    content: str | dict[str, JsonValue] | list[JsonValue]
    summary: ItemSummary | None = None
    valid_from: Moment | None = None
    valid_to: Moment | None = None
    supersedes: Annotated[str, AfterValidator(_check_id)] | None = None

    @model_validator(mode="after")
    def _fits(self) -> MemoryItem:
        try:
            text = self.text
            text.encode()
        except ValueError:
            # The message must not show the value, which is part of the content.
            raise ValueError("content has a value that canonical JSON does not have") from None
        if not text.strip():
            raise ValueError("content is empty")
        if self.category and self.category not in TAXONOMY[self.type]:
            wanted = ", ".join(TAXONOMY[self.type])
            raise ValueError(f"category {self.category!r:.40} of {self.type} is not in: {wanted}")
        if self.updated_at < self.created_at:
            raise ValueError("updated_at is before created_at")
        if self.valid_from and self.valid_to and self.valid_to < self.valid_from:
            raise ValueError("valid_to is before valid_from")
        for label in self.security_label:
            name, _, value = label.partition(":")
            if name == "tenant" and value != self.scope.tenant:
                raise ValueError(f"label {label!r} names another tenant than the scope")
        if self.provenance.checksum and self.provenance.checksum != sha256(text):
            raise ValueError("provenance.checksum is not that of the content")
        if self.summary and any(span.end > len(text) for span in self.summary.dropped):
            raise ValueError("summary.dropped has a span beyond the content")
        if self.supersedes == self.id:
            raise ValueError("supersedes is the item itself")
        return self

    @property
    def text(self) -> str:
        """The canonical content: the text itself, or canonical JSON."""
        if isinstance(self.content, str):
            return self.content
        return canonical(self.content).decode()

    @property
    def fact_id(self) -> str:
        """Id of the fact that the item is stored as."""
        return fact_of(self.id)


class MemoryItemRef(Record):
    """Result of a write.

    Attributes:
        fact_id: id of the fact that it is stored as, which is also its vector's id.
        written: false if the same item was already stored.
    """

    SCHEMA = "memory-item-ref/1"

    id: str
    fact_id: str
    checksum: str
    signer: str
    state_hash: str
    written: bool


def fact_of(item_id: str) -> str:
    """Id of the fact that an item is stored as."""
    return named("memory\u241f" + item_id)


def item(fields: Mapping[str, Any]) -> MemoryItem:
    """An item from the fields that an agent or a file gives.

    Spec: Summit §Backlog Write 4

    Raises:
        FactRejected: it is malformed or has no label; the error names fields, never values.
    """
    if not isinstance(fields, Mapping):
        raise FactRejected(
            f"memory item is refused: it is of type {type(fields).__name__}, wanted its fields"
        )
    try:
        return MemoryItem.model_validate(dict(fields))
    except ValidationError as error:
        raise item_error(error) from None


def item_error(error: ValidationError) -> FactRejected:
    """The error for fields that do not make a valid item; shows no value."""
    # Content may be of three types, and a wrong one is reported for each of them.
    faults = error.errors(include_url=False, include_input=False)
    return FactRejected(
        f"memory item is refused: {'; '.join(dict.fromkeys(map(_describe_fault, faults)))}"
    )


def _describe_fault(fault: ErrorDetails) -> str:
    """A field and its problem; names below `content` are the writer's text and are not shown."""
    kind, where = fault["type"], fault["loc"]
    in_content = where[:1] == ("content",)
    place = ".".join(f"{part!s:.60}" for part in (where[:1] if in_content else where)) or "item"
    words = _FAULTS.get(kind) or fault["msg"].removeprefix("Value error, ")
    if in_content and kind != "missing" and (len(where) == 1 or kind in _CONTENT_TYPES):
        words = "wanted a text, an object or a list"
    if where == ("security_label",) and kind in ("missing", "too_short"):
        words = "has no label; wanted at least one, such as class:internal"
    return f"{place}: {words.replace('Input should be', 'wanted').replace('valid ', '')}"


def as_fact(memory: MemoryItem) -> Fact:
    """The fact that an item is stored as.

    Spec: Summit §Storage Interfaces
    """
    stored = memory.model_dump(
        mode="json",
        exclude={"ttl", "decay_fn", "content", "valid_from", "valid_to", "security_label"},
    )
    stored["checksum"] = sha256(memory.text)
    stored["json"] = not isinstance(memory.content, str)
    stored["label_order"] = list(memory.security_label)
    metadata: dict[str, JsonValue] = {MEMORY_KEY: stored}
    if memory.decay_fn is not None:
        metadata[DECAY_KEY] = memory.decay_fn
    return Fact(
        content=memory.text,
        fact_id=memory.fact_id,
        source_id=source_id(memory.provenance.source_uri),
        kind=SourceKind.INTERNAL,
        ttl=memory.ttl,
        labels=memory.security_label,
        valid_from=memory.valid_from,
        valid_to=memory.valid_to,
        supersedes=None if memory.supersedes is None else fact_of(memory.supersedes),
        metadata=metadata,
    )


def of_fact(fact: Fact) -> MemoryItem | None:
    """The item that a fact stores; None for a fact that is not a memory item.

    If the fact is shown without personal data, the item reflects the shown text: it has the
    checksum of that text and no summary, and its content is a text if it is not canonical JSON.
    """
    stored = fact.metadata.get(MEMORY_KEY)
    if not isinstance(stored, dict):
        return None
    fields: dict[str, Any] = {
        key: value
        for key, value in stored.items()
        if key not in ("checksum", "json", "label_order")
    }
    # The access gate empties the checksum of a text that it shows redacted.
    cut = stored.get("checksum") == ""
    if cut:
        fields["summary"] = None
        if isinstance(fields.get("provenance"), dict):
            fields["provenance"] = {**fields["provenance"], "checksum": sha256(fact.content)}
    fields |= {
        "content": _content(fact, cut) if stored.get("json") else fact.content,
        "ttl": fact.ttl,
        "decay_fn": fact.metadata.get(DECAY_KEY),
        "security_label": stored.get("label_order") or list(fact.labels),
        "valid_from": fact.valid_from,
        "valid_to": fact.valid_to,
    }
    try:
        return item(fields)
    except FactRejected as error:
        raise FactRejected(f"fact {fact.fact_id} stores no valid memory item: {error}") from error


def _content(fact: Fact, cut: bool) -> JsonValue:
    """The content of a fact that was stored as canonical JSON."""
    try:
        content: JsonValue = json.loads(fact.content)
        if not cut or canonical(content).decode() == fact.content:
            return content
    except (ValueError, RecursionError):
        if not cut:
            raise FactRejected(
                f"fact {fact.fact_id} stores no valid memory item: its content is not JSON"
            ) from None
    return fact.content


def published_schema(record: type[Record]) -> dict[str, Any]:
    """JSON Schema 2020-12 of a record as it is serialised; `docs/schemas/` has these.

    Spec: Summit §Backlog Write 1
    """
    made = record.model_json_schema()
    properties = {"schema": {"const": record.SCHEMA}, **made.pop("properties")}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": record.SCHEMA,
        **made,
        "properties": properties,
    }


def valid_at(items: Iterable[MemoryItem], moment: datetime) -> tuple[MemoryItem, ...]:
    """The items that are valid at a time, by id.

    An item is replaced by one that supersedes it from that item's `valid_from` on, even after the
    newer one has ended. So the result is right even if a writer was stopped after it added the new
    item and before it ended the old one.

    Spec: Summit §Failure Modes & Mitigations
    """
    begun = {
        each.id: each for each in items if each.valid_from is None or each.valid_from <= moment
    }
    replaced = {each.supersedes for each in begun.values()}
    return tuple(
        each
        for id_, each in sorted(begun.items())
        if id_ not in replaced and (each.valid_to is None or moment < each.valid_to)
    )
