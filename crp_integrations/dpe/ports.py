"""Ports of the provenance engine: verifiers, and recognisers of personal data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from crp_integrations.dpe.pii.spans import PersonalSpan
from crp_integrations.vocabulary import PersonalCategory


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verifier's scores for one claim and its best passage.

    Attributes:
        entailment, contradiction, neutral: probabilities that sum to 1.
        passage: index of that passage among those given.
    """

    entailment: float
    contradiction: float
    neutral: float
    passage: int


class Verifier(Protocol):
    """Judges whether passages support a claim; deterministic.

    Attributes:
        identity: `name@n` with the hash of any weights; a heuristic must not be named NLI (D12).
        thresholds: thresholds by which its scores are interpreted.
        passage: maximum characters of a passage; longer passages are split beforehand.
    """

    @property
    def identity(self) -> str: ...

    @property
    def thresholds(self) -> Mapping[str, float]: ...

    @property
    def passage(self) -> int: ...

    def judge(self, claim: str, passages: Sequence[str]) -> Judgement:
        """Judge the claim by the best of the passages, of which there is at least one."""
        ...


class Recogniser(Protocol):
    """Finds personal data in addition to the package's own recognisers; deterministic.

    Attributes:
        identity: library and version, with the hash of any model (CRP-SPEC-005 §21.1).
        kinds: category of each kind that it looks for; named as in `dpe.pii.spans.KINDS`.
    """

    @property
    def identity(self) -> str: ...

    @property
    def kinds(self) -> Mapping[str, PersonalCategory]: ...

    def find(self, text: str) -> Sequence[PersonalSpan]:
        """The places found in a text, in any order; they may overlap."""
        ...
