"""Two stages for a caller's texts: the embedder reads the best passages, the others are estimated."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations import Relay, pack
from crp_integrations.engines.embeddings import StaticEmbedder
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.engines.tokens import counter_for
from crp_integrations.engines.vector_cache import SharedEmbedder, VectorCache
from crp_integrations.envelope.caller_candidates import TWO_STAGE, CallerTexts
from crp_integrations.envelope.settings import EnvelopeSettings, HybridSettings
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.settings import ChunkingSettings
from crp_integrations.relay.defaults import first_stage
from crp_integrations.vectors import FloatRows
from tests.doubles import HashEmbedder
from tests.envelope.builders import made

COUNTER = counter_for("gpt-4o")
STATIC = StaticEmbedder()
QUESTION = "Which valve feeds the cooling loop of the Meridian reactor?"
WORDS = (
    "valve cooling loop reactor Meridian river Ostrom pump objection council bridge ferry plan euro"
    " month harbour teacher violin glacier parliament copper orchard invoice tariff"
).split()


class Reader(HashEmbedder):
    """Remembers every passage that it reads."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        self.read += texts
        return super().embed_passages(texts)

    def embed_query(self, text: str) -> FloatRows:
        return HashEmbedder().embed_query(text)


def facts(count: int, seed: int = 0) -> list[Fact]:
    chance = random.Random(seed)
    return [
        Fact(content=f"Note {n}: " + " ".join(chance.choices(WORDS, k=12)), fact_id=f"text-{n:03}")
        for n in range(count)
    ]


def callers(reader: HashEmbedder, first: Any = STATIC, **hybrid: Any) -> CallerTexts:
    return CallerTexts(
        embedder=reader,
        counter=COUNTER,
        settings=EnvelopeSettings(hybrid=HybridSettings(**hybrid)),
        chunking=ChunkingSettings(),
        first_stage=first,
    )


@pytest.mark.parametrize("budget_tokens", [4_096, 8_000, 400_000])
def test_a_large_budget_reads_no_more_than_64_passages_more(budget_tokens: int) -> None:
    reader = Reader()
    texts = facts(600)
    assert sum(COUNTER.count(fact.content) for fact in texts) > 8_000
    callers(reader).candidates(QUESTION, texts, budget_tokens=budget_tokens)
    # One that holds all texts has no choice to make.
    holds_all = budget_tokens == 400_000
    assert len(reader.read) == (16 if holds_all else 80)


@pytest.mark.parametrize(("hybrid", "most"), [({}, 16), ({"read_passages": 5}, 5)])
def test_of_fifty_passages_only_the_best_are_read(hybrid: dict[str, int], most: int) -> None:
    reader = Reader()
    texts = callers(reader, **hybrid)
    candidates = texts.candidates(QUESTION, facts(50), sub_queries=("The valve?", "The loop?"))
    assert len(reader.read) == most
    assert TWO_STAGE in candidates.algorithms
    assert len(candidates.facts) == 50
    # The best of all is always read: nothing that was not read is nearer.
    nearest = max(candidates.facts, key=lambda fact: fact.relevance)
    assert nearest.content in reader.read


def test_a_budget_that_holds_more_passages_has_more_read_unless_it_holds_all() -> None:
    counts = []
    for budget in (0, 100, 300, 500, 100_000):
        reader = Reader()
        candidates = callers(reader).candidates(QUESTION, facts(50), budget_tokens=budget)
        counts.append(len(reader.read))
        if budget in {300, 500}:
            read = sum(fact.tokens for fact in candidates.facts if fact.content in reader.read)
            assert 1.5 * budget <= read < 1.75 * budget
    assert counts[0] == counts[1] == counts[4] == 16
    assert 16 < counts[2] < counts[3] < 50


@pytest.mark.parametrize(
    ("budget", "least", "most"), [(None, 16, 16), ("auto", 16, 16), (200, 16, 16), (400, 24, 36)]
)
def test_pack_reads_sixteen_passages_and_more_where_a_budget_in_tokens_holds_more(
    budget: Any, least: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    embed = OnnxEmbedder.embed_query

    def counted(self: OnnxEmbedder, text: str) -> FloatRows:
        read.append(text)
        return embed(self, text)

    monkeypatch.setattr(OnnxEmbedder, "embed_query", counted)
    contents = [fact.content for fact in facts(50)]
    envelope = pack(
        QUESTION, contents, model="gpt-4o", budget_tokens=budget, embedder=OnnxEmbedder()
    )
    assert QUESTION in read
    assert least <= len(read) - 1 <= most
    assert envelope.facts


def test_what_was_read_once_is_not_read_again() -> None:
    reader = Reader()
    texts = callers(reader)
    texts.further_questions(QUESTION, facts(50), 4)
    texts.candidates(QUESTION, facts(50))
    texts.candidates(QUESTION, facts(50))
    assert len(reader.read) == len(set(reader.read)) == 16


@pytest.mark.parametrize("count", [0, 1, 16, 19])
def test_few_passages_are_all_read_and_nothing_changes(count: int) -> None:
    reader = Reader()
    both = callers(reader).candidates(QUESTION, facts(count))
    assert sorted(reader.read) == sorted(fact.content for fact in facts(count))
    assert both == callers(HashEmbedder(), None).candidates(QUESTION, facts(count))


@pytest.mark.parametrize("hybrid", [{"read_passages": 0}, {"enabled": False}])
def test_a_setting_has_everything_read(hybrid: dict[str, Any]) -> None:
    reader = Reader()
    candidates = callers(reader, **hybrid).candidates(QUESTION, facts(50))
    assert len(reader.read) == 50
    assert TWO_STAGE not in candidates.algorithms


def test_what_is_not_read_is_at_most_as_near_as_the_lower_quartile_of_what_is() -> None:
    reader = Reader()
    candidates = callers(reader).candidates(QUESTION, facts(50))
    read = [fact.relevance for fact in candidates.facts if fact.content in reader.read]
    others = [fact.relevance for fact in candidates.facts if fact.content not in reader.read]
    assert len(others) == 34
    assert max(others) <= np.quantile(read, 0.25) + 1


@given(st.integers(0, 60), st.integers(0, 5), st.integers(0, 400), st.integers())
@settings(max_examples=30, deadline=None)
def test_the_order_in_which_texts_come_decides_nothing(
    count: int, seed: int, budget: int, shuffle: int
) -> None:
    ordered = facts(count, seed)
    shuffled = list(ordered)
    random.Random(shuffle).shuffle(shuffled)
    envelopes = [
        made(
            callers(HashEmbedder()).candidates(QUESTION, texts),
            budget_tokens=budget,
            counter=COUNTER,
        )
        for texts in (ordered, shuffled)
    ]
    assert envelopes[0].model_dump_json() == envelopes[1].model_dump_json()


@pytest.mark.parametrize("text", ["", " ", "valve", "日本 valve 😀"])
def test_equal_and_odd_texts_are_selected_too(text: str) -> None:
    same = [Fact(content=text or "x", fact_id=f"text-{n}") for n in range(30)]
    reader = Reader()
    candidates = callers(reader).candidates(QUESTION, same)
    assert len(candidates.facts) == 30
    assert len({fact.relevance for fact in candidates.facts}) >= 1
    assert len(reader.read) <= 16


def test_only_the_shipped_embedder_has_a_first_stage() -> None:
    assert first_stage(HashEmbedder()) is None
    assert first_stage(STATIC) is None
    assert isinstance(first_stage(OnnxEmbedder()), StaticEmbedder)


COLOURS = (
    "red blue green yellow black white brown orange violet purple grey pink gold silver cyan"
    " magenta olive navy teal maroon beige ivory lime coral"
).split()
WIRES = [
    f"The {colour} wire goes to the terminal of the pump on the left side." for colour in COLOURS
]


@pytest.mark.parametrize("count", [19, 24])
def test_texts_that_differ_in_one_word_are_no_duplicates(count: int) -> None:
    packed = pack("Where do the wires go?", WIRES[:count], model="gpt-4o", budget_tokens=2_000)
    assert len(packed.facts) == count


def test_a_copy_in_capitals_is_a_duplicate_in_two_stages_too() -> None:
    texts = [fact.content for fact in facts(30)]
    packed = pack(texts[7], [*texts, texts[7].upper()], model="gpt-4o", budget_tokens=4_000)
    assert [str(drop.reason) for drop in packed.dropped].count("duplicate") == 1


def test_the_table_alone_takes_no_two_texts_that_differ_in_a_word_for_one() -> None:
    packed = pack("Where do the wires go?", WIRES[:8], model="gpt-4o", embedder="static")
    assert len(packed.facts) == 8
    with Relay.open(embedder="static") as relay:
        relay.add(WIRES[:8])
        assert len(relay.preview("Where do the wires go?").facts) == 8


def test_a_known_text_is_cut_and_counted_once_for_all_questions() -> None:
    class Counter:
        identity, exactness, source = COUNTER.identity, COUNTER.exactness, COUNTER.source

        def __init__(self) -> None:
            self.counted: list[str] = []

        def count(self, text: str) -> int:
            return self.count_many([text])[0]

        def count_many(self, texts: Sequence[str]) -> list[int]:
            self.counted += texts
            return COUNTER.count_many(texts)

    cache = VectorCache(1)
    long = " ".join(f"The valve of loop {n} opens at {n} bar." for n in range(400))
    asked = [*facts(3), Fact(content=long, fact_id="text-long")]

    def candidates(embedder: Any, chunking: ChunkingSettings) -> tuple[Any, list[str]]:
        counter = Counter()
        texts = CallerTexts(
            embedder=embedder,
            counter=counter,
            settings=EnvelopeSettings(),
            chunking=chunking,
        )
        return texts.candidates(QUESTION, asked), counter.counted

    own = SharedEmbedder(Reader(), cache)
    plain, counted = candidates(Reader(), ChunkingSettings())
    assert counted
    first, counted = candidates(own, ChunkingSettings())
    assert counted and first == plain
    again, counted = candidates(own, ChunkingSettings())
    assert not counted and again == plain
    # Other ways of cutting, other tenants and calls that keep nothing do not share it.
    smaller = ChunkingSettings(split_above_tokens=100, join_up_to_tokens=100)
    assert len(candidates(own, smaller)[0].facts[-1].passages) > len(plain.facts[-1].passages)
    assert candidates(own.of_tenant("other"), ChunkingSettings())[1]
    unkept = own.of_tenant("third").without_keeping()
    assert candidates(unkept, ChunkingSettings())[1] == candidates(unkept, ChunkingSettings())[1]
    cache.forget()
    assert candidates(own, ChunkingSettings())[1]
