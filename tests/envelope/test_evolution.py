"""From window to window: nothing twice, nothing forgotten, and the summary beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.continuation import (
    SUMMARY_SOURCE,
    deferred_ids,
    evolve,
    next_window_number,
    seen_hashes,
)
from crp_integrations.envelope.records import Candidate, PriorWindow, SeenFact
from crp_integrations.errors import RequestError
from crp_integrations.scores import SCALE
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import QualityTier
from tests.envelope.builders import SETTINGS, LetterCounter, candidates, fact, made

ETAG = "sha256:" + "ab" * 32


def window(
    number: int = 1,
    *shown: Candidate,
    summary: str = "",
    left: tuple[str, ...] = (),
    tier: QualityTier = QualityTier.B,
) -> PriorWindow:
    return PriorWindow(
        window_number=number,
        etag=ETAG,
        facts_seen=tuple(
            SeenFact(fact_id=one.fact_id, content_hash=sha256(one.content)) for one in shown
        ),
        deferred=left,
        summary=summary,
        quality_tier=tier,
    )


def evolved(given: Candidates, *prior: PriorWindow) -> Candidates:
    return evolve(given, prior, counter=LetterCounter(), settings=SETTINGS)


def ids(found: Candidates) -> list[str]:
    return [one.fact_id for one in found.facts]


A, B, C, D = (fact(name, content=f"The text of {name}.") for name in "abcd")


@pytest.mark.requirement("003-14.2-1")
def test_what_was_shown_goes_unless_its_text_has_changed() -> None:
    changed = fact("b", content="The text of b, as it is now.")
    found = evolved(candidates(A, changed, C), window(1, A, B))
    assert ids(found) == ["b", "c"]
    # What was changed and shown again is seen with its new text.
    assert ids(evolved(candidates(A, changed, C), window(1, A, B), window(2, changed))) == ["c"]
    assert ids(evolved(candidates(A, B, C), window(1, A, B), window(2, changed))) == ["b", "c"]


@pytest.mark.requirement("003-14.2-2")
def test_one_set_of_seen_facts_holds_for_all_windows_of_a_session() -> None:
    prior = (window(3, C), window(1, A), window(2, B))
    assert seen_hashes(prior) == {one.fact_id: sha256(one.content) for one in (A, B, C)}
    assert ids(evolved(candidates(A, B, C, D), *prior)) == ["d"]
    with pytest.raises(RequestError, match=r"windows \[1, 1\] repeat a number"):
        seen_hashes((window(1, A), window(1, B)))


@pytest.mark.requirement("003-14.1-3")
def test_deferred_facts_of_all_windows_wait_until_one_shows_them() -> None:
    prior = (window(1, A, left=("b", "c", "d")), window(2, C, left=("b", "e")))
    assert deferred_ids(prior) == ("b", "d", "e")
    assert deferred_ids(()) == ()
    assert next_window_number(prior) == 3
    assert next_window_number(()) == 1


def test_what_says_the_same_as_a_seen_fact_goes_with_it() -> None:
    given = candidates(A, B, C, D, duplicates=((0, 1), (2, 3)), conflicts=((1, 3),))
    found = evolved(given, window(1, A))
    # b stands for a; c and d are near each other alone, and are now at the places 0 and 1.
    assert ids(found) == ["c", "d"]
    assert list(found.duplicates) == [(0, 1)]
    assert list(found.conflicts) == []
    # A twin that was shown before with another text is kept: it says something new.
    changed = fact("b", content="Now b says more.")
    given = candidates(A, changed, duplicates=((0, 1),))
    assert ids(evolved(given, window(1, A, B))) == ["b"]


@pytest.mark.requirement("003-14.1-5")
def test_deferred_facts_summary_and_new_facts_are_packed_together() -> None:
    told = "The first answer named a."
    prior = window(1, A, summary=told, left=("b",))
    found = evolved(candidates(A, B, C), prior)
    (summary,) = [one for one in found.facts if one.source_id.startswith(SUMMARY_SOURCE)]
    assert summary.content == told
    assert summary.source_id == "crp:summary:1"
    assert summary.tokens == len("[10] " + told + "\n\n")
    assert (summary.relevance, summary.importance) == (SCALE, SCALE * 95 // 100)
    assert found.facts == tuple(sorted(found.facts, key=lambda one: one.fact_id))
    envelope = made(found, window_number=2)
    assert {one.content for one in envelope.facts} == {told, B.content, C.content}
    assert told in envelope.text
    # With room for one fact alone it is the summary that is kept.
    assert [one.content for one in made(found, budget_tokens=summary.tokens).facts] == [told]


def test_a_summary_is_told_once() -> None:
    first = window(1, A, summary="The first answer named a.")
    second = made(evolved(candidates(A, B), first), window_number=2).as_prior("And then b.")
    assert {one.fact_id for one in second.facts_seen} == {"b", *_summary_ids(first)}
    third = evolved(candidates(A, B, C), first, second)
    assert [one.content for one in third.facts if one.source_id.startswith(SUMMARY_SOURCE)] == [
        "And then b."
    ]


def _summary_ids(prior: PriorWindow) -> set[str]:
    return {one.fact_id for one in evolved(candidates(), prior).facts}


def test_without_prior_windows_nothing_changes() -> None:
    given = candidates(A, B)
    assert evolved(given) is given


def test_an_envelope_leaves_what_the_next_window_needs() -> None:
    envelope = made(candidates(A, B), window_number=4)
    prior = envelope.as_prior("Short.")
    assert prior.window_number == 4
    assert prior.etag == envelope.etag
    assert prior.quality_tier is envelope.quality_tier
    assert set(prior.facts_seen) == set(window(1, A, B).facts_seen)
    assert PriorWindow.model_validate_json(prior.model_dump_json()) == prior
    with pytest.raises(ValidationError, match="fact a is both seen and deferred"):
        window(1, A, left=("a",))


@pytest.mark.requirement("003-14.2-1")
@given(
    st.dictionaries(st.integers(0, 15), st.booleans(), max_size=12),
    st.lists(st.integers(0, 15), unique=True, max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=6),
)
def test_any_windows_leave_exactly_what_is_new(
    shown: dict[int, bool], found: list[int], near: list[tuple[int, int]]
) -> None:
    pool = [fact(f"f{n:02d}", content=f"text {n}") for n in range(16)]
    given_facts = [pool[n] for n in sorted(found)]
    pairs = sorted({(i, j) for i, j in near if i < j < len(given_facts)})
    # True: the fact was shown with the text that it has now.
    prior = window(
        1, *(pool[n] if same else fact(f"f{n:02d}", content="old") for n, same in shown.items())
    )
    left = set(ids(evolved(candidates(*given_facts, duplicates=tuple(pairs)), prior)))
    same = {f"f{n:02d}" for n, unchanged in shown.items() if unchanged}
    names = [one.fact_id for one in given_facts]
    twins = {names[j] for i, j in pairs if names[i] in same} | {
        names[i] for i, j in pairs if names[j] in same
    }
    changed = {f"f{n:02d}" for n, unchanged in shown.items() if not unchanged}
    assert left == set(names) - same - (twins - changed)
