"""Many questions at once; what is said of all of them is the worst.

Spec: related facts §7
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crp_integrations.errors import CRPError, LimitReached, RequestError
from crp_integrations.relay import outcomes
from crp_integrations.relay.records import Answer, Request
from crp_integrations.relay.steps import Fan, Halt, Outcome, Release, Result, Step
from crp_integrations.relay.strategies.compose import composed
from crp_integrations.relay.strategies.worst import worst
from crp_integrations.relay.world import World


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


class Together:
    """Several questions played side by side, each in its own session."""

    def __init__(self, requests: Sequence[Request], world: World) -> None:
        """Begin.

        Raises:
            RequestError: there is no question.
            LimitReached: there are more than the settings allow.
        """
        if not requests:
            raise RequestError("a batch has no question; give one at least")
        most = world.settings.dispatch.batch_size
        if len(requests) > most:
            raise LimitReached(f"a batch has {len(requests)} questions, at most {most} are taken")
        self._turns = tuple(composed(request, world) for request in requests)
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
        return Batch(tuple(answers), tuple(errors), worst(examined))


def _error(outcome: Outcome) -> CRPError:
    """What asking for the answer of an outcome raises."""
    try:
        outcomes.answer(outcome)
    except CRPError as error:
        return error
    raise AssertionError("an outcome without an answer raises")
