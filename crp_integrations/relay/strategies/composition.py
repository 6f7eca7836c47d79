"""The strategy of a request, its windows, and many questions at once.

Spec: related facts §7
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from crp_integrations.errors import CRPError, LimitReached, RequestError
from crp_integrations.relay import steps
from crp_integrations.relay.records import Answer, Request
from crp_integrations.relay.steps import Fan, Halt, Outcome, Release, Result, Step
from crp_integrations.relay.strategies.continuation import ContinuedAnswer, worst_headers
from crp_integrations.relay.strategies.fan_out import FannedQuestion
from crp_integrations.relay.turn import Turn
from crp_integrations.relay.world import World
from crp_integrations.vocabulary import Strategy

# Words that say what is wanted of an answer, each strategy's most telling first (related facts §7).
_INTENTS: Final[tuple[tuple[Strategy, re.Pattern[str]], ...]] = tuple(
    (strategy, re.compile(rf"\b(?:{words})\b", re.IGNORECASE))
    for strategy, words in (
        (
            Strategy.BATCH,
            (
                r"in bulk|for each of (?:the|these|those|my)|"
                r"(?:each|all) of the following (?:questions|items|tickets|rows)|"
                r"(?:these|the following) \d+ (?:questions|items|tickets|rows)"
            ),
        ),
        (
            Strategy.STREAMING,
            r"in real[- ]time|as (?:it is|you) (?:written|write)|stream (?:the|me|your|it)",
        ),
        (
            Strategy.FAN_OUT,
            (
                r"in parallel|side by side|concurrently|independently of (?:each|one an)other|"
                r"at the same time,? (?:find|look|check)"
            ),
        ),
        (
            Strategy.REFLEXIVE,
            (
                r"double[- ]check|verif(?:y|ied)|fact[- ]check(?:ed)?|"
                r"mak(?:e|ing) (?:very |absolutely )?(?:sure|certain)|"
                r"check (?:your|the) (?:answer|work)|"
                r"confirm (?:that|whether|if|with|against)|cross[- ]check"
            ),
        ),
        (
            Strategy.HIERARCHICAL,
            (
                r"compar(?:e|ed|es|ing|ison)|contrast|differences?|differ|versus|vs\.?|"
                r"synthesi[sz]e|synthesis|summari[sz]e (?:all|across)|trade[- ]?offs?|"
                r"pros and cons|advantages and disadvantages|similarities|bring together"
            ),
        ),
        (
            Strategy.PULL,
            (
                r"extract|list (?:all|every|each|the)|find (?:all|every|each)|enumerate|"
                r"pull (?:out|together)|every (?:mention|occurrence|instance)|"
                r"all (?:the )?(?:mentions|occurrences|names|dates|figures|numbers|amounts)"
            ),
        ),
        (
            Strategy.AGENTIC,
            (
                r"step[- ]by[- ]step|first .{1,80}? then|plan (?:and|how)|investigate|research|"
                r"work out|figure out|find out .{1,80}?,? (?:and )?then|get to the bottom of|"
                r"track down|trace"
            ),
        ),
    )
)


def intent(question: str) -> Strategy:
    """The strategy that a question's words ask for; push for a simple one (`intent@1`).

    Spec: related facts §7

    >>> intent("Compare the GDPR and the EU AI Act on fines.")
    <Strategy.HIERARCHICAL: 'hierarchical'>
    """
    for strategy, words in _INTENTS:
        if words.search(question):
            return strategy
    return Strategy.PUSH


def choose_strategy(wanted: Strategy, accepted: Sequence[Strategy]) -> Strategy:
    """The strategy of a request.

    Spec: related facts §7
    """
    return wanted if not accepted or wanted in accepted else accepted[0]


Composition: TypeAlias = ContinuedAnswer | FannedQuestion
# Strategies that answer the parts of a question in windows of their own.
IN_PARTS = frozenset({Strategy.HIERARCHICAL, Strategy.FAN_OUT, Strategy.FAN_IN})


def compose(request: Request, world: World) -> Composition:
    """The windows of a request.

    Spec: related facts §7
    """
    strategy = choose_strategy(request.strategy, request.accept_strategies)
    if strategy is not request.strategy:
        request = request.changed(strategy=strategy)
    settings = world.settings.dispatch
    if strategy in IN_PARTS and not request.continuation_ids:
        most = min(settings.hierarchical_parts, world.settings.sessions.graph.fan_out)
        return FannedQuestion(request, lambda one, place: Turn(one, world, place), most)
    return ContinuedAnswer(
        request, lambda one: Turn(one, world), settings, world.settings.max_windows
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """Answers of several questions.

    Attributes:
        answers: in the questions' order; None where there is an error.
        errors: in the questions' order; None where there is an answer.
        headers: the worst of each, over the answers, those included that are withheld.
    """

    answers: tuple[Answer | None, ...]
    errors: tuple[CRPError | None, ...]
    headers: dict[str, str]


class BatchTurns:
    """Several questions played side by side, each in its own session."""

    def __init__(self, requests: Sequence[Request], world: World) -> None:
        """Begin."""
        if not requests:
            raise RequestError("a batch has no question; give one at least")
        most = world.settings.dispatch.batch_size
        if len(requests) > most:
            raise LimitReached(f"a batch has {len(requests)} questions, at most {most} are taken")
        self._turns = tuple(compose(request, world) for request in requests)
        self._outcomes: tuple[Outcome, ...] = ()

    def begin(self) -> Step:
        """Ask them all."""
        return Fan(self._turns)

    def receive(self, result: Result) -> Step:
        """Take all outcomes; the first one ends the play."""
        if not isinstance(result, tuple):
            raise RequestError("a batch takes the outcomes of its questions")
        self._outcomes = result
        return result[0]

    def fail(self, error: BaseException) -> Outcome:
        """End every question that is under way."""
        ended = [turn.fail(error) for turn in self._turns]
        self._outcomes = tuple(ended)
        return ended[0]

    def batch(self) -> Batch:
        """What became of them."""
        answers: list[Answer | None] = []
        errors: list[CRPError | None] = []
        for outcome in self._outcomes:
            answers.append(outcome.answer if isinstance(outcome, Release) else None)
            errors.append(None if isinstance(outcome, Release) else _error(outcome))
        examined = [
            outcome.answer.headers
            for outcome in self._outcomes
            if isinstance(outcome, Release | Halt)
        ]
        return Batch(tuple(answers), tuple(errors), worst_headers(examined))


def _error(outcome: Outcome) -> CRPError:
    """What asking for the answer of an outcome raises."""
    try:
        steps.answer_of(outcome)
    except CRPError as error:
        return error
    raise AssertionError("an outcome without an answer raises")
