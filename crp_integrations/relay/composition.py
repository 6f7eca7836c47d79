"""Answer one request in several windows by its strategy: in parts, then combined; and batches.

Spec: related facts §5, §7
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from crp_integrations.errors import CRPError, LimitReached, RequestError
from crp_integrations.messages import Reply, Usage
from crp_integrations.relay import steps
from crp_integrations.relay.continuation import ContinuedAnswer, ReportedQuestion, worst_headers
from crp_integrations.relay.records import Answer, Request
from crp_integrations.relay.session_admission import Place
from crp_integrations.relay.steps import (
    Fan,
    FittedDispatch,
    Halt,
    Outcome,
    Refusal,
    Release,
    Result,
    Step,
    own_error,
    total_usage,
)
from crp_integrations.relay.turn import Turn
from crp_integrations.relay.world import World
from crp_integrations.vocabulary import Strategy

PART_ANSWERS: Final = (
    "The parts of the question were answered one by one. Bring these answers together in one; "
    "where the context says otherwise than they do, the context holds:"
)
PARTS_WITHOUT_ANSWER: Final = (
    "No answer was found to these parts; say so where the context has none either:"
)
MakeTurn: TypeAlias = Callable[[Request, Place], Turn]


class FannedQuestion(ReportedQuestion):
    """A question in parts: one window for each part, and one that answers the whole question.

    The first window only plans and does not ask a model for an answer. It is the parent of the
    parts' windows, which share one number; the last window has all answered parts as parents and
    flags those that failed. Parts beyond the maximum are answered in the last window.
    """

    def __init__(self, request: Request, window: MakeTurn, most: int) -> None:
        """Plan a request; `most` is the maximum number of parts with their own window."""
        self.request = request
        self._window = window
        self._max_parts = most
        self._place = Place(strategy=request.strategy)
        self._plan = window(request.changed(strategy=Strategy.FAN_OUT), self._place)
        self._planned = ""
        self._surveyed = False
        self._needs: tuple[str, ...] = ()
        self._whole: Turn | None = None
        self._parts: tuple[str, ...] = ()
        self._answers: dict[str, Answer] = {}

    @property
    def session_id(self) -> str:
        """The session that all windows belong to."""
        return self._plan.session_id

    def preview_window(self) -> Turn:
        """The window whose envelope is the question's preview: the one that combines the parts."""
        needs = tuple(dict.fromkeys(self._plan.needs))
        if len(needs[: self._max_parts]) < 2:
            return self._window(self._asked(Strategy.PUSH), self._place)
        asked = self._asked(Strategy.HIERARCHICAL).changed(sub_queries=needs)
        turn = self._window(asked, self._place)
        turn.awaits.append("parts")
        return turn

    def show_at_once(self) -> bool:
        """Always False: the parts are answered before the whole question."""
        return False

    def _begin(self) -> Step:
        """Find the parts of the question and ask all of them."""
        step = self._plan.survey()
        if step is not None:
            return step
        return self._ask_parts()

    def fit(self, model: str, *, input_limit: int | None = None) -> FittedDispatch:
        """Pack the window that combines the parts for a model; the last fit is used.

        Spec: CRP-SPEC-003 §10.1
        """
        if self._whole is None:
            raise RequestError("the parts are packed one by one; the whole question comes later")
        return self._whole.fit(model, input_limit=input_limit)

    def _receive(self, result: Result) -> Step:
        """Combine the parts' outcomes, or pass the result on to the window in progress."""
        if isinstance(result, tuple):
            return self._combine(result)
        if self._whole is not None:
            return self._seen(self._whole.receive(result))
        if self._planned:
            raise RequestError("the parts are asked together; give their outcomes")
        if not isinstance(result, Reply):
            raise RequestError("a judge's reply belongs to the window that asked it")
        self._plan.surveyed(result)
        self._surveyed = True
        return self._ask_parts()

    def _fail(self, error: BaseException) -> Outcome:
        """End the window in progress; the driver ends the parts' windows."""
        if self._whole is not None:
            return self._whole.fail(error)
        return Refusal(own_error(error), {}) if self._planned else self._plan.fail(error)

    def _ask_parts(self) -> Step:
        """A step that asks all parts; a question of one part is asked in a single window."""
        self._needs = tuple(dict.fromkeys(self._plan.needs))
        self._parts = self._needs[: self._max_parts]
        if len(self._parts) < 2:
            single = self._asked(Strategy.PUSH)
            if self._surveyed:
                single = single.changed(sub_queries=self._needs)
            self._whole = self._window(single, self._place)
            return self._seen(self._whole.begin())
        plan_id = self._plan.plan(len(self._parts))
        if not isinstance(plan_id, str):
            return plan_id
        self._planned = plan_id
        return Fan(
            tuple(
                self._window(
                    self._asked(Strategy.PUSH).changed(query=part, sub_queries=(part,)),
                    replace(self._place, parents=(self._planned,), sibling=number),
                )
                for number, part in enumerate(self._parts, start=1)
            )
        )

    def _combine(self, outcomes: tuple[Outcome, ...]) -> Step:
        self._answers = {
            part: outcome.answer
            for part, outcome in zip(self._parts, outcomes, strict=True)
            if isinstance(outcome, Release)
        }
        if not self._answers:
            # No part was answered: the first refusal or halt says why.
            return outcomes[0]
        self._whole = self._window(
            self._asked(Strategy.HIERARCHICAL).changed(
                sub_queries=self._needs,
                instructions=(*self.request.instructions, *self._part_answers()),
            ),
            replace(
                self._place, parents=tuple(answer.window_id for answer in self._answers.values())
            ),
        )
        missing = len(self._parts) - len(self._answers)
        if missing:
            self._whole.flag(f"parts-not-answered={missing}")
        return self._seen(self._whole.begin())

    def _asked(self, strategy: Strategy) -> Request:
        return self.request.changed(
            strategy=strategy, session_id=self.session_id, if_match="", session_token=""
        )

    def _part_answers(self) -> list[str]:
        lines = [
            f"{number}. {part}\n{self._answers[part].text}"
            for number, part in enumerate(self._parts, start=1)
            if part in self._answers
        ]
        sections = ["\n\n".join((PART_ANSWERS, *lines))]
        missing = [f"- {part}" for part in self._parts if part not in self._answers]
        if missing:
            sections.append("\n".join((PARTS_WITHOUT_ANSWER, *missing)))
        return sections

    def _seen(self, step: Step) -> Step:
        """Return a step unchanged, except that an answer gets the total usage of all windows."""
        if not isinstance(step, Release):
            return step
        answer = step.answer
        others = [part.reply.usage for part in self._answers.values()]
        # A plan without a model call is left out: its empty usage would make the cost unknown.
        planned = [self._plan.usage] if self._plan.usage != Usage() else []
        usage = total_usage([*planned, *others, answer.reply.usage])
        return Release(
            answer.changed(
                reply=answer.reply.changed(usage=usage),
                parts=tuple(part.window_id for part in self._answers.values()),
            )
        )


# Words that suggest a strategy. The first match is chosen, so the most specific ones come first.
_STRATEGY_WORDS: Final[tuple[tuple[Strategy, re.Pattern[str]], ...]] = tuple(
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


# Strategy name with which a caller has `intent` choose.
AUTO: Final = "auto"


def intent(question: str) -> Strategy:
    """The strategy that a question's words suggest; push when none match (`intent@1`).

    >>> intent("Compare the GDPR and the EU AI Act on fines.")
    <Strategy.HIERARCHICAL: 'hierarchical'>
    """
    for strategy, words in _STRATEGY_WORDS:
        if words.search(question):
            return strategy
    return Strategy.PUSH


def choose_strategy(wanted: Strategy, accepted: Sequence[Strategy]) -> Strategy:
    """The wanted strategy if it is accepted, else the first accepted one."""
    return wanted if not accepted or wanted in accepted else accepted[0]


Composition: TypeAlias = ContinuedAnswer | FannedQuestion
# Strategies that answer each part of a question in its own window.
IN_PARTS = frozenset({Strategy.HIERARCHICAL, Strategy.FAN_OUT, Strategy.FAN_IN})


def compose(request: Request, world: World) -> Composition:
    """Build the composition that answers a request: in parts, or in continued windows."""
    composed: Composition
    # `on_report` is called once with the report on the whole, not once per window.
    silent = replace(world, listeners=replace(world.listeners, on_report=None))
    if request.strategy in IN_PARTS and not request.continuation_ids:
        settings = world.settings
        limit = min(settings.dispatch.hierarchical_parts, settings.sessions.graph.fan_out)
        composed = FannedQuestion(request, lambda part, place: Turn(part, silent, place), limit)
    else:
        limit = world.settings.max_windows
        composed = ContinuedAnswer(
            request, lambda part: Turn(part, silent), world.settings.dispatch, limit
        )
    composed.on_report = world.listeners.on_report
    return composed


@dataclass(frozen=True, slots=True)
class Batch:
    """Answers of several questions.

    Attributes:
        headers: the worst value of each header over all answers, including withheld ones.
    """

    answers: tuple[Answer | None, ...]
    errors: tuple[CRPError | None, ...]
    headers: dict[str, str]


class BatchTurns:
    """Several questions answered concurrently, each in its own session."""

    def __init__(self, requests: Sequence[Request], world: World) -> None:
        """Compose the windows of each request."""
        if not requests:
            raise RequestError("a batch has no question; give at least one")
        limit = world.settings.dispatch.batch_size
        if len(requests) > limit:
            raise LimitReached(f"a batch has {len(requests)} questions, at most {limit} are taken")
        self.models = {request.model for request in requests}
        self._turns = tuple(compose(request, world) for request in requests)
        self._outcomes: tuple[Outcome, ...] = ()

    def begin(self) -> Step:
        """A step that asks all questions."""
        return Fan(self._turns)

    def receive(self, result: Result) -> Step:
        """Keep all outcomes; returns the first one, which ends the run."""
        if not isinstance(result, tuple):
            raise RequestError("a batch takes the outcomes of its questions")
        self._outcomes = result
        return result[0]

    def fail(self, error: BaseException) -> Outcome:
        """End every question in progress."""
        outcomes = [turn.fail(error) for turn in self._turns]
        self._outcomes = tuple(outcomes)
        return outcomes[0]

    def batch(self) -> Batch:
        """The answers, errors and worst headers of the questions."""
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
    """The error that `answer_of` raises for an outcome without an answer."""
    try:
        steps.answer_of(outcome)
    except CRPError as error:
        return error
    raise AssertionError("an outcome without an answer raises")
