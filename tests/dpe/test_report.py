"""Stage 13: the report, its identity and its hash; the pipeline as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from pydantic import ValidationError

from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.report import finish
from crp_integrations.seals import sha256, window_hmac
from crp_integrations.vocabulary import ChainIntegrity
from tests.doubles import HashEmbedder
from tests.dpe.helpers import check as plain_check
from tests.dpe.helpers import check_literally as check
from tests.dpe.texts import HARBOUR, LIBRARY, SENTENCES

IDENTITY = {
    "session_id": "crp_sess_7f3a9bc2d4e1f083",
    "window_id": "crp_win_0000000000000001",
    "timestamp": "2026-05-25T10:00:00Z",
    "settings_digest": "sha256:" + "0" * 64,
}


def _finished(answer: str = HARBOUR, number: int = 1) -> Report:
    return finish(check(answer, SENTENCES), window_number=number, **IDENTITY)


@pytest.mark.requirement("005-15.2-1", "005-15.2-5")
def test_the_fields_have_the_documents_names() -> None:
    sealed = _finished(number=3).changed(
        hmac="sha256:" + "1" * 64, chain_integrity=ChainIntegrity.VALID
    )
    fields = sealed.model_dump(mode="json")
    for name, value in IDENTITY.items():
        assert fields[name] == value
    assert fields["window_number"] == 3
    assert fields["hmac"] == "sha256:" + "1" * 64
    assert fields["chain_integrity"] == "VALID"
    assert fields["response_content_hash"] == sha256(HARBOUR)
    assert fields["report_hash"].startswith("sha256:")
    assert fields["risk_level"] == "LOW"
    for name in (
        "claims_total", "claims_by_type", "attribution_dominant", "grounding_pct",
        "fabrication_count", "distortion_count", "distortion_types", "contradiction_count",
        "contradiction_scope", "fidelity_score", "entailment_score", "composite_score",
        "amplifiers_applied",
    ):  # fmt: skip
        assert name in fields
    assert sealed.risk_score == sealed.composite_score
    assert Report.model_validate_json(sealed.model_dump_json()) == sealed


@pytest.mark.requirement("005-15.2-5")
def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError):
        Report.model_validate({**_finished().model_dump(), "composite": 0.1})


@pytest.mark.requirement("005-15.2-1", "005-15.3-1")
def test_the_hash_covers_everything_but_the_seal() -> None:
    report = _finished()
    assert report.report_hash == _finished().report_hash
    assert report.report_hash != _finished(number=2).report_hash
    assert report.report_hash != _finished(LIBRARY).report_hash
    altered = report.changed(composite_score=0.0, report_hash="")
    again = finish(altered, window_number=1, **IDENTITY)
    assert again.report_hash != report.report_hash
    sealed = report.changed(hmac="sha256:" + "1" * 64, chain_integrity=ChainIntegrity.VALID)
    assert finish(sealed, window_number=1, **IDENTITY).report_hash == report.report_hash


@pytest.mark.requirement("005-15.3-1", "005-15.3-2")
def test_the_golden_seal() -> None:
    fields = {
        "session_id": "crp_sess_7f3a9bc2d4e1f083",
        "window_number": 1,
        "timestamp": "2026-05-25T10:00:00Z",
        "response_hash": "sha256:aaa",
        "report_hash": "sha256:bbb",
        "parent_hmac": "",
    }
    key = bytes.fromhex("0123456789abcdef" * 4)
    sealed = window_hmac(key, **fields)
    assert sealed == "sha256:0ae1c732552e11d35e72ae3647a984b3385e87e4a7d5e976b8e949fa6615bcef"
    for name, value in fields.items():
        changed = value + 1 if isinstance(value, int) else value + "x"
        assert window_hmac(key, **{**fields, name: changed}) != sealed


def test_stages_that_ran_are_named_and_no_others() -> None:
    report = check(HARBOUR, SENTENCES, embedder=HashEmbedder())
    assert [run.number for run in report.stages] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13]
    assert all(run.engine and run.name for run in report.stages)
    assert report.embedder == "hash-embedder/256"


def test_a_tracer_sees_each_stage() -> None:
    class Listening:
        def __init__(self) -> None:
            self.steps: list[str] = []

        def step(self, name: str) -> AbstractContextManager[None]:
            @contextmanager
            def opened() -> Iterator[None]:
                self.steps.append(name)
                yield

            return opened()

    tracer = Listening()
    plain_check(HARBOUR, SENTENCES, tracer=tracer)
    assert tracer.steps == [
        "dpe.1.claims", "dpe.2.comparison", "dpe.4.verifier", "dpe.6.coherence", "dpe.7.repetition", "dpe.8.completeness", "dpe.9.flow",
        "dpe.10.omission", "dpe.11.personal", "dpe.12.regulatory", "dpe.13.report",
    ]  # fmt: skip


@pytest.mark.requirement("005-7.2-5")
def test_the_report_names_every_threshold() -> None:
    thresholds = check(HARBOUR, SENTENCES).thresholds
    settings = DpeSettings()
    for name in ("grounded", "mixed", "specific", "fabrication_penalty", "attribution_weight"):
        assert thresholds[name] == getattr(settings, name)
    assert {"conflict_frame", "negation_frame", "contradicted"} <= set(thresholds)


def test_the_same_dossier_gives_the_same_report() -> None:
    answers = [HARBOUR.replace("640", "460"), "Doctor Quill sold 99 yachts.", ""]
    for answer in answers:
        assert check(answer, SENTENCES) == check(answer, SENTENCES)


def test_evidence_points_into_the_facts() -> None:
    report = check(HARBOUR + " " + LIBRARY, SENTENCES)
    facts = {f"f{number}": text for number, text in enumerate(SENTENCES, 1)}
    seen = 0
    for claim in report.claims:
        for evidence in claim.evidence:
            quoted = facts[evidence.fact_id][evidence.start : evidence.end]
            seen += claim.text.rstrip(".")[:20] in quoted
    assert seen >= 8
