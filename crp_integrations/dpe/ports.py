"""What the provenance engine needs of the world: something that reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verifier's word on one claim against its best passage.

    Attributes:
        entailment, contradiction, neutral: probabilities that sum to 1.
        passage: position of the passage that decided.
    """

    entailment: float
    contradiction: float
    neutral: float
    passage: int


class Verifier(Protocol):
    """Judges whether passages support a claim; deterministic.

    Attributes:
        identity: `name@n` with the hash of any weights; a heuristic is never called NLI (D12).
        thresholds: numbers that its judgements are read with.
        passage: longest passage it reads, in characters; longer ones are windowed before.
    """

    @property
    def identity(self) -> str: ...

    @property
    def thresholds(self) -> Mapping[str, float]: ...

    @property
    def passage(self) -> int: ...

    def judge(self, claim: str, passages: Sequence[str]) -> Judgement:
        """The judgement on the best of the passages (at least one)."""
        ...
