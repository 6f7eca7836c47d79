"""Stage 3c: two claims of one answer that cannot both be true.

Spec: CRP-SPEC-005 §5.4
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

from crp_integrations.dpe.records import Claim, Finding
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.state import State, is_open
from crp_integrations.dpe.verifier.readings import Reading, read
from crp_integrations.dpe.verifier.slots import canonical, pair
from crp_integrations.language.memo import forgotten_with
from crp_integrations.language.negation import polarity_differs
from crp_integrations.vocabulary import Attribution, ClaimType

KIND = "contradiction"
# Share of all their words that two claims must have in common to be about one thing.
ALIKE = 0.75
SURE = 0.75


def contradictions(state: State) -> list[Finding]:
    """A finding on the later claim of each pair that contradicts itself.

    Two claims contradict each other when they have the same words and differ in exactly one
    figure or date in the same place, or in what they deny. Two claims that both rest on the
    context with all their values are left alone: then it is the context that says both.

    Spec: CRP-SPEC-005 §5.4 (decision D15)
    """
    settings = state.tools.settings
    claims = [claim for claim in _candidates(state) if not is_listing(claim, settings)]
    found: dict[str, Finding] = {}
    for first, second in _pairs(claims, settings.pairs == "share"):
        if second.claim_id in found or (_rests(first) and _rests(second)):
            continue
        if _contradict(read(first.reads_as), read(second.reads_as)):
            found[second.claim_id] = Finding(
                stage=3,
                kind=KIND,
                claim_id=second.claim_id,
                start=second.start,
                end=second.end,
                other_claim_id=first.claim_id,
                expected=first.text,
            )
    return list(found.values())


def is_listing(claim: Claim, settings: DpeSettings) -> bool:
    """Whether a claim has too many values to be compared with other claims.

    Comparing all values of two listings with each other is dear and says little. Such claims
    are counted in the report's flags, so that they are not taken for compared.
    """
    return len(claim.entities) > settings.most_pair_values


def unpaired(state: State) -> int:
    """Claims that stage 3c left out because they are listings."""
    return sum(is_listing(claim, state.tools.settings) for claim in _candidates(state))


def _candidates(state: State) -> list[Claim]:
    return [c for c in state.claims if c.claim_type is ClaimType.FACTUAL and is_open(c)]


def _rests(claim: Claim) -> bool:
    return claim.attribution is Attribution.CONTEXT_GROUNDED and not claim.findings


def _pairs(claims: list[Claim], share: bool) -> Iterator[tuple[Claim, Claim]]:
    if not share:
        for place, second in enumerate(claims):
            for first in claims[:place]:
                yield first, second
        return
    having: dict[str, list[int]] = defaultdict(list)
    for place, second in enumerate(claims):
        stems = read(second.reads_as).stems
        for other in sorted({at for stem in stems for at in having[stem]}):
            yield claims[other], second
        for stem in stems:
            having[stem].append(place)


@lru_cache(maxsize=4096)
def _figures(reading: Reading) -> frozenset[str]:
    return frozenset(canonical(value) for value in reading.values if value.family != "name")


def _contradict(first: Reading, second: Reading) -> bool:
    # A quick no: one differing value, and one more written in another unit, is all there may be.
    if len(_figures(first) - _figures(second)) > 2:
        return False
    own = {word.stem for word in second.words}
    other = {word.stem for word in first.words}
    both = own | other
    if not both or len(own & other) / len(both) < ALIKE:
        return False
    there, back = pair(second, first), pair(first, second)
    if any(value.family == "name" for value in (*there.missing, *back.missing)):
        return False
    if not there.rivals and not there.missing and not back.missing:
        return polarity_differs(first.text, second.text)
    if len(there.rivals) != 1 or there.missing or len(back.rivals) != 1 or back.missing:
        return False
    rival = there.rivals[0]
    return "name" not in (rival.claim.family, rival.source.family) and rival.strength >= SURE


forgotten_with(_figures.cache_clear)
