"""`/v1/facts`: put, list and erase what belongs to the key's tenant."""

from __future__ import annotations

import asyncio
from bisect import bisect_right

from crp_integrations.errors import IllegalTransition, RequestError
from crp_integrations.fabric.records import Fact, IngestReport, Where
from crp_integrations.gateway.answers import Answered, record, refusal
from crp_integrations.gateway.asking import read_as, read_json
from crp_integrations.gateway.calls import Call
from crp_integrations.gateway.records import FactsPage, GivenFact, GivenFacts, StoredFacts
from crp_integrations.headers.records import CacheDirectives
from crp_integrations.relay.question_fields import from_headers
from crp_integrations.vocabulary import SourceKind

PAGE = 100


async def put(call: Call) -> Answered:
    """Store facts, or change those whose ids are there: the whole batch or nothing.

    Under `CRP-Context-Cache: no-store` they are kept in memory for the session of
    `CRP-Context-Session-Id` alone.
    """
    facts = await asyncio.to_thread(_given, call)
    asked = from_headers(call.headers)
    cache = asked.get("cache")
    session_id, residency = asked.get("session_id") or "", asked.get("residency")
    if isinstance(cache, CacheDirectives) and cache.no_store and not session_id:
        raise RequestError(
            "under no-store facts are kept for a session alone; name it in CRP-Context-Session-Id"
        )

    def stored() -> IngestReport:
        if cache not in (None, CacheDirectives()):
            return call.relay.add(facts, session_id=session_id, cache=cache, residency=residency)
        return call.relay.region(residency).put(facts)

    report = await asyncio.to_thread(stored)
    call.noted.facts(fact.fact_id for fact in facts)
    return record(
        StoredFacts(
            facts=tuple(report.facts),
            unchanged=report.unchanged,
            returned=report.returned,
            rewritten=report.rewritten,
            state_hash=report.state_hash,
        )
    )


async def listed(call: Call) -> Answered:
    """The tenant's retrievable facts by id, a page at a time."""
    call.only("limit", "after", "source_id", "label", "kind")
    limit = call.whole("limit", PAGE, least=1, most=call.settings.page)
    after, where = call.query.get("after", ""), _where(call)

    def found() -> FactsPage:
        ids = call.relay.fabric.find_own(where)
        first = bisect_right(ids, after) if after else 0
        page = ids[first : first + limit]
        more = first + limit < len(ids) and page
        return FactsPage(facts=tuple(call.relay.fabric.facts(page)), after=page[-1] if more else "")

    said = await asyncio.to_thread(found)
    call.noted.facts(fact.fact_id for fact in said.facts)
    return record(said)


async def one(call: Call) -> Answered:
    """A fact of the tenant."""
    call.only()
    fact_id = call.path["fact_id"]
    found = await asyncio.to_thread(call.relay.fabric.facts, [fact_id])
    if not found or found[0].namespace != call.key.tenant:
        return _unknown("fact", fact_id)
    call.noted.facts([found[0].fact_id])
    return record(found[0])


async def forget(call: Call) -> Answered:
    """Delete a fact: it is unretrievable at once, and its bytes go after the retention period."""
    call.only()
    fact_id = call.path["fact_id"]
    try:
        report = await asyncio.to_thread(call.relay.fabric.forget, facts=[fact_id])
    except (RequestError, IllegalTransition):
        return _unknown("fact", fact_id)
    call.noted.facts(report.facts)
    return record(report)


async def erase(call: Call) -> Answered:
    """Erase a source: no byte of its facts stays in any file, and the trail says so.

    Spec: CRP-SPEC-009 §8.3
    """
    call.only()
    source_id = call.path["source_id"]
    try:
        report = await asyncio.to_thread(call.relay.fabric.erase, source_id)
    except RequestError:
        return _unknown("source", source_id)
    call.noted.facts(report.facts)
    return record(report)


def _given(call: Call) -> list[Fact]:
    given = read_as(GivenFacts, read_json(call.body))
    if len(given.facts) > call.settings.facts_batch:
        raise RequestError(
            f"the batch has {len(given.facts)} facts, at most {call.settings.facts_batch} are taken"
        )
    return [_fact(one) for one in given.facts]


def _fact(given: GivenFact) -> Fact:
    return Fact.model_validate(given.model_dump(exclude_none=True))


def _where(call: Call) -> Where:
    source, label, kind = (call.query.get(name) for name in ("source_id", "label", "kind"))
    if kind is not None and kind not in tuple(SourceKind):
        raise RequestError(f"kind {kind!r:.40} is not one of {', '.join(SourceKind)}")
    return Where(
        sources=None if source is None else (source,),
        labels=() if label is None else (label,),
        kinds=None if kind is None else (SourceKind(kind),),
    )


def _unknown(what: str, id_: str) -> Answered:
    # In the same words for one that never was, and for one of another tenant.
    return refusal(404, f"unknown_{what}", f"no {what} is known here as {id_!r:.60}")
