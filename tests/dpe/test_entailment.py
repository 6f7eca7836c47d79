"""Stage 4: windows for each claim, the best of them, then the weakest claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.ports import Judgement
from crp_integrations.dpe.verifier.alignment import AlignmentVerifier, curve
from tests.dpe.helpers import check as plain_check
from tests.dpe.helpers import check_literally as check
from tests.dpe.helpers import literal
from tests.dpe.texts import HARBOUR, LIBRARY, TEXTS


class Scripted:
    """Judges by a word of the claim, reads few characters, and keeps what it was given."""

    identity = "scripted@1"
    thresholds: Mapping[str, float] = {"scripted": 0.5}
    passage = 300

    def __init__(self, scores: Mapping[str, float]) -> None:
        self.scores = scores
        self.seen: list[tuple[str, list[str]]] = []

    def judge(self, claim: str, passages: Sequence[str]) -> Judgement:
        assert passages
        self.seen.append((claim, list(passages)))
        score = next((s for word, s in self.scores.items() if word in claim), 0.9)
        return Judgement(score, (1 - score) / 4, 3 * (1 - score) / 4, 0)


@pytest.mark.requirement("005-6.2-2", "005-6.3-1")
def test_the_answer_is_as_entailed_as_its_weakest_claim() -> None:
    verifier = Scripted({"640": 0.4, "freight grew": 0.7})
    report = check(HARBOUR, TEXTS, verifier=verifier)
    assert len(report.claims) >= 6
    assert report.entailment_score == pytest.approx(0.4)
    assert report.contradiction_probability == pytest.approx(0.15)
    assert report.neutral_probability == pytest.approx(0.45)
    judged = [c.entailment for c in report.claims if c.entailment is not None]
    assert report.entailment_score == min(judged)


@pytest.mark.requirement("005-6.2-3")
def test_each_claim_gets_its_own_windows() -> None:
    verifier = Scripted({})
    context = [HARBOUR * 30, LIBRARY * 30]
    answer = "The port authority employs 640 people. The reading room has 120 seats."
    check(answer, context, verifier=verifier)
    assert len(verifier.seen) == 2
    for (_, windows), value in zip(verifier.seen, ("640", "120"), strict=True):
        assert value in windows[0]
        assert all(len(window) <= verifier.passage for window in windows)
        assert all(any(window in text for text in context) for window in windows)
        assert sum(map(len, windows)) < len(context[0])


@pytest.mark.requirement("005-6.2-3")
def test_a_long_sentence_is_given_in_pieces_and_none_is_lost() -> None:
    sentence = "The inventory lists " + ", ".join(f"item {n} of the store" for n in range(26)) + "."
    assert len(sentence) > Scripted.passage
    verifier = Scripted({})
    check("The inventory lists item 25 of the store.", [sentence], verifier=verifier)
    given_text = "".join(verifier.seen[0][1])
    assert sentence in given_text


@pytest.mark.requirement("005-6.2-3")
def test_the_best_window_decides() -> None:
    verifier = AlignmentVerifier()
    claim = "The reading room has 120 seats."
    true, other = "The reading room has 120 seats.", "Whales are mammals."
    best = verifier.judge(claim, [other, true, other])
    assert best.passage == 1
    assert best.entailment == verifier.judge(claim, [true]).entailment > 0.9


def test_a_changed_value_contradicts() -> None:
    verifier = AlignmentVerifier()
    said = verifier.judge("The reading room has 210 seats.", ["The reading room has 120 seats."])
    assert said.contradiction > 0.9 > 0.1 > said.entailment
    assert said.entailment + said.contradiction + said.neutral == pytest.approx(1.0)


def test_under_the_letter_a_verifier_does_not_overrule_a_typed_finding() -> None:
    report = check(
        "The port authority employs 460 people.",
        [HARBOUR],
        verifier=Scripted({"460": 0.99}),
        settings=literal(decides="composite"),
    )
    assert report.entailment_score <= 0.05
    claim = report.claims[0]
    assert claim.entailment is not None
    assert claim.contradiction is not None
    assert claim.neutral is not None
    assert claim.entailment + claim.contradiction + claim.neutral == pytest.approx(1.0)


@pytest.mark.requirement("005-6.2-1")
def test_a_verifier_of_the_users_own_decides() -> None:
    said = "Some 640 folk work there."
    kept = plain_check(said, [HARBOUR], verifier=Scripted({"640": 0.99}))
    assert (kept.risk_level, kept.flagged, kept.claims[0].status) == ("LOW", False, "SUPPORTED")
    doubted = plain_check(said, [HARBOUR], verifier=Scripted({"640": 0.01}))
    assert (doubted.risk_level, doubted.claims[0].status) == ("MEDIUM", "UNSUPPORTED")


def test_without_context_nothing_is_entailed() -> None:
    report = check("The port authority employs 640 people.", [])
    assert report.entailment_score == 0.0
    assert "context=0" in report.flags


@pytest.mark.requirement("005-6.3-1")
@given(st.lists(st.sampled_from(HARBOUR.split(". ")), max_size=3))
def test_the_three_probabilities_sum_to_one(parts: list[str]) -> None:
    report = check(". ".join(parts), [LIBRARY, HARBOUR])
    total = report.entailment_score + report.contradiction_probability + report.neutral_probability
    assert total == pytest.approx(1.0)


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_curve_is_monotone(first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert 0.0 <= curve(low) <= curve(high) <= 1.0


@pytest.mark.requirement("005-6.2-1")
def test_the_heuristic_is_not_called_nli() -> None:
    report = check(HARBOUR, [HARBOUR])
    assert report.verifier == "alignment@1"
    assert all("nli" not in run.engine.lower() for run in report.stages)
