"""Between Select and Rank: candidates are screened (`screen@1`) and optionally reranked.

Refused candidates are not ranked, reranked or packed. A fact is off topic when no retriever
supports it: its cosine, word and link scores are all below their floors. A reranker's score
replaces the relevance, and also the mixed score where the default preset has computed one.

Spec: Summit §Context Assembly Pipeline
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from crp_integrations.envelope.candidates import Candidate, Candidates, refuse_candidates
from crp_integrations.envelope.cfs.records import RetrievalResult
from crp_integrations.envelope.passages import CutTexts
from crp_integrations.envelope.ports import Reranker
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import CRPError, EngineError
from crp_integrations.guard.injection.detection import RULES, InjectionDetector
from crp_integrations.guard.settings import ScreeningSettings
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.vocabulary import DropReason

SCREEN = "screen@1"


def screen_candidates(
    candidates: Candidates, settings: ScreeningSettings, detector: InjectionDetector
) -> Candidates:
    """Mark candidates that may not enter as refused; does nothing unless settings enable it.

    Spec: Summit §Backlog Select 8
    """
    if not settings.enabled:
        return candidates
    facts = [fact for fact in candidates.facts if fact.refused is None]
    texts = [(fact.fact_id, fact.content, _near(fact, settings)) for fact in facts]
    reasons, algorithms = find_refusals(texts, settings, detector)
    return refuse_candidates(candidates, reasons, algorithms)


def find_refusals(
    texts: Sequence[tuple[str, str, int]], settings: ScreeningSettings, detector: InjectionDetector
) -> tuple[dict[str, DropReason], tuple[str, ...]]:
    """The reason for each text that may not enter, by id, and the algorithms that decided.

    Args:
        texts: id, text and nearness to the topic, fixed point.
    """
    floor = to_fixed(settings.relevance_floor)
    near = [(id_, text) for id_, text, nearness in texts if nearness >= floor]
    reports = detector.reports([text for _, text in near])
    reasons = {id_: DropReason.OFF_TOPIC for id_, _, nearness in texts if nearness < floor}
    reasons |= {
        id_: DropReason.INJECTION
        for (id_, _), report in zip(near, reports, strict=True)
        if report.injected
    }
    if len(texts) - len(reasons) < settings.fewest:
        reasons = {id_: reasons.get(id_, DropReason.MINIMAL) for id_, _, _ in texts}
    model = f"+{detector.model}" if detector.model else ""
    return reasons, (f"{SCREEN}:{RULES}{model}",)


def _near(fact: Candidate, settings: ScreeningSettings) -> int:
    """Nearness of a fact to the topic, fixed point; SCALE if its word or link score suffices."""
    if fact.lexical >= to_fixed(settings.words_floor) or fact.hop >= to_fixed(settings.hop_floor):
        return SCALE
    return fact.relevance


@dataclass(frozen=True, slots=True)
class ResultScreen:
    """Screens the results of a context assembly before they are ranked.

    Attributes:
        settings: if fewer results than `fewest` remain, all are refused.
        detector: the injection rules with the settings' numbers, and their earlier reports.
    """

    settings: ScreeningSettings
    detector: InjectionDetector

    def refused(
        self, results: Sequence[RetrievalResult]
    ) -> tuple[dict[str, DropReason], tuple[str, ...]]:
        """The reason for each chunk that may not be shown, by id, and the algorithms used."""
        best = max((result.lexical_score for result in results), default=0.0)
        enough = self.settings.words_floor * best
        near: dict[str, int] = {}
        texts: dict[str, str] = {}
        for result in results:
            worded = result.lexical_score > 0.0 and result.lexical_score >= enough
            cosine = min(1.0, max(0.0, result.semantic_score))
            nearness = SCALE if worded else to_fixed(cosine)
            near[result.chunk.id] = max(nearness, near.get(result.chunk.id, 0))
            texts[result.chunk.id] = result.chunk.text
        rows = [(id_, text, near[id_]) for id_, text in texts.items()]
        return find_refusals(rows, self.settings, self.detector)


RERANK = "rerank@1"


def rerank_candidates(
    candidates: Candidates, reranker: Reranker, settings: EnvelopeSettings
) -> Candidates:
    """The candidates, the best of them with the reranker's score as their relevance.

    The others keep their order, below all that the reranker scored, since cosines and a
    reranker's scores cannot be compared. The embedder's relevance floor does not apply to the new
    scores, so the settings' floor is used. The reranker's score replaces the mixed one in the
    ranking and scales the scores of a fact's stretches. Of a text that is cut, the reranker
    scores each passage.

    Spec: CRP-SPEC-003 §6.3
    """
    cut = CutTexts.of(candidates)
    facts = cut.passages.facts
    # A text that may not be shown must not be sent to a reranker's model either.
    allowed = [n for n, fact in enumerate(facts) if fact.refused is None]
    best = sorted(allowed, key=lambda n: (-facts[n].merit, facts[n].fact_id))
    seen = sorted(best[: settings.rerank_top])
    if not seen:
        return candidates
    scores = dict(
        zip(seen, _ask_reranker(reranker, candidates.query, [facts[n] for n in seen]), strict=True)
    )
    ceiling = min(scores.values())
    scored = replace(
        candidates,
        facts=tuple(
            _rescore(fact, scores[n], scores[n], scores[n])
            if n in scores
            # Scaled to lie below the lowest of the reranker's scores.
            else _rescore(
                fact, ceiling, fact.relevance * ceiling // SCALE, fact.merit * ceiling // SCALE
            )
            for n, fact in enumerate(facts)
        ),
        relevant_floor=None,
        algorithms=(*candidates.algorithms, f"{RERANK}:{reranker.identity}"),
    )
    return cut.folded(scored)


def _rescore(fact: Candidate, share: int, relevance: int, score: int) -> Candidate:
    """A fact with other scores; its stretches keep their order among themselves."""
    stretches = (part._replace(score=part.score * share // SCALE) for part in fact.stretches)
    return replace(
        fact,
        relevance=relevance,
        score=None if fact.score is None else score,
        stretches=tuple(stretches),
    )


def _ask_reranker(reranker: Reranker, query: str, facts: Sequence[Candidate]) -> list[int]:
    """The reranker's scores in fixed point; any failure in it becomes an `EngineError`."""
    identity = reranker.identity
    try:
        scores = reranker.scores(query, [fact.content for fact in facts])
        return _check_scores(scores, len(facts), identity)
    except CRPError:
        raise
    except Exception as error:  # any class of any library, or of the service behind it
        # Its message may quote a text.
        raise EngineError(
            f"the reranker {identity} failed with {type(error).__name__}", engine=identity
        ) from error


def _check_scores(scores: object, count: int, identity: str) -> list[int]:
    try:
        numbers = [float(score) for score in scores]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise _error(identity, "did not give a list of numbers") from None
    if len(numbers) != count:
        raise _error(identity, f"gave {len(numbers)} scores for {count} texts")
    # NaN fails this comparison as well.
    bad = [score for score in numbers if not 0.0 <= score <= 1.0]
    if bad:
        raise _error(identity, f"gave the score {bad[0]}, wanted 0 to 1")
    return [to_fixed(score) for score in numbers]


def _error(identity: str, what: str) -> EngineError:
    return EngineError(f"the reranker {identity} {what}", engine=identity)
