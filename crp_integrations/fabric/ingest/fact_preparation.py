"""Preparation of facts before storage: checks, defaults, importance, metadata, vectors."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
from pydantic import JsonValue, TypeAdapter, ValidationError

from crp_integrations.errors import CRPError, EngineError, FactRejected
from crp_integrations.fabric.lifecycle import check_validity
from crp_integrations.fabric.ports import FactsFacet, Transaction
from crp_integrations.fabric.ports.engines import Progress, ProgressCount
from crp_integrations.fabric.records import USER_SOURCE, Fact, Source
from crp_integrations.fabric.settings import ChunkingSettings, FabricSettings, ImportanceSettings
from crp_integrations.ports import Clock, Embedder, without_keeping
from crp_integrations.seals import iso, sha256_hex
from crp_integrations.vectors import FloatRows, unit_rows
from crp_integrations.vocabulary import FactStatus, SourceKind

# "Article 12", "Art. 5(1)", "§ 3", "Section 4.2", "Clause 7", "Annex III", "Rule 10b-5".
_ARTICLE = re.compile(
    r"(?:\b(?:articles?|art\.|sections?|sec\.|clauses?|annex|regulation|rule)\s*"
    r"(?:\d+[\w.()-]*|[IVXLC]+\b)|§+\s*\d)",
    re.IGNORECASE,
)
# "version 2", "v1.4", "release 3.0", "since 2.1", "1.2.3".
_VERSION = re.compile(
    r"\b(?:version|release|since|as of)\s+v?\d+(?:\.\d+)*\b|\bv\d+(?:\.\d+)*\b|\b\d+\.\d+\.\d+\b",
    re.IGNORECASE,
)
_META_ANALYSIS = re.compile(r"\bmeta[- ]?analy(?:sis|ses|tic)\b", re.IGNORECASE)
# Matches a passage about its own meta-analysis, but not one that only cites another.
_OWN_META_ANALYSIS = re.compile(
    r"\b(?:this|our|the present|we (?:conducted|performed|report|did) an?)\b[\w ,-]{0,40}?"
    r"\bmeta[- ]?analy(?:sis|tic)\b",
    re.IGNORECASE,
)


def fact_importance(
    kind: SourceKind,
    *,
    content: str,
    settings: ImportanceSettings,
    heading: str = "",
    title: str = "",
    uri: str = "",
    metadata: Mapping[str, JsonValue] | None = None,
) -> float:
    """Compute the importance weight of a passage: base plus modifier, within [0, 1].

    Spec: CRP-SPEC-009 §4.4
    """
    known = metadata or {}
    match kind:
        case SourceKind.REGULATORY:
            specific = _ARTICLE.search(heading) or _ARTICLE.search(content)
            weight = settings.regulatory + (settings.regulatory_article if specific else 0.0)
        case SourceKind.OFFICIAL:
            versioned = (
                _field(known, "version") or _VERSION.search(heading) or _VERSION.search(content)
            )
            weight = settings.official + (settings.official_version if versioned else 0.0)
        case SourceKind.RESEARCH:
            pooled = (
                _META_ANALYSIS.search(_field(known, "study"))
                or _META_ANALYSIS.search(title)
                or _OWN_META_ANALYSIS.search(content)
            )
            weight = settings.research + (settings.research_meta_analysis if pooled else 0.0)
        case SourceKind.INTERNAL:
            label = _field(known, "classification").casefold()
            weight = settings.internal + settings.internal_classification.get(label, 0.0)
        case SourceKind.WEB:
            trusted = _authoritative(_field(known, "url") or uri, settings.authoritative_domains)
            weight = settings.web + (settings.web_authoritative if trusted else 0.0)
        case SourceKind.USER:
            weight = settings.user + settings.user_modifier
    # Rounded, so that .90 + .05 is .95 on disk and in every comparison.
    return round(min(1.0, max(0.0, weight)), 6)


def weigh_importance(source: Source, content: str, heading: str, settings: FabricSettings) -> float:
    """Compute the importance weight of a passage of a source.

    Spec: CRP-SPEC-009 §4.4
    """
    return fact_importance(
        source.kind,
        content=content,
        settings=settings.importance,
        heading=heading,
        title=source.title,
        uri=source.uri,
        metadata=source.metadata,
    )


def _field(metadata: Mapping[str, JsonValue], name: str) -> str:
    value = metadata.get(name)
    return "" if value is None else str(value).strip()


def _authoritative(uri: str, domains: tuple[str, ...]) -> bool:
    try:
        host = urlsplit(uri).hostname or ""
    except ValueError:
        return False
    return any(host == domain or host.endswith("." + domain) for domain in domains)


def check_length(
    what: str, tokens: int, limits: ChunkingSettings, *, least: int | None = None
) -> None:
    """Refuse a fact with too few or too many tokens.

    Spec: CRP-SPEC-009 §2.1

    Args:
        least: the minimum, None for that of the settings.
    """
    least = limits.min_fact_tokens if least is None else least
    if not least <= tokens <= limits.max_fact_tokens:
        raise FactRejected(
            f"{what} {tokens} tokens, wanted {least} to {limits.max_fact_tokens} "
            "(settings fabric.chunking.min_fact_tokens and max_fact_tokens); split longer text "
            "first, or ingest it as a document"
        )


def check_fact_list(facts: object) -> None:
    """Refuse anything but a list of facts; a single text would be read letter by letter."""
    if isinstance(facts, str):
        raise FactRejected("add takes a list of facts; got one text, put it into a list")
    if isinstance(facts, Fact) or not isinstance(facts, Iterable):
        raise FactRejected(
            f"facts is of type {type(facts).__name__}, wanted a list of facts; put one into a list"
        )


def check_fact(item: object, number: int) -> None:
    """Refuse an item that is not a fact, or a fact whose validity ends before it begins."""
    if not isinstance(item, Fact):
        raise FactRejected(f"fact {number} is of type {type(item).__name__}, wanted a Fact")
    check_validity(item)


def own_source(facts: Iterable[Fact]) -> str:
    """The source of the facts that one call adds without naming a source.

    It follows from the facts, so that the same call again changes nothing.

    Spec: CRP-SPEC-009 §4.5
    """
    ids = sorted(f"{fact.fact_id} {fact.content_hash}" for fact in facts)
    return f"{USER_SOURCE}-{sha256_hex('|'.join(ids))[:16]}"


def with_own_source(facts: Sequence[Fact]) -> list[Fact]:
    """The facts, with a common source of their own for those without a named one."""
    own = own_source(fact for fact in facts if fact.source_id == USER_SOURCE)
    return [
        fact.model_copy(update={"source_id": own}) if fact.source_id == USER_SOURCE else fact
        for fact in facts
    ]


def filled_fact(
    item: Fact | str,
    number: int,
    namespace: str,
    kind: SourceKind | None,
    now: datetime,
    settings: FabricSettings,
) -> Fact:
    """Return a fact as it would be stored, made from a text or a fact with fields to fill in."""
    times: dict[str, Any] = {"namespace": namespace}
    if isinstance(item, str):
        own = kind or SourceKind.USER
        weight = fact_importance(own, content=item, settings=settings.importance)
        times |= {"ingested_at": now, "modified_at": now}
        try:
            return Fact(
                content=item, source_id=USER_SOURCE, kind=own, importance_weight=weight, **times
            )
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise FactRejected(f"fact {number} is not usable: {first['msg']}") from None
    check_fact(item, number)
    if item.namespace not in ("", namespace):
        raise FactRejected(
            f"fact {item.fact_id} is of namespace {item.namespace!r}, not {namespace!r}"
        )
    if item.status is not FactStatus.ACTIVE:
        raise FactRejected(f"fact {item.fact_id} is {item.status}; a new fact is ACTIVE")
    if item.ingested_at is None:
        times["ingested_at"] = now
    if item.modified_at is None:
        times["modified_at"] = now
    if kind is not None:
        times["kind"] = kind
    return item.changed(**times)


_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


def plain_metadata(
    metadata: Mapping[Any, Any], *, name: str, refusal: type[CRPError]
) -> dict[str, JsonValue]:
    """Return a deep copy of metadata as plain JSON."""
    made: dict[str, JsonValue] = {}
    for key, value in metadata.items():
        if not isinstance(key, str):
            raise refusal(f"{name} has a metadata key of type {type(key).__name__}, wanted text")
        try:
            text = json.dumps(_JSON.validate_python(value), allow_nan=False, ensure_ascii=False)
            (key + text).encode()
            made[key] = json.loads(text)
        except (ValidationError, TypeError, ValueError, RecursionError):
            raise refusal(
                f"{name} has metadata {key!r:.40} of type {type(value).__name__} that is not plain "
                "JSON; wanted text, finite number, true, false, null, or lists and objects of them"
            ) from None
    return made


# Time at which a running ingestion last stored vectors; maintenance clears abandoned ones.
PREPARED_SETTING = "prepared_at"

Slice = Sequence[tuple[str, str]]
Row = npt.NDArray[np.float32]
# Number of texts looked up in the store at once.
_STEP = 512


def embed_texts(
    embedder: Embedder, slices: Iterable[Slice], *, workers: int
) -> Iterator[tuple[Slice, FloatRows]]:
    """Embed slices of (content hash, text); a vector depends only on its text."""
    waiting = iter(slices)
    first = list(islice(waiting, 2))
    if workers == 1 or len(first) < 2:
        for part in chain(first, waiting):
            yield part, _rows(embedder, part)
        return
    running: deque[tuple[Slice, Future[FloatRows]]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="crp-embed") as pool:
        try:
            for part in chain(first, waiting):
                running.append((part, pool.submit(_rows, embedder, part)))
                if len(running) > workers:
                    done, rows = running.popleft()
                    yield done, rows.result()
            while running:
                done, rows = running.popleft()
                yield done, rows.result()
        finally:
            # After a failure, slices that have not started are cancelled.
            for _, rows in running:
                rows.cancel()


def _rows(embedder: Embedder, part: Slice) -> FloatRows:
    # A bulk load would fill the cache with vectors that the store keeps anyway.
    rows = without_keeping(embedder).embed_passages([text for _, text in part])
    block = unit_rows(rows, dimensions=embedder.dimensions)
    if len(block) != len(part):
        raise EngineError(
            f"embedder {embedder.identity!r} gave {len(block)} vectors for {len(part)} texts",
            engine=embedder.identity,
        )
    return block


@dataclass(frozen=True, slots=True)
class TextEmbedding:
    """Embeds texts by content hash, in memory or into the store.

    Attributes:
        begin: opens a transaction of the namespace; true for a write transaction.
        check: raises ConfigError if the namespace no longer uses this embedder.
    """

    begin: Callable[[bool], AbstractContextManager[Transaction]]
    check: Callable[[FactsFacet], None]
    embedder: Embedder
    clock: Clock
    settings: FabricSettings

    def vectors(self, texts: Mapping[str, str], progress: Progress) -> dict[str, Row]:
        """Embed texts and return their rows by content hash."""
        progress_count = ProgressCount("embed", progress, len(texts))
        items, size = list(texts.items()), self.settings.embed_slice
        slices = (items[start : start + size] for start in range(0, len(items), size))
        rows: dict[str, Row] = {}
        for part, block in embed_texts(self.embedder, slices, workers=self.settings.embed_workers):
            rows.update(zip((content_hash for content_hash, _ in part), block, strict=True))
            progress_count.more(len(part))
        return rows

    def prepare(self, texts: Iterable[tuple[str, str]], progress: ProgressCount) -> None:
        """Embed texts that have no vector in the store, and store each finished slice there."""
        slices = self._missing(iter(texts), progress)
        for part, block in embed_texts(self.embedder, slices, workers=self.settings.embed_workers):
            with self.begin(True) as transaction:
                self.check(transaction.facts)
                hashes = [content_hash for content_hash, _ in part]
                transaction.facts.prepare(self.embedder.identity, hashes, block)
                transaction.facts.set_setting(PREPARED_SETTING, iso(self.clock.now()))
            progress.more(len(part))

    def _missing(
        self, texts: Iterator[tuple[str, str]], progress: ProgressCount
    ) -> Iterator[Slice]:
        """Yield slices of the texts that have no vector in the store yet."""
        part: list[tuple[str, str]] = []
        while group := list(islice(texts, _STEP)):
            distinct = dict(group)
            with self.begin(False) as transaction:
                there = transaction.facts.prepared(self.embedder.identity, list(distinct))
            fresh = [item for item in distinct.items() if item[0] not in there]
            progress.more(len(group) - len(fresh))
            for item in fresh:
                part.append(item)
                if len(part) == self.settings.embed_slice:
                    yield part
                    part = []
        if part:
            yield part
