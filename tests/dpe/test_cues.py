"""A cue is counted wherever its pattern finds it: the first look spares only texts without any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.verifier.claim_measures import (
    ABSOLUTES,
    HEDGES,
    OPINIONS,
    SILENCES,
    SOURCES,
    Cues,
)

EVERY = {
    "hedges": (
        HEDGES,
        """may might could possible possibly perhaps likely probable probably seems appeared
        suggested potentially generally typically often usually sometimes can""".split(),
    ),
    "absolutes": (
        ABSOLUTES,
        """all always every only none never most best any each entirely exclusively must
        completely significantly various numerous wide""".split(),
    ),
    "silences": (
        SILENCES,
        ["unable to answer", "cannot find", "can't really determine", "couldn't even so provide",
         "does not mention", "doesn't specify", "is not contained", "has included", "not stated",
         "were addressed", "did not indicate", "no mention", "no information", "no indication",
         "no specific"],
    ),
    "sources": (
        SOURCES,
        """passage passages context document documents article text report according reviewers
        customer customers mentioned state states provided given data based_on""".split(),
    ),
    "opinions": (
        OPINIONS,
        """great perfect ideal excellent popular favorite favourite amazing delicious unique cozy
        welcoming friendly comfortable convenient charming vibrant must-visit highlights ensures
        helpful provides offering experience suitable well-known loved praised known_for""".split(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
def test_each_cue_is_counted_in_any_case_and_beside_any_sign(name: str) -> None:
    cues, words = EVERY[name]
    for word in (word.replace("_", " ") for word in words):
        for text in (
            word,
            f"It {word.upper()}, so.",
            f"({word.title()})",
            f"\u00e9t\u00e9 {word}!",
        ):
            assert cues.count(text) == len(cues.pattern.findall(text)) >= 1, text


def test_letters_that_ignoring_case_takes_for_others_spare_nothing() -> None:
    assert [HEDGES.count("L\u0131kely."), SOURCES.count("The conte\u017ft"), ABSOLUTES.count("Mo\u017ft")] == [
        1, 0, 1,
    ]  # fmt: skip


@given(
    st.sampled_from([cues for cues, _ in EVERY.values()]),
    st.lists(
        st.sampled_from(
            [word for _, words in EVERY.values() for word in words]
            + ["not", "no", "rain", "x", "-", "'", "\u00e9", "_", "7", "\u017f", "\u0131"]
        ),
        max_size=8,
    ),
    st.sampled_from([" ", "", "-", "_", "\u00e9", "\n"]),
)
def test_the_first_look_changes_no_count(cues: Cues, pieces: list[str], joint: str) -> None:
    text = joint.join(pieces)
    assert cues.count(text) == len(cues.pattern.findall(text))
