"""Three hundred requests, 32 at a time, over deployments that fail in every way."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

from crp_integrations import Relay
from crp_integrations.errors import CRPError, ModelError, SafetyHalt
from crp_integrations.litellm import CRPRouter, CRPStream
from tests.adapters.litellm_deployments import entry
from tests.counting import mistral, window
from tests.doubles import HashEmbedder
from tests.relay.judges import LITERAL
from tests.servers import Recorded, openai_double

REQUESTS, AT_A_TIME = 200, 32
# Few and short: what hundreds of windows cost is their number, and their facts beyond that. No
# number in them is one of a request: request 403 would find the plant that delivers 403 megawatts.
PLANTS = 8
FACTS = [
    f"Plant {n} was built in {1950 + n} and delivers {1_000 + 3 * n} megawatts."
    for n in range(PLANTS)
]
# What the deployments do to request n, by n modulo 20; everything else is answered.
FAULTS = {
    0: "rate",
    1: "broken",
    3: "drop",
    5: "malformed",
    6: "empty",
    7: "unavailable",
    9: "cut",
    11: "break",
    13: "garbled",
    15: "trickle",
}
# A limit of the input that holds one of the two facts of an envelope, beside the margin.
SMALL, ANSWER = 113, 100


def number(seen: Recorded) -> int:
    found = re.search(r"Request (\d+)", seen.question)
    assert found
    return int(found[1])


def fault(seen: Recorded) -> str:
    """What happens: the first two deployments fail, and for each 50th request the last one too."""
    n = number(seen)
    if n % 250 == 2:
        return "slow" if seen.model != "open-mistral-7b" else ""
    chosen = FAULTS.get(n % 20, "")
    if seen.model == "open-mistral-7b":
        return chosen if n % 50 == 1 else ""
    return chosen


def text(seen: Recorded) -> str:
    n = number(seen)
    if n % 20 == 19:
        return f"Plant {n % PLANTS} was built in 2077 by Acme Corporation for 9 billion dollars."
    return f"Plant {n % PLANTS} was built in {1950 + n % PLANTS}."


def session(n: int) -> str:
    return f"crp_sess_{n:016d}"


async def played(called: CRPRouter, n: int) -> Any:
    """What becomes of request n: as a stream when n is odd."""
    messages = [{"role": "user", "content": f"Request {n}: when was plant {n % PLANTS} built?"}]
    return await called.acompletion(
        "main",
        messages,
        session_id=session(n),
        timeout=5,
        max_tokens=ANSWER,
        budget_tokens=100,
        k=2,
        stream=bool(n % 2),
        crp={"policy": "halt-on MEDIUM"} if n % 20 == 19 else None,
    )


def said(response: Any) -> str:
    if isinstance(response, CRPStream):
        return "".join(one.choices[0].delta.content or "" for one in response.read if one.choices)
    return response.choices[0].message.content


async def test_hundreds_of_requests_over_failing_deployments() -> None:
    # The store is in memory and the embedder a bag of words: what is shown is that nothing is
    # lost or mixed up, whatever fails. The document's arithmetic and no receipts take a third off each
    # window, and neither is looked at here.
    with (
        openai_double(choose=fault, answers=text, pause_s=0.001, piece_words=3) as server,
        Relay.open(
            embedder=HashEmbedder(),
            dpe=LITERAL,
            receipts=False,
            envelope={"least_context_tokens": 10},
        ) as relay,
    ):
        server.windows = {"open-mistral-7b": window(SMALL + ANSWER, mistral())}
        relay.fabric.add(FACTS)
        called = CRPRouter(
            [
                entry(server, "main", "gpt-4o"),
                entry(server, "main", "gpt-4o-mini"),
                entry(server, "small", "open-mistral-7b", info={"max_input_tokens": SMALL}),
            ],
            relay=relay,
            fallbacks=[{"main": ["small"]}],
            num_retries=0,
            cooldown_time=0.05,
        )
        free = asyncio.Semaphore(AT_A_TIME)

        async def one(n: int) -> Any:
            async with free:
                try:
                    response = await played(called, n)
                    if isinstance(response, CRPStream):
                        # What stands behind it is there once it was read.
                        response.read = [chunk async for chunk in response]
                    return response
                except CRPError as error:
                    return error

        ended = await asyncio.gather(*(one(n) for n in range(REQUESTS)))
        trail = relay.verify()
        with relay.fabric.begin(write=False) as transaction:
            seals = {n: transaction.journal.seals(session(n)) for n in range(REQUESTS)}

    # Every request ended in one of three ways; any other exception failed the test already.
    ways = Counter(_way(one) for one in ended)
    assert sum(ways.values()) == REQUESTS
    assert min(ways["answered"], ways["halted"], ways["failed"]) > 0, ways
    # No session is lost and no trail is broken: each has its one sealed window.
    assert trail.windows == trail.sessions == REQUESTS
    sealed = {"answered": "released", "halted": "halted", "failed": "failed"}
    for n, outcome in enumerate(ended):
        assert [seal.outcome for seal in seals[n]] == [sealed[_way(outcome)]], (n, outcome)
        if isinstance(outcome, ModelError):
            assert outcome.tried
            assert outcome.status_hint in (502, 503, 429)

    wire: dict[int, list[Recorded]] = {}
    for seen in server.requests:
        wire.setdefault(number(seen), []).append(seen)
        assert "crp" not in seen.raw.lower()
        assert not [name for name in seen.headers if name.startswith("crp")]
    for n, outcome in enumerate(ended):
        if isinstance(outcome, CRPError):
            continue
        # What was examined and reported is, byte for byte, what the answering model was sent.
        answering = [one for one in wire[n] if one.fault in ("", "trickle")][-1]
        assert answering.context == outcome.crp_envelope["text"], n
        assert outcome.crp_envelope["model"] == f"openai/{answering.model}"
        assert said(outcome) == text(answering)
        assert f"plant {n % PLANTS}" in answering.context.lower()
    # What the small deployment was sent always fitted, by its own count.
    assert not [one for one in server.requests if one.fault == "context"]
    small = [one for one in server.requests if one.model == "open-mistral-7b" and not one.fault]
    assert {one.context.count("Plant") for one in small} == {1}
    large = [one for one in server.requests if one.model != "open-mistral-7b" and not one.fault]
    assert {one.context.count("Plant") for one in large} == {2}


def _way(outcome: Any) -> str:
    if isinstance(outcome, SafetyHalt):
        return "halted"
    return "failed" if isinstance(outcome, CRPError) else "answered"
