"""Stage 10: important facts of the envelope that no sentence of the answer uses.

An omission is not incompleteness: that is stage 8's word on what the question asked for.

Spec: CRP-SPEC-005 §12
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from crp_integrations.dpe.compliance import Omission
from crp_integrations.dpe.records import StageRun
from crp_integrations.dpe.state import State
from crp_integrations.language.words import content_stems

NUMBER: Final = 10
NAME: Final = "omission detection"
WORDS: Final = "fact words@1"
# Facts whose similarities are computed at once.


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
    if embedder is None:
        engine, threshold = WORDS, settings.covered_words
        scores = _by_words(state, wanted)
    else:
        engine = f"cosine@1 with {embedder.identity}"
        threshold = settings.threshold(embedder.thresholds)
        scores = _by_cosine(state, wanted)
    found = []
    for place, score in zip(wanted, scores, strict=True):
        severity = severities[place]
        if score < threshold and severity is not None:
            found.append(
                Omission(
                    fact_id=dossier.passages[place][0],
                    importance=dossier.importances[place],
                    severity=severity,
                    score=score,
                )
            )
    run = StageRun(number=NUMBER, name=NAME, engine=f"{engine} from {threshold:g}")
    return replace(state, omissions=tuple(found), stages=(*state.stages, run))


def _by_cosine(state: State, places: list[int]) -> list[float]:
    """The best cosine of a sentence with each fact, [0, 1], six digits; 0 without sentences."""
    sentences = state.session.answer.sentences
    if not sentences or not places:
        return [0.0] * len(places)
    near = state.session.best_for_facts("omission.cosines", places)
    return [min(1.0, max(0.0, value)) for value in near]


def _by_words(state: State, places: list[int]) -> list[float]:
    """The largest share of a fact's content words that one sentence has, six digits."""
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
