"""What a report says of an answer beside earlier ones: stages 6 to 9.

Spec: CRP-SPEC-005 §8 to §11
"""

from __future__ import annotations

from pydantic import Field

from crp_integrations.records import Part
from crp_integrations.vocabulary import (
    CompletenessLevel,
    RepetitionLevel,
    Severity,
)


class CrossContradiction(Part):
    """A claim that an earlier window contradicts.

    Spec: CRP-SPEC-005 §8.4

    Attributes:
        claim_id, claim: the current claim.
        start, end: character offsets of the claim in the answer.
        prior_claim: what the earlier window said.
        prior_start, prior_end: character offsets of it in the earlier window's text.
        window_id: of the current window, empty before it has one.
        prior_window_id: of the earlier window.
        kind: `numeric`, `logical`, `temporal`, `stance` or `minor` (§8.2).
        probability: of the contradiction, [0, 1].
        engine: what found it.
    """

    claim_id: str
    claim: str
    start: int = Field(default=0, ge=0)
    end: int = Field(default=0, ge=0)
    prior_claim: str
    prior_start: int = Field(default=0, ge=0)
    prior_end: int = Field(default=0, ge=0)
    window_id: str = ""
    prior_window_id: str
    kind: str
    severity: Severity
    probability: float = Field(ge=0.0, le=1.0)
    engine: str = ""


class Coherence(Part):
    """Stage 6: claims beside those of earlier windows.

    Attributes:
        compared: claims that had a counterpart in an earlier window.
        contradicted: those among them that it contradicts.
        unread: claims that were not compared, as they are too long or too many.
    """

    contradictions: tuple[CrossContradiction, ...] = ()
    compared: int = Field(default=0, ge=0)
    contradicted: int = Field(default=0, ge=0)
    unread: int = Field(default=0, ge=0)

    @property
    def score(self) -> float:
        """One minus contradicted over compared claims, 1.0 when none was compared (D21)."""
        return 1.0 - self.contradicted / self.compared if self.compared else 1.0


class Repetition(Part):
    """Stage 7: how much of the answer earlier windows have said.

    Attributes:
        overlap: shared 4-grams over the answer's 4-grams, [0, 1].
        semantic: repeated sentences over the answer's sentences, [0, 1].
        sentences: (start, end) in the answer of each repeated sentence.
    """

    level: RepetitionLevel = RepetitionLevel.NONE
    overlap: float = Field(default=0.0, ge=0.0, le=1.0)
    semantic: float = Field(default=0.0, ge=0.0, le=1.0)
    sentences: tuple[tuple[int, int], ...] = ()


class Completeness(Part):
    """Stage 8: which needs of the question all answers of the session address.

    Attributes:
        level, score: covered over all needs, 1.0 when there are none; None where nobody read
            which needs the answers cover.
        covered, uncovered: the needs, in their order.
        new: those of the covered that no earlier window had covered.
        recommendation: `continue`, `broaden` (the query), `warn` (the client), or empty (§10.2).
    """

    level: CompletenessLevel | None = None
    score: float | None = Field(default=None, ge=0.0, le=1.0)
    covered: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    recommendation: str = ""


class Flow(Part):
    """Stage 9: whether the answer reads on from the window before; 1 for a first window.

    Attributes:
        score: the weighted sum of §11.4, [0, 1].
        opening: the cosine of the two ends on the scale where .40 is low, [0, 1].
        topic, register_, transition: the other three signals, [0, 1].
        cosine: the cosine itself, or the share of words where there is no embedder, [-1, 1].
        abrupt: the opening is low: the answer starts as if there were no window before.
        shifted: a complete change of topic, which a new sub-query may ask for.
        expected: the change is one that a newly covered sub-query asks for.
        remediation: `augment`, `stitch`, `redispatch`, or None (§11.5, D17).
    """

    score: float = Field(default=1.0, ge=0.0, le=1.0)
    opening: float = Field(default=1.0, ge=0.0, le=1.0)
    topic: float = Field(default=1.0, ge=0.0, le=1.0)
    register_: float = Field(default=1.0, ge=0.0, le=1.0)
    transition: float = Field(default=1.0, ge=0.0, le=1.0)
    cosine: float = 1.0
    abrupt: bool = False
    shifted: bool = False
    expected: bool = False
    remediation: str | None = None
