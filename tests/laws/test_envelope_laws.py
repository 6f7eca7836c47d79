"""Laws of the envelope, for any candidates, budget and counter."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.engines.tokens import counter_for
from crp_integrations.envelope.caller_candidates import recount_tokens
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.prompt import render
from crp_integrations.envelope.rank import rank, rank_weights
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.fabric.records import Fact
from crp_integrations.ports import TokenCounter
from crp_integrations.scores import to_fixed
from crp_integrations.seals import sha256_hex
from crp_integrations.vocabulary import GroundingMode
from tests.doubles import NOON, HashEmbedder
from tests.envelope.builders import (
    LITERAL,
    SETTINGS,
    LetterCounter,
    build_candidates,
    candidates,
    fact,
    made,
    originals,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
MODES = st.sampled_from(list(GroundingMode))
# These go past a fact that does not fit.
PASSING = [
    SETTINGS,
    LITERAL,
    EnvelopeSettings(ordering="sandwich_rank"),
    EnvelopeSettings(ordering="rank"),
    EnvelopeSettings(ordering="reversed"),
]
USING = st.sampled_from([*PASSING, EnvelopeSettings(packing="in_order", layout="cache-stable")])


class Capricious(LetterCounter):
    """Counts of parts and of the whole have nothing to do with each other."""

    def __init__(self, seed: int) -> None:
        self.identity = f"capricious:{seed}"

    def count(self, text: str) -> int:
        return int(sha256_hex(self.identity + text)[:2], 16)


COUNTERS = st.one_of(st.just(LetterCounter()), st.builds(Capricious, st.integers(0, 99)))


@st.composite
def selections(draw: st.DrawFn) -> Candidates:
    rows = draw(
        st.lists(
            st.tuples(
                TEXT,
                st.integers(0, 10),
                st.integers(0, 10),
                st.sampled_from([None, "x", "y"]),
                st.integers(0, 800),
                st.booleans(),
            ),
            max_size=12,
        )
    )
    facts = [
        fact(
            f"f{n:02d}",
            r / 10,
            i / 10,
            community=c,
            content=text,
            stale=stale,
            ingested_at=NOON - timedelta(days=age),
        )
        for n, (text, r, i, c, age, stale) in enumerate(rows)
    ]
    pairs = [(i, j) for j in range(len(facts)) for i in range(j)]
    near = draw(st.lists(st.sampled_from(pairs), max_size=6, unique=True)) if pairs else []
    split = draw(st.integers(0, len(near)))
    query = draw(st.sampled_from(["a question", "the latest question"]))
    return candidates(
        *facts,
        query=query,
        duplicates=tuple(sorted(near[:split])),
        conflicts=tuple(sorted(near[split:])),
    )


BUDGETS = st.integers(-5, 400)
LIMITS = st.one_of(st.none(), st.integers(1, 12))


@pytest.mark.requirement("003-2-3", "003-7.3-4", "003-3-7")
@given(selections(), BUDGETS, COUNTERS, MODES, USING, LIMITS)
def test_the_budget_is_never_exceeded(
    given_facts: Candidates,
    budget: int,
    counter: TokenCounter,
    mode: GroundingMode,
    using: EnvelopeSettings,
    k: int | None,
) -> None:
    envelope = made(
        given_facts, budget_tokens=budget, counter=counter, grounding=mode, settings=using, k=k
    )
    assert envelope.text == render([item.content for item in envelope.facts])
    assert envelope.token_count == (counter.count(envelope.text) if envelope.facts else 0)
    assert envelope.token_count <= max(0, budget)
    assert 0.0 <= envelope.saturation <= 1.0
    assert k is None or envelope.total_facts_included <= k


@pytest.mark.requirement("003-4-4", "003-7.4-6", "003-3-4", "003-3-5", "003-3-6")
@given(selections(), BUDGETS, COUNTERS, USING, LIMITS)
def test_included_and_dropped_together_are_the_candidates(
    given_facts: Candidates,
    budget: int,
    counter: TokenCounter,
    using: EnvelopeSettings,
    k: int | None,
) -> None:
    envelope = made(given_facts, budget_tokens=budget, counter=counter, settings=using, k=k)
    included = [item.fact_id for item in envelope.facts]
    dropped = [item.fact_id for item in envelope.dropped]
    assert sorted(included + dropped) == [item.fact_id for item in given_facts.facts]
    tokens = {f.fact_id: f.tokens for f in recount_tokens(given_facts, counter).facts}
    assert all(item.tokens == tokens[item.fact_id] for item in envelope.dropped)
    cut = sum(item.reason.value == "k" for item in envelope.dropped)
    assert envelope.total_facts_available == len(given_facts.facts) - cut
    assert [item.position for item in envelope.facts] == list(range(1, len(included) + 1))
    for item in envelope.facts:
        for score in (item.relevance_score, item.importance_weight, item.composite_score):
            assert 0.0 <= score <= 1.0
    for drop in envelope.dropped:
        assert (drop.kept in {f.fact_id for f in given_facts.facts}) == (
            drop.reason.value == "duplicate"
        )


@pytest.mark.requirement("003-6.7-1", "003-4-4")
@given(selections(), MODES, st.booleans())
def test_the_ranking_is_an_ordered_part_of_the_candidates(
    given_facts: Candidates, mode: GroundingMode, temporal: bool
) -> None:
    result = rank(
        given_facts,
        rank_weights(SETTINGS, mode, temporal=temporal),
        share=to_fixed(SETTINGS.diversity_share),
        now=NOON,
    )
    keys = [(-item.composite, item.candidate.fact_id) for item in originals(result)]
    assert keys == sorted(keys)
    ids = {item.candidate.fact_id for item in originals(result)}
    names = [item.fact_id for item in given_facts.facts]
    assert len(ids) == len(keys) and ids <= set(names)
    assert sorted(result.picks) == list(range(len(names)))
    # Nothing that was kept is a near-duplicate of anything else that was kept.
    assert not any({names[i], names[j]} <= ids for i, j in given_facts.duplicates)


@pytest.mark.requirement("003-4-3", "003-7.5-3")
@given(st.lists(TEXT, max_size=10), st.randoms(use_true_random=False), st.integers(0, 300))
def test_the_order_of_arrival_has_no_influence(
    texts: list[str], randomness: random.Random, budget: int
) -> None:
    shuffled = list(texts)
    randomness.shuffle(shuffled)

    def envelope(arriving: Sequence[str]) -> Envelope:
        found = build_candidates(
            "a question about a text",
            arriving,
            embedder=HashEmbedder(),
            counter=LetterCounter(),
            settings=SETTINGS,
        )
        return made(found, budget_tokens=budget)

    first, second = envelope(texts), envelope(shuffled)
    assert first.model_dump_json() == second.model_dump_json()
    assert first.etag == second.etag


@given(selections(), st.integers(1, 400), st.sampled_from(PASSING))
def test_the_tier_never_rises_when_a_vital_fact_is_shut_out(
    given_facts: Candidates, budget: int, using: EnvelopeSettings
) -> None:
    """A further vital fact that cannot fit leaves what is packed and only lowers the tier."""
    giant = fact("giant", 0.0, 1.0, tokens=10_000, community="far", ingested_at=None)
    without = made(given_facts, budget_tokens=budget, settings=using)
    more = candidates(
        *given_facts.facts,
        giant,
        query=given_facts.query,
        duplicates=given_facts.duplicates,
        conflicts=given_facts.conflicts,
    )
    with_giant = made(more, budget_tokens=budget, settings=using)
    assert [f.fact_id for f in with_giant.facts] == [f.fact_id for f in without.facts]
    assert with_giant.quality_tier.place >= without.quality_tier.place


CORPUS = {
    "English": "The committee met on 12 March 2024 and approved the revised budget of $4.2 million. ",
    "German": "Die Datenschutz-Grundverordnung verpflichtet Unternehmen zur Rechenschaftspflicht. ",
    "Hindi": "समिति की बैठक बारह मार्च को हुई और संशोधित बजट को मंज़ूरी दी गई। ",
    "Chinese": "委员会于2024年3月12日开会并批准了修订后的预算。",
    "code": "def f(x: int) -> int:\n    return [y ** 2 for y in range(x) if y % 3]  # squares\n",
    "JSON": '{"id": 17, "tags": ["a", "b"], "nested": {"ok": true, "value": null, "x": 1.5e-3}}\n',
}


@pytest.mark.requirement("003-7.3-4", "003-10.1-3")
@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4", "claude-3-5-sonnet", "unheard-of"])
@pytest.mark.parametrize("language", CORPUS)
def test_real_counters_keep_the_budget_in_every_language(language: str, model: str) -> None:
    counter = counter_for(model)
    randomness = random.Random(language)
    texts = [
        f"{n} " + CORPUS[language] * randomness.randint(1, 12) + "…" * randomness.randint(0, 3)
        for n in range(60)
    ]
    found = build_candidates(
        "budget of 2024",
        [Fact(content=text, source_location=str(n)) for n, text in enumerate(texts)],
        embedder=HashEmbedder(),
        counter=counter,
        settings=EnvelopeSettings(duplicate_similarity=1.0),
    )
    for budget in (1, 40, 333, 1000, 2500):
        envelope = made(found, budget_tokens=budget, counter=counter)
        assert counter.count(envelope.text) == envelope.token_count <= budget
    assert envelope.saturation > 0.9
    assert envelope.token_exactness is counter.exactness


SCRIPT = """
import random, sys
from crp_integrations.envelope.retrieval import gather
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.guard.decisions import LOCAL
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from tests.doubles import FixedClock, HashEmbedder, WordCounter
from tests.envelope.builders import SETTINGS, LetterCounter, made
texts = [f"note {n} speaks of subject {n % 7} and of its rules in the year {2000 + n % 9}"
         for n in range(120)]
random.Random(int(sys.argv[1])).shuffle(texts)
fabric = Fabric(MemoryStore(), HashEmbedder(), WordCounter(), FixedClock(), FixedKeyRing(b"k" * 32))
namespace = fabric.bind(LOCAL)
namespace.add(texts)
found = gather(namespace, "what is subject 3?", counter=LetterCounter(), settings=SETTINGS)
sys.stdout.write(made(found, budget_tokens=900).model_dump_json())
"""


@pytest.mark.requirement("003-4-2")
def test_every_process_and_hash_seed_gives_the_same_bytes() -> None:
    root = Path(__file__).parents[2]
    written = []
    for seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, seed],
            cwd=root,
            env=environment,
            capture_output=True,
            check=True,
        )
        written.append(done.stdout)
    assert written[0] == written[1] == written[2]
    envelope = json.loads(written[0])
    assert envelope["total_facts_included"] > 3
    assert envelope["dropped"] and envelope["state_hash"]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=10))
def test_the_etag_changes_with_the_set_of_included_facts(rows: list[tuple[int, int]]) -> None:
    facts = [fact(f"f{n:02d}", r / 10, i / 10) for n, (r, i) in enumerate(rows)]
    envelopes = [made(candidates(*facts), budget_tokens=20 * n) for n in range(len(facts) + 2)]
    by_etag = {e.etag: frozenset(f.fact_id for f in e.facts) for e in envelopes}
    assert len(by_etag) == len(set(by_etag.values()))
    assert len({frozenset(f.fact_id for f in e.facts) for e in envelopes}) == len(by_etag)
