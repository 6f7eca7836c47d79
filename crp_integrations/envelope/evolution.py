"""From one window to the next: what was seen goes, what was deferred and a summary come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crp_integrations.envelope.pairs import as_pairs
from crp_integrations.envelope.prior import PriorWindow
from crp_integrations.envelope.records import Candidate, Candidates
from crp_integrations.envelope.render import marker_text
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import RequestError
from crp_integrations.fabric.records import fact_id
from crp_integrations.ports import TokenCounter
from crp_integrations.scores import to_fixed
from crp_integrations.seals import sha256

# No document's source id begins like this: those are UUIDs, or names that a caller gave.
SUMMARY_SOURCE = "crp:summary:"

EVOLUTION = "evolution@1"


def seen(prior: Sequence[PriorWindow]) -> dict[str, str]:
    """The set of facts that a session was shown: the hash last shown, by id.

    Spec: CRP-SPEC-003 §14.2

    Raises:
        RequestError: a window is there twice.
    """
    return {
        fact.fact_id: fact.content_hash for window in _ordered(prior) for fact in window.facts_seen
    }


def deferred(prior: Sequence[PriorWindow]) -> tuple[str, ...]:
    """Ids that earlier windows left for later ones and no window has shown since.

    Spec: CRP-SPEC-003 §14.1

    Returns:
        Ids, the oldest window's first, each window's in its rank order.
    """
    shown = seen(prior)
    ids = (fact for window in _ordered(prior) for fact in window.deferred if fact not in shown)
    return tuple(dict.fromkeys(ids))


def next_window(prior: Sequence[PriorWindow]) -> int:
    """Number of the window after the prior ones, 1 without any."""
    return max((window.window_number for window in prior), default=0) + 1


def evolve(
    candidates: Candidates,
    prior: Sequence[PriorWindow],
    *,
    counter: TokenCounter,
    settings: EnvelopeSettings,
) -> Candidates:
    """The candidates of the next window.

    Facts that were shown go unless their text has changed, and with them those that say the same
    as a fact that goes. Summaries of earlier answers come in as facts of their own. Deferred
    facts are among the candidates when the caller had them read.

    Spec: CRP-SPEC-003 §14.1, §14.2 (decision E18)

    Args:
        candidates: what was selected for this window's question, deferred facts included.
        prior: the session's earlier windows, in any order; without any nothing changes.
        counter: the counter behind the candidates' tokens.

    Raises:
        RequestError: a prior window is there twice.
    """
    if not prior:
        return candidates
    shown = seen(prior)
    facts = candidates.facts
    gone = {
        place
        for place, fact in enumerate(facts)
        if fact.fact_id in shown and shown[fact.fact_id] == sha256(fact.content)
    }
    alike = as_pairs(candidates.duplicates)
    alike.fetch(sorted(gone))
    said = {
        other
        for one in gone
        for other in alike.of(one).tolist()
        # One that was changed since says something new, whatever it is near to.
        if facts[other].fact_id not in shown
    }
    kept = [place for place in range(len(facts)) if place not in gone and place not in said]
    held = {facts[place].fact_id for place in kept}
    # Windows of one fan-out may say the same of the same envelope.
    summaries = {
        summary.fact_id: summary
        for summary in _summaries(prior, counter, settings)
        if summary.fact_id not in shown and summary.fact_id not in held
    }
    told = [*(facts[place] for place in kept), *summaries.values()]
    united = sorted(told, key=lambda one: one.fact_id)
    place_of = {fact.fact_id: place for place, fact in enumerate(united)}
    moved = {place: place_of[facts[place].fact_id] for place in kept}

    return replace(
        candidates,
        facts=tuple(united),
        duplicates=alike.among(moved),
        conflicts=as_pairs(candidates.conflicts).among(moved),
        algorithms=(*candidates.algorithms, EVOLUTION),
    )


def _ordered(prior: Sequence[PriorWindow]) -> list[PriorWindow]:
    """Windows by number, those of one fan-out, which share it, by id."""
    keys = [(window.window_number, window.window_id) for window in prior]
    if len(set(keys)) < len(keys):
        numbers = [number for number, _ in keys]
        raise RequestError(
            f"prior windows {numbers} repeat a number, wanted each window once; those of a fan-out "
            "are told apart by their window_id"
        )
    return sorted(prior, key=lambda window: (window.window_number, window.window_id))


def _summaries(
    prior: Sequence[PriorWindow], counter: TokenCounter, settings: EnvelopeSettings
) -> list[Candidate]:
    """A candidate for each window's summary; it was never stored, so it counts as new."""
    told = [window for window in prior if window.summary.strip()]
    counts = counter.count_many([marker_text(window.summary) for window in told])
    made = []
    for window, tokens in zip(told, counts, strict=True):
        source = f"{SUMMARY_SOURCE}{window.window_number}"
        made.append(
            Candidate(
                fact_id=fact_id(source, window.etag, sha256(window.summary)),
                content=window.summary,
                source_id=source,
                relevance=to_fixed(settings.evolution.summary_relevance),
                importance=to_fixed(settings.evolution.summary_importance),
                tokens=max(0, tokens),
            )
        )
    return made
