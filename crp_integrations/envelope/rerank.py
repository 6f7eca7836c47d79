"""Between Select and Rank, where it is wanted: a reranker's scores become the relevance.

Where the default preset has mixed scores, they become what a fact is ranked by as well, or the
mix would go on deciding. The parts of the mix stay beside them as what they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crp_integrations.envelope.candidates import Candidate, Candidates, ScoredSpan
from crp_integrations.envelope.ports import Reranker
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import CRPError, EngineError
from crp_integrations.scores import SCALE, to_fixed

RERANK = "rerank@1"


def rerank_candidates(
    candidates: Candidates, reranker: Reranker, settings: EnvelopeSettings
) -> Candidates:
    """The same candidates, the best of them with the reranker's score as their relevance.

    The others keep their order among themselves below all that the reranker saw: cosines and a
    reranker's scores are no measure of each other. The embedder's relevance floor means nothing
    for the new scores, so that of the settings holds. What is ranked by a mixed score before is
    ranked by the reranker's after, and stretches of a fact count by it.

    Spec: CRP-SPEC-003 §6.3
    """
    facts = candidates.facts
    # What may not be shown is shown to no model of a reranker either.
    open_ = [n for n, fact in enumerate(facts) if fact.refused is None]
    best = sorted(open_, key=lambda n: (-facts[n].merit, facts[n].fact_id))
    seen = sorted(best[: settings.rerank_top])
    if not seen:
        return candidates
    told = dict(
        zip(seen, _ask_reranker(reranker, candidates.query, [facts[n] for n in seen]), strict=True)
    )
    ceiling = min(told.values())
    return replace(
        candidates,
        facts=tuple(
            _rescore_seen(fact, told[n]) if n in told else _rescore_unseen(fact, ceiling)
            for n, fact in enumerate(facts)
        ),
        relevant_floor=None,
        algorithms=(*candidates.algorithms, f"{RERANK}:{reranker.identity}"),
    )


def _rescore_seen(fact: Candidate, given: int) -> Candidate:
    """A fact with the reranker's score; its stretches keep their order among themselves."""
    return replace(
        fact,
        relevance=given,
        score=None if fact.score is None else given,
        stretches=_scale_spans(fact, given),
    )


def _rescore_unseen(fact: Candidate, ceiling: int) -> Candidate:
    """A fact below the lowest of the reranker's scores."""
    return replace(
        fact,
        relevance=fact.relevance * ceiling // SCALE,
        score=None if fact.score is None else fact.score * ceiling // SCALE,
        stretches=_scale_spans(fact, ceiling),
    )


def _scale_spans(fact: Candidate, share: int) -> tuple[ScoredSpan, ...]:
    return tuple(one._replace(score=one.score * share // SCALE) for one in fact.stretches)


def _ask_reranker(reranker: Reranker, query: str, facts: Sequence[Candidate]) -> list[int]:
    """The reranker's scores in fixed point; whatever goes wrong in it is its error."""
    identity = reranker.identity
    try:
        given = reranker.scores(query, [fact.content for fact in facts])
        return _check_scores(given, len(facts), identity)
    except CRPError:
        raise
    except Exception as error:  # any class of any library, or of the service behind it
        # Its message may quote a text.
        raise EngineError(
            f"the reranker {identity} failed with {type(error).__name__}", engine=identity
        ) from error


def _check_scores(scores: object, count: int, identity: str) -> list[int]:
    try:
        given = [float(score) for score in scores]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise _error(identity, "gave no list of numbers") from None
    if len(given) != count:
        raise _error(identity, f"gave {len(given)} scores for {count} texts")
    # NaN is in no range either.
    bad = [score for score in given if not 0.0 <= score <= 1.0]
    if bad:
        raise _error(identity, f"gave the score {bad[0]}, wanted 0 to 1")
    return [to_fixed(score) for score in given]


def _error(identity: str, what: str) -> EngineError:
    return EngineError(f"the reranker {identity} {what}", engine=identity)
