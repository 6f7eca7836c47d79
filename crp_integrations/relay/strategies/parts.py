"""The parts of a question answered side by side, then brought together (fan-out, fan-in).

Spec: related facts §5, §7
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from crp_integrations.errors import RequestError
from crp_integrations.messages import Reply
from crp_integrations.relay.entering import Place
from crp_integrations.relay.records import Answer, Request
from crp_integrations.relay.settings_dispatch import DispatchSettings
from crp_integrations.relay.steps import Fan, Outcome, Release, Step
from crp_integrations.relay.turn import Turn
from crp_integrations.relay.usage import total
from crp_integrations.vocabulary import Strategy

FOUND: Final = (
    "The parts of the question were answered one by one. Bring these answers together in one; "
    "where the context says otherwise than they do, the context holds:"
)
MakeTurn: TypeAlias = Callable[[Request, Place], Turn]


class Parts:
    """A question in parts: a window for each of them, and one that answers the whole.

    The first window plans and asks no model; the parts hang from it and share a number; the last
    one follows all of them. A part that fails is left out, and the last window says so.
    """

    def __init__(self, request: Request, window: MakeTurn, settings: DispatchSettings) -> None:
        """Begin with a request.

        Args:
            window: makes a Turn of a request, for a place among others.
        """
        self.request = request
        self._window = window
        self._settings = settings
        self._plan = window(request.changed(strategy=Strategy.FAN_OUT), Place())
        self._whole: Turn | None = None
        self._parts: tuple[str, ...] = ()
        self._answers: list[Answer] = []

    @property
    def session_id(self) -> str:
        """Of all its windows."""
        return self._plan.session_id

    def begin(self) -> Step:
        """Plan, and ask for the parts together; a question of one part is asked as it is."""
        needs = self._plan.needs()
        self._parts = needs[: self._settings.hierarchical_parts]
        if len(self._parts) < 2:
            self._whole = self._window(self._asked(Strategy.PUSH), Place())
            return self._whole.begin()
        planned = self._plan.plan(len(self._parts))
        if not isinstance(planned, str):
            return planned
        return Fan(
            tuple(
                self._window(
                    self._asked(Strategy.PUSH).changed(query=part, sub_queries=(part,)),
                    Place(parents=(planned,), sibling=number),
                )
                for number, part in enumerate(self._parts, start=1)
            )
        )

    def receive(self, result: Reply | tuple[Outcome, ...]) -> Step:
        """Bring the parts together, or go on with the window that does."""
        if isinstance(result, Reply):
            if self._whole is None:
                raise RequestError("the parts are asked together; hand over their outcomes")
            return self._seen(self._whole.receive(result))
        self._answers = [one.answer for one in result if isinstance(one, Release)]
        if not self._answers:
            # Nothing was found on any part: the first refusal or halt says why.
            return result[0]
        self._whole = self._window(
            self._asked(Strategy.HIERARCHICAL).changed(
                sub_queries=self._parts,
                instructions=(*self.request.instructions, self._found()),
            ),
            Place(parents=tuple(answer.window_id for answer in self._answers)),
        )
        missing = len(self._parts) - len(self._answers)
        if missing:
            self._whole.flag(f"parts-not-answered={missing}")
        return self._seen(self._whole.begin())

    def fail(self, error: BaseException) -> Outcome:
        """End the window under way."""
        return (self._whole or self._plan).fail(error)

    # --- within ------------------------------------------------------------------------

    def _asked(self, strategy: Strategy) -> Request:
        return self.request.changed(
            strategy=strategy,
            session_id=self.session_id,
            if_match="",
            session_token="",
        )

    def _found(self) -> str:
        answered = {answer.envelope.sub_queries[:1]: answer.text for answer in self._answers}
        lines = [
            f"{number}. {part}\n{answered[(part,)]}"
            for number, part in enumerate(self._parts, start=1)
            if (part,) in answered
        ]
        return "\n\n".join((FOUND, *lines))

    def _seen(self, step: Step) -> Step:
        if not isinstance(step, Release) or not self._answers:
            return step
        answer = step.answer
        usage = total([*(one.reply.usage for one in self._answers), answer.reply.usage])
        return Release(
            answer.changed(
                reply=answer.reply.changed(usage=usage),
                parts=tuple(one.window_id for one in self._answers),
            )
        )
