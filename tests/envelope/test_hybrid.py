"""Mixed relevance: words beside vectors, neighbours in a document, the second hop."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.hybrid import (
    Floats,
    HybridScores,
    WeighedPool,
    build_pool,
    score_pool,
    weigh_pool,
)
from crp_integrations.envelope.retrieval import gather
from crp_integrations.envelope.settings import EnvelopeSettings, HybridSettings
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import FactBrief
from crp_integrations.fabric.records import Fact
from crp_integrations.guard.decisions import LOCAL, Subject
from crp_integrations.ports import Embedder
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.vectors import cosine
from tests.doubles import HashEmbedder
from tests.envelope.builders import LITERAL, SETTINGS, LetterCounter, NoSecrets, made, open_fabric

HYBRID = HybridSettings()
ROOT = Path(__file__).parents[2]
HASHER = HashEmbedder()

# The answer names the village, which the question does not; the person is between them.
QUESTION = "In which valley was the designer of the Halvorsen bridge born?"
BRIDGE = "The Halvorsen bridge was designed by Mirela Antonescu, who had won the town's contest."
BORN = "Mirela Antonescu grew up on a sheep farm near Valsoara before she moved to the coast."
FILLER = tuple(
    f"The {name} bridge was designed in {1900 + n} and its valley is crossed by {n + 2} arches."
    for n, name in enumerate(
        "Aldern Borsk Cawdale Dunmore Elvig Farrow Gresham Hollin Ivel Jorvik Kelda Lorne Mossby "
        "Narvel Osten Penrith Quarn Rothe Selby Tarn Ulver Vinge Wester Yarm Zell".split()
    )
)


def bound(texts: Sequence[str | Fact], embedder: Embedder = HASHER, **parts: Any) -> Namespace:
    namespace = open_fabric(embedder, **parts).bind(LOCAL)
    namespace.add(list(texts))
    return namespace


def using(**fields: Any) -> EnvelopeSettings:
    return SETTINGS.model_copy(update={"hybrid": HybridSettings(**fields)})


def select(
    namespace: Any, query: str = QUESTION, settings: EnvelopeSettings = SETTINGS
) -> Candidates:
    return gather(namespace, query, counter=LetterCounter(), settings=settings)


def texts_of(found: Candidates) -> set[str]:
    return {fact.content for fact in found.facts}


def pool(query: str, facts: Sequence[Fact], settings: HybridSettings = HYBRID) -> WeighedPool:
    rows = HASHER.embed_passages([fact.content for fact in facts])
    briefs = [FactBrief.of(fact) for fact in facts]
    cosines = cosine(rows, HASHER.embed_query(query))
    return weigh_pool(build_pool(query, briefs, cosines, settings), settings)


def score(query: str, facts: Sequence[Fact], **fields: Any) -> HybridScores:
    chosen = HybridSettings(**fields)
    return score_pool(pool(query, facts, chosen), chosen)


def stretches(found: HybridScores) -> list[Floats]:
    """The scores of each fact's stretches."""
    return [found.parts[start:end] for start, end in pairwise(found.begins)]


def of(*contents: str, source: str = "s", start: int = 0, gap: int = 2) -> list[Fact]:
    """Facts of one document, one behind the other."""
    made_of = []
    for text in contents:
        place = f"p. 1 · {start}-{start + len(text)}"
        made_of.append(Fact(content=text, source_id=source, source_location=place))
        start += len(text) + gap
    return made_of


# --- the mix -------------------------------------------------------------------------------

ALONE = {"stretch_share": 0.0, "neighbour_share": 0.0, "hop_weight": 0.0}
LINEAR = {"cosine_power": 1.0, "lexical_power": 1.0, "stretch_power": 1.0}


def test_the_mix_is_shares_of_the_cosine_and_of_the_words_each_over_its_best() -> None:
    facts = of("a quay of granite", "the quay is paid for by the harbour board", "milk and cheese")
    query = "who paid for the quay"
    dense = cosine(HASHER.embed_passages([f.content for f in facts]), HASHER.embed_query(query))
    vectors = score(query, facts, lexical_share=0.0, **ALONE, **LINEAR)
    assert np.allclose(vectors.total, np.maximum(dense, 0) / dense.max())
    words = score(query, facts, lexical_share=1.0, **ALONE, **LINEAR)
    assert np.array_equal(words.total, words.lexical)
    assert words.lexical.argmax() == 1
    assert words.lexical[2] == 0.0
    both = score(query, facts, lexical_share=0.3, **ALONE, **LINEAR)
    mixed = 0.7 * vectors.total + 0.3 * words.total
    assert np.allclose(both.total, mixed / mixed.max())
    powers = {"cosine_power": 2.5, "lexical_power": 1.5}
    sharp = score(query, facts, lexical_share=0.3, **ALONE, **powers)
    raised = 0.7 * vectors.total**2.5 + 0.3 * words.total**1.5
    assert np.allclose(sharp.total, raised / raised.max())


def test_a_power_of_the_best_sentence_lets_it_alone_lift_a_fact() -> None:
    facts = of("Granite is a stone. A quay is long. Boards are paid.", "The quay of granite.")
    plain = {**ALONE, **LINEAR, "stretch_share": 1.0}
    linear, sharp = (
        score("who paid for the granite quay", facts, **{**plain, "stretch_power": power}).total
        for power in (1.0, 3.0)
    )
    assert linear[0] == sharp[0] == 1.0
    assert 0.0 < linear[1] < 1.0
    assert sharp[1] == pytest.approx(linear[1] ** 3)


def test_a_rare_word_counts_more_than_one_that_all_have() -> None:
    facts = of("quay and quay and harbour", "quay and granite walls", "quay and timber walls")
    found = score("quay granite", facts, lexical_share=1.0, **ALONE)
    assert found.total.argmax() == 1


def test_one_sentence_that_says_it_lifts_a_long_fact() -> None:
    padding = "The valley was quiet in winter and the roads were empty. " * 6
    long = f"{padding}The quay of granite was paid for by the harbour board. {padding}"
    facts = of(long, "Granite is a stone. A quay is long. Boards are paid. Harbours freeze.")
    without = score("who paid for the granite quay", facts, lexical_share=1.0, **ALONE)
    with_it = score(
        "who paid for the granite quay", facts, lexical_share=1.0, **{**ALONE, "stretch_share": 0.9}
    )
    assert with_it.total[0] > without.total[0]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60), max_size=8
    ),
    st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), st.just("who is it")),
)
def test_any_text_has_scores_in_range(texts: list[str], query: str) -> None:
    facts = [Fact(content=text, source_id=str(n)) for n, text in enumerate(texts)]
    found = score(query, facts)
    assert len(found.total) == len(stretches(found)) == len(texts)
    for values in (found.total, found.lexical, found.hop, found.parts):
        assert np.isfinite(values).all()
        assert ((values >= 0) & (values <= 1)).all()


@pytest.mark.parametrize("query", ["who is it", "?", "…", "\x00"])
def test_a_question_of_stop_words_or_of_no_words_is_answered_by_vectors(query: str) -> None:
    found = select(bound(FILLER), query)
    assert len(found.facts) == len(FILLER)
    assert made(found, budget_tokens=400).facts
    assert all(0 <= fact.merit <= SCALE for fact in found.facts)


def test_the_cosine_stays_the_relevance_beside_the_mixed_score() -> None:
    namespace = bound([BRIDGE, BORN, *FILLER])
    found = select(namespace)
    rows = HASHER.embed_passages([fact.content for fact in found.facts])
    near = cosine(rows, HASHER.embed_query(QUESTION))
    assert [fact.relevance for fact in found.facts] == [to_fixed(float(one)) for one in near]
    assert any(fact.score != fact.relevance for fact in found.facts)
    envelope = made(found)
    by_id = {fact.fact_id: fact for fact in found.facts}
    for one in envelope.facts:
        held = by_id[one.fact_id]
        assert held.score is not None
        assert one.relevance_score * SCALE == pytest.approx(held.relevance)
        assert one.selection_score is not None
        assert one.selection_score * SCALE == pytest.approx(held.score)
        assert one.lexical_score * SCALE == pytest.approx(held.lexical)
        assert one.hop_score * SCALE == pytest.approx(held.hop)
    mean = sum(one.relevance_score for one in envelope.facts) / len(envelope.facts)
    assert envelope.relevance_mean == pytest.approx(mean, abs=1e-6)
    assert "hybrid@1" in envelope.algorithms


def test_the_literal_preset_has_none_of_it() -> None:
    found = select(bound([BRIDGE, BORN, *FILLER]), settings=LITERAL)
    for fact in found.facts:
        assert (fact.score, fact.lexical, fact.hop, fact.stretches) == (None, 0, 0, ())
        assert fact.merit == fact.relevance
    # A budget that ends within a fact shows whole facts alone.
    envelope = made(found, budget_tokens=200, settings=LITERAL)
    assert envelope.facts
    assert not any(one.spans or one.selection_score is not None for one in envelope.facts)
    assert not {"hybrid@1", "excerpt@1"} & set(envelope.algorithms)
    by_cosine = sorted(found.facts, key=lambda fact: (-fact.relevance, fact.fact_id))
    plain = LITERAL.model_copy(update={"importance_factor": 0.0, "freshness_weight": 0.0})
    first = made(found, k=3, settings=plain).facts
    assert {one.fact_id for one in first} == {fact.fact_id for fact in by_cosine[:3]}


# --- neighbours ----------------------------------------------------------------------------

SAYS, BESIDE, FAR = "The quay was paid for by the board.", "It took nine years.", "Milk is white."


def lifted(facts: Sequence[Fact], place: int) -> bool:
    """Whether a neighbour adds to the score of the fact at a place."""
    query = "who paid for the quay"
    plain = {"stretch_share": 0.0, "hop_weight": 0.0}
    without = score(query, facts, neighbour_share=0.0, **plain)
    return bool(
        score(query, facts, neighbour_share=0.3, **plain).total[place] > without.total[place]
    )


def test_a_fact_beside_the_best_in_its_document_is_lifted() -> None:
    assert lifted(of(SAYS, BESIDE), 1)
    assert lifted(of(BESIDE, SAYS), 0)
    # Chunks overlap where a paragraph was split.
    assert lifted(of(SAYS, BESIDE, gap=-4), 1)


def test_neighbours_are_of_one_document_and_no_further_apart_than_the_gap() -> None:
    assert not lifted([*of(SAYS, source="a"), *of(BESIDE, source="b", start=len(SAYS) + 2)], 1)
    assert lifted(of(SAYS, BESIDE, gap=HYBRID.neighbour_gap), 1)
    assert not lifted(of(SAYS, BESIDE, gap=HYBRID.neighbour_gap + 1), 1)
    # What stands between two facts parts them.
    assert not lifted(of(SAYS, FAR, BESIDE), 2)


# --- the second hop ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shipped() -> OnnxEmbedder:
    return OnnxEmbedder()


NARROW = {"k_nearest": 3, "k_lexical": 3}


def test_a_fact_that_only_the_second_hop_reaches_is_found(shipped: OnnxEmbedder) -> None:
    namespace = bound([BRIDGE, BORN, *FILLER], shipped)
    hopping = SETTINGS.model_copy(update=NARROW)
    found = select(namespace, settings=hopping)
    assert BORN in texts_of(found)
    (born,) = (fact for fact in found.facts if fact.content == BORN)
    assert born.hop > 0
    for off in ({"hop_hits": 0}, {"hop_sources": 0}, {"hop_weight": 0.0}):
        still = using(**off).model_copy(update=NARROW)
        assert BORN not in texts_of(select(namespace, settings=still)), off
    assert BORN not in texts_of(select(namespace, settings=LITERAL.model_copy(update=NARROW)))


def test_what_the_hop_says_puts_a_fact_into_the_envelope(shipped: OnnxEmbedder) -> None:
    namespace = bound([BRIDGE, BORN, *FILLER], shipped)

    def shown(settings: EnvelopeSettings) -> list[str]:
        envelope = made(select(namespace, settings=settings), k=10, settings=settings)
        return [one.content for one in envelope.facts]

    # All others have more of the question's words.
    assert {BRIDGE, BORN} < set(shown(SETTINGS))
    assert BORN not in shown(using(hop_weight=0.0))


def test_a_single_fact_that_the_hop_lifts_above_the_best_one_stands_behind_it() -> None:
    others = [BRIDGE, "Cats sleep.", *["Dogs bark." for _ in range(6)]]
    born = ["Mirela Antonescu was born in a valley.", "The valley of Mirela Antonescu is wide."]

    def totals(lifted: Sequence[str], weight: float) -> list[float]:
        alone = {"neighbour_share": 0.0, "hop_sources": 1, "hop_weight": weight}
        found = score(QUESTION, of(*others, *lifted), **alone)
        return found.total[[0, *range(len(others), len(found.total))]].tolist()

    for lifted in (born[:1], born):
        assert totals(lifted, 0.0)[0] == 1.0
    # The link is worth more than what the first one lacks, and the two change places.
    best, one = totals(born[:1], 2.0)
    assert (best, one) == (1.0, pytest.approx(0.625, abs=0.01))
    assert sorted(totals(born, 0.8), reverse=True) == totals(born, 0.8)
    # Where the hop lifts several, it is what the question leads to.
    best, one, other = totals(born, 2.0)
    assert one == 1.0 > other > best


HOPPING = SETTINGS.model_copy(update=NARROW)
TEXTS = [BRIDGE, *FILLER]
LAST = Fact(content=BORN, source_id="archive")


def test_the_hops_reads_are_bound_like_all_others() -> None:
    """What may not be read comes back by no name, whoever speaks it."""
    namespace = bound([*TEXTS, LAST])
    assert BORN in texts_of(select(namespace, settings=HOPPING))
    namespace.quarantine([LAST.fact_id], "wrong")
    assert BORN not in texts_of(select(namespace, settings=HOPPING))
    namespace.lift([LAST.fact_id])
    assert BORN in texts_of(select(namespace, settings=HOPPING))
    namespace.forget(facts=[LAST.fact_id])
    assert BORN not in texts_of(select(namespace, settings=HOPPING))
    again = bound([*TEXTS, LAST])
    again.erase("archive")
    assert BORN not in texts_of(select(again, settings=HOPPING))


def test_the_hop_reads_no_other_tenants_facts_and_nothing_that_a_guard_withholds() -> None:
    fabric = open_fabric(HASHER)
    mine, yours = (fabric.bind(Subject(tenant=name, name="ann")) for name in ("mine", "yours"))
    mine.add(TEXTS)
    yours.add([LAST])
    assert BORN not in texts_of(select(mine, settings=HOPPING))
    ann, bob = (
        fabric.bind(Subject(tenant="acme", name=name), NoSecrets()) for name in ("ann", "bob")
    )
    ann.add([*TEXTS, LAST.changed(labels=("secret",))])
    assert BORN in texts_of(select(ann, settings=HOPPING))
    assert BORN not in texts_of(select(bob, settings=HOPPING))


# --- determinism ---------------------------------------------------------------------------


def hybrid_bytes(order: int) -> str:
    """An envelope with parts and hops of facts that arrive in an order of their own."""
    facts = [
        *of(BRIDGE, BORN, " ".join(FILLER[:5]), source="one"),
        *of(*FILLER, source="two"),
        *of(" ".join(FILLER[5:12]), BORN + " " + BRIDGE, source="three"),
    ]
    random.Random(order).shuffle(facts)
    found = select(bound(facts), settings=SETTINGS)
    return made(found, budget_tokens=900).model_dump_json()


def test_any_order_of_arrival_and_any_hash_seed_give_the_same_bytes() -> None:
    own = hybrid_bytes(0)
    assert '"excerpt@1"' in own
    assert '"spans":[[' in own
    assert {hybrid_bytes(order) for order in range(1, 6)} == {own}
    code = "import sys; from tests.envelope.test_hybrid import hybrid_bytes as h; "
    for seed in ("1", "4242"):
        done = subprocess.run(
            [sys.executable, "-c", f"{code}sys.stdout.buffer.write(h({seed}).encode())"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        )
        assert done.stdout.decode() == own


# --- settings ------------------------------------------------------------------------------
