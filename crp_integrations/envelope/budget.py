"""How many tokens an envelope may have, and the inputs from which it can be made again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from crp_integrations.envelope.candidates import Candidates, RankedFact
from crp_integrations.envelope.rank import Ranking
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import EngineError
from crp_integrations.messages import Message
from crp_integrations.ports import TokenCounter
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.vocabulary import Exactness, GroundingMode, QualityTier, Strategy


def reserves(
    context_limit: int, response_tokens: int | None, settings: EnvelopeSettings
) -> tuple[int, int]:
    """Tokens kept free for the answer, and the minimum kept free for counting errors.

    In a small context window both shrink in proportion, so that their sum is `reserve_share`.

    Spec: CRP-SPEC-003 §7.2 (decision E20)

    >>> reserves(128_000, None, EnvelopeSettings())
    (2048, 512)
    >>> reserves(2_560, None, EnvelopeSettings())
    (512, 128)
    """
    answer, margin = settings.expected_response_tokens, settings.safety_margin_tokens
    most = max(0, context_limit) * to_fixed(settings.reserve_share) // SCALE
    if answer + margin > most:
        answer, margin = most * answer // (answer + margin), most * margin // (answer + margin)
    return answer if response_tokens is None else response_tokens, margin


def safety_margin(
    tokens: int, exactness: Exactness, settings: EnvelopeSettings, least: int | None = None
) -> int:
    """Tokens kept free for counting errors; at least `safety_margin_tokens`, or `least` if given.

    Spec: CRP-SPEC-003 §7.2 (decision E19)
    """
    share = {
        Exactness.EXACT: 0,
        Exactness.FAMILY: to_fixed(settings.family_margin),
        Exactness.ESTIMATE: to_fixed(settings.estimate_margin),
    }[exactness]
    least = settings.safety_margin_tokens if least is None else least
    return max(least, -(-max(0, tokens) * share // SCALE))


def budget(
    context_limit: int,
    system_tokens: int,
    query_tokens: int,
    response_tokens: int | None,
    exactness: Exactness,
    settings: EnvelopeSettings,
    *,
    asked: int | None = None,
    automatic: bool = False,
) -> int:
    """The token budget of an envelope; its maximum if the budget is automatic.

    Spec: CRP-SPEC-003 §7.2 (decisions E19, E20)

    Args:
        context_limit: maximum tokens of input and output; for a limit of the input alone
            `response_tokens` is 0.
        system_tokens: measured tokens of the system message with its grounding instruction.
        query_tokens: tokens of the question.
        response_tokens: the call's `max_tokens`; None uses the reserve of the settings.
        exactness: how far the counter can be trusted.
        asked: maximum that the caller requested, None for none.
        automatic: the envelope uses what its question needs, up to the settings' maximum.

    >>> budget(16_384, 100, 20, None, Exactness.EXACT, EnvelopeSettings())
    13704
    """
    answer, least = reserves(context_limit, response_tokens, settings)
    left = context_limit - system_tokens - query_tokens - answer
    left -= safety_margin(left, exactness, settings, least)
    cap = settings.budget.most if automatic else asked
    return max(0, left if cap is None else min(left, cap))


@dataclass(frozen=True, slots=True)
class BudgetRoom:
    """How the token budget of an envelope was computed.

    Spec: CRP-SPEC-003 §7.2

    Attributes:
        limit: the model's context limit, or its deployment's limit of the input.
        around: tokens of everything in the request except the question, and of replies that are
            sent again.
        question: tokens of the question.
        answer: tokens kept free for the answer, 0 under a limit of the input; None if the
            reserve of the settings was used.
        asked: maximum that the request asked for; None for none.
        automatic: the envelope uses what its question needs, at most `tokens`.
        tokens: the computed budget.
    """

    limit: int
    around: int
    question: int
    answer: int | None
    asked: int | None
    automatic: bool
    tokens: int


NEED = "need@1"


def needed_places(ranked: Sequence[RankedFact], settings: EnvelopeSettings) -> list[int]:
    """Places of the facts that a question needs, in rank order.

    A fact is needed if its score is at least `needed_share` of the best one's; after that point
    relevance has fallen off. A fact with score 0 is not needed.
    """
    least = to_fixed(settings.budget.needed_share)
    best = max((fact.candidate.merit for fact in ranked), default=0)
    return [
        place
        for place, fact in enumerate(ranked)
        if fact.candidate.merit and fact.candidate.merit * SCALE >= least * best
    ]


def needed_tokens(
    ranking: Ranking, needs: int, settings: EnvelopeSettings, pinned: Collection[str]
) -> int:
    """Tokens that a question needs, within the settings' bounds.

    Each fact counts by its score relative to the best one's, raised to a power, so that facts
    after the point where relevance falls off add little; each further need of a question adds a
    share. Tokens of pinned facts are added.
    """
    ranked, walk, bounds = ranking.every, ranking.walk, settings.budget
    places = needed_places(ranked, settings)
    walk.fetch(places)
    alike = {at for at in places if walk.kept_instead_of(at) is not None}
    best = max((fact.candidate.merit for fact in ranked), default=0)
    facts: int = sum(
        (fact.candidate.merit * SCALE // best) ** bounds.score_power
        for at, fact in enumerate(ranked)
        if best and at not in alike
    ) // SCALE ** (bounds.score_power - 1)
    parts = SCALE + to_fixed(bounds.part_share) * (max(1, needs) - 1)
    tokens = bounds.fact_tokens * facts * parts // SCALE**2
    fixed = sum(fact.candidate.tokens for fact in ranked if fact.candidate.fact_id in pinned)
    return min(max(tokens + fixed, bounds.least), bounds.most)


@dataclass(frozen=True, slots=True)
class EnvelopeInputs:
    """The inputs of `assemble` besides the settings, and the token counts it requested.

    Attributes:
        candidates: the candidates that were ranked.
        room: how the budget was computed; None if the caller gave it.
        budget_tokens: maximum tokens of the text.
        tokenizer, exactness, source: properties of the token counter.
        counts: results of all token counts, in order.
        salted: whether the ETag is salted with a secret of the session.
        previous: ids of the previous envelope's facts, in their order.
    """

    candidates: Candidates
    room: BudgetRoom | None
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


class LazyCounter:
    """Creates a counter at first use and counts with it; loading one takes a fifth of a second.

    Args:
        make: creates the counter; threads that use it first at the same time may each call it.
    """

    def __init__(self, make: Callable[[], TokenCounter]) -> None:
        self._make = make

    @cached_property
    def _counter(self) -> TokenCounter:
        return self._make()

    @property
    def identity(self) -> str:
        """The tokenizer's name."""
        return self._counter.identity

    @property
    def exactness(self) -> Exactness:
        """How far its counts can be trusted."""
        return self._counter.exactness

    @property
    def source(self) -> str:
        """Origin of the vocabulary."""
        return self._counter.source

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return self._counter.count(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return self._counter.count_many(texts)

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of a conversation with the model family's overhead."""
        return self._counter.count_messages(messages)

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of tool definitions."""
        return self._counter.count_tools(tools)


class RecordingCounter(LazyCounter):
    """A counter that records its counts of texts, the only counts that an envelope needs.

    Attributes:
        asked: every count of a text, in order.
    """

    def __init__(self, counter: TokenCounter) -> None:
        """Wrap another counter."""
        super().__init__(lambda: counter)
        self.asked: list[int] = []

    def count(self, text: str) -> int:
        """Tokens of a text."""
        tokens = super().count(text)
        self.asked.append(tokens)
        return tokens

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        counts = super().count_many(texts)
        self.asked += counts
        return counts


class RecordedCounter:
    """A counter that returns recorded counts, in their order.

    Attributes:
        left: number of counts that were not requested yet.
    """

    def __init__(
        self, counts: Sequence[int], *, identity: str, exactness: Exactness, source: str
    ) -> None:
        """Take the recorded counts and the properties of the counter that made them."""
        self.identity = identity
        self.exactness = exactness
        self.source = source
        self._counts = counts
        self._next = 0

    @property
    def left(self) -> int:
        """Number of counts that were not requested yet."""
        return len(self._counts) - self._next

    def count(self, text: str) -> int:
        """The next count."""
        if self._next >= len(self._counts):
            raise EngineError(
                f"count {self._next + 1} is requested, but only {len(self._counts)} were recorded",
                engine=self.identity,
            )
        self._next += 1
        return self._counts[self._next - 1]

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """The next counts, one for each text."""
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Not recorded, since no envelope needs it; raises `EngineError`."""
        raise EngineError("counts of conversations were not recorded", engine=self.identity)

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """Not recorded, since no envelope needs it; raises `EngineError`."""
        raise EngineError("counts of tools were not recorded", engine=self.identity)
