"""Stage 6: claims beside what earlier windows of the session said.

An index over the words and values of earlier claims finds for each claim those that may be about
the same. The typed comparison decides first; the verifier reads what it leaves open.

Spec: CRP-SPEC-005 §8
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from crp_integrations.dpe.quality import Coherence, CrossContradiction
from crp_integrations.dpe.records import Claim, StageRun
from crp_integrations.dpe.settings_quality import QualitySettings
from crp_integrations.dpe.stages.s03c_contradiction import is_listing
from crp_integrations.dpe.stages.s04_entailment import word_on
from crp_integrations.dpe.state import State
from crp_integrations.dpe.verifier.opposed import OPPOSED, Comparison, Kind, compare, senses
from crp_integrations.dpe.verifier.readings import Reading, read
from crp_integrations.dpe.verifier.slots import canonical
from crp_integrations.vocabulary import Checked, ClaimType, Severity

NAME: Final = "cross-window coherence"
NOTHING: Final = StageRun(number=6, name=NAME, engine="no earlier window")
SEVERITIES: Final = {
    Kind.NUMERIC: Severity.CRITICAL,
    Kind.LOGICAL: Severity.HIGH,
    Kind.TEMPORAL: Severity.HIGH,
    Kind.STANCE: Severity.MEDIUM,
    Kind.MINOR: Severity.LOW,
}
# Words that two claims must share to be about one state; one shared value is enough.
SHARED_WORDS: Final = 2
# Places of a word that are looked at; a word in more claims than that tells none of them apart.
MOST_PLACES: Final = 200


@dataclass(frozen=True, slots=True)
class PriorClaim:
    """What an earlier window said.

    Attributes:
        start, end: character offsets in the window's text.
        keys: what it is found by: the senses of its words and its values.
    """

    window_id: str
    text: str
    start: int
    end: int
    reads_as: str
    keys: frozenset[str]


def check_coherence(state: State) -> State:
    """Compare each FACTUAL and META claim with its counterparts in earlier windows.

    META claims speak about the answer itself ("this section covers three of them"); they have
    no attribution, and this is where they count (§3.3).

    Spec: CRP-SPEC-005 §8.2 (decision D15)
    """
    if not state.dossier.prior:
        return replace(state, stages=(*state.stages, NOTHING))
    if not state.session.earlier:
        return state
    every = state.tools.settings.pairs == "all"
    earlier = Earlier(prior_claims(state), every=every)
    found: list[CrossContradiction] = []
    compared = unread = 0
    for claim in state.claims:
        if claim.claim_type not in (ClaimType.FACTUAL, ClaimType.META):
            continue
        if claim.checked is Checked.NOT_CHECKED or is_listing(claim, state.tools.settings):
            unread += 1
            continue
        near = earlier.near(claim, state.tools.settings.quality.near_claims)
        compared += bool(near)
        word = _worst(claim, near, state)
        if word is not None:
            found.append(word)
    coherence = Coherence(
        contradictions=tuple(found), compared=compared, contradicted=len(found), unread=unread
    )
    pairs = "all sharing pairs" if every else "nearest pairs"
    engine = f"{OPPOSED}, {state.tools.verifier.identity}, {pairs}"
    run = StageRun(number=6, name=NAME, engine=engine)
    return replace(state, coherence=coherence, stages=(*state.stages, run))


def prior_claims(state: State) -> list[PriorClaim]:
    """The FACTUAL and META claims of earlier windows; of a summary where that is what is given.

    Spec: CRP-SPEC-005 §8.2
    """
    settings = state.tools.settings
    found = []
    for window, said in zip(state.dossier.prior, state.session.prior, strict=True):
        for piece in said.segments:
            if piece.claim_type not in (ClaimType.FACTUAL, ClaimType.META):
                continue
            if piece.end - piece.start > settings.longest_claim:
                continue
            reads_as = piece.read(said.text)
            reading = read(reads_as)
            if len(reading.values) > settings.most_pair_values:
                continue
            own = said.text[piece.start : piece.end]
            found.append(
                PriorClaim(
                    window.window_id, own, piece.start, piece.end, reads_as, keys_of(reading)
                )
            )
    return found


def keys_of(reading: Reading) -> frozenset[str]:
    """What a claim can be found by: its words' senses and its values written one way."""
    return senses(reading) | {f"={canonical(value)}" for value in reading.values}


class Earlier:
    """An index over earlier claims.

    Building is linear in their length; a question costs at most `MOST_PLACES` for each key.
    """

    def __init__(self, claims: Sequence[PriorClaim], *, every: bool) -> None:
        self._claims = claims
        self._every = every
        self._places: dict[str, list[int]] = defaultdict(list)
        for place, claim in enumerate(claims):
            for key in claim.keys:
                self._places[key].append(place)

    def near(self, claim: Claim, count: int) -> list[PriorClaim]:
        """Earlier claims that share a value or two words with a claim, the most alike first."""
        keys = keys_of(read(claim.reads_as))
        shared: dict[int, int] = defaultdict(int)
        valued: set[int] = set()
        for key in sorted(keys):
            places = self._places.get(key, ())
            if not self._every and len(places) > MOST_PLACES:
                # The last ones: what is contradicted is more often what was said just now.
                places = places[-MOST_PLACES:]
            for place in places:
                shared[place] += 1
                if key.startswith("="):
                    valued.add(place)
        # A claim of one word, as "Revenue rose", has no second one to share.
        wanted = min(SHARED_WORDS, max(1, len(keys) - 1))
        fit = [at for at, number in shared.items() if number >= wanted or at in valued]
        fit.sort(key=lambda at: (-shared[at] / len(keys | self._claims[at].keys), -shared[at], -at))
        return [self._claims[at] for at in (fit if self._every else fit[:count])]


def _worst(claim: Claim, near: Sequence[PriorClaim], state: State) -> CrossContradiction | None:
    """The gravest contradiction of a claim, the most alike earlier claim on a tie."""
    settings = state.tools.settings.quality
    own = read(claim.reads_as)
    found: list[CrossContradiction] = []
    reads = settings.read_pairs if state.tools.settings.pairs == "share" else len(near)
    for prior in near:
        seen = compare(
            own, read(prior.reads_as), alike=settings.alike, minor=settings.minor_difference
        )
        kind, probability, engine = seen.kind, _certainty(seen, settings), OPPOSED
        if kind is None and not seen.apart and seen.likeness >= settings.related and reads > 0:
            if own.text == prior.reads_as:
                continue
            reads -= 1
            word = word_on(state, "coherence.judgement", claim.reads_as, [prior.reads_as])
            kind, probability = Kind.LOGICAL, word.contradiction
            engine = state.tools.verifier.identity
        if kind is None or probability <= settings.contradiction_probability:
            continue
        found.append(
            CrossContradiction(
                claim_id=claim.claim_id,
                claim=claim.text,
                start=claim.start,
                end=claim.end,
                prior_claim=prior.text,
                prior_start=prior.start,
                prior_end=prior.end,
                prior_window_id=prior.window_id,
                kind=kind.value,
                severity=SEVERITIES[kind],
                probability=round(probability, 6),
                engine=engine,
            )
        )
    ranks = list(Severity)
    return max(found, key=lambda word: ranks.index(word.severity), default=None)


def _certainty(seen: Comparison, settings: QualitySettings) -> float:
    if seen.kind is None:
        return 0.0
    return settings.opposed_slightly if seen.kind is Kind.MINOR else settings.opposed
