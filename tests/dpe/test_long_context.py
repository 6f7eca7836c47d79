"""The context is searched whole: what stands at its end is found, and nothing is cut."""

from __future__ import annotations

import pytest

from crp_integrations.dpe.verifier.context import LONGEST_UNIT, PassageContext
from crp_integrations.vocabulary import Attribution, Checked, RiskLevel
from tests.doubles import HashEmbedder
from tests.dpe.helpers import check_literally as check
from tests.dpe.helpers import kinds, literal, only
from tests.dpe.texts import HARBOUR, TEXTS

TRUE = "The Lindmouth port authority employs 640 people in its northern office."
FALSE = TRUE.replace("640", "460")
FREIGHT = "The harbour handled 4,200,000 tonnes of freight in 2023."


def _plants(count: int) -> list[str]:
    return [
        f"Plant {n} of the Corvane group made {1000 + 7 * n} pumps in May 2021."
        for n in range(count)
    ]


def _long(characters: int) -> str:
    filler = " ".join(TEXTS).replace("640", "six hundred")
    return (filler + " ") * (characters // len(filler) + 1)


@pytest.mark.requirement("005-6.2-3", "005-6.2-4")
@pytest.mark.parametrize(
    "context",
    [
        pytest.param([*_plants(200), TRUE], id="200 facts"),
        pytest.param([_long(100_000) + TRUE], id="one fact of 100k characters"),
        pytest.param([_long(100_000).replace(". ", " ") + TRUE], id="100k without sentence ends"),
        pytest.param([HARBOUR] * 200 + [TRUE], id="200 copies"),
    ],
)
def test_a_wrong_figure_at_the_end_of_a_long_context(context: list[str]) -> None:
    assert sum(map(len, context)) > 150 * len(TRUE)
    assert kinds(check(TRUE, context)) == []
    report = check(FALSE, context)
    finding = only(report)
    assert finding.kind == "NUMBER_CHANGED"
    assert finding.expected == "640 people" or finding.expected == "640"
    assert finding.evidence is not None
    assert finding.evidence.fact_id == f"f{len(context)}"
    assert context[-1][finding.evidence.start : finding.evidence.end] == finding.expected
    assert report.checked_share == 1.0
    assert report.risk_level is not RiskLevel.LOW


@pytest.mark.parametrize("place", [0, 99, 199])
def test_a_template_of_200_facts(place: int) -> None:
    facts = _plants(200)
    assert kinds(check(facts[place], facts)) == []
    wrong = facts[place].replace(
        f"made {1000 + 7 * place}", f"made {1000 + 7 * ((place + 50) % 200)}"
    )
    report = check(wrong, facts)
    assert len(report.findings) == 1
    assert report.distortion_count == 1


def test_units_cover_every_passage() -> None:
    for text in (_long(5_000), "x" * 5_000, "a b " * 3_000, "", " ", HARBOUR):
        units = PassageContext([text]).units
        covered = {at for unit in units for at in range(unit.start, unit.end)}
        assert {at for at, c in enumerate(text) if not c.isspace()} <= covered
        assert all(unit.end - unit.start <= LONGEST_UNIT + 60 for unit in units)


def test_a_long_context_with_an_embedder() -> None:
    report = check(FALSE, [*_plants(200), TRUE], embedder=HashEmbedder())
    assert kinds(report) == ["NUMBER_CHANGED"]


@pytest.mark.requirement("005-6.2-4")
def test_what_is_beyond_the_limits_is_reported_as_not_checked() -> None:
    answer = f"{TRUE} {FREIGHT}"
    settings = literal(most_claims=1)
    report = check(answer, [TRUE, FREIGHT], settings=settings)
    assert [claim.checked for claim in report.claims] == [Checked.CHECKED, Checked.NOT_CHECKED]
    first, second = report.claims
    share = (first.end - first.start) / (first.end - first.start + second.end - second.start)
    assert report.checked_share == pytest.approx(share)
    assert second.attribution is not Attribution.CONTEXT_GROUNDED
    assert second.entailment is None
    assert report.entailment_score == 0.0
    assert report.risk_level is not RiskLevel.LOW
    clean = check(answer, [TRUE, FREIGHT])
    assert clean.checked_share == 1.0
    assert clean.risk_level is RiskLevel.LOW


@pytest.mark.requirement("005-6.2-4")
def test_a_claim_longer_than_the_limit_is_not_checked() -> None:
    report = check(TRUE, [TRUE], settings=literal(longest_claim=20))
    assert report.claims[0].checked is Checked.NOT_CHECKED
    assert report.checked_share == 0.0
    assert report.risk_level is not RiskLevel.LOW
