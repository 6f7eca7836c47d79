"""Parts of a report: the results of stages 6 to 9, and a judge's calls and replies.

Spec: CRP-SPEC-005 §8 to §11
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import Field

from crp_integrations.records import Part
from crp_integrations.vocabulary import CompletenessLevel, RepetitionLevel, Severity


class CrossContradiction(Part):
    """A claim that an earlier window contradicts.

    Spec: CRP-SPEC-005 §8.4

    Attributes:
        window_id: id of the current window; empty before it has one.
        kind: `numeric`, `logical`, `temporal`, `stance` or `minor` (§8.2).
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
    """Stage 6: comparison of claims with those of earlier windows.

    Attributes:
        compared: number of claims with a counterpart in an earlier window.
        contradicted: number of these claims that their counterpart contradicts.
        unread: number of claims not compared because they are too long or too many.
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
    """Stage 7: how much of the answer repeats earlier windows.

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
    """Stage 8: the needs of the question that the answers of the session address.

    Attributes:
        level, score: covered over all needs, 1.0 when there are none; None if coverage was not
            checked.
        new: covered needs that no earlier window had covered.
        recommendation: `continue`, `broaden` (the query), `warn` (the client), or empty (§10.2).
    """

    level: CompletenessLevel | None = None
    score: float | None = Field(default=None, ge=0.0, le=1.0)
    covered: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    recommendation: str = ""


class Flow(Part):
    """Stage 9: whether the answer continues the window before; all 1 for a first window.

    Attributes:
        score: the weighted sum of §11.4, [0, 1].
        opening: the opening coherence, on the scale where .40 is low, [0, 1].
        topic, register_, transition: the other three signals, [0, 1].
        cosine: the unscaled cosine, or the share of common words without an embedder, [-1, 1].
        abrupt: True if the opening is low: the answer starts as if there were no window before.
        shifted: True if the topic changed completely, which a new sub-query may require.
        expected: True if a newly covered sub-query requires that change.
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


NO_DOUBT: Final = "no doubt"
"""Why no judge was asked: the evidence has every claim."""


# Prefix of the name of a fallback that replied instead of the judge.
FALLBACK: Final = "fallback "
# Error of a call that was not made, as the model had failed several times in a row.
UNAVAILABLE: Final = "JudgeUnavailable"
# Names of the quotable texts that are not passages.
QUESTION_ID: Final = "question"
SYSTEM_ID: Final = "system"


class Quotation(Part):
    """Words of the evidence that support a verdict.

    Attributes:
        fact_id: id of the fact; `question` and `system` for those texts.
        passage: number of the passage as the judge saw it, from 1; 0 for question and system.
    """

    fact_id: str
    passage: int = Field(ge=0)
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    text: str

    @property
    def source(self) -> str:
        """The text's name for readers: `passage 2`, or `question` and `system`."""
        return f"passage {self.passage}" if self.passage else self.fact_id


class UnreadPassage(Part):
    """A passage that the judge was not shown, and why: `no-store`, `label`, `length`, `failed`."""

    fact_id: str
    reason: str


class JudgedNeed(Part):
    """A part of the question, and whether the answer covers it.

    Attributes:
        number: number of the part, from 1; a question that was not split has one part.
        by: ids of the claims that answer it, right or wrong.
    """

    number: int = Field(ge=1)
    answered: bool
    by: tuple[str, ...] = ()


class JudgedConflict(Part):
    """Claims, by their ids, or quotations of passages that cannot all be true."""

    claims: tuple[str, ...] = ()
    quotations: tuple[Quotation, ...] = ()
    reason: str = ""


class JudgeExchange(Part):
    """One call of a judge and its reply.

    Attributes:
        id: hash of the request, which the reply must repeat.
        first, last: numbers of the first and last claim of the request, from 1.
        claims: numbers of its claims, if not all from the first to the last are asked about.
        second: whether the second judge was asked.
        pieces: number, start and end of each of the `passages` shown only in part, in order.
        reply: text of the reply as received; empty if none came.
        error: name of the error that occurred instead of a reply; empty for none.
        cached: True if the reply was taken from the judge's cache.
        cost_usd: cost in US dollars; None if no price is known.
    """

    id: str
    first: int = Field(ge=1)
    last: int = Field(ge=0)
    claims: tuple[int, ...] = ()
    second: bool = False
    passages: tuple[int, ...]
    pieces: tuple[tuple[int, int, int], ...] = ()
    prompt_hash: str
    model: str = ""
    reply: str = ""
    error: str = ""
    cached: bool = False
    milliseconds: int = Field(default=0, ge=0)
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    cost_usd: float | None = None

    def numbers(self, most: int) -> Sequence[int]:
        """Numbers of the claims of the request, up to `most`."""
        listed = self.claims or range(self.first, min(self.last, most) + 1)
        return [number for number in listed if number <= most]


class JudgeRun(Part):
    """The calls of a judge about one answer.

    Attributes:
        model: the judge's name; empty if no judge was asked.
        second: name of the judge that was asked about doubtful claims; empty for none.
        prompt: name and hash of the instructions, including a custom rubric.
        skipped: why no judge was asked: `no doubt`, `sample`, `budget`, `background`; empty if
            one was asked.
        passages: number of all passages.
        unplaced: number of assertions in replies whose words are not in the answer.
        needs: the parts of the question that a reply mentions, in order.
    """

    model: str = ""
    second: str = ""
    prompt: str = ""
    own_answer: bool = False
    skipped: str = ""
    calls: tuple[JudgeExchange, ...] = ()
    passages: int = Field(default=0, ge=0)
    left_out: tuple[UnreadPassage, ...] = ()
    language: str = "en"
    unplaced: int = Field(default=0, ge=0)
    needs: tuple[JudgedNeed, ...] = ()
    conflicts: tuple[JudgedConflict, ...] = ()

    @property
    def failed(self) -> str:
        """Name of the error that left the answer unjudged; empty for none."""
        if self.second_replied:
            # A second judge is asked about everything that the first one left unread.
            return ""
        calls = [call for call in self.calls if not call.second]
        return calls[-1].error if calls else ""

    @property
    def second_replied(self) -> bool:
        """Whether the second judge replied."""
        return any(call.second and not call.error for call in self.calls)

    @property
    def asked(self) -> str:
        """The models that replied: the judge, or its fallback, by the names they were asked by."""
        others = {
            call.model.removeprefix(FALLBACK)
            for call in self.calls
            if not call.error and call.model.startswith(FALLBACK)
        }
        own = any(
            not call.error and not call.second and not call.model.startswith(FALLBACK)
            for call in self.calls
        )
        second = [self.second] if self.second_replied and self.second != self.model else []
        return ", ".join([*([self.model] if own or not others else []), *sorted(others), *second])

    @property
    def cost_usd(self) -> float | None:
        """Total cost of the calls without cached ones; None if a price is not known."""
        costs = [call.cost_usd for call in self.calls if not call.cached]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens of the calls, without cached ones."""
        return sum(
            call.prompt_tokens + call.completion_tokens for call in self.calls if not call.cached
        )
