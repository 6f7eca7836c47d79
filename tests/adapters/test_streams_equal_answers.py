"""Each door's stream is its answer: the same text, report, headers, windows and model calls.

Nothing is shown that is later withheld, replaced or continued.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from crp_integrations import Relay, SafetyHalt
from crp_integrations.engines.openai_server import OpenAIServer
from crp_integrations.guard.decisions import Subject
from crp_integrations.langchain import CRPRunnable
from crp_integrations.relay.records import Answer
from crp_integrations.session.ports import sessions_of
from tests.adapters.litellm_deployments import entry, router
from tests.doubles import NOON, CountingIds, HashEmbedder
from tests.gateway import application
from tests.relay.conftest import FACTS, KEY
from tests.relay.judges import MEASURED
from tests.relay.need_questions import (
    COMMISSIONED,
    COOLING,
    QUESTION,
    REVENUE,
    WHOLE,
    WORSE,
)
from tests.relay.test_continued_answers import ABRUPT, BRIDGE, LOW_NEW
from tests.servers import Double, openai_double

SESSION = "crp_sess_7f3a9bc2d4e1f083"
MODEL = "gpt-4o-mini"


@dataclass
class Case:
    """A question, the model's replies in their order, and what comes of it."""

    script: tuple[str, ...]
    text: str
    windows: int = 1
    live: bool = False
    asking: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=lambda: {"profile": "protocol"})


REST = f"{REVENUE} {COOLING}"
UPGRADE = {"policy": "upgrade-on-risk reflexive"}
CASES = {
    "plain": Case((COMMISSIONED,), COMMISSIONED, live=True, options={"profile": "observe"}),
    "protocol": Case((WHOLE,), WHOLE),
    "continued": Case((COMMISSIONED, REST), f"{COMMISSIONED}\n\n{REST}", 2),
    "bridged": Case(
        (COMMISSIONED, ABRUPT, BRIDGE),
        f"{COMMISSIONED}\n\n{BRIDGE}\n\n{ABRUPT}",
        2,
        options={"profile": "protocol", "dpe": LOW_NEW},
    ),
    "asked again": Case((WORSE, WHOLE, "NONE"), WHOLE, asking=UPGRADE),
    "withheld": Case((WORSE,), "", asking={"policy": "halt-on HIGH"}),
    "demanded": Case(
        (f"{COMMISSIONED} {COOLING}", REVENUE),
        f"{COMMISSIONED} {COOLING}\n\n{REVENUE}",
        2,
        asking={"policy": "require-completeness 0.50"},
        options={"profile": "observe"},
    ),
}


@dataclass
class Heard:
    """What a caller hears of an answer, and what it left behind."""

    pieces: list[str] = field(default_factory=list)
    report: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    sealed: list[int] = field(default_factory=list)
    halted: bool = False
    windows: list[tuple[str, str]] = field(default_factory=list)
    calls: int = 0

    def end(self, report: Any, headers: Any) -> None:
        self.report, self.headers = report, dict(headers)


def settings_of(case: Case) -> dict[str, Any]:
    return {"clock": NOON, "dpe": MEASURED, **case.options}


def asking_of(case: Case) -> dict[str, Any]:
    return {"k": 2, "session_id": SESSION, **case.asking}


def nodes(relay: Relay) -> list[tuple[str, str]]:
    with relay.fabric.begin(write=False) as transaction:
        found = sessions_of(transaction).windows(SESSION)
    return [(node.outcome, str(node.risk_level)) for node in found]


Asked = Callable[[Relay, Double, dict[str, Any], Heard], None]


def by_ask(relay: Relay, _: Double, asking: dict[str, Any], heard: Heard) -> None:
    ended(heard, relay.ask(QUESTION, model=MODEL, **asking))


def by_aask(relay: Relay, _: Double, asking: dict[str, Any], heard: Heard) -> None:
    ended(heard, asyncio.run(relay.aask(QUESTION, model=MODEL, **asking)))


def ended(heard: Heard, answer: Answer) -> None:
    heard.pieces = [answer.text]
    heard.end(answer.report.model_dump(mode="json"), answer.headers)


def read(relay: Relay, heard: Heard, parts: Iterator[Any]) -> None:
    for part in parts:
        if isinstance(part, Answer):
            heard.end(part.report.model_dump(mode="json"), part.headers)
        else:
            heard.pieces.append(part)
            heard.sealed.append(len(nodes(relay)))


async def aread(relay: Relay, heard: Heard, parts: AsyncIterator[Any]) -> None:
    async for part in parts:
        read(relay, heard, iter((part,)))


def by_stream(live: bool) -> Asked:
    def ask(relay: Relay, _: Double, asking: dict[str, Any], heard: Heard) -> None:
        read(relay, heard, relay.stream(QUESTION, live=live, model=MODEL, **asking))

    return ask


def by_astream(live: bool) -> Asked:
    def ask(relay: Relay, _: Double, asking: dict[str, Any], heard: Heard) -> None:
        parts = relay.astream(QUESTION, live=live, model=MODEL, **asking)
        asyncio.run(aread(relay, heard, parts))

    return ask


def by_runnable(way: str) -> Asked:
    def ask(relay: Relay, _: Double, asking: dict[str, Any], heard: Heard) -> None:
        crp = CRPRunnable(relay, attach="full", model=MODEL, **asking)

        def take(chunk: Any) -> None:
            if chunk.text:
                heard.pieces.append(chunk.text)
                heard.sealed.append(len(nodes(relay)))
            if chunk.response_metadata:
                heard.end(chunk.response_metadata["crp"], chunk.response_metadata["crp_headers"])

        async def aread_all() -> None:
            async for chunk in crp.astream(QUESTION):
                take(chunk)

        match way:
            case "invoke":
                take(crp.invoke(QUESTION))
            case "stream":
                for chunk in crp.stream(QUESTION):
                    take(chunk)
            case _:
                asyncio.run(aread_all())

    return ask


def by_router(way: str) -> Asked:
    def ask(relay: Relay, server: Double, asking: dict[str, Any], heard: Heard) -> None:
        called = router(relay, entry(server, "main", MODEL))
        messages = [{"role": "user", "content": QUESTION}]

        def take(chunk: Any) -> None:
            if chunk.choices and chunk.choices[0].delta.content:
                heard.pieces.append(chunk.choices[0].delta.content)
                heard.sealed.append(len(nodes(relay)))

        async def aread_all() -> Any:
            stream = await called.acompletion("main", messages, stream=True, crp=asking)
            async for chunk in stream:
                take(chunk)
            return stream

        match way:
            case "whole":
                response = called.completion("main", messages, crp=asking)
                heard.pieces = [response.choices[0].message.content]
            case "stream":
                response = called.completion("main", messages, stream=True, crp=asking)
                for chunk in response:
                    take(chunk)
            case _:
                response = asyncio.run(aread_all())
        heard.end(response.crp, response.crp_headers)

    return ask


IN_PROCESS: dict[str, dict[str, Asked]] = {
    "relay": {
        "ask": by_ask,
        "aask": by_aask,
        **{f"stream live={live}": by_stream(live) for live in (False, True)},
        **{f"astream live={live}": by_astream(live) for live in (False, True)},
    },
    "runnable": {way: by_runnable(way) for way in ("invoke", "stream", "astream")},
    "router": {way: by_router(way) for way in ("whole", "stream", "astream")},
}


@pytest.fixture
def server() -> Iterator[Double]:
    with openai_double() as double:
        yield double


def scripted(server: Double, case: Case) -> None:
    server.requests.clear()
    last = len(case.script) - 1
    server.answers = lambda _: case.script[min(len(server.requests) - 1, last)]


def heard_by(ask: Asked, server: Double, case: Case) -> Heard:
    scripted(server, case)
    heard, model = Heard(), OpenAIServer(server.url, api_key="sk-test")
    options = {**settings_of(case), "embedder": HashEmbedder(), "key": KEY, "models": model}
    options["ids"] = CountingIds()
    with Relay.open(**options) as relay:
        relay.fabric.add(list(FACTS))
        try:
            ask(relay, server, asking_of(case), heard)
        except SafetyHalt as halt:
            heard.halted = True
            heard.report = halt.report.model_dump(mode="json")
        heard.windows = nodes(relay)
        relay.verify()
    heard.calls = len(server.requests)
    return heard


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("door", IN_PROCESS)
def test_every_way_through_a_door_gives_one_answer(door: str, name: str, server: Double) -> None:
    case, ways = CASES[name], IN_PROCESS[door]
    whole, *others = (heard_by(ask, server, case) for ask in ways.values())
    assert "".join(whole.pieces) == case.text
    assert (whole.halted, len(whole.windows)) == (not case.text, case.windows)
    assert whole.calls == len(case.script)
    for way, heard in zip(list(ways)[1:], others, strict=True):
        assert "".join(heard.pieces) == case.text, way
        assert (heard.windows, heard.calls, heard.halted) == (
            whole.windows,
            whole.calls,
            whole.halted,
        ), way
        assert heard.report == whole.report, way
        assert heard.headers == whole.headers, way
        if "stream" in way:
            shown_live = case.live and "False" not in way
            # A window is sealed with its verdict.
            assert set(heard.sealed) <= {0 if shown_live else case.windows}, way


@pytest.mark.parametrize("name", CASES)
def test_the_gateway_streams_the_answer_that_it_gives(
    name: str, server: Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = application.fill
    monkeypatch.setattr(application, "furnish", lambda store: fill(store, "acme", list(FACTS)))
    case, heard = CASES[name], []
    for streamed in (False, True):
        scripted(server, case)
        store = tmp_path / str(streamed)
        store.mkdir()
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": QUESTION}],
            "crp": {"k": 2},
            "stream": streamed,
        }
        with application.served(store, server, **settings_of(case)) as gateway:
            sent = {
                "Authorization": f"Bearer {gateway.keys['acme']}",
                "CRP-Context-Session-Id": SESSION,
            }
            if "policy" in case.asking:
                sent["CRP-Safety-Policy"] = case.asking["policy"]
            url = f"{gateway.url}/v1/chat/completions"
            response = httpx.post(url, json=body, headers=sent, timeout=60)
        subject = Subject(tenant="acme")
        with Relay.open(store, subject=subject, embedder=HashEmbedder()) as relay:
            relay.verify()
            with relay.fabric.begin(write=False) as transaction:
                left = [seal.outcome for seal in transaction.journal.all_seals()]
        heard.append((response, left, len(server.requests)))
    (whole, left, calls), (stream, *left_by_stream) = heard
    assert [left, calls] == left_by_stream
    assert (len(left), calls) == (case.windows, len(case.script))
    if not case.text:
        assert (whole.status_code, stream.status_code) == (451, 451)
        assert "data:" not in stream.text
        assert WORSE[:20] not in stream.text
        return
    chunks = [json.loads(line[6:]) for line in stream.text.splitlines() if line[6:7] == "{"]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == case.text
    answer = whole.json()
    assert answer["choices"][0]["message"]["content"] == case.text
    (proof,) = [chunk["crp"] for chunk in chunks if chunk.get("crp")]
    assert unnamed(proof) == unnamed(answer["crp"])
    # The headers of a live stream are sent before the verdict.
    crp = {n for n in whole.headers if n.startswith("crp-") and n not in stream.headers}
    assert bool(crp) is case.live


def unnamed(proof: dict[str, Any]) -> dict[str, Any]:
    """A report's summary and headers without the ids and seals that differ from store to store."""
    own = re.compile("_id$|_hash$|^report|HMAC|Session|-ID$|-Id$|URI|Nonce|Lineage|Root")
    return {
        key: unnamed(value) if key == "headers" else value
        for key, value in proof.items()
        if not own.search(key)
    }
