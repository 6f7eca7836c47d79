"""Facts that a caller made, checked and filled before anything is embedded or stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from crp_integrations.errors import FactRejected
from crp_integrations.fabric.ingest.changes import USER_SOURCE
from crp_integrations.fabric.ingest.importance import importance
from crp_integrations.fabric.life.lifecycle import check_validity
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.ports import TokenCounter
from crp_integrations.vocabulary import FactStatus, SourceKind


def given_facts(
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

    Raises:
        FactRejected: one is too short, too long, withdrawn, or of another namespace.
        AccessDenied: `allow` denies its labels.
    """
    check_list(facts)
    limits = settings.chunking
    made: dict[str, Fact] = {}
    filled = [
        _filled(item, number, namespace, kind, now, settings)
        for number, item in enumerate(facts, 1)
    ]
    counts = counter.count_many([fact.content for fact in filled])
    for number, (fact, tokens) in enumerate(zip(filled, counts, strict=True), 1):
        if not limits.min_fact_tokens <= tokens <= limits.max_fact_tokens:
            raise FactRejected(
                f"fact {number} has {tokens} tokens, wanted {limits.min_fact_tokens} to "
                f"{limits.max_fact_tokens}; longer text is ingested as a document"
            )
        allow(fact.labels)
        made.setdefault(fact.fact_id, fact)
    return list(made.values())


def check_list(facts: object) -> None:
    """Refuse what is not a list of facts; one text would be taken for its letters.

    Raises:
        FactRejected: names what it is.
    """
    if isinstance(facts, str):
        raise FactRejected("add takes a list of facts; got one text, put it into a list")
    if isinstance(facts, Fact) or not isinstance(facts, Iterable):
        raise FactRejected(
            f"facts is of type {type(facts).__name__}, wanted a list of facts; put one into a list"
        )


def check_fact(item: object, number: int) -> None:
    """Refuse what is not a fact, or one that ends before it begins.

    Raises:
        FactRejected: names its place and what it is.
    """
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
        weight = importance(own, content=item, settings=settings.importance)
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
