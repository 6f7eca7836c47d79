"""Reports on answers that a framework's handler sees: examined or said to be not checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from logging import Logger
from typing import Any, TypeAlias, cast

from crp_integrations.adapters.arguments import before_question
from crp_integrations.adapters.observed_answers import observe_answer
from crp_integrations.dpe.records import Report
from crp_integrations.errors import SafetyHalt
from crp_integrations.fabric.records import Fact
from crp_integrations.messages import Message
from crp_integrations.receipt.records import Receipt
from crp_integrations.relay.doors import examine
from crp_integrations.relay.judge import Judge, OnReport
from crp_integrations.relay.relay import Relay
from crp_integrations.vocabulary import GroundingMode
from crp_integrations.vocabulary.provenance import Checked

Attachment: TypeAlias = dict[str, Any]
# What an examination came to, the receipt, and what halts.
Examination: TypeAlias = tuple[Report | Attachment, Receipt | None, SafetyHalt | None]


@dataclass(frozen=True, slots=True)
class AnswerExaminer:
    """Examines the answers of one handler; with a relay it seals them too."""

    grounding: GroundingMode
    relay: Relay | None
    judge: Judge | None
    log: Logger

    def examine(
        self,
        answer: str,
        facts: Callable[[], list[Fact]],
        question: str,
        *,
        messages: Sequence[Message],
        model: str,
        on_report: OnReport | None,
    ) -> Examination:
        """Examine an answer; whatever goes wrong becomes `NOT_CHECKED`."""
        try:
            context = facts()
            if self.relay is None:
                report = examine(
                    answer,
                    context=context,
                    question=question or None,
                    grounding=self.grounding,
                    conversation=before_question(messages),
                    judge=self.judge,
                    on_report=on_report,
                )
                return report, None, None
            found = observe_answer(
                self.relay,
                answer,
                context,
                question,
                messages=messages,
                model=model,
                grounding=self.grounding,
                judge=self.judge,
                on_report=on_report,
            )
            return found.report, found.receipt, found.halt
        except SafetyHalt as halt:
            return cast("Report", halt.report), None, halt
        except Exception as error:  # noqa: BLE001 - whatever it is, it becomes NOT_CHECKED
            # The framework would swallow it; the answer must say that it was not checked. The
            # error's own words may quote a text, which no log may hold.
            self.log.error("the examination of an answer failed with %s", type(error).__name__)
            return not_checked(f"the examination failed with {type(error).__name__}")


def not_checked(reason: str) -> Examination:
    """What is attached to an answer that was not examined."""
    return {"checked": Checked.NOT_CHECKED.value, "reason": reason}, None, None
