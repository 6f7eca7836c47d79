"""What the provenance engine needs of the world: verifiers, and recognisers of personal data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from crp_integrations.dpe.pii.spans import PersonalSpan
from crp_integrations.vocabulary import PersonalCategory


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


class Recogniser(Protocol):
    """Finds personal data beside the package's own recognisers; deterministic.

    Attributes:
        identity: library and version, with the hash of any model (CRP-SPEC-005 §21.1).
        kinds: what it looks for, by kind; a kind of `dpe.pii.spans.KINDS` where there is one.
    """

    @property
    def identity(self) -> str: ...

    @property
    def kinds(self) -> Mapping[str, PersonalCategory]: ...

    def find(self, text: str) -> Sequence[PersonalSpan]:
        """Places in a text, in any order; they may overlap."""
        ...
