"""CRPLogger: every answer examined against what its own call was shown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import litellm
import pytest

from crp_integrations import pack
from crp_integrations.errors import RequestError
from crp_integrations.litellm import CRPLogger
from tests.adapters.litellm_deployments import BAD, FACTS, GOOD, JUDGE, QUESTION
from tests.doubles import HashEmbedder
from tests.servers import Double, no_metadata

EMBEDDER = HashEmbedder()
WAYS = ("completion", "stream", "acompletion", "astream")


@pytest.fixture
def logger() -> Iterator[CRPLogger]:
    with installed() as made:
        yield made


@pytest.fixture
def judged_logger() -> Iterator[CRPLogger]:
    with installed(judge=JUDGE) as made:
        yield made


@contextmanager
def installed(**options: Any) -> Iterator[CRPLogger]:
    made = CRPLogger(embedder=EMBEDDER, **options)
    made.install()
    made.install()
    yield made
    lists = (litellm.callbacks, litellm.input_callback, litellm.success_callback)
    others = (litellm.failure_callback, litellm._async_success_callback)
    for one in (*lists, *others, litellm._async_failure_callback):
        while made in one:
            one.remove(made)


def arguments(server: Double, text: str, question: str = QUESTION) -> dict[str, Any]:
    system = {"role": "system", "content": f"Answer from this.\n<context>\n{text}\n</context>"}
    return {
        "model": "openai/gpt-4o",
        "api_base": server.url,
        "api_key": "sk-test",
        "messages": [system, {"role": "user", "content": question}],
    }


def bare(server: Double, answer: str) -> dict[str, Any]:
    """Arguments of a call whose model is told nothing, and answers this."""
    server.answers = lambda seen: answer
    return {**arguments(server, ""), "messages": [{"role": "user", "content": QUESTION}]}


def called(
    way: str, logger: CRPLogger, context: Any, question: str, **kwargs: Any
) -> tuple[Any, str]:
    """What LiteLLM gave, and the answer's text."""
    if way.startswith("a"):
        return asyncio.run(acalled(way, logger, context, question, **kwargs))
    with logger.shown(context, question):
        given = litellm.completion(stream=way == "stream", **kwargs)
    if way == "completion":
        return given, given.choices[0].message.content
    return given, "".join(chunk.choices[0].delta.content or "" for chunk in given)


async def acalled(way, logger, context, question, **kwargs):
    with logger.shown(context, question):
        given = await litellm.acompletion(stream=way == "astream", **kwargs)
    if way == "acompletion":
        assert given.crp["risk_level"], "it is attached when the answer is there"
        return given, given.choices[0].message.content
    said = [chunk.choices[0].delta.content or "" async for chunk in given]
    await logger.areport(given)
    return given, "".join(said)


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_is_examined_against_its_envelope(server, judged_logger, way) -> None:
    logger = judged_logger
    packed = pack(QUESTION, FACTS, model="gpt-4o", budget_tokens=400, embedder=EMBEDDER)
    for text, low in ((GOOD, True), (BAD, False)):
        server.text = text
        given, said = called(way, logger, packed, QUESTION, **arguments(server, packed.text))
        assert said == text, "the answer is as it came"
        report = logger.report(given)
        assert (report["risk_level"] == "LOW") == low
        assert (not report["flagged"]) == low
        if way.endswith("completion"):
            assert given.crp == report
    for seen in server.requests:
        assert no_metadata(seen.raw)
        assert not [name for name in seen.headers if name.startswith("crp")]


@pytest.mark.parametrize("way", WAYS)
def test_callers_side_by_side_never_mix(server, logger, way) -> None:
    facts = [
        f"Customer c{n} holds {1000 + n} shares of the Northfield company today." for n in range(32)
    ]
    server.answers = lambda seen: facts[int(seen.question.split()[-1])]

    def one(n: int) -> dict[str, Any]:
        question = f"What does this customer hold? {n}"
        # Every second caller is answered from another one's fact.
        shown = [facts[n if n % 2 else (n + 7) % 32]]
        given, _ = called(way, logger, shown, question, **arguments(server, shown[0], question))
        return logger.report(given)

    async def together() -> list[dict[str, Any]]:
        async def each(n: int) -> dict[str, Any]:
            question = f"What does this customer hold? {n}"
            shown = [facts[n if n % 2 else (n + 7) % 32]]
            given, _ = await acalled(
                way, logger, shown, question, **arguments(server, shown[0], question)
            )
            return await logger.areport(given)

        return list(await asyncio.gather(*(each(n) for n in range(32))))

    if way.startswith("a"):
        reports = asyncio.run(together())
    else:
        with ThreadPoolExecutor(8) as pool:
            reports = list(pool.map(one, range(32)))
    assert [report["risk_level"] == "LOW" for report in reports] == [bool(n % 2) for n in range(32)]


def test_the_innermost_context_counts_and_ends(server, logger) -> None:
    heard: list[Any] = []
    logger._on_report = heard.append
    with logger.shown(["The gardens of the valley grow tulips and roses every single spring."]):
        with logger.shown([FACTS[7]], QUESTION):
            inner = litellm.completion(**bare(server, FACTS[7]))
        outer = litellm.completion(**bare(server, FACTS[0]))
    alone = litellm.completion(**bare(server, FACTS[0]))
    reports = [logger.report(one) for one in (inner, outer, alone)]
    assert reports[0]["grounding_pct"] == 1.0 > reports[1]["grounding_pct"]
    assert reports[2]["risk_level"] == "UNKNOWN" and reports[2].keys() == reports[0].keys()
    assert reports[2]["reasons"] == ["no context was given for the call, and no tool answered"]
    assert len(heard) == 3
    assert all(one in heard for one in reports)


def test_what_cannot_be_examined_is_never_clean(server, logger, monkeypatch) -> None:
    server.tool_calls = [
        {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    ]
    with logger.shown([FACTS[0]]):
        told = logger.report(litellm.completion(**arguments(server, "")))
        assert told["reasons"] == ["the answer has no text"]
        forced = {"type": "function", "function": {"name": "look_up"}}
        called = litellm.completion(**arguments(server, ""), tool_choice=forced)
        assert "not-examined" not in logger.report(called)["flags"]
    server.tool_calls = []

    def broken(*given: Any, **more: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr("crp_integrations.litellm.logger.examine", broken)
    with logger.shown([FACTS[0]]):
        failed = logger.report(litellm.completion(**arguments(server, "")))
    assert failed["risk_level"] == "UNKNOWN" and "failed" in failed["reasons"][0]


def test_a_stream_that_nobody_reads_has_no_report(server, logger) -> None:
    with logger.shown([FACTS[0]]):
        stream = litellm.completion(stream=True, **arguments(server, ""))
    next(iter(stream))
    with pytest.raises(TimeoutError):
        logger.report(stream, timeout=0.01)
    with pytest.raises(RequestError, match="no call"):
        logger.report(object())


def test_calls_that_never_end_are_given_up_oldest_first(server, logger, monkeypatch) -> None:
    monkeypatch.setattr("crp_integrations.litellm.logger.MAX_CALLS", 3)
    given = [litellm.completion(**arguments(server, "")) for _ in range(5)]
    with pytest.raises(RequestError):
        logger.report(given[0])
    assert logger.report(given[4])["risk_level"]


def test_a_router_and_its_fallbacks_keep_the_pairing(server, logger) -> None:
    server.text, server.faults = FACTS[7], {"gpt-4o": "broken"}
    entries = [
        {
            "model_name": name,
            "litellm_params": {
                "model": f"openai/{model}",
                "api_base": server.url,
                "api_key": "sk-test",
                "max_retries": 0,
            },
        }
        for name, model in (("main", "gpt-4o"), ("second", "gpt-4o-mini"))
    ]
    router = litellm.Router(model_list=entries, fallbacks=[{"main": ["second"]}], num_retries=0)

    async def ask() -> Any:
        with logger.shown([FACTS[7]], QUESTION):
            return await router.acompletion("main", [{"role": "user", "content": QUESTION}])

    response = asyncio.run(ask())
    assert len(server.requests) == 2
    assert logger.report(response)["grounding_pct"] == 1.0


def test_it_is_told_in_a_process_of_many_routers(server, logger) -> None:
    others = [lambda *given: None for _ in range(40)]
    litellm.success_callback.extend(others)
    late = CRPLogger(embedder=EMBEDDER)
    late.install()
    server.text = FACTS[7]
    try:
        with late.shown([FACTS[7]], QUESTION):
            response = litellm.completion(**arguments(server, FACTS[7]))
        assert late.report(response, timeout=20)["grounding_pct"] == 1.0
    finally:
        for one in (late, *others):
            for callbacks in (
                litellm.callbacks,
                litellm.input_callback,
                litellm.success_callback,
                litellm._async_success_callback,
            ):
                while one in callbacks:
                    callbacks.remove(one)


def test_what_the_application_writes_into_the_system_prompt_is_evidence(server, logger) -> None:
    """The usual pattern without a `shown`: the context stands in the call's own messages."""
    for answer, supported in ((FACTS[0], True), (BAD, False)):
        server.answers = lambda seen, said=answer: said
        response = litellm.completion(**arguments(server, FACTS[0]))
        statuses = {claim["status"] for claim in logger.report(response)["claims"]}
        assert (statuses == {"SUPPORTED"}) is supported
