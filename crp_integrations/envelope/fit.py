"""Everything that an envelope was made of, so that it can be made again (`assemble`)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from crp_integrations.envelope.records import Candidates
from crp_integrations.vocabulary import Exactness, GroundingMode, QualityTier, Strategy


@dataclass(frozen=True, slots=True)
class Room:
    """How the tokens for an envelope were reckoned.

    Spec: CRP-SPEC-003 §7.2

    Attributes:
        limit: the model's context limit.
        around: tokens of everything in the request but the question, and of replies that are
            sent along again.
        question: tokens of the question.
        answer: tokens kept free for the answer; None took the setting.
        asked: the request's own cap; None for none.
        tokens: the outcome.
    """

    limit: int
    around: int
    question: int
    answer: int | None
    asked: int | None
    tokens: int


@dataclass(frozen=True, slots=True)
class Fit:
    """What `assemble` was given besides the settings, and the counts that it asked for.

    Attributes:
        candidates: the seam, as it was ranked.
        room: how the budget was reckoned; None for one that a caller gave.
        budget_tokens: tokens that the text may have.
        tokenizer, exactness, source: of the counter.
        counts: what was counted on the way, in order.
        salted: the ETag has a secret of the session in it.
        previous: ids of the previous envelope's facts, in their order.
    """

    candidates: Candidates
    room: Room | None
    budget_tokens: int
    tokenizer: str
    exactness: Exactness
    source: str
    counts: tuple[int, ...]
    grounding: GroundingMode
    strategy: Strategy
    now: datetime
    model: str
    k: int | None = None
    max_age_seconds: int | None = None
    window_number: int = 1
    tiers_before: tuple[QualityTier, ...] = ()
    salted: bool = False
    pinned: tuple[str, ...] = ()
    previous: tuple[str, ...] = ()
