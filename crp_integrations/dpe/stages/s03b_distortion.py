"""Stage 3b: claims that rest on a source and misrepresent it.

Spec: CRP-SPEC-005 §5.3
"""

from __future__ import annotations

from crp_integrations.dpe.records import Claim, Evidence, Finding
from crp_integrations.dpe.stages.s03a_fabrication import in_answer
from crp_integrations.dpe.state import State
from crp_integrations.dpe.verifier.alignment import IDENTITY
from crp_integrations.dpe.verifier.features import Alignment, Change
from crp_integrations.language.quantities import Quantity
from crp_integrations.vocabulary import Checked, DistortionType


def kind_of(change: Change) -> DistortionType:
    """The distortion type of a changed value.

    Names are substituted, dates shifted, percentages altered in magnitude; every other figure,
    and a changed unit or currency, is a changed number.

    Spec: CRP-SPEC-005 §5.3
    """
    families = {change.claim.family, change.source.family}
    if families == {"name"}:
        return DistortionType.ENTITY_SUBSTITUTED
    if "date" in families:
        return DistortionType.DATE_SHIFTED
    own, other = change.claim.of, change.source.of
    if (
        isinstance(own, Quantity)
        and isinstance(other, Quantity)
        and own.kind == "percent" == other.kind
        and own.unit == other.unit
    ):
        return DistortionType.MAGNITUDE_ALTERED
    return DistortionType.NUMBER_CHANGED


def distortions(state: State) -> list[Finding]:
    """A finding for each value, negation and condition that differs from the source's.

    Spec: CRP-SPEC-005 §5.3
    """
    found: list[Finding] = []
    for claim, alignment in zip(state.claims, state.alignments, strict=True):
        if alignment is None or claim.checked is not Checked.CHECKED:
            continue
        for change in alignment.changes:
            span = in_answer(claim, change.claim)
            if span is not None:
                found.append(_changed(state, claim, change, span))
        found.extend(_sense(state, claim, alignment))
    return found


def _evidence(state: State, passage: int, start: int, end: int) -> Evidence:
    return Evidence(
        fact_id=state.dossier.passages[passage][0], start=start, end=end, score=1.0, engine=IDENTITY
    )


def _changed(state: State, claim: Claim, change: Change, span: tuple[int, int]) -> Finding:
    return Finding(
        stage=3,
        kind=kind_of(change).value,
        claim_id=claim.claim_id,
        start=span[0],
        end=span[1],
        evidence=_evidence(state, change.passage, change.start, change.end),
        expected=change.source.text,
    )


def _sense(state: State, claim: Claim, alignment: Alignment) -> list[Finding]:
    if not alignment.units:
        return []
    unit = alignment.units[0]
    text = state.context.text(unit)
    if alignment.flip is not None:
        source = alignment.flip.source
        prefix = len(claim.reads_as) - (claim.end - claim.start)
        own = alignment.flip.claim
        start = max(claim.start, claim.start - prefix + own.start)
        end = max(start, claim.start - prefix + own.end)
        return [
            Finding(
                stage=3,
                kind=DistortionType.NEGATION_FLIP.value,
                claim_id=claim.claim_id,
                start=start,
                end=end,
                evidence=_evidence(
                    state, unit.passage, unit.start + source.start, unit.start + source.end
                ),
                expected=source.of(text),
            )
        ]
    if alignment.condition is not None:
        span = alignment.condition
        return [
            Finding(
                stage=3,
                kind=DistortionType.CONTEXT_STRIPPED.value,
                claim_id=claim.claim_id,
                start=claim.start,
                end=claim.end,
                evidence=_evidence(
                    state, unit.passage, unit.start + span.start, unit.start + span.end
                ),
                expected=span.of(text),
            )
        ]
    return []
