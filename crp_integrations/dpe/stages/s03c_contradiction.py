"""Stage 3c: two claims of one answer that cannot both be true.

Spec: CRP-SPEC-005 §5.4
"""

from __future__ import annotations

from collections.abc import Iterator

from crp_integrations.dpe.records import Claim, Finding
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.state import State, is_open
from crp_integrations.dpe.verifier.alike import Near, alike
from crp_integrations.dpe.verifier.readings import Reading, read
from crp_integrations.dpe.verifier.slots import canonical, pair
from crp_integrations.language.negation import polarity_differs
from crp_integrations.vocabulary import Attribution, ClaimType

KIND = "contradiction"
SURE = 0.75


def contradictions(state: State) -> list[Finding]:
    """A finding on the later claim of each pair that contradicts itself.

    Two claims contradict each other when they have the same words and differ in exactly one
    figure or date in the same place, or in what they deny. Two claims that both rest on the
    context with all their values are left alone: then it is the context that says both.

    Spec: CRP-SPEC-005 §5.4 (decision D15)
    """
    claims = _compared(state)
    readings = [read(claim.reads_as) for claim in claims]
    figures = [_figures(reading) for reading in readings]
    found: list[Finding] = []
    for at, near in enumerate(_near(claims, state.tools.settings)):
        for place in near.places:
            first, second = claims[place], claims[at]
            # A quick no: one value that differs, and one in another unit, is all there may be.
            if len(figures[place] - figures[at]) > 2:
                continue
            if _contradict(readings[place], readings[at]):
                found.append(
                    Finding(
                        stage=3,
                        kind=KIND,
                        claim_id=second.claim_id,
                        start=second.start,
                        end=second.end,
                        other_claim_id=first.claim_id,
                        expected=first.text,
                    )
                )
                break
    return found


def is_listing(claim: Claim, settings: DpeSettings) -> bool:
    """Whether a claim has too many values to be compared with other claims.

    Comparing all values of two listings with each other is dear and says little. Such claims
    are counted in the report's flags, so that they are not taken for compared.
    """
    return len(claim.entities) > settings.most_pair_values


def unpaired(state: State) -> int:
    """Claims that stage 3c left out because they are listings."""
    return sum(is_listing(claim, state.tools.settings) for claim in _candidates(state))


def cut(state: State) -> int:
    """Claims that stage 3c did not compare with every claim that is about the same thing."""
    return sum(near.left > 0 for near in _near(_compared(state), state.tools.settings))


def _compared(state: State) -> list[Claim]:
    settings = state.tools.settings
    return [claim for claim in _candidates(state) if not is_listing(claim, settings)]


def _near(claims: list[Claim], settings: DpeSettings) -> Iterator[Near]:
    readings = [read(claim.reads_as) for claim in claims]
    most = None if settings.pairs == "all" else settings.alike_claims
    return alike(readings, [_rests(claim) for claim in claims], most)


def _candidates(state: State) -> list[Claim]:
    return [c for c in state.claims if c.claim_type is ClaimType.FACTUAL and is_open(c)]


def _rests(claim: Claim) -> bool:
    return claim.attribution is Attribution.CONTEXT_GROUNDED and not claim.findings


def _figures(reading: Reading) -> frozenset[str]:
    return frozenset(canonical(value) for value in reading.values if value.family != "name")


def _contradict(first: Reading, second: Reading) -> bool:
    there, back = pair(second, first), pair(first, second)
    if any(value.family == "name" for value in (*there.missing, *back.missing)):
        return False
    if not there.rivals and not there.missing and not back.missing:
        return polarity_differs(first.text, second.text)
    if len(there.rivals) != 1 or there.missing or len(back.rivals) != 1 or back.missing:
        return False
    rival = there.rivals[0]
    return "name" not in (rival.claim.family, rival.source.family) and rival.strength >= SURE
