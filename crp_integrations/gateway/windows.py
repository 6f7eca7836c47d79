"""Reports, trails and receipts: what was found and sealed in the tenant's own windows."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Final

from crp_integrations.audit.exports import ExportSelection, write_ndjson
from crp_integrations.audit.records import Event, WindowSeal
from crp_integrations.errors import RequestError
from crp_integrations.gateway.answers import Answered, record, refusal
from crp_integrations.gateway.calls import Call
from crp_integrations.gateway.records import SessionTrail
from crp_integrations.receipt.records import ID_PREFIX, write
from crp_integrations.session.records import SESSION_ID, WINDOW_ID

NDJSON: Final = "application/x-ndjson"
RECEIPT_ID: Final = re.compile(re.escape(ID_PREFIX) + "[0-9a-f]{32}", re.ASCII)
# Sequence numbers of a journal.
LAST: Final = 2**53


async def report(call: Call) -> Answered:
    """The report on a window, as `CRP-Provenance-Report-URI` names it.

    Spec: CRP-SPEC-005 §15.4
    """
    call.only()
    window_id = call.path["window_id"]
    found = None
    if WINDOW_ID.fullmatch(window_id):
        found = await asyncio.to_thread(call.relay.report, window_id)
    if found is None:
        return refusal(404, "unknown_window", f"no report is kept on window {window_id!r:.60}")
    call.noted.window_id, call.noted.session_id = window_id, found.session_id
    return record(found)


async def audit(call: Call) -> Answered:
    """The seals and events of a session; as NDJSON the whole journal, to be verified elsewhere.

    In NDJSON an event of another session is a line that holds its HMAC alone, so that the chain
    still verifies.

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
        return refusal(404, "unknown_session", f"no window of session {session_id!r:.60} is sealed")
    call.noted.session_id = session_id
    if form == "ndjson":
        return Answered(200, media_type=NDJSON, events=_lines(call, session_id))
    page, last = await asyncio.to_thread(_page, call, after, call.settings.page, session_id)
    return record(
        SessionTrail(session_id=session_id, seals=tuple(seals), events=tuple(page), after=last)
    )


async def receipt(call: Call) -> Answered:
    """A receipt by its id or by its window's, the file as it is verified elsewhere."""
    call.only()
    name = call.path["receipt_id"]
    found = None
    if RECEIPT_ID.fullmatch(name) or WINDOW_ID.fullmatch(name):
        found = await asyncio.to_thread(call.relay.receipt, name)
    if found is None:
        return refusal(404, "unknown_receipt", f"no receipt is kept as {name!r:.60}")
    call.noted.session_id, call.noted.window_id = found.chain.session_id, found.chain.window_id
    return Answered(200, body=write(found))


def _seals(call: Call, session_id: str) -> list[WindowSeal]:
    with call.relay.fabric.begin(write=False) as transaction:
        return transaction.journal.seals(session_id)


def _page(call: Call, after: int, most: int, session_id: str = "") -> tuple[list[Event], int]:
    """Events of a session, or all, and the number of the last one looked at; 0 at the end."""
    found: list[Event] = []
    with call.relay.fabric.begin(write=False) as transaction:
        for event in transaction.journal.events(after=after):
            if not session_id or event.session_id == session_id:
                found.append(event)
                if len(found) == most:
                    return found, event.seq
    return found, 0


async def _lines(call: Call, session_id: str) -> AsyncIterator[bytes]:
    # A page a transaction: a slow reader must not keep an old state of the store alive.
    chosen, after = ExportSelection(session_id=session_id), 0
    while True:
        page, after = await asyncio.to_thread(_page, call, after, call.settings.page)
        if page:
            yield "".join(line + "\n" for line in write_ndjson(page, chosen)).encode()
        if not after:
            return
