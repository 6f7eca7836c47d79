"""Stage 12: the call's regulatory class, tier and controls, by the shipped catalogue.

A policy engine that fails never leads to a better class than it would have named: the class is
UNKNOWN, the report says that it was not checked, and for a registered system the answer is
treated as high-risk and halted, since nothing rules out that its use is forbidden.

Spec: CRP-SPEC-005 §14 (decision D20)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from crp_integrations.dpe.catalogue import catalogue, evidence_of, named
from crp_integrations.dpe.compliance import Classification
from crp_integrations.dpe.records import StageRun
from crp_integrations.dpe.state import State, checked_share
from crp_integrations.errors import EngineError
from crp_integrations.vocabulary import AiActClass

NUMBER: Final = 12
NAME: Final = "regulatory classification"
# As signals are named.
VERDICT: Final = "regulatory.verdict"
# Evidence that a stage gives by having run, by its number.
_OF_STAGES: Final = {
    1: "answer-segmented",
    2: "sources-attributed",
    3: "fidelity-verified",
    4: "entailment-scored",
    6: "windows-compared",
    7: "repetition-measured",
    8: "completeness-measured",
    9: "flow-measured",
    10: "omissions-searched",
    11: "personal-data-searched",
}


def classify(state: State) -> State:
    """Ask the policy engine about the registered system, what was found, and the evidence.

    Without an engine the stage does not run, and the class stays UNKNOWN.

    Spec: CRP-SPEC-005 §14.1
    """
    engine, system = state.tools.policy, state.dossier.system
    if engine is None:
        return state
    question = {
        "domain": system.domain.value if system.domain else "",
        "decides": system.decides,
        "personal": bool(state.personal.found),
        "evidence": sorted(evidence(state)),
    }

    def asked() -> Mapping[str, Any] | None:
        try:
            return engine.decide(catalogue(), question)
        except EngineError:
            return None

    verdict = state.tools.signals.said(VERDICT, asked)
    try:
        found = Classification(failed=True) if verdict is None else _read(verdict)
    except EngineError:
        found = Classification(failed=True)
    registered = system.domain is not None
    found = found.model_copy(
        update={
            "engine": f"{engine.identity}; {named()}",
            # Nothing rules out that a registered use is forbidden when the rules cannot be asked.
            "halts": found.halts or (found.failed and registered),
        }
    )
    run = StageRun(number=NUMBER, name=NAME, engine=found.engine)
    return replace(state, classification=found, stages=(*state.stages, run))


def evidence(state: State) -> frozenset[str]:
    """Names of the evidence at hand: of this run, of the relay, and what the operator attests.

    Spec: CRP-SPEC-005 §14.1 (decision D20)
    """
    ran = {run.number for run in state.stages}
    own = {name for number, name in _OF_STAGES.items() if number in ran}
    if state.factual and checked_share(state) == 1.0:
        own.add("answer-read-whole")
    if 11 in ran and (not state.personal.found or state.dossier.no_store):
        own.add("personal-data-not-kept")
    if state.dossier.passages and all(fact_id for fact_id, _ in state.dossier.passages):
        own.add("facts-identified")
    if state.dossier.system.domain is not None:
        own.add("system-registered")
    others = evidence_of("relay") | evidence_of("operator")
    return frozenset(own | others.intersection(state.dossier.system.evidence))


def _read(verdict: Mapping[str, Any]) -> Classification:
    """What the rules said; a verdict that is not of their form is a failed engine's.

    Raises:
        EngineError: a part is missing or is none of the words that the rules can say.
    """
    try:
        met = {str(name): tuple(sorted(needs)) for name, needs in verdict["met"].items()}
        unmet = {str(name): () for name in verdict["open"]}
        return Classification(
            eu_ai_act_class=AiActClass(verdict["ai_act_class"]),
            nist_tier=verdict["nist_tier"],
            iso_42001_controls=tuple(verdict["iso_42001"]),
            controls=dict(sorted({**unmet, **met}.items())),
            # Rules that do not say what halts stop what the Act forbids.
            halts=bool(verdict.get("halts", verdict["ai_act_class"] == AiActClass.UNACCEPTABLE)),
            controls_met=len(met),
            controls_total=len(met) + len(unmet),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EngineError("the verdict on the catalogue is malformed", engine="policy") from error
