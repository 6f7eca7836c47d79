"""What is written of reports, judgements and settings says the same as what is read back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crp_integrations.dpe.records import Classification, Report, StageRun
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.policy.records import PolicyJudgement
from crp_integrations.policy.verdict import AnswerTerms
from crp_integrations.receipt import outline
from crp_integrations.receipt.canonical import dumps
from crp_integrations.receipt.predicate_verdict import TermsTold
from crp_integrations.receipt.window_values import (
    InForce,
    Told,
    disclosed,
    dpe_settings,
    envelope_settings,
)
from crp_integrations.relay import receipts as recorded
from crp_integrations.vocabulary import QualityTier
from tests.receipt.relayed import ANSWER, MODEL, QUESTION, opened

PERSONAL = "Write to anna@example.org or to 192.168.0.1. It delivers 412 megawatts."
STRICT = "default-src context; halt-on risk-critical; warn-on fabrication; require-review always"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Told]:
    """What receipts are made of while the test runs."""
    found: list[Told] = []
    draft: Callable[..., Any] = recorded.draft

    def noted(one: Told, version: str) -> Any:
        found.append(one)
        return draft(one, version)

    monkeypatch.setattr(recorded, "draft", noted)
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
        written = dumps(outline.report(one.report, needs, outline.written))
        assert written == dumps(outline.report(one.report, needs))
        if answer == ANSWER:
            assert b'"evidence":[{' in written
        judged = one.decided.judgement
        assert judged is not None
        assert dumps(outline.written(judged)) == dumps(outline.plain(judged))


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
    found = outline.written(changed)
    assert found["signals"] == {"attribution": 250_000}
    assert found["composite_score"] == round(report.composite_score * 1_000_000)
    assert found["classification"]["controls"] == {"A.2": ("one", "two"), "A.1": ()}
    # A record that has nothing to change is its values, and stays as it is itself.
    run = StageRun(number=1, name="one", engine="rules@1")
    assert outline.written(run) == {"number": 1, "name": "one", "engine": "rules@1"}
    outline.written(run)["name"] = "two"
    assert run.name == "one"


def test_fields_that_may_hold_a_float_or_a_record_are_written_anew() -> None:
    changing = set(outline.changing(Report))
    floats = {"signals", "composite_score", "base_score", "thresholds", "quality", "claims"}
    assert floats <= changing
    assert changing.isdisjoint({"flags", "claims_by_type", "risk_level", "omission_summary"})
    assert {"violations", "warnings"} == set(outline.changing(PolicyJudgement))


def test_settings_are_read_once_for_all_receipts_that_tell_the_same() -> None:
    in_force = InForce(digest="sha256:" + "2" * 64, envelope=EnvelopeSettings(), dpe=DpeSettings())
    told = disclosed(in_force)["envelope"]
    again = dict(reversed(told.items()))
    assert envelope_settings(told, ()) is envelope_settings(again, ())
    other = envelope_settings({**told, "promote": not told["promote"]}, ())
    assert other.promote is not envelope_settings(told, ()).promote
    # Nor is a number another's text, or the other way about.
    with pytest.raises(ValueError, match="cannot be read"):
        envelope_settings({**told, "packing": 1}, ())
    assert envelope_settings(told, ()).packing == told["packing"]
    assert dpe_settings(disclosed(in_force)["dpe"], ()) == in_force.dpe


@pytest.mark.parametrize("limit", [None, 2])
def test_a_limit_that_is_none_is_told_as_well(limit: int | None) -> None:
    hybrid = EnvelopeSettings().hybrid.model_copy(update={"passed_over": limit})
    settings = EnvelopeSettings(hybrid=hybrid)
    in_force = InForce(digest=f"sha256:{limit}", envelope=settings, dpe=DpeSettings())
    told = disclosed(in_force)["envelope"]
    assert told["hybrid.passed_over"] == limit
    assert envelope_settings(told, ()).hybrid.passed_over == limit


def test_settings_without_end_are_not_kept() -> None:
    in_force = InForce(digest="sha256:" + "3" * 64, envelope=EnvelopeSettings(), dpe=DpeSettings())
    told = {**disclosed(in_force)["envelope"], "layout": "x" * 70_000}
    for _ in range(2):
        with pytest.raises(ValueError, match="cannot be read"):
            envelope_settings(told, ())


def test_a_setting_that_there_is_not_is_refused() -> None:
    in_force = InForce(digest="sha256:" + "4" * 64, envelope=EnvelopeSettings(), dpe=DpeSettings())
    told = disclosed(in_force)["envelope"]
    for path in ("reuse.of_other_times", "of_other_times"):
        with pytest.raises(ValueError, match="cannot be read"):
            envelope_settings({**told, path: 1}, ())


def test_a_part_of_the_content_has_the_fields_that_it_declares() -> None:
    terms = AnswerTerms(review_below=0.25, accept_quality=(QualityTier.A,))
    found = outline.declared(TermsTold, terms)
    assert found.keys() == TermsTold.model_fields.keys()
    assert (found["review_below"], found["accept_quality"]) == (250_000, ["A"])
    assert outline.declared(TermsTold, terms, part=True)["part"] is True
    with pytest.raises(TypeError, match="declares no field other"):
        outline.declared(TermsTold, terms, other=1)
