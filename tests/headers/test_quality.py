"""Headers of stages 6 to 9: values only for what was computed."""

from __future__ import annotations

import pytest

from crp_integrations.dpe.records import Quality, StageRun
from crp_integrations.dpe.report_parts import Completeness
from crp_integrations.headers import names
from crp_integrations.headers.codec import parse_response
from crp_integrations.headers.response_headers import render_headers
from crp_integrations.vocabulary import CompletenessLevel, RepetitionLevel
from tests.headers.header_samples import SESSION, envelope, report, seal

QUALITY = {names.REPETITION, names.COMPLETENESS, names.FLOW, names.QUALITY_SCORE}


def said(*ran: int, **fields: object) -> dict[str, str]:
    stages = tuple(StageRun(number=n, name=f"stage {n}", engine="test@1") for n in (1, *ran))
    return render_headers(
        envelope(),
        report(stages=stages, **fields),
        session_id=SESSION,
        window_number=2,
        window_total=5,
        seal=seal(),
    )


def needs(covered: int, *uncovered: str) -> Quality:
    level = CompletenessLevel.PARTIAL if uncovered else CompletenessLevel.COMPLETE
    return Quality(
        completeness=Completeness(
            level=level,
            score=covered / (covered + len(uncovered)),
            covered=tuple(f"need {n}" for n in range(covered)),
            uncovered=uncovered,
        )
    )


def test_without_completeness_there_is_no_score_of_the_rest() -> None:
    headers = said(6, 7, 8, 9, quality=Quality())
    assert {names.COMPLETENESS, names.QUALITY_SCORE}.isdisjoint(headers)
    assert names.FLOW in headers


@pytest.mark.parametrize("missing", [6, 7, 8, 9])
def test_what_did_not_run_has_no_header(missing: int) -> None:
    headers = said(*{6, 7, 8, 9} - {missing}, quality=needs(1))
    gone = {7: names.REPETITION, 8: names.COMPLETENESS, 9: names.FLOW}
    assert names.QUALITY_SCORE not in headers
    assert gone.get(missing) not in headers
    assert QUALITY - {names.QUALITY_SCORE, gone.get(missing)} <= set(headers)


def test_they_are_read_back() -> None:
    headers = said(6, 7, 8, 9, quality=needs(3, "GDPR"), repetition_level=RepetitionLevel.SEVERE,
                   repetition_overlap=0.5)  # fmt: skip
    back = parse_response(headers)
    assert back.completeness is not None
    assert (back.completeness.covered, back.completeness.uncovered) == (3, ("gdpr",))
    assert back.repetition is not None
    assert back.repetition.overlap == 0.5
