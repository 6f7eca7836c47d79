"""Stage 12: classes of registered domains, the tier, controls from evidence, a failing engine."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.catalogue import catalogue, evidence_of
from crp_integrations.dpe.dossier import Dossier, System
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import DpeSettings, Registration
from crp_integrations.engines.rego import RegoEngine
from crp_integrations.errors import ConfigError, EngineError
from crp_integrations.guard.ports import Bundle, PolicyEngine
from crp_integrations.vocabulary import AiActClass, Domain

ENGINE = RegoEngine()
PLAIN = "The ferry carries forty cars and sails at nine."
WITH_PERSONAL = PLAIN + " Write to jo.doe@example.com."


def _report(
    system: System, answer: str = PLAIN, policy: PolicyEngine | None = ENGINE, **more: Any
) -> Report:
    passages = tuple((f"f{n}", text) for n, text in enumerate([PLAIN], 1))
    return examine(
        Dossier("", answer, passages, system=system, **more),
        embedder=None,
        verifier=None,
        settings=DpeSettings(),
        policy=policy,
    )


def _class(domain: Domain | None, **about: Any) -> AiActClass:
    answer = WITH_PERSONAL if about.pop("personal", False) else PLAIN
    return _report(System(domain=domain, **about), answer).eu_ai_act_class


@pytest.mark.requirement("005-14.2-1")
def test_biometric_identification_is_unacceptable_and_halts() -> None:
    report = _report(System(domain=Domain.BIOMETRIC_IDENTIFICATION))
    assert report.eu_ai_act_class is AiActClass.UNACCEPTABLE
    assert report.classification.halts


@pytest.mark.requirement("005-14.2-1", "005-14.1-1")
@pytest.mark.parametrize("decides", [False, True])
def test_an_unregistered_system_is_unknown(decides: bool) -> None:
    report = _report(System(decides=decides), WITH_PERSONAL)
    assert report.eu_ai_act_class is AiActClass.UNKNOWN
    assert report.nist_tier == "UNKNOWN"
    assert not report.classification.halts
    assert "eu-ai-act-high-risk" not in report.amplifiers_applied


@pytest.mark.requirement("005-14.2-2")
@pytest.mark.parametrize(
    "domain", [Domain.EMPLOYMENT, Domain.EDUCATION_ACCESS, Domain.CRITICAL_INFRASTRUCTURE]
)
@pytest.mark.parametrize("personal", [False, True])
def test_high_domains_are_high(domain: Domain, personal: bool) -> None:
    assert _class(domain, personal=personal) is AiActClass.HIGH
    report = _report(System(domain=domain))
    assert report.amplifiers_applied == ("eu-ai-act-high-risk",)
    assert not report.classification.halts


@pytest.mark.requirement("005-14.2-3", "005-14.1-1")
@pytest.mark.parametrize(("personal", "decides"), list(itertools.product([False, True], repeat=2)))
def test_general_information_is_high_when_personal_data_take_part_in_decisions(
    personal: bool, decides: bool
) -> None:
    wanted = AiActClass.HIGH if personal and decides else AiActClass.LIMITED
    found = _class(Domain.GENERAL_INFORMATION, personal=personal, decides=decides)
    assert found is wanted


@pytest.mark.requirement("005-14.2-3")
def test_personal_data_of_the_prompt_count_too() -> None:
    system = System(domain=Domain.GENERAL_INFORMATION, decides=True)
    report = _report(system, prompt="I am jo.doe@example.com; may I have a loan?")
    assert report.eu_ai_act_class is AiActClass.HIGH


@pytest.mark.requirement("005-14.2-4")
@pytest.mark.parametrize("personal", [False, True])
def test_creative_is_minimal(personal: bool) -> None:
    assert _class(Domain.CREATIVE, personal=personal, decides=True) is AiActClass.MINIMAL


@pytest.mark.requirement("005-14.1-2")
def test_every_control_names_its_evidence_and_every_evidence_its_giver() -> None:
    data = catalogue().data
    assert set(data["domains"]) == set(Domain)
    ids = [control["id"] for control in data["controls"]]
    assert len(ids) == len(set(ids))
    assert all(control["needs"] for control in data["controls"])
    needed = {name for control in data["controls"] for name in control["needs"]}
    assert needed == set(data["evidence"])
    assert {about["by"] for about in data["evidence"].values()} == {"engine", "relay", "operator"}
    assert [tier["name"] for tier in data["tiers"]] == ["TIER-1", "TIER-2", "TIER-3", "TIER-4"]
    assert {c for tier in data["tiers"] for c in tier["controls"]} <= set(ids)


def _by_hand(evidence: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """The same rule again, in Python: a control holds with all that it needs."""
    return {
        control["id"]: tuple(sorted(control["needs"])) if set(control["needs"]) <= evidence else ()
        for control in catalogue().data["controls"]
    }


ATTESTED = st.sets(st.sampled_from(sorted(evidence_of("operator") | evidence_of("relay"))))


@pytest.mark.requirement("005-14.1-2")
@given(ATTESTED.map(frozenset), st.sampled_from([None, *Domain]))
def test_controls_met_are_counted_from_evidence(
    attested: frozenset[str], domain: Domain | None
) -> None:
    question = {"domain": domain or "", "decides": False, "personal": False}
    engine_own = {"system-registered"} if domain else set()
    given_ = attested | engine_own
    said = ENGINE.decide(catalogue(), {**question, "evidence": sorted(given_)})
    wanted = _by_hand(frozenset(given_))
    assert {name: tuple(sorted(needs)) for name, needs in said["met"].items()} == {
        name: needs for name, needs in wanted.items() if needs
    }
    assert set(said["open"]) == {name for name, needs in wanted.items() if not needs}
    tiers = 0
    for tier in catalogue().data["tiers"]:
        if not all(wanted[control] for control in tier["controls"]):
            break
        tiers += 1
    assert said["nist_tier"] == (f"TIER-{tiers}" if domain and tiers else "UNKNOWN")


@pytest.mark.requirement("005-14.1-1", "005-14.1-2", "005-15.2-4")
def test_the_report_counts_what_the_run_and_the_operator_show() -> None:
    bare = _report(System(domain=Domain.CREATIVE))
    attested = tuple(sorted(evidence_of("operator") | evidence_of("relay")))
    full = _report(System(domain=Domain.CREATIVE, evidence=attested))
    assert bare.classification.controls_total == len(catalogue().data["controls"])
    assert 0 < bare.classification.controls_met < full.classification.controls_met
    assert full.classification.controls_met <= full.classification.controls_total
    assert "A.9.4" not in bare.iso_42001_controls
    assert "A.9.4" in full.iso_42001_controls
    assert bare.nist_tier == "TIER-1"
    assert full.nist_tier in {"TIER-2", "TIER-3", "TIER-4"}
    assert catalogue().digest in full.classification.engine
    assert "regopy" in full.classification.engine


@pytest.mark.requirement("005-14.1-2")
def test_nobody_can_give_the_engines_evidence_for_it() -> None:
    claimed = System(domain=Domain.CREATIVE, evidence=("answer-read-whole", "windows-compared"))
    honest = System(domain=Domain.CREATIVE)
    assert _report(claimed, "").classification == _report(honest, "").classification
    with pytest.raises(ConfigError, match="answer-read-whole"):
        Registration(evidence=("answer-read-whole",))
    with pytest.raises(ConfigError, match="window-sealed"):
        Registration(evidence=("window-sealed",))
    assert Registration(evidence=("ai-policy",)).system(["window-sealed", "ai-policy"]).evidence == (
        "ai-policy", "window-sealed",
    )  # fmt: skip


class _Failing:
    identity = "failing@1"

    def __init__(self, answer: Mapping[str, Any] | None = None) -> None:
        self._answer = answer

    def decide(self, bundle: Bundle, question: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._answer is None:
            raise EngineError("no", engine="failing")
        return self._answer


@pytest.mark.requirement("005-14.1-1")
@pytest.mark.parametrize(
    "answer",
    [None, {}, {"ai_act_class": "FINE"}, {"ai_act_class": "MINIMAL", "met": [], "open": []}],
)
@pytest.mark.parametrize("domain", [None, *Domain])
def test_a_failing_engine_never_gives_a_better_class(
    domain: Domain | None, answer: Mapping[str, Any] | None
) -> None:
    report = _report(System(domain=domain), policy=_Failing(answer))
    assert report.eu_ai_act_class is AiActClass.UNKNOWN
    assert "classification-not-checked" in report.flags
    assert report.classification.controls_met == 0
    registered = domain is not None
    assert report.classification.halts is registered
    assert ("eu-ai-act-high-risk" in report.amplifiers_applied) is registered


def test_without_an_engine_the_stage_does_not_run() -> None:
    report = _report(System(domain=Domain.EMPLOYMENT), policy=None)
    assert report.eu_ai_act_class is AiActClass.UNKNOWN
    assert 12 not in [run.number for run in report.stages]


def test_the_question_put_to_the_engine_holds_no_text() -> None:
    class Listening(_Failing):
        asked: list[Mapping[str, Any]] = []

        def decide(self, bundle: Bundle, question: Mapping[str, Any]) -> Mapping[str, Any]:
            self.asked.append(question)
            return ENGINE.decide(bundle, question)

    _report(System(domain=Domain.EMPLOYMENT), WITH_PERSONAL, policy=Listening())
    assert "jo.doe" not in repr(Listening.asked)
    assert set(Listening.asked[0]) == {"domain", "decides", "personal", "evidence"}
