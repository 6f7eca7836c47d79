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

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    TypeAdapter,
    model_validator,
)

from crp_integrations.errors import CRPError, FactRejected
from crp_integrations.records import Part, Record
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import RETRIEVABLE, FactStatus, SourceKind, SourceStatus

# Id of the source of facts that name none, and the scheme of sources without a document.
USER_SOURCE = "user"
# Root of every fact and source id; any other value would give other ids.
ID_SPACE = UUID("6f0f5d3e-3a1c-5b0e-9a52-0d7c2b1f4e68")
_NUMBER = re.compile(r"\s*[+-]?[0-9.]+(e[+-]?[0-9]+)?\s*", re.IGNORECASE)


def _written(value: Any) -> Any:
    # A number would be read as seconds since 1970: the year 2020 as half an hour after midnight.
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

_DURATION = TypeAdapter(timedelta)


def duration(text: str) -> timedelta:
    """The length of an ISO 8601 duration such as `P90D`; a year is 365 days, a month 30.

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
                "metadata hold a number that is not finite or a character that is not Unicode text"
            ) from None
    return metadata


Metadata = Annotated[dict[str, JsonValue], AfterValidator(_writable)]


def access_labels(labels: object, refusal: type[CRPError]) -> tuple[str, ...]:
    """Access labels sorted, each once."""
    if isinstance(labels, str):
        # Its letters would become the labels, and what was to be withheld would carry none.
        raise refusal(f"labels is the text {labels!r:.40}, wanted a list: labels=[{labels!r:.40}]")
    if not isinstance(labels, Iterable):
        raise refusal(
            f'labels is of type {type(labels).__name__}, wanted a list of texts: labels=["secret"]'
        )
    made: set[str] = set()
    for label in labels:
        if not isinstance(label, str):
            raise refusal(
                f"labels holds {label!r:.40} of type {type(label).__name__}, wanted texts alone: "
                'labels=["secret"]'
            )
        made.add(label)
    return tuple(sorted(made))


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
        ttl: ISO 8601 duration after which the fact turns STALE, such as `P90D`.
        archived_at: when the fact was put aside for disuse; it is not retrievable until restored.
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
        """When the ttl runs out; None without one, or before the fact is stored.

        Spec: CRP-SPEC-009 §8.1
        """
        if self.ttl is None or self.ingested_at is None:
            return None
        try:
            return self.ingested_at + duration(self.ttl)
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
    """Which facts are meant; every condition that is given must hold.

    A namespace's searches mean retrievable facts, whatever `statuses` says; its `export` finds
    those of any status but DELETED.

    Attributes:
        statuses: any of these; None for the retrievable ones, archived ones left out.
        archived: true for archived facts alone, false for the others, None for both. Looked at
            only where `statuses` is given.
        sources: source ids, any of these.
        kinds: kinds of source, any of these.
        labels: access labels, all of these.
        communities: community labels, any of these.
        metadata: keys with the values wanted, all of these. A value equals a stored one when
            both are the same JSON; a key that is not there equals nothing, not even null.
        ingested_after, ingested_before: bounds of `ingested_at`, the first inclusive.
        modified_before: upper bound of `modified_at`, exclusive.
        unused_since: neither used nor ingested at or after this moment.
        expired_at: the ttl has run out at this moment.
        as_of: moment for which `statuses` is meant: an ACTIVE fact whose ttl has run out by then
            counts as STALE; None goes by what is stored.
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


@dataclass(frozen=True, slots=True)
class StreamedDocument:
    """A document that is not held as a whole: its blocks are read each time they are asked for.

    Attributes:
        uri, title, document_hash, kind, labels, metadata: as in `Document`.
        blocks: gives the paragraphs in order, from the first one at every call. It raises
            IngestError when they are no longer those that `document_hash` was taken of.
    """

    uri: str
    title: str
    document_hash: str
    blocks: Callable[[], Iterator[Block]]
    kind: SourceKind | None = None
    labels: tuple[str, ...] = ()
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)


class Notice(Record):
    """What the operator, or a stage that compares windows, is told; ids only, never a text.

    Spec: CRP-SPEC-009 §4.5, §8.4

    Attributes:
        kind: `quarantined`: review the source of the facts. `source-changed`: facts of a source
            were added, became STALE or came back.
        facts: the quarantined facts, or the new ones of a source.
        reason: one plain sentence, empty where the kind says it all.
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
    """What one ingestion did.

    Attributes:
        sources, facts: ids of what was added, in order.
        stale: ids of facts whose text is gone from its document.
        returned: ids of stale facts whose text is back, so that they are ACTIVE again, and of
            archived ones that were given again.
        rewritten: ids of facts that were there and got another content, metadata or vector.
        unchanged: URIs of documents, or ids of added facts, that were already there.
        skipped: URIs of documents with too little text for a fact; nothing of them is stored. One
            that gave facts before keeps its source, and these facts become STALE.
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
