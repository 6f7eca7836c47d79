"""A judge in a relay and in `examine`: when it is asked, what if it fails, what reaches it."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from crp_integrations import Relay, aexamine, examine
from crp_integrations.dpe.records import Report
from crp_integrations.errors import ConfigError, RequestError, SafetyHalt
from crp_integrations.fabric.records import Fact
from crp_integrations.ports import Silent
from crp_integrations.relay import judge as judge_module
from crp_integrations.relay.judge import Judge
from crp_integrations.relay.records import Answer
from crp_integrations.vocabulary import HaltReason, RiskLevel, Verification
from tests.doubles import HashEmbedder
from tests.governance.redacting_guards import HidingGuard
from tests.judges import asked, by_figures, claims_of, judge_double, judging, material, named
from tests.relay.conftest import FACTS, Opener
from tests.relay.scripted_relays import HIGH, LOW, QUESTION, SESSION, opened
from tests.servers import Double, Recorded, no_metadata, openai_double
from tests.shapes import AnthropicShape, AzureShape, OllamaShape

PLANTS = [
    f"Plant {n} was built in {1950 + n} and delivers {400 + 3 * n} megawatts." for n in range(32)
]
# Long enough that nothing on a busy machine takes it, and that no test waits for it.
LONG_S = 20.0


@pytest.fixture
def judge() -> Iterator[Double]:
    with judge_double() as double:
        yield double


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_module, "FIRST_WAIT_S", 0.01)


def judged(answer: str, judge: Any, **how: Any) -> Report:
    return examine(answer, list(FACTS), QUESTION, judge=judge, **how)


def flags(report: Report) -> list[str]:
    return [flag for flag in report.flags if flag.startswith("judge-")]


def plain(report: Report) -> Any:
    return report.risk_level, report.composite_score, [one.findings for one in report.claims]


# --- what a reply is worth -----------------------------------------------------------------------


@pytest.mark.parametrize("way", ["report", "halt"])
def test_a_malformed_reply_is_asked_for_once_more(judge: Double, way: str) -> None:
    judge.answers = lambda seen: "I would rather not say."
    if way == "halt":
        with pytest.raises(SafetyHalt) as halted:
            judged(LOW, named(judge), judge_failure="halt")
        assert halted.value.reason == HaltReason.JUDGE_FAILED.value
        assert (halted.value.directive, bool(halted.value.value)) == ("judge_failure halt", True)
        report = halted.value.report
        assert isinstance(report, Report)
    else:
        report = judged(LOW, named(judge))
    assert len(judge.requests) == 2
    assert flags(report) == ["judge-failed=Unreadable"]
    assert plain(report) == plain(judged(LOW, False))
    # What could not be read is not kept: the same question is asked anew.
    judge.answers = judging()
    assert judged(LOW, named(judge), judge_failure=way).checked_by.startswith("judge ")


def test_a_slow_judge_is_given_up(judge: Double) -> None:
    judge.fault = "slow"
    began = time.perf_counter()
    report = judged(LOW, named(judge, timeout_s=0.3))
    assert time.perf_counter() - began < LONG_S
    assert flags(report) == ["judge-failed=ModelTimeout"]
    report = asyncio.run(aexamine(LOW, list(FACTS), judge=named(judge, timeout_s=0.3)))
    assert flags(report) == ["judge-failed=ModelTimeout"]


@pytest.mark.parametrize("fault", ["rate", "broken", "unavailable"])
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_passing_failure_is_tried_again(judge: Double, fault: str, way: str) -> None:
    judge.choose = lambda seen: fault if len(judge.requests) == 0 else ""
    if way == "sync":
        report = judged(HIGH, named(judge))
    else:
        report = asyncio.run(aexamine(HIGH, list(FACTS), QUESTION, judge=named(judge)))
    assert report.risk_level is RiskLevel.HIGH
    assert [seen.fault for seen in judge.requests] == [fault, ""]
    assert len(report.judge.calls) == 1


def test_after_its_last_attempt_the_fallback_is_asked(judge: Double) -> None:
    judge.faults = {"judge-1": "broken"}
    report = judged(HIGH, named(judge, fallback="openai/judge-2", retries=1))
    assert [seen.model for seen in judge.requests] == ["judge-1", "judge-1", "judge-2"]
    assert report.risk_level is RiskLevel.HIGH
    (call,) = report.judge.calls
    assert call.model == "fallback openai/judge-2"
    judge.faults = {"judge-1": "broken", "judge-2": "broken"}
    report = judged(LOW, named(judge, fallback="openai/judge-2", retries=0))
    assert flags(report) == ["judge-failed=ModelError 500"]


def test_a_fallback_at_another_provider_gets_neither_address_nor_key(judge: Double) -> None:
    judge.fault = "broken"
    made = Judge(**named(judge, fallback="anthropic/claude-3-5-haiku-20241022", retries=0))
    assert made._fallback is not None
    assert "api_base" not in made._fallback[1]._common  # type: ignore[attr-defined]
    assert "api_key" not in made._fallback[1]._common  # type: ignore[attr-defined]


def test_refused_credentials_are_not_tried_again(judge: Double) -> None:
    judge.fault = "unauthorised"
    assert flags(judged(LOW, named(judge))) == ["judge-failed=ModelAuthError 401"]
    assert len(judge.requests) == 1


def test_a_relay_withholds_where_its_judge_fails_and_says_what_to_wait_for(
    open_relay: Opener, judge: Double
) -> None:
    judge.fault = "unauthorised"
    relay, _ = opened(open_relay, LOW, judge=named(judge), judge_failure="halt")
    with pytest.raises(SafetyHalt) as halted:
        relay.ask(QUESTION, session_id=SESSION)
    assert halted.value.reason == HaltReason.JUDGE_FAILED.value
    assert (halted.value.directive, bool(halted.value.value)) == ("judge_failure halt", True)
    # One question may have it otherwise.
    said = relay.ask(QUESTION, judge_failure="report")
    assert flags(said.report) == ["judge-failed=ModelAuthError 401"]
    assert relay.ask(QUESTION, judge=False).report.judge is None


async def test_a_cancelled_question_cancels_its_judge(open_relay: Opener, judge: Double) -> None:
    judge.fault = "slow"
    relay, _ = opened(open_relay, LOW, judge=named(judge))
    asking = asyncio.create_task(relay.aask(QUESTION, session_id=SESSION))
    while not judge.requests:
        await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    with relay.fabric.begin(write=False) as transaction:
        (node,) = transaction.sessions.windows(SESSION)
        report = transaction.sessions.report(node.window_id)
    assert report is not None
    assert "window-cancelled" in report


def test_a_stream_has_its_verdict_at_the_end(judge: Double) -> None:
    with openai_double(text=HIGH) as server:
        relay = at(server, judge=named(judge))
        asking: dict[str, Any] = {"model": "openai/gpt-4o"}
        *pieces, said = relay.stream(QUESTION, live=True, **asking)
        assert isinstance(said, Answer)
        assert "".join(map(str, pieces)) == HIGH
        assert said.report.risk_level is RiskLevel.HIGH
        # Where the judge's level may withhold it, nothing is shown before.
        with pytest.raises(SafetyHalt):
            next(iter(relay.stream(QUESTION, live=True, policy="halt-on HIGH", **asking)))


def test_the_level_of_the_judge_is_what_a_policy_sees(open_relay: Opener, judge: Double) -> None:
    judge.answers = judging(lambda seen: {**by_figures(seen), "claims": _all_wrong(seen)})
    relay, _ = opened(open_relay, LOW, judge=named(judge))
    with pytest.raises(SafetyHalt) as halted:
        relay.ask(QUESTION, policy="halt-on HIGH")
    assert halted.value.reason == HaltReason.POLICY.value


def _all_wrong(seen: Any) -> list[dict[str, Any]]:
    passage, text = seen["passages"][0]
    quotes = [{"in": passage, "text": text}]
    return [
        {"n": n, "status": "CONTRADICTED", "kind": "NUMBER", "quotes": quotes}
        for n, _ in claims_of(seen)
    ]


# --- when it is asked ----------------------------------------------------------------------------


def test_in_doubt_alone(judge: Double) -> None:
    told = judged(LOW, named(judge), judge_when="doubt")
    assert told.judge.skipped == "no doubt"
    assert told.risk_level is RiskLevel.LOW
    assert told.verification is Verification.VERIFIED
    assert not judge.requests
    assert judged(HIGH, named(judge), judge_when="doubt").risk_level is RiskLevel.HIGH
    assert len(judge.requests) == 1


def test_a_share_of_the_answers(judge: Double) -> None:
    none = judged(HIGH, named(judge), judge_when="sample:0.0")
    assert none.judge.skipped == "sample"
    assert flags(none) == ["judge-not-asked=sample"]
    assert plain(none) == plain(judged(HIGH, False))
    half = [judged(text, named(judge), judge_when="sample:0.5") for text in PLANTS]
    assert 4 < sum(not one.judge.skipped for one in half) < 28
    assert judged(HIGH, named(judge), judge_when="sample:1.0").checked_by.startswith("judge ")


def test_a_budget_is_of_the_process_unless_it_says_otherwise(
    open_relay: Opener, judge: Double
) -> None:
    relay, _ = opened(open_relay, *PLANTS[:4], judge=named(judge), judge_budget=2)
    told = [relay.ask(QUESTION).report for _ in range(4)]
    assert [one.judge.skipped for one in told] == ["", "", "budget", "budget"]
    assert len(judge.requests) == 2
    assert told[2].risk_level is RiskLevel.UNKNOWN
    assert flags(told[2]) == ["judge-not-asked=budget"]


def test_a_budget_of_calls_a_session(open_relay: Opener, judge: Double) -> None:
    budget = {"calls": 1, "of": "session"}
    relay, _ = opened(open_relay, LOW, HIGH, FACTS[1], judge=named(judge), judge_budget=budget)
    first, second = (relay.ask(QUESTION, session_id=SESSION).report for _ in range(2))
    assert first.checked_by.startswith("judge ")
    assert second.judge.skipped == "budget"
    assert relay.ask(QUESTION).report.checked_by.startswith("judge "), "another session"


@pytest.mark.parametrize("budget", [{"tokens": 8_600}, {"usd": 0.0017}])
def test_a_budget_of_tokens_or_cost(open_relay: Opener, judge: Double, budget: Any) -> None:
    model = {**named(judge), "model": "openai/gpt-4o-mini"}
    relay, _ = opened(open_relay, LOW, HIGH, judge=model, judge_budget=budget)
    told = [relay.ask(QUESTION, session_id=SESSION).report.judge.skipped for _ in range(2)]
    assert told == ["", ""], "what was booked and not spent is free again"
    tight = {name: value / 100 if name == "usd" else 5 for name, value in budget.items()}
    relay, _ = opened(open_relay, *PLANTS[:2], judge=model, judge_budget=tight)
    told = [relay.ask(QUESTION, session_id=SESSION).report.judge.skipped for _ in range(2)]
    assert told == ["budget", "budget"], "the dearest outcome of a call does not fit"


def test_a_second_answer_of_the_same_words_asks_nothing(open_relay: Opener, judge: Double) -> None:
    relay, _ = opened(open_relay, HIGH, judge=named(judge))
    first, second = (relay.ask(QUESTION).report for _ in range(2))
    assert len(judge.requests) == 1
    assert (first.judge.calls[0].cached, second.judge.calls[0].cached) == (False, True)
    assert (first.judge.tokens, second.judge.tokens) == (18, 0)
    assert plain(first) == plain(second)
    judged(HIGH, named(judge))
    judged(HIGH, named(judge))
    assert len(judge.requests) == 2


def test_options_of_one_question_change_the_relays_judge(open_relay: Opener, judge: Double) -> None:
    told: list[Report] = []
    relay, _ = opened(open_relay, LOW, HIGH, judge=named(judge))
    assert relay.ask(QUESTION, judge_when="doubt").report.judge.skipped == "no doubt"
    said = relay.ask(QUESTION, on_report=told.append)
    assert told == [said.report]
    for _ in range(3):
        relay.ask(QUESTION, on_report=lambda report: told.append(report))
    assert len(told) == 4
    ids = [one["id"] for one in asked(judge)]
    assert len(ids) == len(set(ids)), "all of them are one judge with one cache"


# --- in the background ---------------------------------------------------------------------------


def test_in_the_background_the_report_comes_later(open_relay: Opener, judge: Double) -> None:
    told: list[Report] = []
    how: dict[str, Any] = {"judge_mode": "background", "on_report": told.append}
    relay, _ = opened(open_relay, HIGH, judge=named(judge), **how)
    said = relay.ask(QUESTION)
    assert said.report.judge.skipped == "background"
    assert flags(said.report) == ["judge-not-asked=background"]
    assert relay.judge is not None
    relay.judge.wait()
    (report,) = told
    assert report.risk_level is RiskLevel.HIGH
    assert flags(report) == []
    assert report.window_id == said.report.window_id


def test_a_failure_in_the_background_is_told_too(judge: Double) -> None:
    judge.fault = "unauthorised"
    told: list[Report] = []
    made = Judge(**named(judge), mode="background", failure="halt", on_report=told.append)
    judged(HIGH, made)
    made.wait()
    assert [flags(one) for one in told] == [["judge-failed=ModelAuthError 401"]]


def test_who_is_told_may_fail(judge: Double) -> None:
    def failing(report: Report) -> None:
        raise ZeroDivisionError

    report = judged(HIGH, named(judge), on_report=failing)
    assert report.risk_level is RiskLevel.HIGH


# --- many at once --------------------------------------------------------------------------------


def _about(number: int, right: bool) -> str:
    year = 1950 + number if right else 1850 + number
    return f"Plant {number} was built in {year}."


@pytest.mark.parametrize("way", ["threads", "tasks"])
def test_32_at_once_and_none_mixed(judge: Double, way: str) -> None:
    right = judging()

    def slowly(seen: Recorded) -> str:
        time.sleep(0.02)
        return right(seen)

    judge.answers = slowly
    made = Judge(**named(judge), concurrency=8)
    cases = [(n, n % 2 == 0) for n in range(32)]
    if way == "threads":
        with ThreadPoolExecutor(32) as pool:
            reports = list(
                pool.map(lambda one: examine(_about(*one), [PLANTS[one[0]]], judge=made), cases)
            )
    else:

        async def all_of_them() -> list[Report]:
            return await asyncio.gather(
                *(aexamine(_about(*one), [PLANTS[one[0]]], judge=made) for one in cases)
            )

        reports = asyncio.run(all_of_them())
    for (number, holds), report in zip(cases, reports, strict=True):
        assert report.risk_level is (RiskLevel.LOW if holds else RiskLevel.HIGH), number
        (call,) = report.judge.calls
        (one,) = [seen for seen in asked(judge) if seen["id"] == call.id]
        assert claims_of(one) == [(1, _about(number, holds))]
    assert len(judge.requests) == 32


def test_no_more_calls_at_a_time_than_it_was_told(judge: Double) -> None:
    right, lock, now, most = judging(), threading.Lock(), [0], [0]

    def counted(seen: Recorded) -> str:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.05)
        with lock:
            now[0] -= 1
        return right(seen)

    judge.answers = counted
    made = Judge(**named(judge), concurrency=3, timeout_s=LONG_S)
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda n: examine(PLANTS[n], [PLANTS[n]], judge=made), range(12)))
    assert 1 < most[0] <= 3


def test_a_batch_is_judged_answer_by_answer(judge: Double) -> None:
    with openai_double(answers=lambda seen: _asked_about(seen)) as server:
        relay = at(server, *PLANTS, judge=named(judge))
        questions = [f"When was plant {n} built?" for n in range(8)]
        batch = relay.batch(questions, model="openai/gpt-4o")
    levels = [one.report.risk_level for one in batch.answers if one is not None]
    assert levels == [RiskLevel.LOW, RiskLevel.HIGH] * 4


def _asked_about(seen: Recorded) -> str:
    found = re.search(r"When was plant (\d+) built", seen.question)
    assert found
    number = int(found[1])
    return _about(number, number % 2 == 0)


# --- where texts go ------------------------------------------------------------------------------

HIDDEN = "The Meridian reactor is watched by the quimperley detachment of 77 guards."
ASKED = "How many megawatts does the Meridian reactor deliver, and who watches it?"


def reached(judge: Double, *words: str) -> list[str]:
    """Which of some words stand in a request that reached the judge."""
    assert judge.requests, "the judge was asked"
    return [word for word in words if any(word in seen.raw for seen in judge.requests)]


def test_labels_that_its_provider_must_not_get_are_left_out(
    open_relay: Opener, judge: Double
) -> None:
    source = named(judge, withhold_labels=("class:secret",))
    relay, _ = opened(open_relay, LOW, judge=source)
    (held,) = relay.fabric.add([Fact(content=HIDDEN, labels=("class:secret",))]).facts
    said = relay.ask(ASKED)
    assert HIDDEN in [fact.content for fact in said.envelope.facts]
    assert [(one.fact_id, one.reason) for one in said.report.judge.left_out] == [(held, "label")]
    assert "judge-passages-left-out=1" in said.report.flags
    assert not reached(judge, "quimperley", "detachment")
    # It stays evidence in the next window, and stays with us there too.
    after = relay.ask(QUESTION, session_id=said.session_id, continuation_ids=[said.continuation_id])
    assert HIDDEN not in [fact.content for fact in after.envelope.facts]
    assert (held, "label") in [(one.fact_id, one.reason) for one in after.report.judge.left_out]
    assert not reached(judge, "quimperley", "detachment")
    fact = Fact(content=HIDDEN, labels=("class:secret",))
    report = examine(HIGH, [*FACTS, fact], ASKED, judge=source)
    assert [one.reason for one in report.judge.left_out] == ["label"]
    assert not reached(judge, "quimperley")
    assert reached(judge, "megawatts")


def test_what_a_session_holds_in_memory_is_left_out(open_relay: Opener, judge: Double) -> None:
    relay, _ = opened(open_relay, LOW, judge=named(judge))
    relay.add([HIDDEN], session_id=SESSION, cache="no-store")
    tool = Fact(content="The tool weather answered: it is 31 degrees there.", source_id="tool:w")
    relay.add([tool], session_id=SESSION, cache="no-store")
    said = relay.ask(f"{ASKED} How many degrees is it there?", session_id=SESSION)
    assert {HIDDEN, tool.content} <= {fact.content for fact in said.envelope.facts}
    assert [one.reason for one in said.report.judge.left_out] == ["no-store"]
    assert not reached(judge, "quimperley")
    assert reached(judge, "31 degrees"), "what a tool answered is evidence"


def test_the_guards_redaction_runs_before(open_relay: Opener, judge: Double) -> None:
    mail = "joan.miller@waterboard.example"
    relay, _ = opened(open_relay, LOW, judge=named(judge), guard=HidingGuard())
    relay.fabric.add([Fact(content=f"The Meridian reactor is led by {mail}.", labels=("pii:low",))])
    said = relay.ask("Who leads the Meridian reactor, and what does it deliver?")
    assert any("[redacted email]" in fact.content for fact in said.envelope.facts)
    assert not reached(judge, mail, "joan")
    assert reached(judge, "[redacted email]")


def test_a_judge_is_sent_nothing_of_ours(judge: Double) -> None:
    judged(HIGH, named(judge))
    (seen,) = judge.requests
    assert no_metadata(seen.raw.replace("evidence", ""))
    assert not [name for name in seen.headers if "crp" in name]


# --- what it takes -------------------------------------------------------------------------------


class Steps(Silent):
    def __init__(self) -> None:
        self.names: list[str] = []

    def step(self, name: str) -> Any:
        self.names.append(name)
        return super().step(name)


def test_a_judges_calls_are_a_step_and_no_tokens_of_the_answer(
    open_relay: Opener, judge: Double
) -> None:
    steps = Steps()
    relay, _ = opened(open_relay, LOW, judge=named(judge), tracer=steps)
    said = relay.ask(QUESTION)
    assert steps.names.count("dpe.judge") == 1
    (call,) = said.report.judge.calls
    assert (call.prompt_tokens, call.completion_tokens) == (11, 7)
    assert call.milliseconds >= 0
    # Of another model, at another price: the report has them.
    assert said.reply.usage.total_tokens == 0
    assert said.report.judge.tokens == 18


# --- wire formats --------------------------------------------------------------------------------

FORMATS = {
    "openai": ("openai/gpt-4o", None, {}),
    "anthropic": ("anthropic/claude-3-5-haiku-20241022", AnthropicShape, {}),
    "azure": ("azure/my-deployment", AzureShape, {"api_version": "2024-10-21"}),
    "ollama": ("ollama/qwen3", OllamaShape, {}),
    "ollama_chat": ("ollama_chat/qwen3", OllamaShape, {}),
    "vllm": ("hosted_vllm/Qwen/Qwen3-8B", None, {}),
}


@pytest.mark.parametrize("name", FORMATS)
def test_each_wire_format(name: str) -> None:
    model, shape, more = FORMATS[name]
    with judge_double(**({"shape": shape()} if shape else {})) as server:
        source = {"model": model, "api_base": server.url, "api_key": "sk-judge", **more}
        assert judged(LOW, source).risk_level is RiskLevel.LOW
        report = asyncio.run(aexamine(HIGH, list(FACTS), QUESTION, judge=source))
        assert report.risk_level is RiskLevel.HIGH
        assert report.judge.model == model
        assert report.judge.tokens > 0
        sent = [seen for seen in server.requests if material([seen.question])]
        assert len(sent) == 2
        assert all("You" in seen.system for seen in sent), "the instructions go with it"
        if name not in ("ollama", "ollama_chat"):
            assert all("sk-judge" in json.dumps(seen.headers) for seen in sent)


# --- what cannot be meant ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"judge": 7}, "judge is int"),
        ({"judge": "extractive"}, "quotes and does not read"),
        ({"judge": {}}, "without a model"),
        ({"judge": {"model": "openai/x", "when": "now"}}, "when"),
        ({"judge": "openai/x", "judge_budget": "many"}, "judge_budget"),
        ({"judge": "openai/x", "judge_budget": {"euros": 1}}, "euros"),
        ({"judge": "openai/x", "judge_mode": "later"}, "mode"),
        ({"judge": "openai/x", "judge_failure": "shrug"}, "failure"),
        ({"judge": "openai/x", "judge_mode": "background"}, "on_report"),
        ({"judge": "openai/x", "on_report": 5}, "on_report"),
    ],
)
def test_what_cannot_be_meant_is_said(how: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, RequestError), match=said):
        examine(LOW, list(FACTS), **how)
    with pytest.raises((ConfigError, RequestError), match=said):
        Relay.open(**how)


def at(server: Double, *facts: str, **options: Any) -> Relay:
    from crp_integrations.engines.litellm import LiteLLMModel

    models = LiteLLMModel(options={"api_base": server.url, "api_key": "sk-test"})
    relay = Relay.open(models=models, embedder=HashEmbedder(), **options)
    relay.fabric.add(list(facts or FACTS))
    return relay
