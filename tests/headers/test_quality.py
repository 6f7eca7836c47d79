"""Headers of stages 6 to 9: values only for what was computed."""

from __future__ import annotations

import pytest

from crp_integrations.dpe.records import Quality, StageRun
from crp_integrations.dpe.report_parts import Completeness
from crp_integrations.headers import names
from crp_integrations.headers.codec import parse_response
from crp_integrations.headers.grammar import slug
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


def test_repetition() -> None:
    assert said(7)[names.REPETITION] == "NONE"
    found = said(7, repetition_level=RepetitionLevel.SIGNIFICANT, repetition_overlap=0.28)
    assert found[names.REPETITION] == "SIGNIFICANT; overlap=0.28"


def test_completeness() -> None:
    assert said(8, quality=needs(5))[names.COMPLETENESS] == "COMPLETE; sub-queries=5/5"
    open_ = needs(3, "EU AI Act requirements", "GDPR requirements")
    assert said(8, quality=open_)[names.COMPLETENESS] == (
        "PARTIAL; sub-queries=3/5; uncovered=eu-ai-act-requirements,gdpr-requirements"
    )
    assert slug("EU AI Act requirements") == "eu-ai-act-requirements"
    assert said(8, quality=needs(1, "東京"))[names.COMPLETENESS].endswith("uncovered=need-1")


def test_flow_and_score() -> None:
    headers = said(6, 7, 8, 9, flow_score=0.82, rqa_score=0.91)
    assert headers[names.FLOW] == "0.82"
    assert headers[names.QUALITY_SCORE] == "0.91"
    # What a flow score asks for is no remedy that was used.
    assert said(9, flow_score=0.2, flow_remediation="redispatch")[names.FLOW] == "0.2"


@pytest.mark.parametrize("missing", [6, 7, 8, 9])
def test_what_did_not_run_has_no_header(missing: int) -> None:
    headers = said(*{6, 7, 8, 9} - {missing}, quality=needs(1))
    gone = {7: names.REPETITION, 8: names.COMPLETENESS, 9: names.FLOW}
    assert names.QUALITY_SCORE not in headers
    assert gone.get(missing) not in headers
    assert QUALITY - {names.QUALITY_SCORE, gone.get(missing)} <= set(headers)


def test_no_needs_and_reports_of_other_stages_have_none() -> None:
    assert names.COMPLETENESS not in said(8)
    assert not QUALITY & set(said())
    failed = render_headers(
        envelope(),
        report(stages=(StageRun(number=7, name="repetition", engine="x"),)),
        session_id=SESSION,
        window_number=2,
        window_total=5,
        seal=seal(outcome="failed"),
    )
    assert not QUALITY & set(failed)


def test_they_are_read_back() -> None:
    headers = said(6, 7, 8, 9, quality=needs(3, "GDPR"), repetition_level=RepetitionLevel.SEVERE,
                   repetition_overlap=0.5)  # fmt: skip
    back = parse_response(headers)
    assert back.completeness is not None
    assert (back.completeness.covered, back.completeness.uncovered) == (3, ("gdpr",))
    assert back.repetition is not None
    assert back.repetition.overlap == 0.5
