"""The passes of one window: one call, or draft, verification and refinement (reflexive).

A pass reads the reply of the one before and says which call is next. What is examined and
delivered is the last answer as the model wrote it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from crp_integrations.messages import Message, ModelCall, Reply
from crp_integrations.relay.settings_dispatch import DispatchSettings
from crp_integrations.vocabulary import Purpose, Strategy

VERIFY: Final = (
    "Check every statement of your answer against the context. List each statement that the "
    "context does not support, with what the context says in its place, one to a line. "
    "If the context supports all of them, reply with NONE and nothing else."
)
REFINE: Final = (
    "Write the answer to the question again. Mend what you have listed: state what the context "
    "says, and leave out what it does not. Reply with the answer alone."
)
_NONE = re.compile(r"\W*none\W*", re.IGNORECASE)


@dataclass(slots=True)
class Passes:
    """The calls of one answer.

    Spec: related facts §7

    Attributes:
        done: replies so far.
        answer: the last reply that answers the question.
        objections: whether the verification found anything.
        further: the calls behind the first, in order.
    """

    strategy: Strategy
    settings: DispatchSettings
    done: int = 0
    answer: Reply | None = None
    objections: bool = False
    further: list[ModelCall] = field(default_factory=list)

    def after(self, call: ModelCall, reply: Reply) -> ModelCall | None:
        """The call after a reply, which is remembered; None when the answer is there.

        Args:
            call: with the envelope, as it was fitted for the first pass.
        """
        found = self._after(call, reply)
        if found is not None:
            self.further.append(found)
        return found

    def _after(self, call: ModelCall, reply: Reply) -> ModelCall | None:
        """The call after a reply.

        Args:
            call: with the envelope, as it was fitted for the first pass.
        """
        self.done += 1
        if self.strategy is not Strategy.REFLEXIVE or (self.done == 1 and reply.tool_calls):
            self.answer = reply
            return None
        if self.done == 1:
            self.answer = reply
            said = (*call.messages, Message(role="assistant", content=reply.text))
            return call.changed(
                messages=(*said, Message(role="user", content=VERIFY)),
                purpose=Purpose.CRITIQUE,
                temperature=self.settings.verify_temperature,
                tools=(),
            )
        if self.done == 2 and self.answer is not None:
            self.objections = not _NONE.fullmatch(reply.text)
            if not self.objections:
                return None
            said = (
                *call.messages,
                Message(role="assistant", content=self.answer.text),
                Message(role="user", content=VERIFY),
                Message(role="assistant", content=reply.text),
                Message(role="user", content=REFINE),
            )
            return call.changed(
                messages=said, temperature=self.settings.refine_temperature, tools=()
            )
        # A refinement without a word leaves the draft as the answer.
        if reply.text.strip():
            self.answer = reply
        return None

    @property
    def round(self) -> tuple[int, int]:
        """Revisions that were made, and passes in all: `(1, 2)` or `(2, 3)` when reflexive."""
        return (max(0, self.done - 1), max(1, self.done))


def replies(strategy: Strategy) -> int:
    """How many replies must fit into the model's context beside the envelope."""
    return 3 if strategy is Strategy.REFLEXIVE else 1
