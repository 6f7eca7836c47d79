"""Which pairs of claims of one answer are compared, and what leaving the others out loses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.fidelity import _near
from tests.dpe.helpers import check_literally as check
from tests.dpe.helpers import kinds, literal

PRESETS = (DpeSettings.preset("literal"), DpeSettings())
SENTENCES = (
    "The tower has 40 floors.", "The tower has 60 floors.", "The bridge is open.",
    "The bridge is not open.", "The dome opened in 1990.", "The dome opened in 1991.",
    "It is 5.", "It is 7.", "Gardens grow tulips.", "A permit is required.",
    "A permit is not required.", "Nobody knows.", "The tower is red.",
)  # fmt: skip


@pytest.mark.requirement("005-5.4-1")
@given(st.lists(st.sampled_from(SENTENCES), min_size=2, max_size=8, unique=True))
def test_pairs_that_share_nothing_lose_no_contradiction(chosen: list[str]) -> None:
    """The published loss of `share` is 0: a contradiction needs three quarters of common words."""
    answer = " ".join(chosen)
    share, every = (check(answer, [], settings=literal(pairs=pairs)) for pairs in ("share", "all"))
    assert share.findings == every.findings
    opposed = [
        (a, b)
        for a, b in zip(SENTENCES[:6:2], SENTENCES[1:6:2], strict=True)
        if a in chosen and b in chosen
    ]
    assert kinds(every).count("contradiction") >= len(opposed)


@pytest.mark.requirement("005-5.4-1")
def test_literal_meets_every_pair_and_default_those_that_share_most() -> None:
    claims = list(
        check(
            " ".join(f"The tower had {40 + n} floors in {1990 + n}." for n in range(12)), []
        ).claims
    )
    every, some = ([one.places for one in _near(claims, preset)] for preset in PRESETS)
    assert every == [tuple(range(at)) for at in range(12)]
    assert some == [tuple(range(min(at, 8))) for at in range(12)]
    # A pair without a common word is met too, and is about two things.
    claims = list(
        check("The tower has 40 floors. Gardens grow. The tower has 9 floors.", []).claims
    )
    assert [one.places for one in _near(claims, PRESETS[0])] == [(), (), (0,)]
