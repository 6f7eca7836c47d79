"""`/v1/facts`, `/v1/reports`, `/v1/audit`, `/v1/receipts` and `/v1/artifacts` of the key's tenant.

The signed address of an artifact grants access without a bearer key. The guard and the list of
keys are checked again, since the address has the subject's roles at the time it was made. HEAD is
refused, since it would use up the one-time address.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import parse_qsl

from starlette.types import Scope

from crp_integrations.audit.exports import ExportSelection, write_ndjson
from crp_integrations.audit.records import Event, WindowSeal
from crp_integrations.errors import IllegalTransition, RequestError
from crp_integrations.fabric.records import Fact, IngestReport, Where
from crp_integrations.gateway.admission import Key
from crp_integrations.gateway.endpoint import GatewayState
from crp_integrations.gateway.records import FactsPage, NewFacts, SessionTrail, StoredFacts
from crp_integrations.gateway.request_bodies import read_as, read_json
from crp_integrations.gateway.responses import (
    GatewayRequest,
    GatewayResponse,
    json_response,
    refusal_response,
)
from crp_integrations.governance.artifacts.storage import PATH, read_address
from crp_integrations.headers.records import CacheDirectives
from crp_integrations.receipt.records import ID_PREFIX, write
from crp_integrations.relay.question_fields import from_headers
from crp_integrations.session.records import SESSION_ID, WINDOW_ID
from crp_integrations.vocabulary import SourceKind

PAGE = 100


async def put_facts(call: GatewayRequest) -> GatewayResponse:
    """Store facts, or change those whose ids exist: the whole batch or nothing.

    With `CRP-Context-Cache: no-store` they are only kept in memory, for the session of
    `CRP-Context-Session-Id`.
    """
    facts = await asyncio.to_thread(_given, call)
    asked = from_headers(call.headers)
    cache = asked.get("cache")
    session_id, residency = str(asked.get("session_id") or ""), asked.get("residency")
    if isinstance(cache, CacheDirectives) and cache.no_store and not session_id:
        raise RequestError(
            "with no-store facts are kept only for a session; name it in CRP-Context-Session-Id"
        )

    def stored() -> IngestReport:
        if cache not in (None, CacheDirectives()):
            return call.relay.add(facts, session_id=session_id, cache=cache, residency=residency)
        return call.relay.region(residency).put(facts)

    report = await asyncio.to_thread(stored)
    call.log_entry.facts(fact.fact_id for fact in facts)
    return json_response(
        StoredFacts(
            facts=tuple(report.facts),
            unchanged=report.unchanged,
            returned=report.returned,
            rewritten=report.rewritten,
            state_hash=report.state_hash,
        )
    )


async def list_facts(call: GatewayRequest) -> GatewayResponse:
    """A page of the tenant's retrievable facts, ordered by id."""
    call.only("limit", "after", "source_id", "label", "kind")
    limit = call.whole("limit", PAGE, least=1, most=call.settings.page)
    after, where = call.query.get("after", ""), _where(call)

    def read_page() -> FactsPage:
        ids = call.relay.fabric.find_own(where)
        first = bisect_right(ids, after) if after else 0
        page = ids[first : first + limit]
        more = first + limit < len(ids) and page
        return FactsPage(facts=tuple(call.relay.fabric.facts(page)), after=page[-1] if more else "")

    facts_page = await asyncio.to_thread(read_page)
    call.log_entry.facts(fact.fact_id for fact in facts_page.facts)
    return json_response(facts_page)


async def get_fact(call: GatewayRequest) -> GatewayResponse:
    """A fact of the tenant."""
    call.only()
    fact_id = call.path["fact_id"]
    facts = await asyncio.to_thread(call.relay.fabric.facts, [fact_id])
    if not facts or facts[0].namespace != call.key.tenant:
        return _unknown("fact", fact_id)
    call.log_entry.facts([facts[0].fact_id])
    return json_response(facts[0])


async def forget_fact(call: GatewayRequest) -> GatewayResponse:
    """Delete a fact: unretrievable at once; its bytes are purged after the retention period."""
    call.only()
    fact_id = call.path["fact_id"]
    try:
        report = await asyncio.to_thread(call.relay.fabric.forget, facts=[fact_id])
    except (RequestError, IllegalTransition):
        return _unknown("fact", fact_id)
    call.log_entry.facts(report.facts)
    return json_response(report)


async def erase_source(call: GatewayRequest) -> GatewayResponse:
    """Erase a source: no byte of its facts stays in any file, and the trail records the erasure.

    Spec: CRP-SPEC-009 §8.3
    """
    call.only()
    source_id = call.path["source_id"]
    try:
        report = await asyncio.to_thread(call.relay.fabric.erase, source_id)
    except RequestError:
        return _unknown("source", source_id)
    call.log_entry.facts(report.facts)
    return json_response(report)


def _given(call: GatewayRequest) -> list[Fact]:
    batch = read_as(NewFacts, read_json(call.body))
    if len(batch.facts) > call.settings.facts_batch:
        raise RequestError(
            f"the batch has {len(batch.facts)} facts, at most {call.settings.facts_batch} allowed"
        )
    return [Fact.model_validate(fact.model_dump(exclude_none=True)) for fact in batch.facts]


def _where(call: GatewayRequest) -> Where:
    source, label, kind = (call.query.get(name) for name in ("source_id", "label", "kind"))
    if kind is not None and kind not in tuple(SourceKind):
        raise RequestError(f"kind {kind!r:.40} is not one of {', '.join(SourceKind)}")
    return Where(
        sources=None if source is None else (source,),
        labels=() if label is None else (label,),
        kinds=None if kind is None else (SourceKind(kind),),
    )


def _unknown(what: str, id_: str) -> GatewayResponse:
    # The same message for one that does not exist and for one of another tenant.
    return refusal_response(404, f"unknown_{what}", f"there is no {what} {id_!r:.60}")


NDJSON: Final = "application/x-ndjson"
RECEIPT_ID: Final = re.compile(re.escape(ID_PREFIX) + "[0-9a-f]{32}", re.ASCII)
# Largest sequence number of a journal.
LAST: Final = 2**53


async def get_report(call: GatewayRequest) -> GatewayResponse:
    """The report on a window, at the address in `CRP-Provenance-Report-URI`.

    Spec: CRP-SPEC-005 §15.4
    """
    call.only()
    window_id = call.path["window_id"]
    report = None
    if WINDOW_ID.fullmatch(window_id):
        report = await asyncio.to_thread(call.relay.report, window_id)
    if report is None:
        return _unknown("window", window_id)
    call.log_entry.window_id, call.log_entry.session_id = window_id, report.session_id
    return json_response(report)


async def get_trail(call: GatewayRequest) -> GatewayResponse:
    """The seals and events of a session; as NDJSON the whole journal, for verification elsewhere.

    In NDJSON the line of another session's event contains only its HMAC, so that the chain can
    still be verified.

    Spec: CRP-SPEC-005 §15.3; related facts §5
    """
    call.only("format", "after")
    form = call.query.get("format", "json")
    if form not in ("json", "ndjson"):
        raise RequestError(f"format is {form!r:.40}, wanted json or ndjson")
    after = call.whole("after", 0, most=LAST)
    session_id = call.path["session_id"]
    seals: list[WindowSeal] = []
    if SESSION_ID.fullmatch(session_id):
        seals = await asyncio.to_thread(_seals, call, session_id)
    if not seals:
        return _unknown("session", session_id)
    call.log_entry.session_id = session_id
    if form == "ndjson":
        return GatewayResponse(200, media_type=NDJSON, events=_lines(call, session_id))
    page, last = await asyncio.to_thread(_page, call, after, call.settings.page, session_id)
    return json_response(
        SessionTrail(session_id=session_id, seals=tuple(seals), events=tuple(page), after=last)
    )


async def get_receipt(call: GatewayRequest) -> GatewayResponse:
    """The receipt file by its own id or its window's id."""
    call.only()
    name = call.path["receipt_id"]
    receipt = None
    if RECEIPT_ID.fullmatch(name) or WINDOW_ID.fullmatch(name):
        receipt = await asyncio.to_thread(call.relay.receipt, name)
    if receipt is None:
        return _unknown("receipt", name)
    call.log_entry.session_id, call.log_entry.window_id = (
        receipt.chain.session_id,
        receipt.chain.window_id,
    )
    return GatewayResponse(200, body=write(receipt))


def _seals(call: GatewayRequest, session_id: str) -> list[WindowSeal]:
    with call.relay.fabric.begin(write=False) as transaction:
        return transaction.journal.seals(session_id)


def _page(
    call: GatewayRequest, after: int, most: int, session_id: str = ""
) -> tuple[list[Event], int]:
    """Events of a session, or all, and the sequence number of the last one read; 0 at the end."""
    events: list[Event] = []
    with call.relay.fabric.begin(write=False) as transaction:
        for event in transaction.journal.events(after=after):
            if not session_id or event.session_id == session_id:
                events.append(event)
                if len(events) == most:
                    return events, event.seq
    return events, 0


async def _lines(call: GatewayRequest, session_id: str) -> AsyncIterator[bytes]:
    # One transaction per page, so that a slow reader does not hold an old snapshot of the store.
    chosen, after = ExportSelection(session_id=session_id), 0
    while True:
        page, after = await asyncio.to_thread(_page, call, after, call.settings.page)
        if page:
            yield "".join(line + "\n" for line in write_ndjson(page, chosen)).encode()
        if not after:
            return


ROUTE: Final = PATH
_KEY_DIGITS: Final = 12
# Placeholder for an address, which has no secret; no secret has this hash.
_NO_SECRET: Final = "sha256:" + "0" * 64
# Browsers download the artifact instead of showing it, and run nothing in it.
_HEADERS: Final = {
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Referrer-Policy": "no-referrer",
}


def artifact_key(state: GatewayState, scope: Scope) -> Key:
    """A key for the subject of a signed address, which may have expired; checks its signature."""
    query = scope.get("query_string", b"").decode("latin-1")
    token = dict(parse_qsl(query)).get("token", "")
    claim = read_address((scope.get("path_params") or {})["artifact_id"], token, state.keyring)
    subject = claim.subject
    return Key(
        # Each address has its own rate and its own id in the log.
        key_id=claim.nonce[:_KEY_DIGITS],
        tenant=subject.tenant,
        name=subject.name,
        roles=subject.roles,
        scopes=(),
        secret_hash=_NO_SECRET,
        created_at=state.clock.now(),
    )


async def open_artifact(call: GatewayRequest) -> GatewayResponse:
    """The artifact of a signed address.

    Spec: Summit §Privacy & Security
    """
    call.only("token")
    artifact_id, token = call.path["artifact_id"], call.query.get("token", "")
    claim = read_address(artifact_id, token, call.relay.keyring)
    sandbox = call.relay.sandbox(residency=claim.residency)
    has_roles = call.holds if call.settings.address_keys else lambda subject: True
    try:
        content = await asyncio.to_thread(sandbox.open, artifact_id, token, held=has_roles)
    except RequestError:
        return _unknown("artifact", artifact_id)
    return GatewayResponse(200, _HEADERS, content.data, content.artifact.media_type)
