"""What follows from a judge's word, and what does not: policies, quarantine, budgets, keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from crp_integrations import Judge, Relay, examine
from crp_integrations.dpe.records import Report
from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.messages import ModelCall, Reply, Usage
from crp_integrations.policy.policy_text import parse_policy
from crp_integrations.policy.verdict import judge_answer as held_against
from crp_integrations.relay.safeguards import faulty_facts
from crp_integrations.relay.settings import JudgeSettings

PASSAGES = [
    "The Meridian plan costs 4.20 euros a month.",
    "The plan can be cancelled within its first 14 days by post.",
]
WRONG = "The Meridian plan costs 4.80 euros a month."
Said = Callable[[int, str], dict[str, Any]]


def supported(number: int, claim: str) -> dict[str, Any]:
    quotes = [{"in": "1", "text": "The Meridian plan"}]
    return {"n": number, "status": "SUPPORTED", "quotes": quotes}


class Scripted:
    """A judge that says one thing of each claim."""

    def __init__(self, said: Said = supported) -> None:
        self.said = said
        self.calls: list[ModelCall] = []

    def call(self, call: ModelCall) -> Reply:
        self.calls.append(call)
        asked = json.loads(call.messages[1].content)
        claims = [self.said(*one) for one in asked["answer"] if isinstance(one, list)]
        told = {"id": asked["id"], "claims": claims, "unnumbered": []}
        return Reply(text=json.dumps(told), model="scripted", usage=Usage(prompt_tokens=100))

    async def acall(self, call: ModelCall) -> Reply:
        return self.call(call)


def judged(answer: str, said: Said = supported, **how: Any) -> Report:
    return examine(answer, PASSAGES, "What does it cost?", judge=Scripted(said), **how)


def test_score_level_and_header_never_disagree() -> None:
    model = Scripted()
    relay = Relay.open(judge=model)
    relay.add(PASSAGES)
    answer = relay.ask("What does the Meridian plan cost?", model="extractive")
    assert answer.report.checked_by == "judge Scripted"
    assert answer.report.risk_level == "LOW"
    assert answer.report.risk_score < 0.20
    score = answer.headers["CRP-Safety-Hallucination-Score"]
    assert float(score) == pytest.approx(answer.report.risk_score, abs=0.001)


def test_a_finding_on_a_supported_claim_faults_no_fact() -> None:
    assert faulty_facts(examine(WRONG, PASSAGES, "What does it cost?"))

    def quoted(number: int, claim: str) -> dict[str, Any]:
        quotes = [{"in": "1", "text": "The Meridian plan costs 4.20 euros"}]
        return {**supported(number, claim), "quotes": quotes}

    report = judged(WRONG, quoted)
    assert report.claims[0].status == "SUPPORTED"
    assert report.findings
    assert faulty_facts(report) == ()


def test_block_fabrication_hears_the_judge() -> None:
    policy = parse_policy("block-fabrication")

    def invented(number: int, claim: str) -> dict[str, Any]:
        return {"n": number, "status": "UNSUPPORTED", "kind": "INVENTION", "quotes": []}

    answer = "The Meridian plan has a free trial."
    (found,) = held_against(policy, judged(answer, invented)).violations
    assert found.seen == "1 found"
    assert not held_against(policy, judged(answer)).violations


def test_a_word_against_talk_that_cannot_be_read_leaves_it_open() -> None:
    def against(number: int, claim: str) -> dict[str, Any]:
        quotes = [{"in": "1", "text": "words that stand nowhere"}]
        return {"n": number, "status": "CONTRADICTED", "quotes": quotes}

    report = judged("No.", against)
    assert (report.verification, report.risk_level) == ("UNREAD", "UNKNOWN")


def test_a_contradiction_in_one_call_is_not_hidden_by_support_in_another() -> None:
    passages = [PASSAGES[0] + " x" * 6_000, "The Meridian plan costs 5 euros." + " y" * 6_000]

    def by_passage(number: int, claim: str) -> dict[str, Any]:
        raise AssertionError

    class Both(Scripted):
        def call(self, call: ModelCall) -> Reply:
            asked = json.loads(call.messages[1].content)
            place, text = asked["passages"][0]
            status = "SUPPORTED" if "4.20" in text else "CONTRADICTED"
            quotes = [{"in": place, "text": "The Meridian plan costs"}]
            claims = [{"n": 1, "status": status, "quotes": quotes}]
            self.calls.append(call)
            return Reply(text=json.dumps({"id": asked["id"], "claims": claims}), model="m")

    model = Both(by_passage)
    judge = Judge(model, window_tokens=6_000)
    report = examine(PASSAGES[0], passages, "What does it cost?", judge=judge)
    assert len(model.calls) == 2
    assert report.claims[0].status == "CONTRADICTED"


def test_many_at_once_keep_to_a_budget_of_calls() -> None:
    model = Scripted()
    judge = Judge(model, budget_calls=3)

    def one(number: int) -> Report:
        return examine(f"It costs {number} euros.", PASSAGES, "What?", judge=judge)

    with ThreadPoolExecutor(8) as pool:
        reports = list(pool.map(one, range(8)))
    assert len(model.calls) == 3
    assert sum(one.checked_by.startswith("judge") for one in reports) == 3


def test_a_budget_in_money_needs_a_price() -> None:
    with pytest.raises(ConfigError, match=r"no price of 'Scripted' is known; .* usd_per_million"):
        Judge(Scripted(), budget_usd=1.0)
    with pytest.raises(ConfigError, match="usd_per_million"):
        Judge(Scripted()).altered(budget_usd=1.0)
    # 10 dollars a million tokens: what is booked for the first call is above a cent.
    poor, able = (Judge(Scripted(), budget_usd=usd, usd_per_million=[5, 10]) for usd in (0.01, 1.0))
    assert "judge-not-asked=budget" in examine(WRONG, PASSAGES, judge=poor).flags
    report = examine(WRONG, PASSAGES, judge=able)
    assert report.checked_by.startswith("judge")


def test_nothing_of_no_store_stays_in_memory() -> None:
    judge = Judge(Scripted())
    examine(WRONG, PASSAGES, judge=judge, no_store=True)
    assert not judge._known
    examine(WRONG, PASSAGES, judge=judge)
    assert judge._known


def test_a_key_of_the_settings_is_their_providers_alone() -> None:
    settings = JudgeSettings(model="openai/a", api_key="secret", api_base="http://127.0.0.1:1")  # type: ignore[arg-type]
    for source in ("anthropic/claude-x", {"model": "hosted_vllm/q", "api_base": "http://b"}):
        judge = Judge.of(source, settings)
        assert judge is not None
        assert judge.settings.api_key is None
    same = Judge.of("openai/b", settings)
    assert same is not None
    assert same.settings.api_key is not None


def test_labels_of_an_envelope_are_not_known() -> None:
    relay = Relay.open()
    relay.add(PASSAGES)
    envelope = relay.ask("What does it cost?", model="extractive").envelope
    judge = Judge(Scripted(), withhold_labels=("secret",))
    with pytest.raises(RequestError, match="has no labels of its facts"):
        examine(WRONG, envelope, judge=judge)


def test_a_system_prompt_that_is_too_long_is_named_and_nothing_is_held_against_it() -> None:
    def unsupported(number: int, claim: str) -> dict[str, Any]:
        return {"n": number, "status": "UNSUPPORTED", "kind": "INVENTION", "quotes": []}

    report = judged("The fee is 27 euros.", unsupported, system_prompt="x " * 20_000)
    assert report.judge is not None
    assert [one.fact_id for one in report.judge.left_out] == ["system"]
    assert report.claims[0].status == "NOT_CHECKED"
