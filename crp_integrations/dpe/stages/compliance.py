"""Stages 10 to 12: omitted facts, personal data, and the regulatory class of the call.

Spec: CRP-SPEC-005 §12, §13, §14
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from crp_integrations.dpe.catalogue import catalogue, evidence_of, named
from crp_integrations.dpe.engine_signals import Signals, fixed
from crp_integrations.dpe.pii.contact import finds_phones, is_same_number
from crp_integrations.dpe.pii.recognisers import OWN, find_personal_data
from crp_integrations.dpe.pii.spans import KINDS, NEVER_CHECKED, PersonalSpan, apart, is_repeated
from crp_integrations.dpe.ports import Recogniser
from crp_integrations.dpe.records import (
    Classification,
    Omission,
    PersonalData,
    PersonalDatum,
    StageRun,
)
from crp_integrations.dpe.settings import PersonalSettings
from crp_integrations.dpe.state import State, checked_share
from crp_integrations.errors import EngineError
from crp_integrations.language.words import content_stems
from crp_integrations.scores import SCALE
from crp_integrations.vocabulary import AiActClass, PersonalCategory

WORDS: Final = "fact words@1"


def find_omissions(state: State) -> State:
    """Look for every important fact in the answer; without importances the stage does not run.

    Spec: CRP-SPEC-005 §12.2
    """
    dossier, settings = state.dossier, state.tools.settings.omission
    if not dossier.importances:
        return state
    severities = [settings.severity(importance) for importance in dossier.importances]
    wanted = [place for place, severity in enumerate(severities) if severity is not None]
    embedder = state.tools.embedder
    if embedder is None or state.tools.settings.decides == "claims":
        engine, threshold = WORDS, settings.covered_words
        scores = _by_words(state, wanted)
    else:
        engine = f"cosine@1 with {embedder.identity}"
        threshold = settings.threshold(embedder.thresholds)
        scores = _by_cosine(state, wanted)
    omissions = []
    for place, score in zip(wanted, scores, strict=True):
        severity = severities[place]
        if score < threshold and severity is not None:
            omissions.append(
                Omission(
                    fact_id=dossier.passages[place][0],
                    importance=dossier.importances[place],
                    severity=severity,
                    score=score,
                )
            )
    run = StageRun(number=10, name="omission detection", engine=f"{engine} from {threshold:g}")
    return replace(state, omissions=tuple(omissions), stages=(*state.stages, run))


def _by_cosine(state: State, places: list[int]) -> list[float]:
    """The best cosine of a sentence with each fact, [0, 1], six digits; 0 without sentences."""
    sentences = state.session.answer.sentences
    if not sentences or not places:
        return [0.0] * len(places)
    near = state.session.best_for_facts("omission.cosines", places)
    return [min(1.0, max(0.0, value)) for value in near]


def _by_words(state: State, places: list[int]) -> list[float]:
    """The largest share of each fact's content words in one sentence, six digits."""
    holding: dict[str, list[int]] = {}
    for number, stems in enumerate(state.session.answer.stems):
        for stem in stems:
            holding.setdefault(stem, []).append(number)
    best = []
    for place in places:
        stems = frozenset(content_stems(state.dossier.passages[place][1]))
        shared: dict[int, int] = {}
        for stem in stems:
            for number in holding.get(stem, ()):
                shared[number] = shared.get(number, 0) + 1
        best.append(round(max(shared.values(), default=0) / max(1, len(stems)), 6))
    return best


WARNING: Final = (
    "personal data was found and the request does not say no-store; send "
    "CRP-Context-Cache: no-store, or make sure that there is a ground for keeping it"
)


def find_personal(state: State) -> State:
    """Search the request's prompt and the answer for personal data of every category.

    Spec: CRP-SPEC-005 §13.1, §13.3 (decision E22)
    """
    dossier, settings = state.dossier, state.tools.settings.personal
    others = state.tools.recognisers
    asked = (*(text for _, text in dossier.conversation), dossier.question)
    texts: tuple[tuple[Literal["prompt", "answer"], str], ...] = (
        ("prompt", dossier.prompt or "\n\n".join(text for text in asked if text)),
        ("answer", dossier.answer),
    )
    data: list[PersonalDatum] = []
    own_data: list[tuple[str, str]] = []
    truncated = False
    for where, text in texts:
        spans = _spans(text, settings, others, state.tools.signals)
        truncated = truncated or len(spans) > settings.most_found
        if where == "prompt":
            places = _places(text, asked)
            own_data = [
                _datum(span, text)
                for span in spans
                if any(start <= span.start and span.end <= end for start, end in places)
            ]
        data.extend(
            PersonalDatum(
                category=span.category, kind=span.kind, where=where, start=span.start, end=span.end,
                recogniser=span.recogniser, score=span.score,
                in_question=_is_own(*_datum(span, text), own_data, asked, settings.regions),
            )
            for span in spans[: settings.most_found]
        )  # fmt: skip
    own = {kind: of for kind, of in KINDS.items() if kind != "phone" or finds_phones()}
    kinds = {OWN: own} | {recogniser.identity: recogniser.kinds for recogniser in others}
    checked = {
        engine: {kind: of for kind, of in known.items() if kind not in settings.aside}
        for engine, known in kinds.items()
    }
    looked_for = {kind for known in checked.values() for kind in known}
    personal = PersonalData(
        found=tuple(data),
        checked={
            category.value: tuple(n for n, known in checked.items() if category in known.values())
            for category in PersonalCategory
        },
        not_checked=tuple(sorted({*KINDS, *NEVER_CHECKED} - looked_for)),
        warning=WARNING if data and not dossier.no_store else "",
        truncated=truncated,
    )
    run = StageRun(number=11, name="personal data detection", engine="; ".join(checked))
    return replace(state, personal=personal, stages=(*state.stages, run))


def _places(text: str, parts: Sequence[str]) -> list[tuple[int, int]]:
    """Where parts of a text stand in it, each from the end of the text on before the next one."""
    places, before = [], len(text)
    for part in reversed(parts):
        start = text.rfind(part, 0, before)
        if start >= 0:
            places.append((start, start + len(part)))
            before = start
    return places


def _is_own(
    kind: str,
    datum: str,
    own_data: Iterable[tuple[str, str]],
    asked: Iterable[str],
    regions: Sequence[str],
) -> bool:
    """Whether a datum repeats one of the question or of the messages before it."""
    if kind == "person":
        return is_repeated(datum, "\n".join(asked))
    shown = _signs(datum)
    return any(
        shown == _signs(own)
        or (kind == own_kind == "phone" and is_same_number(datum, own, regions))
        for own_kind, own in own_data
    )


def _signs(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))


def _datum(span: PersonalSpan, text: str) -> tuple[str, str]:
    return span.kind, text[span.start : span.end]


def _spans(
    text: str, settings: PersonalSettings, others: Iterable[Recogniser], signals: Signals
) -> list[PersonalSpan]:
    spans = list(find_personal_data(text, settings=settings))
    for recogniser in others:
        spans.extend(
            span
            for span in _spans_of(signals, recogniser, text)
            if span.score >= settings.least_score and span.kind not in settings.aside
        )
    return apart(spans)


def _spans_of(signals: Signals, recogniser: Recogniser, text: str) -> list[PersonalSpan]:
    """The places that another recogniser finds, with scores rounded to a millionth."""

    def asked() -> list[list[str | int]]:
        return [
            [
                span.category.value,
                span.kind,
                span.start,
                span.end,
                span.recogniser,
                fixed(span.score),
            ]
            for span in recogniser.find(text)
        ]

    return [
        PersonalSpan(PersonalCategory(category), kind, start, end, name, score / SCALE)
        for category, kind, start, end, name, score in signals.said(
            f"personal.{recogniser.identity}", asked
        )
    ]


# Name of the engine signal.
VERDICT: Final = "regulatory.verdict"
# Evidence that exists once a stage has run, by the stage's number.
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
    """Ask the policy engine for the class of the registered system and the controls met.

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
        classification = Classification(failed=True) if verdict is None else _read(verdict)
    except EngineError:
        classification = Classification(failed=True)
    registered = system.domain is not None
    classification = classification.model_copy(
        update={
            "engine": f"{engine.identity}; {named()}",
            # Without a verdict, a registered use may be a forbidden one.
            "halts": classification.halts or (classification.failed and registered),
        }
    )
    run = StageRun(number=12, name="regulatory classification", engine=classification.engine)
    return replace(state, classification=classification, stages=(*state.stages, run))


def evidence(state: State) -> frozenset[str]:
    """Names of the available evidence: from this run, from the relay, and from the operator.

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
    """The classification from a verdict; raises EngineError for a malformed one."""
    try:
        met = {str(name): tuple(sorted(needs)) for name, needs in verdict["met"].items()}
        unmet = {str(name): () for name in verdict["open"]}
        return Classification(
            eu_ai_act_class=AiActClass(verdict["ai_act_class"]),
            nist_tier=verdict["nist_tier"],
            iso_42001_controls=tuple(verdict["iso_42001"]),
            controls=dict(sorted({**unmet, **met}.items())),
            # Without `halts` in the verdict, only uses that the Act forbids halt.
            halts=bool(verdict.get("halts", verdict["ai_act_class"] == AiActClass.UNACCEPTABLE)),
            controls_met=len(met),
            controls_total=len(met) + len(unmet),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EngineError("the verdict on the catalogue is malformed", engine="policy") from error
