"""The fields of a fact before it is embedded: checks, defaults, importance and plain metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from pydantic import JsonValue, TypeAdapter, ValidationError

from crp_integrations.errors import CRPError, FactRejected
from crp_integrations.fabric.ingest.ingestion_plan import USER_SOURCE
from crp_integrations.fabric.life.lifecycle import check_validity
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.settings import ChunkingSettings, FabricSettings, ImportanceSettings
from crp_integrations.ports import TokenCounter
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
# A passage that speaks of its own paper; one that only cites a meta-analysis gets nothing.
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
    """The importance weight of a passage: base plus modifier, within [0, 1].

    Spec: CRP-SPEC-009 §4.4
    """
    known = metadata or {}
    match kind:
        case SourceKind.REGULATORY:
            specific = _ARTICLE.search(heading) or _ARTICLE.search(content)
            weight = settings.regulatory + (settings.regulatory_article if specific else 0.0)
        case SourceKind.OFFICIAL:
            versioned = (
                _named(known, "version") or _VERSION.search(heading) or _VERSION.search(content)
            )
            weight = settings.official + (settings.official_version if versioned else 0.0)
        case SourceKind.RESEARCH:
            pooled = (
                _META_ANALYSIS.search(_named(known, "study"))
                or _META_ANALYSIS.search(title)
                or _OWN_META_ANALYSIS.search(content)
            )
            weight = settings.research + (settings.research_meta_analysis if pooled else 0.0)
        case SourceKind.INTERNAL:
            label = _named(known, "classification").casefold()
            weight = settings.internal + settings.internal_classification.get(label, 0.0)
        case SourceKind.WEB:
            trusted = _authoritative(_named(known, "url") or uri, settings.authoritative_domains)
            weight = settings.web + (settings.web_authoritative if trusted else 0.0)
        case SourceKind.USER:
            weight = settings.user + settings.user_modifier
    # Rounded, so that .90 + .05 is .95 on disk and in every comparison.
    return round(min(1.0, max(0.0, weight)), 6)


def _named(metadata: Mapping[str, JsonValue], name: str) -> str:
    value = metadata.get(name)
    return "" if value is None else str(value).strip()


def _authoritative(uri: str, domains: tuple[str, ...]) -> bool:
    try:
        host = urlsplit(uri).hostname or ""
    except ValueError:
        return False
    return any(host == domain or host.endswith("." + domain) for domain in domains)


def prepare_facts(
    facts: Sequence[Fact | str],
    *,
    namespace: str,
    kind: SourceKind | None,
    now: datetime,
    counter: TokenCounter,
    settings: FabricSettings,
    allow: Callable[[tuple[str, ...]], None],
) -> list[Fact]:
    """The facts as they would be stored, each id once.

    Spec: CRP-SPEC-009 §2.1
    """
    check_fact_list(facts)
    made: dict[str, Fact] = {}
    filled = [
        _filled(item, number, namespace, kind, now, settings)
        for number, item in enumerate(facts, 1)
    ]
    counts = counter.count_many([fact.content for fact in filled])
    for number, (fact, tokens) in enumerate(zip(filled, counts, strict=True), 1):
        check_length(f"fact {number} has", tokens, settings.chunking)
        allow(fact.labels)
        made.setdefault(fact.fact_id, fact)
    return list(made.values())


def check_length(what: str, tokens: int, limits: ChunkingSettings) -> None:
    """Refuse a fact with too few or too many tokens.

    Spec: CRP-SPEC-009 §2.1
    """
    if not limits.min_fact_tokens <= tokens <= limits.max_fact_tokens:
        raise FactRejected(
            f"{what} {tokens} tokens, wanted {limits.min_fact_tokens} to {limits.max_fact_tokens} "
            "(settings fabric.chunking.min_fact_tokens and max_fact_tokens); longer text is split "
            "first, or ingested as a document"
        )


def check_fact_list(facts: object) -> None:
    """Refuse what is not a list of facts; one text would be taken for its letters."""
    if isinstance(facts, str):
        raise FactRejected("add takes a list of facts; got one text, put it into a list")
    if isinstance(facts, Fact) or not isinstance(facts, Iterable):
        raise FactRejected(
            f"facts is of type {type(facts).__name__}, wanted a list of facts; put one into a list"
        )


def check_fact(item: object, number: int) -> None:
    """Refuse what is not a fact, or one that ends before it begins."""
    if not isinstance(item, Fact):
        raise FactRejected(f"fact {number} is of type {type(item).__name__}, wanted a Fact")
    check_validity(item)


def _filled(
    item: Fact | str,
    number: int,
    namespace: str,
    kind: SourceKind | None,
    now: datetime,
    settings: FabricSettings,
) -> Fact:
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
    """Metadata as plain JSON that shares nothing with what was given."""
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
