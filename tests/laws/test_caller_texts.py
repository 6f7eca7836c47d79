"""Laws of packing a caller's long texts: parts are the text's own, and nothing is lost."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.engines.tokens import counter_for
from crp_integrations.envelope.caller_candidates import CallerTexts
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.passages import cut_text
from crp_integrations.envelope.prompt import ELLIPSIS
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.settings import ChunkingSettings
from crp_integrations.vocabulary import DropReason
from tests.doubles import HashEmbedder
from tests.envelope.builders import build_candidates, made

COUNTER = counter_for("gpt-4o")
EMBEDDER = HashEmbedder()
# Passages of a few sentences, so that texts of some lines are long.
SHORT = ChunkingSettings(join_up_to_tokens=30, split_above_tokens=40, min_fact_tokens=5)
QUESTION = "Which valve feeds the cooling loop of the Meridian reactor?"
SENTENCES = (
    "The valve by the east door feeds the cooling loop.",
    "Meridian was built on the river in 1998!",
    "Nobody raised an objection.",
    "日本の原子炉は川のそばにあります。",
    "| pump | 12 |\n| fan | 7 |",
    "# Heading of a section",
    "Ein Satz über die Kühlung des Reaktors Nummer 4.",
    "x" * 700,
    "\u2026 … \u00a0 …",
    "- an item without an end",
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A text of one to thirty sentences with gaps of every kind; it holds a character."""
    parts = draw(st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=30))
    gaps = draw(
        st.lists(
            st.sampled_from([" ", "\n", "\n\n", "\r\n\r\n", " \t "]),
            min_size=len(parts),
            max_size=len(parts),
        )
    )
    lead = draw(st.sampled_from(["", "\n\n  ", " "]))
    return lead + "".join(part + gap for part, gap in zip(parts, gaps, strict=True))


def facts(contents: list[str]) -> list[Fact]:
    return [Fact(content=text, fact_id=f"text-{n}") for n, text in enumerate(contents)]


def selected(given_facts: list[Fact], **how: Any) -> Candidates:
    return build_candidates(
        QUESTION,
        given_facts,
        embedder=EMBEDDER,
        counter=COUNTER,
        settings=EnvelopeSettings(),
        chunking=SHORT,
        **how,
    )


def packed(found: Candidates, budget: int, k: int | None = None) -> Envelope:
    return made(found, budget_tokens=budget, counter=COUNTER, k=k)


@given(st.lists(texts(), max_size=6), st.integers(0, 600), st.sampled_from([None, None, 1, 3]))
@settings(max_examples=120, deadline=None)
def test_every_text_is_shown_or_dropped_and_parts_are_its_own_characters(
    contents: list[str], budget: int, k: int | None
) -> None:
    given_facts = facts(contents)
    envelope = packed(selected(given_facts), budget, k)
    assert COUNTER.count(envelope.text) == envelope.token_count <= budget
    shown = [fact.fact_id for fact in envelope.facts]
    gone = [drop.fact_id for drop in envelope.dropped]
    assert sorted(shown + gone) == sorted(fact.fact_id for fact in given_facts)
    assert k is None or len(shown) <= k
    by_id = {fact.fact_id: fact for fact in given_facts}
    for fact in envelope.facts:
        whole = by_id[fact.fact_id].content
        if not fact.spans:
            assert fact.content == whole
            continue
        assert fact.content == ELLIPSIS.join(whole[start:end] for start, end in fact.spans)
        ends = [at for span in fact.spans for at in span]
        assert ends == sorted(ends) and fact.content_hash == by_id[fact.fact_id].content_hash
        assert fact.token_count > 0
    for drop in envelope.dropped:
        assert (drop.kept in by_id) == (drop.reason is DropReason.DUPLICATE)
        assert drop.tokens > 0


@given(st.lists(texts(), max_size=6), st.integers(0, 400), st.integers())
@settings(max_examples=60, deadline=None)
def test_the_order_in_which_texts_come_decides_nothing(
    contents: list[str], budget: int, seed: int
) -> None:
    given_facts = facts(contents)
    shuffled = list(given_facts)
    random.Random(seed).shuffle(shuffled)
    first, second = selected(given_facts), selected(shuffled)
    assert packed(first, budget).model_dump_json() == packed(second, budget).model_dump_json()


@given(texts())
@settings(max_examples=150, deadline=None)
def test_passages_hold_every_character_once_and_in_order(text: str) -> None:
    spans = cut_text(text, COUNTER.count(text), COUNTER, SHORT)
    ends = [at for span in spans for at in span]
    assert ends == sorted(ends)
    held = "".join("".join(text[start:end].split()) for start, end in spans)
    assert held == "".join(text.split())


def test_a_text_that_fits_is_shown_whole_however_it_was_cut() -> None:
    given_facts = facts(["\n\n".join(f"{n} {one}" for n, one in enumerate(SENTENCES * 2))])
    found = selected(given_facts)
    assert len(found.facts[0].passages) > 3
    (fact,) = packed(found, 5_000).facts
    assert (fact.spans, fact.content) == ((), given_facts[0].content)
    assert fact.token_count == found.facts[0].tokens


def test_a_short_text_has_no_passages() -> None:
    found = selected(facts(["The valve feeds the loop.", "Nobody objected."]))
    assert not any(fact.passages for fact in found.facts)
    assert "passages@1" not in found.algorithms


class CountingEmbedder(HashEmbedder):
    """Remembers every text that it embeds."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def embed_passages(self, texts: Any) -> Any:
        self.seen += texts
        return super().embed_passages(texts)


def test_every_passage_is_embedded_once_whatever_is_packed_how_often() -> None:
    long = "\n\n".join(f"{n}: {one}" for n, one in enumerate(SENTENCES))
    embedder = CountingEmbedder()
    callers = CallerTexts(
        embedder=embedder, counter=COUNTER, settings=EnvelopeSettings(), chunking=SHORT
    )
    callers.candidates(QUESTION, [long])
    asked = callers.further_questions(QUESTION, [long], 4)
    callers.candidates(QUESTION, [long, "A further text of the second look."])
    assert 0 < len(asked) <= 4
    assert len(embedder.seen) == len(set(embedder.seen))


@pytest.mark.parametrize("most", [0, 1, 5])
def test_no_more_questions_are_asked_than_wanted(most: int) -> None:
    callers = CallerTexts(
        embedder=EMBEDDER, counter=COUNTER, settings=EnvelopeSettings(), chunking=SHORT
    )
    found = ["Meridian was built by Anna Lindqvist.", "The valve was made in Ostrom."]
    assert len(callers.further_questions(QUESTION, found, most)) <= most
    assert callers.further_questions(QUESTION, [], most) == ()
