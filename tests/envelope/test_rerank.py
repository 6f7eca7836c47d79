"""A reranker's scores become the relevance of the best candidates; nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations import Relay, pack
from crp_integrations.envelope.ports import Reranker
from crp_integrations.envelope.screen import rerank_candidates
from crp_integrations.errors import EngineError
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.stores.memory import MemoryStore
from tests.doubles import NOON, HashEmbedder
from tests.envelope.builders import SETTINGS, candidates, fact, made

QUESTION = "which tier has the highest quality"
TEXTS = [
    "the tier of the highest quality is named S and stands above all",
    "cats sleep in the sun for most of the day and of the night",
    "the quality of a tier falls when a critical fact was left out of it",
    "a budget of tokens is what an envelope may hold at the most here",
]


class Scripted:
    """Scores texts by a function and keeps what it was asked."""

    identity = "scripted/1"

    def __init__(self, score: Any) -> None:
        self._score = score
        self.asked: list[tuple[str, list[str]]] = []

    def scores(self, query: str, texts: Sequence[str]) -> Any:
        self.asked.append((query, list(texts)))
        return [self._score(text) for text in texts]


def top(count: int) -> Any:
    return SETTINGS.model_copy(update={"rerank_top": count})


def test_the_scores_become_the_relevance() -> None:
    given = candidates(fact("a", 0.9), fact("b", 0.2), relevant_floor=310_000)
    reranker = Scripted({"text of a": 0.125, "text of b": 0.75}.__getitem__)
    assert isinstance(reranker, Reranker)
    again = rerank_candidates(given, reranker, SETTINGS)
    assert [one.relevance for one in again.facts] == [125_000, 750_000]
    assert reranker.asked == [("a question", ["text of a", "text of b"])]
    # The card's floor speaks of the embedder's cosines.
    assert again.relevant_floor is None
    unchanged = replace(again, facts=given.facts, algorithms=(), relevant_floor=310_000)
    assert unchanged == given


def test_of_a_long_text_it_sees_the_passages() -> None:
    long = "\n\n".join(f"Entry {n} says nothing of any note to anybody." * 12 for n in range(9))
    reranker = Scripted(lambda text: 0.9 if "Entry 7" in text else 0.1)
    packed = pack(
        "Which entry?",
        [long, TEXTS[0]],
        model="gpt-4o",
        budget_tokens=150,
        now=NOON,
        embedder=HashEmbedder(),
        reranker=reranker,
    )
    [(_, seen)] = reranker.asked
    assert len(seen) > 4 and all(len(text) < len(long) / 2 for text in seen)
    (part,) = [one for one in packed.facts if one.spans]
    assert part.content.count("Entry 7") > part.content.count("Entry 3")
    assert part.relevance_score == 0.9


def test_only_the_best_are_seen_and_the_others_stay_below_them_in_their_order() -> None:
    given = candidates(*(fact(f"f{n}", 0.9 - n / 10) for n in range(6)))
    reranker = Scripted({"text of f0": 0.4, "text of f1": 0.8}.__getitem__)
    relevance = [one.relevance for one in rerank_candidates(given, reranker, top(2)).facts]
    assert relevance[:2] == [400_000, 800_000]
    assert relevance[2:] == [280_000, 240_000, 200_000, 160_000]
    assert all(later < min(relevance[:2]) for later in relevance[2:])


def test_with_mixed_scores_it_sees_the_best_of_these_and_decides_all_the_same() -> None:
    given = candidates(
        replace(fact("a", 0.9), score=100_000, lexical=7, hop=8),
        replace(fact("b", 0.1), score=800_000),
        replace(fact("c", 0.2), score=900_000),
    )
    reranker = Scripted({"text of b": 0.75, "text of c": 0.5}.__getitem__)
    again = rerank_candidates(given, reranker, top(2))
    assert reranker.asked[0][1] == ["text of b", "text of c"]
    assert [(one.relevance, one.score) for one in again.facts] == [
        (450_000, 50_000),
        (750_000, 750_000),
        (500_000, 500_000),
    ]
    assert [one.merit for one in again.facts] == [50_000, 750_000, 500_000]
    assert (again.facts[0].lexical, again.facts[0].hop) == (7, 8)
    shown = {one.fact_id: one.selection_score for one in made(again).facts}
    assert shown == {"a": 0.05, "b": 0.75, "c": 0.5}


@given(
    scores=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12),
    most=st.integers(1, 12),
    seed=st.randoms(use_true_random=False),
)
def test_the_order_of_candidates_changes_nothing(
    scores: list[tuple[float, float]], most: int, seed: Any
) -> None:
    facts = [fact(f"f{n:02d}", before) for n, (before, _) in enumerate(scores)]
    after = {f"text of f{n:02d}": score for n, (_, score) in enumerate(scores)}
    mixed = list(facts)
    seed.shuffle(mixed)
    reranker = Scripted(after.__getitem__)
    left = rerank_candidates(candidates(*facts), reranker, top(most))
    assert left == rerank_candidates(candidates(*mixed), reranker, top(most))
    assert reranker.asked[0] == reranker.asked[1]
    seen = set(reranker.asked[0][1])
    lowest = min(to_fixed(after[text]) for text in seen)
    for one in left.facts:
        assert one.relevance == to_fixed(after[one.content]) or one.content not in seen
        assert one.content in seen or one.relevance <= lowest


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([0.5], "gave 1 scores for 2 texts"),
        ([0.5, 1.5], "gave the score 1.5"),
        ([0.5, -0.1], "gave the score -0.1"),
        ([float("nan"), 0.5], "gave the score nan"),
        (["x", 0.5], "not give a list of numbers"),
        (None, "not give a list of numbers"),
    ],
)
def test_scores_that_are_none_are_refused(scores: Any, message: str) -> None:
    class Wrong:
        identity = "wrong/1"

        def scores(self, query: str, texts: Sequence[str]) -> Any:
            return scores

    with pytest.raises(EngineError, match=message) as caught:
        rerank_candidates(candidates(fact("a"), fact("b")), Wrong(), SETTINGS)
    assert caught.value.engine == "wrong/1"


def cats(text: str) -> float:
    return 0.95 if "cats" in text else 0.05


def test_pack_takes_a_reranker() -> None:
    asked: dict[str, Any] = {
        "model": "extractive", "budget_tokens": 30, "embedder": HashEmbedder(), "now": NOON,
    }  # fmt: skip
    plain = pack(QUESTION, TEXTS, **asked)
    assert plain.facts[0].content == TEXTS[0]
    again = pack(QUESTION, TEXTS, reranker=Scripted(cats), **asked)
    assert again.facts[0].content == TEXTS[1]
    assert again.facts[0].relevance_score == 0.95


def test_a_relay_takes_a_reranker_and_is_without_one_by_default() -> None:
    reranker = Scripted(cats)
    relays = [
        Relay.open(MemoryStore(), embedder=HashEmbedder(), key="ab" * 32, clock=NOON, **given)
        for given in ({}, {"reranker": reranker})
    ]
    for relay in relays:
        relay.add(TEXTS)
    # A continuation would look for what is not answered.
    plain, again = (relay.ask(QUESTION, k=1, cache="no-cache").envelope for relay in relays)
    assert [one.content for one in plain.facts] == [TEXTS[0]]
    assert [one.content for one in again.facts] == [TEXTS[1]]
    assert [query for query, _ in reranker.asked] == [QUESTION]
    assert max(one.relevance_score for one in again.facts) * SCALE == 950_000


def test_the_error_of_a_callers_reranker_is_wrapped() -> None:
    """Its own message may quote a text, so only its kind is told; the rest is the cause."""
    given = candidates(fact("a", content="the secret of a"))

    def fail(text: str) -> float:
        raise KeyError(text)

    with pytest.raises(EngineError) as caught:
        rerank_candidates(given, Scripted(fail), SETTINGS)
    assert str(caught.value) == "the reranker scripted/1 failed with KeyError"
    assert caught.value.engine == "scripted/1"
    assert isinstance(caught.value.__cause__, KeyError)


def test_scores_that_fail_while_they_are_read_are_wrapped_as_well() -> None:
    class Late:
        identity = "late/1"

        def scores(self, query: str, texts: Sequence[str]) -> Any:
            yield 0.5
            raise OSError("the service is gone")

    with pytest.raises(EngineError, match="late/1 failed with OSError"):
        rerank_candidates(candidates(fact("a"), fact("b")), Late(), SETTINGS)


def test_a_failing_reranker_ends_the_window_as_refused() -> None:
    def fail(_: str) -> float:
        raise EngineError("the reranker is out", engine="scripted")

    relay = Relay.open(
        MemoryStore(), embedder=HashEmbedder(), key="ab" * 32, clock=NOON, reranker=Scripted(fail)
    )
    relay.add(TEXTS)
    with pytest.raises(EngineError, match="the reranker is out"):
        relay.ask(QUESTION)
    assert relay.verify().windows == 1
