"""What a window is told of the one before: the first that fits, and no summary that was not checked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.envelope.candidates import SUMMARY_SOURCE
from crp_integrations.envelope.continuation import EARLIER, evolve
from crp_integrations.envelope.records import EarlierWindow
from crp_integrations.scores import to_fixed
from crp_integrations.seals import sha256
from crp_integrations.session import transfer
from crp_integrations.session.settings import TransferSettings
from crp_integrations.session.transfer import (
    Transfer,
    choose_transfer,
    make_transfer,
    result_text,
    summary_tokens,
)
from crp_integrations.vocabulary import Purpose, QualityTier, TransferType
from tests.doubles import WordCounter
from tests.envelope.builders import SETTINGS as ENVELOPE
from tests.envelope.builders import LetterCounter, candidates

SETTINGS = TransferSettings()
TOKENS = st.integers(0, 5_000)
ANSWER = "It opened in 1911.\n\nTwo reactors run. The second began in 1999."


@pytest.mark.parametrize(
    ("answer", "deferred", "chosen"),
    [
        (600, 0, TransferType.FULL_CONTEXT),
        (500, 100, TransferType.FULL_CONTEXT),
        (601, 0, TransferType.SUMMARY),
        (4_000, 300, TransferType.SUMMARY),
        (4_000, 301, TransferType.FACTS_ONLY),
        (4_000, 600, TransferType.FACTS_ONLY),
        (4_000, 601, TransferType.RESULT_ONLY),
        (0, 601, TransferType.RESULT_ONLY),
    ],
)
def test_the_first_that_fits_in_three_fifths(
    answer: int, deferred: int, chosen: TransferType
) -> None:
    assert choose_transfer(answer, deferred, 1_000, SETTINGS) is chosen


def test_without_a_model_no_summary_is_chosen() -> None:
    assert choose_transfer(601, 0, 1_000, SETTINGS, summarised=False) is TransferType.FACTS_ONLY
    assert choose_transfer(601, 0, 1_000, SETTINGS, summarised=True) is TransferType.SUMMARY


@given(TOKENS, TOKENS, st.integers(-50, 5_000))
def test_what_is_chosen_fits_and_nothing_longer_does(
    answer: int, deferred: int, available: int
) -> None:
    chosen = choose_transfer(answer, deferred, available, SETTINGS)
    # In whole tokens, without a float: 0.60 of n is 3 n / 5.
    fits = [
        5 * (answer + deferred) <= 3 * max(0, available),
        summary_tokens(answer, available, SETTINGS) > 0
        and 5 * (summary_tokens(answer, available, SETTINGS) + deferred) <= 3 * available,
        5 * deferred <= 3 * max(0, available),
        True,
    ]
    assert list(TransferType)[fits.index(True)] is chosen


@pytest.mark.parametrize(
    ("answer", "available", "tokens"),
    [(1_000, 10_000, 250), (10_000, 1_000, 300), (3, 1_000, 0), (1_000, 0, 0), (1_000, -5, 0)],
)
def test_how_long_a_summary_may_be(answer: int, available: int, tokens: int) -> None:
    assert summary_tokens(answer, available, SETTINGS) == tokens


def test_the_call_for_a_summary() -> None:
    call = transfer.summary_call(ANSWER, 250, model="m", settings=SETTINGS, seed=7)
    assert (call.purpose, call.temperature, call.max_tokens) == (Purpose.SUMMARISE, 0.1, 250)
    assert (call.model, call.seed) == ("m", 7)
    system, user = call.messages
    assert user.content == ANSWER
    assert "at most 250 tokens" in system.content
    assert "crp" not in (system.content + call.model).lower()


def settled(
    chosen: TransferType,
    *,
    summary: str = "",
    fidelity: float | None = None,
    available: int = 100,
    deferred: int = 0,
) -> Transfer:
    return make_transfer(
        chosen,
        ANSWER,
        deferred_tokens=deferred,
        available_tokens=available,
        counter=WordCounter(),
        settings=SETTINGS,
        summary=summary,
        fidelity=fidelity,
    )


def test_a_checked_summary_goes_over() -> None:
    made = settled(TransferType.SUMMARY, summary="Opened in 1911.", fidelity=0.80)
    assert made == Transfer(TransferType.SUMMARY, "Opened in 1911.", 3)
    assert made.summary_hash == sha256("Opened in 1911.")


@pytest.mark.parametrize(
    ("summary", "fidelity"),
    [("Opened in 1912.", 0.79), ("Opened in 1911.", None), (" \n", 1.0), ("word " * 61, 1.0)],
)
def test_a_summary_that_is_unfaithful_unchecked_empty_or_long_does_not(
    summary: str, fidelity: float | None
) -> None:
    made = settled(TransferType.SUMMARY, summary=summary, fidelity=fidelity)
    assert made.type is TransferType.RESULT_ONLY
    assert made.text == "Two reactors run. The second began in 1999."
    assert made.tokens == 8 and made.summary_hash == ""


def test_the_other_three_types() -> None:
    whole = settled(TransferType.FULL_CONTEXT)
    assert (whole.text, whole.tokens) == (ANSWER, WordCounter().count(ANSWER))
    assert settled(TransferType.FACTS_ONLY) == Transfer(TransferType.FACTS_ONLY)
    assert settled(TransferType.RESULT_ONLY, available=20).text == "The second began in 1999."
    assert settled(TransferType.RESULT_ONLY, available=3) == Transfer(TransferType.RESULT_ONLY)


PIECES = st.lists(
    st.sampled_from(["One ran.", "It is so.", " ", "\n", "\n\n", "- a list", "No end", "Ok?"]),
    max_size=12,
).map("".join)


@given(PIECES, st.integers(0, 60))
def test_a_result_is_the_answers_own_end_and_fits(answer: str, most: int) -> None:
    text = result_text(answer, most, LetterCounter())
    assert len(text) <= most
    assert answer.rstrip().endswith(text)
    assert "\n\n" not in text
    if most >= 60 and answer.strip() and len(answer) <= 60:
        assert text


def test_a_long_answer_without_paragraphs_takes_no_long_time() -> None:
    answer = "The plant ran. " * 20_000
    assert result_text(answer, 30, WordCounter()) == ("The plant ran. " * 10).strip()


def test_what_goes_over_is_one_fact_of_the_next_envelope() -> None:
    prior = EarlierWindow(
        window_number=1, etag=sha256("e"), facts_seen=(), quality_tier=QualityTier.A
    )
    text = settled(TransferType.SUMMARY, summary="Opened in 1911.", fidelity=0.9).text
    told = prior.changed(summary=text)
    (fact,) = evolve(candidates(), [told], counter=LetterCounter(), settings=ENVELOPE).facts
    assert (fact.content, fact.importance) == (EARLIER + "Opened in 1911.", to_fixed(0.95))
    assert fact.source_id == f"{SUMMARY_SOURCE}1"
    silent = prior.changed(summary=settled(TransferType.FACTS_ONLY).text)
    assert silent.summary == ""
