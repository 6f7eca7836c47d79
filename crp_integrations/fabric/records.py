"""Facts, sources and documents as they are stored and exchanged."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import unquote
from uuid import UUID, uuid5

from pydantic import AfterValidator, Field, JsonValue, model_validator

from crp_integrations.records import Part, Record
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import FactStatus, SourceKind, SourceStatus

# Root of every fact and source id; any other value would give other ids.
ID_SPACE = UUID("6f0f5d3e-3a1c-5b0e-9a52-0d7c2b1f4e68")


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(f"timestamp {moment.isoformat()} has no time zone; write it with one")
    return moment.astimezone(UTC)


Moment = Annotated[datetime, AfterValidator(_utc)]


def fact_id(source_id: str, source_location: str, content_hash: str) -> str:
    """The UUIDv5 of source, location and content as first ingested (decision E18).

    Spec: CRP-SPEC-009 §2
    """
    return str(uuid5(ID_SPACE, "\u241f".join((source_id, source_location, content_hash))))


def source_id(uri: str) -> str:
    """The UUIDv5 of a source's URI.

    Spec: CRP-SPEC-009 §4.5
    """
    return str(uuid5(ID_SPACE, "source\u241f" + uri))


def shown(uri: str) -> str:
    """A URI as people write it: the path of one that begins with `file://`, others unchanged."""
    path = uri.removeprefix("file://")
    return uri if path == uri else unquote(path)


class Fact(Record):
    """A discrete unit of knowledge. Only `content` must be given; the rest has defaults.

    Spec: CRP-SPEC-009 §2

    Attributes:
        fact_id: UUIDv5, filled in when empty, immutable after creation.
        content_hash: `sha256:…` of the content, always recomputed.
        source_location: page, heading and character offsets within the source.
        kind: kind of source, from which the base importance follows.
        importance_weight: [0, 1], intrinsic to the fact.
        community_label: Leiden community, None until communities are computed.
        ingested_at: None only for a fact that was never stored.
        ttl: ISO 8601 duration, such as `P90D`.
        labels: access labels that the guard looks at, sorted.
        valid_from, valid_to: when the statement holds in the world.
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
    ttl: str | None = None
    status: FactStatus = FactStatus.ACTIVE
    labels: tuple[str, ...] = ()
    valid_from: Moment | None = None
    valid_to: Moment | None = None
    supersedes: str | None = None
    metadata: dict[str, JsonValue] = {}

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
        fields["labels"] = tuple(sorted(set(fields.get("labels") or ())))
        return fields


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


class Edge(Part):
    """A typed, weighted, directed edge between two facts.

    Attributes:
        weight: [0, 1]; a cosine for edges of kind `similar`.
    """

    source_fact: str
    target_fact: str
    kind: str
    weight: float = Field(default=1.0, ge=0.0, le=1.0)


class Block(Part):
    """A paragraph of a document with where it stands.

    Attributes:
        text: the paragraph, white space at its ends removed.
        start: character offset in the document's text as loaded.
        page: page number from 1, None for formats without pages.
        heading: the headings above it joined with ` > `, empty when there are none.
    """

    text: str
    start: int = Field(ge=0)
    page: int | None = None
    heading: str = ""

    @property
    def end(self) -> int:
        """Offset behind the last character."""
        return self.start + len(self.text)


class Document(Part):
    """What a loader hands to the fabric.

    Attributes:
        uri: where it came from; its UUIDv5 is the source id.
        blocks: paragraphs in order.
        kind: kind given by the document itself (front matter), None when it names none.
        document_hash: `sha256:…` of the document's bytes as read.
    """

    uri: str
    title: str
    blocks: tuple[Block, ...]
    document_hash: str
    kind: SourceKind | None = None
    labels: tuple[str, ...] = ()
    metadata: dict[str, JsonValue] = {}


class IngestReport(Record):
    """What one ingestion did.

    Attributes:
        sources, facts: ids of what was added, in order.
        unchanged: URIs of documents, or ids of added facts, that were already there.
        skipped: URIs of documents with too little text for a fact; nothing of them is stored. One
            that gave facts before keeps its source, and these facts become STALE.
    """

    SCHEMA = "ingest-report/1"

    sources: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    state_hash: str = ""
