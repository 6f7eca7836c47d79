"""The verifier of `literal`: lexical alignment and typed values, without weights."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from crp_integrations.dpe.ports import Judgement
from crp_integrations.dpe.verifier.alignment import THRESHOLDS, Alignment, align
from crp_integrations.dpe.verifier.context import Context

IDENTITY: Final = "alignment@1"
ALIGNED_PASSAGE: Final = 4_000

# Lexical alignment to probability of entailment, straight lines between these points; fitted
# by eye on RAGTruth's clean and hallucinated sentences, to be replaced by a trained map.
CURVE: Final = (
    (0.0, 0.0),
    (0.15, 0.10),
    (0.3, 0.40),
    (0.5, 0.75),
    (0.7, 0.88),
    (0.9, 0.96),
    (1.0, 0.98),
)
CONTRADICTED: Final = 0.92
ENTAILED_BESIDE_CONFLICT: Final = 0.03


def curve(lexical: float, points: Sequence[tuple[float, float]] = CURVE) -> float:
    """A monotone map through points, straight between them.

    >>> curve(0.0), curve(1.0)
    (0.0, 0.98)
    """
    for (left, low), (right, high) in itertools.pairwise(points):
        if lexical <= right:
            return low + (high - low) * (lexical - left) / (right - left)
    return points[-1][1]


def judgement(found: Alignment, passage: int = 0) -> Judgement:
    """The three probabilities that an alignment stands for.

    A dropped condition is not among its grounds: a claim is one clause, and the condition may
    stand in another clause of its sentence. Stage 3 sees the sentence and bounds the score.
    """
    if found.changes or found.flip is not None:
        contradiction, entailment = CONTRADICTED, ENTAILED_BESIDE_CONFLICT
    else:
        # A value without a source lowers the alignment itself; stage 4 bounds it further, since
        # only the whole context can tell that there is none.
        entailment = curve(found.lexical)
        contradiction = 0.02 * (1.0 - entailment)
    return Judgement(entailment, contradiction, 1.0 - entailment - contradiction, passage)


class AlignmentVerifier:
    """Judges by lexical alignment and typed values; deterministic, without weights."""

    identity = IDENTITY
    passage = ALIGNED_PASSAGE
    thresholds: Mapping[str, float] = MappingProxyType({**THRESHOLDS, "contradicted": CONTRADICTED})

    def judge(self, claim: str, passages: Sequence[str]) -> Judgement:
        """The judgement on the best of the passages.

        Spec: CRP-SPEC-005 §6.2
        """
        found = align(claim, Context(passages))
        return judgement(found, found.units[0].passage if found.units else 0)
