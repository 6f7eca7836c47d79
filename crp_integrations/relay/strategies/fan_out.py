"""The parts of a question answered side by side, then brought together (fan-out, fan-in).

Spec: related facts §5, §7
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from crp_integrations.errors import RequestError
from crp_integrations.messages import Reply, Usage
from crp_integrations.relay.records import Answer, Request
from crp_integrations.relay.session_admission import Place
from crp_integrations.relay.steps import (
    Fan,
    Fitted,
    Outcome,
    Refusal,
    Release,
    Result,
    Step,
    total_usage,
)
from crp_integrations.relay.turn import Turn
from crp_integrations.relay.window import own_error
from crp_integrations.vocabulary import Strategy

PART_ANSWERS: Final = (
    "The parts of the question were answered one by one. Bring these answers together in one; "
    "where the context says otherwise than they do, the context holds:"
)
PARTS_WITHOUT_ANSWER: Final = (
    "No answer was found to these parts; say so where the context has none either:"
)
MakeTurn: TypeAlias = Callable[[Request, Place], Turn]


class FannedQuestion:
    """A question in parts: a window for each of them, and one that answers the whole.

    The first window plans and asks no model for an answer; the parts hang from it and share a
    number; the last one follows all that were answered. A part that fails is left out, and the
    last window says so. Parts beyond the most that may fan out are answered in the last window.
    """

    def __init__(self, request: Request, window: MakeTurn, most: int) -> None:
        """Begin with a request."""
        self.request = request
        self._window = window
        self._most = most
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
        """Of all its windows."""
        return self._plan.session_id

    def begin(self) -> Step:
        """Find the parts and ask for them together."""
        step = self._plan.survey()
        if step is not None:
            return step
        return self._asking()

    def fit(self, model: str, *, context_limit: int | None = None) -> Fitted:
        """Pack the window that brings the parts together for a model; the last fit counts.

        Spec: CRP-SPEC-003 §10.1
        """
        if self._whole is None:
            raise RequestError("the parts are packed one by one; the whole question comes later")
        return self._whole.fit(model, context_limit=context_limit)

    def receive(self, result: Result) -> Step:
        """Bring the parts together, or go on with the window that does."""
        if isinstance(result, tuple):
            return self._together(result)
        if self._whole is not None:
            return self._seen(self._whole.receive(result))
        if self._planned:
            raise RequestError("the parts are asked together; hand over their outcomes")
        if not isinstance(result, Reply):
            raise RequestError("a judge's reply belongs to the window that asked it")
        self._plan.surveyed(result)
        self._surveyed = True
        return self._asking()

    def fail(self, error: BaseException) -> Outcome:
        """End the window under way; the parts' own are ended by who plays them."""
        if self._whole is not None:
            return self._whole.fail(error)
        return Refusal(own_error(error), {}) if self._planned else self._plan.fail(error)

    # --- within ------------------------------------------------------------------------

    def _asking(self) -> Step:
        """The parts together; a question of one part is asked as it is."""
        self._needs = tuple(dict.fromkeys(self._plan.needs))
        self._parts = self._needs[: self._most]
        if len(self._parts) < 2:
            alone = self._asked(Strategy.PUSH)
            if self._surveyed:
                alone = alone.changed(sub_queries=self._needs)
            self._whole = self._window(alone, self._place)
            return self._seen(self._whole.begin())
        planned = self._plan.plan(len(self._parts))
        if not isinstance(planned, str):
            return planned
        self._planned = planned
        return Fan(
            tuple(
                self._window(
                    self._asked(Strategy.PUSH).changed(query=part, sub_queries=(part,)),
                    replace(self._place, parents=(self._planned,), sibling=number),
                )
                for number, part in enumerate(self._parts, start=1)
            )
        )

    def _together(self, outcomes: tuple[Outcome, ...]) -> Step:
        self._answers = {
            part: one.answer
            for part, one in zip(self._parts, outcomes, strict=True)
            if isinstance(one, Release)
        }
        if not self._answers:
            # No part was answered: the first refusal or halt says why.
            return outcomes[0]
        self._whole = self._window(
            self._asked(Strategy.HIERARCHICAL).changed(
                sub_queries=self._needs,
                instructions=(*self.request.instructions, *self._found()),
            ),
            replace(
                self._place,
                parents=tuple(answer.window_id for answer in self._answers.values()),
            ),
        )
        missing = len(self._parts) - len(self._answers)
        if missing:
            self._whole.flag(f"parts-not-answered={missing}")
        return self._seen(self._whole.begin())

    def _asked(self, strategy: Strategy) -> Request:
        return self.request.changed(
            strategy=strategy,
            session_id=self.session_id,
            if_match="",
            session_token="",
        )

    def _found(self) -> list[str]:
        lines = [
            f"{number}. {part}\n{self._answers[part].text}"
            for number, part in enumerate(self._parts, start=1)
            if part in self._answers
        ]
        said = ["\n\n".join((PART_ANSWERS, *lines))]
        missing = [f"- {part}" for part in self._parts if part not in self._answers]
        if missing:
            said.append("\n".join((PARTS_WITHOUT_ANSWER, *missing)))
        return said

    def _seen(self, step: Step) -> Step:
        """Every step as it is, and the answer with what all its windows cost."""
        if not isinstance(step, Release):
            return step
        answer = step.answer
        others = [one.reply.usage for one in self._answers.values()]
        # A plan without a call costs nothing, and leaves a known cost known.
        planned = [self._plan.usage] if self._plan.usage != Usage() else []
        usage = total_usage([*planned, *others, answer.reply.usage])
        return Release(
            answer.changed(
                reply=answer.reply.changed(usage=usage),
                parts=tuple(one.window_id for one in self._answers.values()),
            )
        )
