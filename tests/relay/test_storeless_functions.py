"""

The public doors that count, and the record that says what a count is worth.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import (
    Fact,
    Message,
    Relay,
    TokenCount,
    aexamine,
    compact,
    count_tokens,
    examine,
    pack,
)
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.engines.tokens import counter_for, vocabularies
from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.evaluation.answer_score import Scorer
from crp_integrations.gateway.server import server
from crp_integrations.governance.compaction.compactor import AutoCompactor
from crp_integrations.governance.tools import ToolSelector
from crp_integrations.guard.injection.detection import detect
from crp_integrations.relay.judge import Judge
from crp_integrations.relay.settings import Settings
from crp_integrations.vocabulary import DistortionType, Exactness, RiskLevel
from tests.doubles import NOON, HashEmbedder, ScriptedModel, WordCounter
from tests.relay.conftest import FACTS

QUESTION = "When was the Meridian reactor commissioned?"


def packed(facts=FACTS, **options):
    return pack(
        QUESTION,
        facts,
        **{"model": "gpt-4o", "budget_tokens": 60, "now": NOON, **options},
        embedder=HashEmbedder(),
    )


def test_pack_takes_strings_and_facts():
    envelope = packed(
        [*FACTS, Fact(content="The Meridian reactor is near the river bank.", ingested_at=NOON)]
    )
    assert envelope.token_count <= envelope.token_budget == 60
    assert envelope.facts[0].content in envelope.text
    assert len(envelope.facts) + len(envelope.dropped) == 6
    assert envelope.quality_tier in "SABCD"
    assert envelope.etag.startswith("sha256:")


def test_pack_is_the_same_for_any_order_of_facts():
    assert packed(FACTS) == packed(tuple(reversed(FACTS)))


def test_pack_counts_freshness_to_the_moment_given():
    old = Fact(content=FACTS[0], ingested_at=NOON - timedelta(days=100))
    assert packed([old]).facts[0].freshness_score == pytest.approx(1 - 100 / 365, abs=1e-6)


def test_pack_shows_the_part_of_a_long_text_that_answers():
    entry = "Entry {n} of the log: the guard walked his round and met nobody at all.\n\n"
    answer = "The Meridian reactor was commissioned in May 1998 by the regional grid."
    log = "".join(entry.format(n=n) for n in range(150)) + answer
    envelope = pack(
        QUESTION,
        [Fact(content=log, fact_id="log"), *FACTS[3:]],
        model="gpt-4o",
        budget_tokens=120,
        now=NOON,
    )
    (part,) = [fact for fact in envelope.facts if fact.fact_id == "log"]
    assert answer in part.content and part.spans[-1][1] == len(log)
    assert "passages@1" in envelope.algorithms
    report = examine(answer, envelope, QUESTION)
    assert report.risk_level is RiskLevel.LOW


def test_pack_without_a_budget_derives_one_from_the_model():
    assert packed(budget_tokens="window").token_budget > 100_000
    assert packed(budget_tokens=None) == packed(budget_tokens="auto")
    assert packed(budget_tokens=None).token_budget <= 4_096


def test_examine_names_what_is_wrong_and_where():
    answer = FACTS[0].replace("412", "512")
    report = examine(answer, context=list(FACTS), question=QUESTION, embedder=HashEmbedder())
    assert report.distortion_types == (DistortionType.NUMBER_CHANGED,)
    assert report.risk_level is not RiskLevel.LOW
    assert (report.claim_counts.read, report.claim_counts.wrong) == (2, 1)
    (finding,) = report.findings
    assert "512" in answer[finding.start : finding.end]
    assert finding.evidence.fact_id == "context-1"
    assert "412" in FACTS[0][finding.evidence.start : finding.evidence.end]


def test_examine_passes_what_the_context_says():
    report = examine(FACTS[0], context=list(FACTS), embedder=HashEmbedder())
    assert (report.grounding_pct, report.fabrication_count, report.distortion_count) == (1.0, 0, 0)
    assert report.risk_level is RiskLevel.LOW
    for claim in report.claims:
        assert FACTS[0][claim.start : claim.end] == claim.text


def test_examine_reads_an_envelope():
    envelope = packed()
    report = examine(FACTS[0], context=envelope, embedder=HashEmbedder())
    assert report.claims[0].evidence[0].fact_id == envelope.facts[0].fact_id


def test_examine_without_context_says_that_nothing_supports_it():
    report = examine(FACTS[0], context=[], embedder=HashEmbedder())
    assert report.grounding_pct == 0.0
    assert report.risk_level is not RiskLevel.LOW


@pytest.mark.parametrize(
    ("answer", "context", "sentence"),
    [
        (None, ["x"], "answer is NoneType"),
        ("x", ["x", 3], "context 2 is int"),
        ("x", "x", "list of texts"),
    ],
)
def test_examine_refuses_by_name_what_it_cannot_use(answer, context, sentence):
    with pytest.raises(RequestError, match=sentence):
        examine(answer, context=context, embedder=HashEmbedder())


TEXT = "The harbour board approved a revised budget of $4.2 million."
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "look_up", "description": "Looks up a licence.", "parameters": {}},
}


@pytest.mark.requirement("003-10.1-4", "003-10.1-3")
@pytest.mark.parametrize(
    ("model", "exactness", "source"),
    [
        ("gpt-4o", "exact", "tiktoken o200k_base from litellm"),
        ("azure/gpt-4o", "family", "tiktoken o200k_base from litellm"),
        ("claude-2", "exact", "claude-2 from litellm"),
        ("claude-3-opus", "estimate", "tiktoken o200k_base from litellm × 1.18 for Claude 3 and 4"),
        (
            "gemini/gemini-2.5-pro",
            "estimate",
            "tiktoken cl100k_base from litellm × 1.45 for Gemini",
        ),
        ("mistral/mistral-large-2411", "exact", "mistral-v7 from mistral_common"),
        (
            "nobody/knows",
            "estimate",
            "tiktoken cl100k_base from litellm × 1.45 for an unknown model",
        ),
    ],
)
def test_a_count_states_its_exactness_and_source(
    model: str, exactness: str, source: str, relay: Relay
) -> None:
    count = count_tokens(TEXT, model)
    assert count == TokenCount(
        n=counter_for(model).count(TEXT), exactness=Exactness(exactness), source=source
    )
    assert relay.count_tokens(TEXT, model) == count
    assert count.model_dump(mode="json")["schema"] == "token-count/1"
    assert TokenCount.model_validate_json(count.model_dump_json()) == count


@pytest.mark.requirement("003-10.1-4")
def test_messages_and_tools_count_with_what_stands_around_them() -> None:
    spoken = [Message(role="system", content="Be brief."), Message(role="user", content=TEXT)]
    shaped = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXT}]
    counter = counter_for("gpt-4o")
    bare = counter.count("Be brief.") + counter.count(TEXT)
    count = count_tokens(spoken, "gpt-4o")
    # Three around each, their roles, and three that open the answer.
    assert (count.n, count.overhead) == (bare + 11, 11)
    assert count_tokens(shaped, "gpt-4o") == count
    beside = count_tokens(shaped, "gpt-4o", tools=[TOOL])
    assert beside.n == count.n + counter.count_tools([TOOL])
    assert beside.overhead == beside.n - bare
    assert count_tokens([], "gpt-4o").n == 3
    assert count_tokens("", "gpt-4o").n == 0


def test_a_relay_counts_for_its_own_model_unless_another_is_named(relay: Relay) -> None:
    assert relay.count_tokens(TEXT).n == counter_for("extractive").count(TEXT)
    assert relay.count_tokens(TEXT).source.startswith("tiktoken cl100k_base")
    assert relay.count_tokens(TEXT, "gpt-4o").source.startswith("tiktoken o200k_base")


def test_a_file_of_the_settings_is_counted_with(tmp_path: Path) -> None:

    found = vocabularies.find_vocabulary(vocabularies.O200K)
    assert found is not None
    (tmp_path / "own.tiktoken").write_bytes(found.data)
    own = Settings(tokenizer_files={"our/model": tmp_path / "own.tiktoken"})
    count = count_tokens(TEXT, "our/model", settings=own)
    assert (count.exactness, count.source) == (Exactness.EXACT, "tiktoken file own.tiktoken")
    gone = Settings(tokenizer_files={"our/model": tmp_path / "gone.json"})
    with pytest.raises(ConfigError, match=r"gone\.json cannot be read"):
        count_tokens(TEXT, "our/model", settings=gone)


TALK = [{"role": "user", "content": "When does it sail?"}]


def _compacted(settings: Any) -> object:
    with Relay.open(None, embedder=HashEmbedder()) as relay:
        return relay.compact(TALK, settings=settings)


@pytest.mark.parametrize("settings", [{}, {"model": "x"}, "literal", DpeSettings(), Settings])
@pytest.mark.parametrize(
    ("wanted", "function"),
    [
        ("Settings", lambda settings: examine("It rains.", ["It rains."], settings=settings)),
        (
            "Settings",
            lambda settings: asyncio.run(aexamine("It rains.", ["It rains."], settings=settings)),
        ),
        ("Settings", lambda settings: packed(settings=settings)),
        ("Settings", lambda settings: count_tokens("Hi.", "gpt-4o", settings=settings)),
        ("Settings", lambda settings: compact(TALK, model="gpt-4o", settings=settings)),
        ("Settings", lambda settings: Scorer(ScriptedModel("x"), settings=settings)),
        ("HistorySettings", _compacted),
        ("InjectionSettings", lambda settings: detect("Hi.", settings)),
        ("JudgeSettings", lambda settings: Judge.of("openai/gpt-4o-mini", settings)),
        ("JudgeSettings", lambda settings: Judge("openai/gpt-4o-mini", settings=settings)),
        ("ToolSettings", lambda settings: ToolSelector(HashEmbedder(), settings)),
        ("GatewaySettings", lambda settings: server(None, settings=settings)),
        ("CompactionSettings", lambda settings: AutoCompactor(WordCounter(), settings)),
    ],
)
def test_settings_of_another_type_are_refused_by_every_function(wanted, function, settings):
    with pytest.raises(ConfigError, match=rf"settings is .*; give {wanted} of crp_integrations\."):
        function(settings)
