"""What was edited in a near copy of a source sentence is found; what was only reworded is not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.dpe.verifier.value_origins import swap, tokens
from crp_integrations.dpe.verifier.values import read
from crp_integrations.dpe.verifier.word_edits import Edits
from tests.dpe.helpers import check, kinds, only
from tests.dpe.texts import TEXTS

NEGATION = "NEGATION_FLIP"


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("She became head of the choir in 2008.", "She did not become head of the choir in 2008."),
        ("The guild made its first coins in Essen.", "The guild didn't make its first coins in Essen."),
        ("He began his career at the mill.", "He never began his career at the mill."),
        ("The crew took the northern road home.", "The crew failed to take the northern road home."),
        ("Marta is no longer with the firm.", "Marta is still with the firm."),
        ("The valve is not on the supply pipe.", "The valve is on the supply pipe."),
        ("Others wrote of the sundial in that period.", "Others did not write of the sundial in that period."),
        ("No one was taken to the hospital.", "Someone was taken to the hospital."),
    ],
)  # fmt: skip
def test_a_denial_put_in_or_taken_out_in_any_form_of_the_verb(source: str, answer: str) -> None:
    assert only(check(answer, [source])).kind == NEGATION


@pytest.mark.parametrize(
    ("source", "answer", "wrong", "right"),
    [
        ("Orvik is the largest town of the county.", "Orvik is the smallest town of the county.", "smallest", "largest"),
        ("The mill lies north of the old canal.", "The mill lies west of the old canal.", "west", "north"),
        ("Her oldest daughter runs the farm.", "Her oldest son runs the farm.", "son", "daughter"),
        ("Call it before the file is closed.", "Call it after the file is closed.", "after", "before"),
        ("The names are always encoded in full.", "The names are always decoded in full.", "decoded", "encoded"),
        ("The weights must be greater than the mean.", "The weights must be smaller than the mean.", "smaller", "greater"),
        ("This was the first time that the bridge was shut.", "This was the last time that the bridge was shut.", "last", "first"),
        ("It copies the input graph twice.", "It copies the output graph twice.", "output", "input"),
    ],
)  # fmt: skip
def test_a_word_replaced_by_one_that_excludes_it(
    source: str, answer: str, wrong: str, right: str
) -> None:
    finding = only(check(answer, [source]))
    assert answer[finding.start : finding.end] == wrong
    assert finding.expected == right


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("The tank sits above the pump.", "The pump sits below the tank."),
        ("The lake is north of the town.", "The town is south of the lake."),
        ("It is the largest town of the county.", "It is the biggest town of the county."),
        ("The first is larger than the second.", "The second is smaller than the first."),
        ("Entry is not lawful after dusk.", "Entry is unlawful after dusk."),
        ("The list is not needed, and the index does not have to be sorted.",
         "The list isn't needed, and the index doesn't have to be sorted."),
        ("The value read from the file is not trimmed and is returned as it is.",
         "The value read from the file isn't trimmed and is returned as it is."),
        ("If the step is not a number, then the stop is not part of it.",
         "The stop isn't part of it if the step is not a number."),
        ("The filter loses no more than the limit and has at least four poles.",
         "The filter has at least four poles."),
        ("VIEW (without TABLE) leaves the temporary ones out.", "VIEW leaves the temporary ones out."),
        ("The exam takes 3 hours.", "The exam takes 180 minutes."),
        ("Fungi can rarely lead to this condition.", "In rare cases, fungi can lead to this condition."),
        ("Garden parking: street. Validated: False.", "Garden parking is on the street and not validated."),
    ],
)  # fmt: skip
def test_the_same_said_otherwise_is_no_finding(source: str, answer: str) -> None:
    assert kinds(check(answer, [source])) == []


def test_another_sentence_that_says_it_is_its_source() -> None:
    context = [
        "The pump can change the pressure of the pipe. The valve does not change the pressure."
    ]
    assert kinds(check("The valve doesn't change the pressure.", context)) == []


@pytest.mark.parametrize(
    ("source", "answer", "wrong"),
    [
        ("Norton defeated Ellis in the final.", "Ellis defeated Norton in the final.", "Ellis"),
        ("The tram runs from Orvik to Lindmouth.", "The tram runs from Lindmouth to Orvik.", "Lindmouth"),
        ("It rained on 12 days in May and on 19 days in June.",
         "It rained on 19 days in May and on 12 days in June.", "19 days"),
        ("The Orvik River is a tributary of Lake Selm.", "Lake Selm is a tributary of the Orvik River.", "Lake Selm"),
    ],
)  # fmt: skip
def test_two_values_in_each_others_place(source: str, answer: str, wrong: str) -> None:
    finding = only(check(answer, [source]))
    assert answer[finding.start : finding.end] == wrong


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("Norton and Ellis founded the club.", "Ellis and Norton founded the club."),
        ("Norton married Ellis in Orvik.", "Ellis married Norton in Orvik."),
        ("The church was rebuilt in 1725 and again in 1807.", "The church was rebuilt in 1807 and again in 1725."),
        ("The line passes Orvik, Selm and Arden.", "The line passes Arden, Selm and Orvik."),
        ("Norton wrote to Ellis. Ellis wrote to Norton.", "Ellis wrote to Norton."),
    ],
)  # fmt: skip
def test_an_order_that_says_nothing_may_change(source: str, answer: str) -> None:
    assert kinds(check(answer, [source])) == []


def test_a_unit_without_a_figure_is_compared() -> None:
    source, answer = "He was clerk for several years.", "He was clerk for several months."
    finding = only(check(answer, [source]))
    assert (finding.kind, answer[finding.start : finding.end]) == ("NUMBER_CHANGED", "months")


def test_a_currency_is_not_said_by_a_bare_number_beside_it() -> None:
    source = "The airline sold ten seats on each flight for $10."
    finding = only(check("The airline sold ten seats on each flight for £10.", [source]))
    assert finding.expected == "$10"


@pytest.mark.parametrize(
    ("source", "answer", "lost"),
    [
        ("Every node reachable from the start has a parent, except for the start itself.",
         "Every node reachable from the start has a parent.", True),
        ("If the array has no mask, the address of the mask is returned from the array.",
         "The address of the mask is returned from the array.", True),
        ("The hook is called while the cursor (if any) is open.", "The hook is called while the cursor is open.", False),
        ("If np.random is given, return it wrapped in a class.", "Return it wrapped in a class if np.random is given.", False),
        ("Norton allegedly took the money.", "The court alleges that Norton took the money.", False),
    ],
)  # fmt: skip
def test_a_condition_is_lost_when_its_words_are_not_said_once_more(
    source: str, answer: str, lost: bool
) -> None:
    assert ("CONTEXT_STRIPPED" in kinds(check(answer, [source]))) is lost


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("The diner is at 4 State St, Goleta, CA.", "The diner is in Goleta, California."),
        ("Jag won the POV on Monday.", "Jag won the Power of Veto on Monday."),
        ("He came from Korea as a child.", "As a child, the Korean man came."),
        ("Hours: Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday 9-5.", "The cafe is open seven days a week."),
        ("The cafe has a rating of 4.5 stars.", "The cafe has a rating of 4.5 out of 5 stars."),
        ("Bake the bread at 350 °F.", "Bake the bread at 350 °F (175 °C)."),
        ("Open to 7:00 pm. Parking is free for customers.", "It is open to 7:00 pm. Customers park free."),
    ],
)  # fmt: skip
def test_what_follows_from_the_context_needs_no_words_there(source: str, answer: str) -> None:
    assert "fabrication" not in kinds(check(answer, [source]))
    assert "ENTITY_SUBSTITUTED" not in kinds(check(answer, [source]))


@pytest.mark.parametrize(
    "answer", ["Bake the bread at 350 °F (195 °C).", "The cafe has a rating of 4.5 out of 6 stars."]
)
def test_what_does_not_follow_is_still_found(answer: str) -> None:
    context = ["Bake the bread at 350 °F. The cafe has a rating of 4.5 stars."]
    assert kinds(check(answer, context)) != []


def test_an_announcement_of_the_answer_states_nothing_of_the_world() -> None:
    answer = "Here is a summary of the article in 78 words:\n\nHe came from Korea as a child."
    assert kinds(check(answer, ["He came from Korea as a child."])) == []


@given(st.sampled_from([s for text in TEXTS for s in text.split(". ")]))
def test_a_sentence_is_no_edit_of_itself(sentence: str) -> None:
    reading = read(sentence)
    edits = Edits(reading, reading)
    assert edits.same
    assert edits.denied() is None
    assert edits.turned() is None
    assert swap(reading, reading, []) is None


@settings(max_examples=200)
@given(st.text(max_size=200), st.text(max_size=200))
def test_any_two_texts_can_be_compared(one: str, other: str) -> None:
    edits = Edits(read(one), read(other))
    assert 0.0 <= edits.share <= 1.0
    for found in (edits.denied(), edits.turned()):
        if found is not None:
            assert 0 <= found[0].start <= found[0].end <= len(one)
            assert 0 <= found[1].start <= found[1].end <= len(other)
    for token in tokens(one):
        assert 0 <= token.start < token.end <= len(one)
