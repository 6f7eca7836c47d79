"""From one window to the next: what a window's saturation suggests, and what the next one shows.

Saturations are compared exactly, as fractions, like everything after `Candidates`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from crp_integrations.envelope.candidates import SUMMARY_SOURCE, Candidate, Candidates
from crp_integrations.envelope.near_duplicates import as_pairs
from crp_integrations.envelope.pack import PackResult
from crp_integrations.envelope.prompt import marker_text
from crp_integrations.envelope.records import Advice, EarlierWindow
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.envelope.tier import reaches
from crp_integrations.errors import RequestError
from crp_integrations.fabric.records import fact_id
from crp_integrations.ports import TokenCounter
from crp_integrations.scores import to_fixed
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import AdviceWord, GroundingMode, QualityTier


def relevance_floor(candidates: Candidates, settings: EnvelopeSettings) -> int:
    """Minimum relevance at which a fact is relevant, in fixed point.

    Spec: CRP-SPEC-009 §7.1 (decisions E2, E23)
    """
    floor = candidates.relevant_floor
    # Literally, the specification has one floor for all embedders (decision E2).
    if floor is None or settings.coverage_of == "all":
        return to_fixed(settings.relevant_floor)
    return floor


def has_relevant(
    candidates: Candidates, settings: EnvelopeSettings, aside: Collection[str] = ()
) -> bool:
    """Whether any candidate that is not refused or in `aside` is relevant."""
    least = relevance_floor(candidates, settings)
    return any(
        fact.relevance >= least and fact.refused is None and fact.fact_id not in aside
        for fact in candidates.facts
    )


@dataclass(frozen=True, slots=True)
class Pressure:
    """What a window suggests.

    Attributes:
        advice: suggestions in the order of `AdviceWord`.
        deferred: ids of relevant facts that did not fit, in rank order; empty unless a
            continuation window is suggested.
    """

    advice: tuple[Advice, ...]
    deferred: tuple[str, ...]


def assess_pressure(
    candidates: Candidates,
    packing: PackResult,
    *,
    saturation: Fraction,
    grounding: GroundingMode,
    settings: EnvelopeSettings,
    tiers: Sequence[QualityTier] = (),
) -> Pressure:
    """Compute what a window suggests.

    Spec: CRP-SPEC-003 §9.3, §10.3, §14.1, §14.3 (decisions E15, E23)
    """
    bounds = settings.pressure
    seen = f"saturation {float(saturation):.3f}"
    floor = relevance_floor(candidates, settings)
    left = [fact.candidate for fact in packing.over_budget if fact.candidate.relevance >= floor]
    more = "1 relevant fact" if len(left) == 1 else f"{len(left)} relevant facts"
    advice: list[tuple[AdviceWord, str]] = []
    if reaches(saturation, bounds.reuse_saturation):
        reason = f"{seen} is at least {bounds.reuse_saturation:.2f}"
        advice.append((AdviceWord.REUSE_CKF, reason))
    goes_on = bool(left) and reaches(saturation, bounds.continue_saturation)
    if goes_on:
        advice.append((AdviceWord.CONTINUE, f"{seen}, and {more} did not fit"))
    if left and reaches(saturation, bounds.pressure_saturation):
        reason = f"{seen} is at least {bounds.pressure_saturation:.2f}, and {more} did not fit"
        advice.append((AdviceWord.PRESSURE, reason))
    if not reaches(saturation, settings.sparse_saturation):
        sparse = f"{seen} is below {settings.sparse_saturation:.2f}"
        if grounding is GroundingMode.STRICT:
            advice.append((AdviceWord.INCOMPLETE, f"{sparse} in {grounding.value}"))
        advice.append((AdviceWord.LIMITED, sparse))
    falling = degradation_advice(tiers, settings)
    return Pressure(
        (
            *(Advice(word=word, reason=reason) for word, reason in advice),
            *(() if falling is None else (falling,)),
        ),
        tuple(fact.fact_id for fact in left) if goes_on else (),
    )


def degradation_advice(tiers: Sequence[QualityTier], settings: EnvelopeSettings) -> Advice | None:
    """The advice `hierarchical`, when each of the last windows had a worse tier; else None.

    Spec: CRP-SPEC-003 §14.3

    >>> degradation_advice([QualityTier.A, QualityTier.B, QualityTier.C], EnvelopeSettings()).reason
    'the tier fell over 3 windows: A, B, C; the fabric may hold little on this'
    """
    last = tiers[-settings.pressure.falling_windows :]
    if len(last) < settings.pressure.falling_windows:
        return None
    if any(later.place <= earlier.place for earlier, later in pairwise(last)):
        return None
    reason = (
        f"the tier fell over {len(last)} windows: {', '.join(last)}; "
        "the fabric may hold little on this"
    )
    return Advice(word=AdviceWord.HIERARCHICAL, reason=reason)


# Precedes a model's earlier answer, so that the next model does not take it for a source.
EARLIER = "Earlier answer in this conversation, which is no source: "

EVOLUTION = "evolution@1"


def seen_hashes(prior: Sequence[EarlierWindow]) -> dict[str, str]:
    """The facts that a session was shown: the content hash last shown, by id.

    Spec: CRP-SPEC-003 §14.2
    """
    return {
        fact.fact_id: fact.content_hash
        for window in _in_window_order(prior)
        for fact in window.facts_seen
    }


def deferred_ids(prior: Sequence[EarlierWindow]) -> tuple[str, ...]:
    """Ids of facts that earlier windows deferred and no window has shown since.

    Spec: CRP-SPEC-003 §14.1
    """
    shown = seen_hashes(prior)
    ids = (
        fact for window in _in_window_order(prior) for fact in window.deferred if fact not in shown
    )
    return tuple(dict.fromkeys(ids))


def next_window_number(prior: Sequence[EarlierWindow]) -> int:
    """Number of the window after the prior ones, 1 without any."""
    return max((window.window_number for window in prior), default=0) + 1


def evolve(
    candidates: Candidates,
    prior: Sequence[EarlierWindow],
    *,
    counter: TokenCounter,
    settings: EnvelopeSettings,
) -> Candidates:
    """The candidates of the next window.

    Facts that were shown are left out unless their text has changed, and so are near-duplicates
    of those that are left out. Summaries of earlier answers are added as facts. Deferred facts are
    among the candidates only if the caller had them read.

    Spec: CRP-SPEC-003 §14.1, §14.2 (decision E18)
    """
    if not prior:
        return candidates
    shown = seen_hashes(prior)
    facts = candidates.facts
    gone = {
        place
        for place, fact in enumerate(facts)
        if fact.fact_id in shown and shown[fact.fact_id] == sha256(fact.content)
    }
    alike = as_pairs(candidates.duplicates)
    alike.fetch(sorted(gone))
    repeats = {
        other
        for place in gone
        for other in alike.of(place)
        # A fact that was changed since says something new, even if it is similar to another.
        if facts[other].fact_id not in shown
    }
    remaining = [place for place in range(len(facts)) if place not in gone and place not in repeats]
    held = {facts[place].fact_id for place in remaining}
    # Windows of one fan-out may have equal summaries of the same envelope.
    summaries = {
        summary.fact_id: summary
        for summary in _summaries(prior, counter, settings)
        if summary.fact_id not in shown and summary.fact_id not in held
    }
    merged = [*(facts[place] for place in remaining), *summaries.values()]
    united = sorted(merged, key=lambda fact: fact.fact_id)
    place_of = {fact.fact_id: place for place, fact in enumerate(united)}
    moved = {place: place_of[facts[place].fact_id] for place in remaining}

    return replace(
        candidates,
        facts=tuple(united),
        duplicates=alike.among(moved),
        conflicts=as_pairs(candidates.conflicts).among(moved),
        algorithms=(*candidates.algorithms, EVOLUTION),
    )


def _in_window_order(prior: Sequence[EarlierWindow]) -> list[EarlierWindow]:
    """Windows by number; windows of one fan-out share a number and are sorted by id."""
    keys = [(window.window_number, window.window_id) for window in prior]
    if len(set(keys)) < len(keys):
        numbers = [number for number, _ in keys]
        raise RequestError(
            f"prior windows {numbers} repeat a number, wanted each window once; those of a fan-out "
            "are told apart by their window_id"
        )
    return sorted(prior, key=lambda window: (window.window_number, window.window_id))


def _summaries(
    prior: Sequence[EarlierWindow], counter: TokenCounter, settings: EnvelopeSettings
) -> list[Candidate]:
    """A candidate for each window's summary; it was never stored, so it counts as new."""
    windows = [window for window in prior if window.summary.strip()]
    counts = counter.count_many([marker_text(EARLIER + window.summary) for window in windows])
    made = []
    for window, tokens in zip(windows, counts, strict=True):
        source = f"{SUMMARY_SOURCE}{window.window_number}"
        made.append(
            Candidate(
                fact_id=fact_id(source, window.etag, sha256(window.summary)),
                content=EARLIER + window.summary,
                source_id=source,
                relevance=to_fixed(settings.evolution.summary_relevance),
                importance=to_fixed(settings.evolution.summary_importance),
                tokens=max(0, tokens),
            )
        )
    return made
