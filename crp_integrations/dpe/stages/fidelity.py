"""Stage 3 of `literal`: checks by look-ups and alignment that claims agree with their sources.

Spec: CRP-SPEC-005 §5
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from crp_integrations.dpe.records import CONTRADICTION, Claim, Evidence, Finding, StageRun
from crp_integrations.dpe.rejections import find_repeats, with_repeats
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.state import State, is_open, with_findings
from crp_integrations.dpe.verifier.alignment import IDENTITY, AlignedChange, Alignment
from crp_integrations.dpe.verifier.opposition import StatementIndex, canonical, compare
from crp_integrations.dpe.verifier.values import Value, read
from crp_integrations.language.quantities import Quantity
from crp_integrations.language.text import Span
from crp_integrations.vocabulary import Attribution, Checked, ClaimType, DistortionType

FABRICATION_KIND = "fabrication"
_UNGROUNDED = (Attribution.UNVERIFIABLE, Attribution.PARAMETRIC, Attribution.MIXED)


def order_of_search(state: State) -> list[int]:
    """Positions of the claims in the order in which they are searched, ungrounded first.

    Spec: CRP-SPEC-005 §5.2 (decision D10)
    """
    ranks = {name: rank for rank, name in enumerate(_UNGROUNDED)}
    return sorted(
        (p for p, claim in enumerate(state.claims) if claim.checked is not Checked.NOT_CHECKED),
        key=lambda p: (ranks.get(state.claims[p].attribution, len(ranks)), p),  # type: ignore[arg-type]
    )


def fabrications(state: State) -> list[Finding]:
    """A finding for each value without a source.

    Spec: CRP-SPEC-005 §5.2
    """
    findings = []
    for place in order_of_search(state):
        claim, alignment = state.claims[place], state.alignments[place]
        if alignment is not None and claim.claim_type is not ClaimType.META:
            findings += [_finding(claim, FABRICATION_KIND, value) for value in alignment.untraced]
    return [finding for finding in findings if finding is not None]


def _finding(
    claim: Claim,
    kind: str,
    own: Value | Span,
    evidence: Evidence | None = None,
    expected: str | None = None,
) -> Finding | None:
    """A finding on words of a claim; None if they are in a borrowed subject.

    The clause from which the subject is borrowed is a claim of its own and reports the defect.
    """
    shift = claim.start - (len(claim.reads_as) - (claim.end - claim.start))
    start, end = shift + own.start, shift + own.end
    if start < claim.start:
        return None
    return Finding(
        stage=3, kind=kind, claim_id=claim.claim_id, start=start, end=end,
        evidence=evidence, expected=expected,
    )  # fmt: skip


def kind_of(change: AlignedChange) -> DistortionType:
    """The distortion type of a changed value.

    A name is substituted, a date shifted, a percentage altered in magnitude; any other change of
    a figure, unit or currency is a changed number.

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
    findings: list[Finding | None] = []
    for claim, alignment in zip(state.claims, state.alignments, strict=True):
        if alignment is not None and claim.checked is Checked.CHECKED:
            findings += _distorted(state, claim, alignment)
    return [finding for finding in findings if finding is not None]


def _distorted(state: State, claim: Claim, alignment: Alignment) -> Iterator[Finding | None]:
    def place(passage: int, start: int, end: int) -> Evidence:
        fact_id = state.dossier.passages[passage][0]
        return Evidence(fact_id=fact_id, start=start, end=end, score=1.0, engine=IDENTITY)

    for change in alignment.changes:
        evidence = place(change.passage, change.start, change.end)
        yield _finding(claim, kind_of(change).value, change.claim, evidence, change.source.text)
    if not alignment.units:
        return
    unit = alignment.units[0]
    whole = len(claim.reads_as)
    own = Span(whole - (claim.end - claim.start), whole)
    if alignment.flip is not None:
        kind, source, cue = (
            DistortionType.NEGATION_FLIP,
            alignment.flip.source,
            alignment.flip.claim,
        )
        start = max(own.start, cue.start)
        own = Span(start, max(start, cue.end))
    elif alignment.condition is not None:
        kind, source = DistortionType.CONTEXT_STRIPPED, alignment.condition
    else:
        return
    evidence = place(unit.passage, unit.start + source.start, unit.start + source.end)
    yield _finding(claim, kind.value, own, evidence, source.of(state.context.text(unit)))


# Minimum share of common words at which two claims are about one thing.
ALIKE = 0.75


def contradictions(state: State) -> tuple[list[Finding], int]:
    """Findings on the later claim of each contradicting pair, and the number of claims cut.

    A pair is skipped if both claims are grounded without findings: then the context itself says
    both. A claim counts as cut if more claims are similar to it than are compared.

    Spec: CRP-SPEC-005 §5.4 (decision D15)
    """
    settings = state.tools.settings
    most = None if settings.pairs == "all" else settings.alike_claims
    claims = [claim for claim in _candidates(state) if not is_listing(claim, settings)]
    readings = [read(claim.reads_as) for claim in claims]
    figures = [frozenset(canonical(v) for v in r.values if v.family != "name") for r in readings]
    index = StatementIndex(len(claims))
    findings: list[Finding] = []
    cut = 0
    for at, (second, reading) in enumerate(zip(claims, readings, strict=True)):
        near = [
            place
            for _, place in index.near(reading, ALIKE)
            if not (_is_grounded(second) and _is_grounded(claims[place]))
        ]
        cut += most is not None and len(near) > most
        for place in sorted(near[:most]):
            # Fast rejection: one value may differ, and one more may have another unit.
            if len(figures[place] - figures[at]) > 2:
                continue
            if compare(readings[place], reading, 0.0).kind is not None:
                first = claims[place]
                findings.append(
                    Finding(
                        stage=3,
                        kind=CONTRADICTION,
                        claim_id=second.claim_id,
                        start=second.start,
                        end=second.end,
                        other_claim_id=first.claim_id,
                        expected=first.text,
                    )
                )
                break
        index.add(reading)
    return findings, cut


def is_listing(claim: Claim, settings: DpeSettings) -> bool:
    """Whether a claim has too many values to be compared with other claims.

    Comparing all values of two listings with each other is slow and says little. The report's
    flags count such claims, so that they are not taken for compared.
    """
    return len(claim.entities) > settings.most_pair_values


def unpaired(state: State) -> int:
    """The number of claims that stage 3c skipped because they are listings."""
    return sum(is_listing(claim, state.tools.settings) for claim in _candidates(state))


def _candidates(state: State) -> list[Claim]:
    return [c for c in state.claims if c.claim_type is ClaimType.FACTUAL and is_open(c)]


def _is_grounded(claim: Claim) -> bool:
    return claim.attribution is Attribution.CONTEXT_GROUNDED and not claim.findings


RUN = StageRun(number=3, name="fidelity verification", engine=f"typed values, {IDENTITY}")


def verify_fidelity(state: State) -> State:
    """Find fabrications, distortions and contradictions.

    Each defect gives one finding: a value in the place of another one of the source is a
    distortion; a value that no source has, and that replaces none, is a fabrication.

    Spec: CRP-SPEC-005 §5.2 to §5.4
    """
    repeated = find_repeats(state)
    # A repeated rejected claim has its finding already.
    settled = {finding.claim_id for finding in repeated}
    invented = [finding for finding in fabrications(state) if finding.claim_id not in settled]
    state = replace(state, claims=with_findings(state.claims, invented))
    state = replace(state, claims=with_findings(state.claims, distortions(state)))
    state = replace(state, claims=with_repeats(state.claims, repeated))
    opposed, pairs_cut = contradictions(state)
    state = replace(state, claims=with_findings(state.claims, opposed), pairs_cut=pairs_cut)
    return replace(state, stages=(*state.stages, RUN))


def counted(state: State) -> tuple[int, int, int]:
    """The numbers of fabrications, distortions and contradictions, without those in opinions.

    Spec: CRP-SPEC-005 §3.3
    """
    kinds = [
        finding.kind
        for claim in state.claims
        if claim.claim_type is not ClaimType.OPINION
        for finding in claim.findings
    ]
    distorted = sum(kind in DistortionType.__members__ for kind in kinds)
    return kinds.count(FABRICATION_KIND), distorted, kinds.count(CONTRADICTION)
