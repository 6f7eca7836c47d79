"""Facts, sources and documents as they are stored and exchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from urllib.parse import unquote
from uuid import UUID, uuid5

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, TypeAdapter, model_validator

from crp_integrations.errors import CRPError, FactRejected
from crp_integrations.records import Part, Record
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import RETRIEVABLE, FactStatus, SourceKind, SourceStatus

# Source id of facts that name no source, and URI scheme of sources without a document.
USER_SOURCE = "user"
# UUID namespace of all fact and source ids; changing it would change every id.
ID_SPACE = UUID("6f0f5d3e-3a1c-5b0e-9a52-0d7c2b1f4e68")
# Metadata of a memory item: its own fields.
MEMORY_KEY = "memory"
_NUMBER = re.compile(r"\s*[+-]?[0-9.]+(e[+-]?[0-9]+)?\s*", re.IGNORECASE)


def _written(value: Any) -> Any:
    # pydantic reads a number as seconds since 1970, so the year 2020 would become 00:33 that day.
    if type(value) is not datetime and (
        isinstance(value, (int, float)) or (isinstance(value, str) and _NUMBER.fullmatch(value))
    ):
        raise ValueError("is a number, wanted a time such as 2026-05-25T10:00:00Z")
    return value


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is UTC:
        return moment
    if moment.tzinfo is None:
        raise ValueError(f"timestamp {moment.isoformat()} has no time zone; write it with one")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"timestamp {moment.isoformat()} is outside of the calendar") from None


Moment = Annotated[datetime, BeforeValidator(_written), AfterValidator(_utc)]


def age_start(metadata: Mapping[str, Any], stored: datetime | None) -> datetime | None:
    """Return when a fact's age begins: a memory item's `created_at`, else the time of storing."""
    item = metadata.get(MEMORY_KEY)
    created = item.get("created_at") if isinstance(item, Mapping) else None
    if stored is None or not isinstance(created, str):
        return stored
    try:
        return _utc(datetime.fromisoformat(created))
    except ValueError:
        return stored


_DURATION = TypeAdapter(timedelta)


def duration(text: str) -> timedelta:
    """Parse an ISO 8601 duration such as `P90D`; a year is 365 days, a month 30.

    Spec: CRP-SPEC-009 §2, §8.1
    """
    try:
        if not text.startswith("P"):
            raise ValueError
        length = _DURATION.validate_python(text)
    except ValueError:
        raise ValueError(
            f"duration {text!r:.40} is not ISO 8601; wanted one such as P90D"
        ) from None
    if length <= timedelta():
        raise ValueError(f"duration {text!r:.40} is not above zero")
    return length


def _ttl(text: str) -> str:
    duration(text)
    return text


Duration = Annotated[str, AfterValidator(_ttl)]


def _writable(metadata: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if metadata:
        try:
            json.dumps(metadata, allow_nan=False, ensure_ascii=False).encode()
        except ValueError:
            raise ValueError(
                "metadata contain a number that is not finite or a character that is not Unicode"
            ) from None
    return metadata


Metadata = Annotated[dict[str, JsonValue], AfterValidator(_writable)]


def access_labels(labels: object, refusal: type[CRPError]) -> tuple[str, ...]:
    """Check access labels and return them sorted, without duplicates."""
    if isinstance(labels, str):
        # Each letter would become a label, and the intended label would be missing.
        raise refusal(f"labels is the text {labels!r:.40}, wanted a list: labels=[{labels!r:.40}]")
    if not isinstance(labels, Iterable):
        raise refusal(
            f'labels is of type {type(labels).__name__}, wanted a list of texts: labels=["secret"]'
        )
    made: set[str] = set()
    for label in labels:
        if not isinstance(label, str):
            raise refusal(
                f"labels contains {label!r:.40} of type {type(label).__name__}, wanted only texts: "
                'labels=["secret"]'
            )
        made.add(label)
    return tuple(sorted(made))


def fact_id(source_id: str, source_location: str, content_hash: str) -> str:
    """Return the UUIDv5 of source, location and content as first ingested (decision E18).

    Spec: CRP-SPEC-009 §2
    """
    return str(uuid5(ID_SPACE, "\u241f".join((source_id, source_location, content_hash))))


def source_id(uri: str) -> str:
    """Return the UUIDv5 of a source's URI.

    Spec: CRP-SPEC-009 §4.5
    """
    return str(uuid5(ID_SPACE, "source\u241f" + uri))


def shown(uri: str) -> str:
    """Return a URI in readable form: the path of a `file://` URI, others unchanged."""
    path = uri.removeprefix("file://")
    return uri if path == uri else unquote(path)


class Fact(Record):
    """A discrete unit of knowledge. Only `content` must be given; the rest has defaults.

    Spec: CRP-SPEC-009 §2

    Attributes:
        fact_id: UUIDv5, filled in when empty, immutable after creation.
        content_hash: `sha256:…` of the content, always recomputed.
        source_location: page, heading and character offsets within the source.
        kind: kind of source, which determines the base importance.
        importance_weight: importance of the fact in [0, 1], independent of any question.
        community_label: Leiden community, None until communities are computed.
        ingested_at: time of ingestion; None only for a fact that was never stored.
        ttl: ISO 8601 duration after which the fact becomes STALE, such as `P90D`.
        archived_at: when the unused fact was archived; it is not retrievable until restored.
        labels: access labels that the guard checks, sorted.
        valid_from, valid_to: period in which the statement is true in the world.
        supersedes: id of the fact that this one replaces.
    """

    SCHEMA = "fact/1"

    content: str = Field(min_length=1)
    fact_id: str = ""
    content_hash: str = ""
    namespace: str = ""
    source_id: str = "user"
    source_location: str = ""
    kind: SourceKind = SourceKind.USER
    importance_weight: float = Field(default=0.60, ge=0.0, le=1.0)
    community_label: str | None = None
    ingested_at: Moment | None = None
    modified_at: Moment | None = None
    access_count: int = Field(default=0, ge=0)
    last_accessed_at: Moment | None = None
    ttl: Duration | None = None
    status: FactStatus = FactStatus.ACTIVE
    archived_at: Moment | None = None
    labels: tuple[str, ...] = ()
    valid_from: Moment | None = None
    valid_to: Moment | None = None
    supersedes: str | None = None
    metadata: Metadata = {}

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("content"), str):
            return data
        fields = {**data, "content_hash": sha256(data["content"])}
        if not fields.get("fact_id"):
            fields["fact_id"] = fact_id(
                str(fields.get("source_id", "user")),
                str(fields.get("source_location", "")),
                fields["content_hash"],
            )
        labels = fields.get("labels")
        fields["labels"] = () if labels is None else access_labels(labels, FactRejected)
        return fields

    @property
    def expires_at(self) -> datetime | None:
        """Time at which the ttl ends; None without a ttl, or before the fact is stored.

        Spec: CRP-SPEC-009 §8.1
        """
        began = age_start(self.metadata, self.ingested_at)
        if self.ttl is None or began is None:
            return None
        try:
            return began + duration(self.ttl)
        except OverflowError:
            return None

    @property
    def retrievable(self) -> bool:
        """Whether a search may find it: ACTIVE or STALE, and not archived."""
        return self.status in RETRIEVABLE and self.archived_at is None


class Source(Record):
    """A document that facts come from.

    Spec: CRP-SPEC-009 §4.5
    """

    SCHEMA = "source/1"

    source_id: str
    title: str
    uri: str
    document_hash: str
    kind: SourceKind = SourceKind.USER
    ingested_at: Moment
    fact_count: int = Field(default=0, ge=0)
    status: SourceStatus = SourceStatus.ACTIVE
    labels: tuple[str, ...] = ()
    metadata: dict[str, JsonValue] = {}


class Where(Part):
    """A filter on facts; a fact must meet every condition that is set.

    A namespace's searches return only retrievable facts, whatever `statuses` says; its `export`
    finds facts of any status except DELETED.

    Attributes:
        statuses: allowed statuses; None for retrievable facts that are not archived.
        archived: true for archived facts only, false for the others, None for both. Used only if
            `statuses` is given.
        sources: allowed source ids.
        kinds: allowed kinds of source.
        labels: access labels; a fact must carry all of them.
        communities: allowed community labels.
        metadata: required keys and values. A value matches a stored one if both are the same
            JSON; a missing key matches nothing, not even null.
        ingested_after, ingested_before: bounds of `ingested_at`, the first inclusive.
        modified_before: upper bound of `modified_at`, exclusive.
        unused_since: matches facts neither used nor ingested at or after this moment.
        expired_at: matches facts whose ttl has ended by this moment.
        as_of: moment at which `statuses` is evaluated: an ACTIVE fact whose ttl has ended by then
            counts as STALE; None uses the stored status.
    """

    statuses: tuple[FactStatus, ...] | None = None
    archived: bool | None = None
    sources: tuple[str, ...] | None = None
    kinds: tuple[SourceKind, ...] | None = None
    labels: tuple[str, ...] = ()
    communities: tuple[str, ...] | None = None
    metadata: dict[str, JsonValue] = {}
    ingested_after: Moment | None = None
    ingested_before: Moment | None = None
    modified_before: Moment | None = None
    unused_since: Moment | None = None
    expired_at: Moment | None = None
    as_of: Moment | None = None


class Edge(Part):
    """A typed, weighted, directed edge between two facts.

    Attributes:
        weight: strength in [0, 1]; the cosine for edges of kind `similar`.
    """

    source_fact: str
    target_fact: str
    kind: str
    weight: float = Field(default=1.0, ge=0.0, le=1.0)


class Block(Part):
    """A paragraph of a document with its position.

    Attributes:
        text: the paragraph, white space at its ends removed.
        start: character offset in the document's text as loaded.
        page: page number from 1, None for formats without pages.
        heading: the headings above the paragraph joined with ` > `, empty if there are none.
    """

    text: str
    start: int = Field(ge=0)
    page: int | None = None
    heading: str = ""

    @property
    def end(self) -> int:
        """Offset after the last character."""
        return self.start + len(self.text)


class Document(Part):
    """A loaded document, the input of ingestion.

    Attributes:
        uri: origin of the document; its UUIDv5 is the source id.
        blocks: paragraphs in order.
        kind: kind of source given in the front matter, None if it gives none.
        document_hash: `sha256:…` of the document's bytes as read.
    """

    uri: str
    title: str
    blocks: tuple[Block, ...]
    document_hash: str
    kind: SourceKind | None = None
    labels: tuple[str, ...] = ()
    metadata: dict[str, JsonValue] = {}


@dataclass(frozen=True, slots=True)
class StreamedDocument:
    """A document that is not kept in memory: its blocks are read again on every use.

    Attributes:
        uri, title, document_hash, kind, labels, metadata: as in `Document`.
        blocks: function that yields all paragraphs in order. It raises IngestError if the
            document has changed, so that `document_hash` no longer matches.
    """

    uri: str
    title: str
    document_hash: str
    blocks: Callable[[], Iterator[Block]]
    kind: SourceKind | None = None
    labels: tuple[str, ...] = ()
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)


class Notice(Record):
    """A message to the operator, or to a stage that compares windows; ids only, never a text.

    Spec: CRP-SPEC-009 §4.5, §8.4

    Attributes:
        kind: `quarantined`: review the source of the facts. `source-changed`: facts of a source
            were added, became STALE or came back.
        facts: the quarantined facts, or the new facts of a source.
        reason: one plain sentence, empty if the kind needs no explanation.
    """

    SCHEMA = "notice/1"

    kind: Literal["quarantined", "source-changed"]
    namespace: str
    source_id: str
    facts: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    reason: str = ""


class IngestReport(Record):
    """The result of one ingestion.

    Attributes:
        sources, facts: ids of the added sources and facts, in order.
        stale: ids of facts whose text was removed from its document.
        returned: ids of stale facts whose text is present again (now ACTIVE again), and of
            archived facts that were ingested again.
        rewritten: ids of existing facts that received other content, metadata or vectors.
        unchanged: URIs of documents, or ids of facts, that were already stored unchanged.
        skipped: URIs of documents with too little text for a fact; nothing of them is stored. A
            document that had facts before keeps its source, and these facts become STALE.
    """

    SCHEMA = "ingest-report/1"

    sources: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    state_hash: str = ""
