"""What is written of reports and judgements says the same as what is compared in a replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crp_integrations.dpe.compliance import Classification
from crp_integrations.dpe.records import Report, StageRun
from crp_integrations.policy.records import Judgement
from crp_integrations.receipt import bare
from crp_integrations.receipt.canonical import dumps
from crp_integrations.receipt.told import Told
from crp_integrations.relay import close_records
from tests.receipt.relayed import ANSWER, MODEL, QUESTION, opened

PERSONAL = "Write to anna@example.org or to 192.168.0.1. It delivers 412 megawatts."
STRICT = "default-src context; halt-on risk-critical; warn-on fabrication; require-review always"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Told]:
    """What receipts are made of while the test runs."""
    found: list[Told] = []
    draft: Callable[..., Any] = close_records.draft

    def noted(one: Told, version: str) -> Any:
        found.append(one)
        return draft(one, version)

    monkeypatch.setattr(close_records, "draft", noted)
    return found


@pytest.mark.parametrize("answer", [ANSWER, PERSONAL, "", "I do not know."])
def test_what_is_written_says_what_is_compared(told: list[Told], answer: str) -> None:
    relay, _ = opened(answer, answer, answer)
    for _ in range(2):
        # The second window has an earlier one, which it repeats.
        relay.ask(QUESTION, model=MODEL, session_id="crp_sess_" + "b" * 16)
    assert len(told) == 2
    for one in told:
        needs = one.examined.dossier.sub_queries if one.examined else ()
        written = dumps(bare.report(one.report, needs, bare.written))
        assert written == dumps(bare.report(one.report, needs))
        if answer == ANSWER:
            assert b'"evidence":[{' in written
        judged = one.decided.judgement
        assert judged is not None
        assert dumps(bare.written(judged)) == dumps(bare.plain(judged))


def test_floats_are_written_in_millionths_wherever_they_stand(told: list[Told]) -> None:
    relay, _ = opened()
    relay.ask(QUESTION, model=MODEL)
    report = told[0].report
    changed = report.model_copy(
        update={
            "signals": {"attribution": 0.25},
            "classification": Classification(controls={"A.2": ("one", "two"), "A.1": ()}),
        }
    )
    found = bare.written(changed)
    assert found["signals"] == {"attribution": 250_000}
    assert found["composite_score"] == round(report.composite_score * 1_000_000)
    assert found["classification"]["controls"] == {"A.2": ("one", "two"), "A.1": ()}
    # A record that has nothing to change is its values, and stays as it is itself.
    run = StageRun(number=1, name="one", engine="rules@1")
    assert bare.written(run) == {"number": 1, "name": "one", "engine": "rules@1"}
    bare.written(run)["name"] = "two"
    assert run.name == "one"


def test_fields_that_may_hold_a_float_or_a_record_are_written_anew() -> None:
    changing = set(bare.changing(Report))
    floats = {"signals", "composite_score", "base_score", "thresholds", "quality", "claims"}
    assert floats <= changing
    assert changing.isdisjoint({"flags", "claims_by_type", "risk_level", "omission_summary"})
    assert {"violations", "warnings"} == set(bare.changing(Judgement))
