"""The four steps of a run, each measured before a model is asked, and each able to stop it.

Write is what a session holds for the call, Select what of the candidates is packed, Compress what
is left of the conversation, Isolate what of all that the model is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from pydantic import Field

from crp_integrations.errors import StepStopped
from crp_integrations.records import Part


class RunStep(StrEnum):
    """A step of the loop, in its order.

    Spec: Summit §Principles
    """

    WRITE = "write"
    SELECT = "select"
    COMPRESS = "compress"
    ISOLATE = "isolate"


STEPS: Final = tuple(RunStep)


class StepMeasurement(Part):
    """What one step came to.

    Attributes:
        items_before, items_after: facts or messages that went in and came out.
        tokens_before, tokens_after: of them; 0 where they are not counted.
    """

    step: RunStep
    items_before: int = Field(default=0, ge=0)
    items_after: int = Field(ge=0)
    tokens_before: int = Field(default=0, ge=0)
    tokens_after: int = Field(default=0, ge=0)

    @property
    def counts(self) -> list[int]:
        """The four numbers in their order, as the journal has them."""
        return [self.items_before, self.items_after, self.tokens_before, self.tokens_after]


class Guardrail(Part):
    """What one step must come to; None asks nothing.

    Attributes:
        least_items, most_items: of what comes out of it.
        most_tokens: of what comes out of it.
    """

    least_items: int | None = Field(default=None, ge=0)
    most_items: int | None = Field(default=None, ge=0)
    most_tokens: int | None = Field(default=None, ge=0)

    def fault(self, one: StepMeasurement) -> str:
        """Why a run is to stop at a step, empty to go on."""
        if self.least_items is not None and one.items_after < self.least_items:
            return f"it leaves {one.items_after} items, at least {self.least_items} are wanted"
        if self.most_items is not None and one.items_after > self.most_items:
            return f"it leaves {one.items_after} items, at most {self.most_items} are allowed"
        if self.most_tokens is not None and one.tokens_after > self.most_tokens:
            return f"it leaves {one.tokens_after} tokens, at most {self.most_tokens} are allowed"
        return ""


class StepSettings(Part):
    """The guardrails of the four steps.

    Spec: Summit §Principles
    """

    write: Guardrail = Guardrail()
    select: Guardrail = Guardrail()
    compress: Guardrail = Guardrail()
    isolate: Guardrail = Guardrail()

    def of(self, step: RunStep) -> Guardrail:
        """The guardrail of a step."""
        found: Guardrail = getattr(self, step.value)
        return found


def check_guardrails(measured: Sequence[StepMeasurement], settings: StepSettings) -> None:
    """Stop a run at the first step whose guardrail is not kept."""
    for one in measured:
        fault = settings.of(one.step).fault(one)
        if fault:
            raise StepStopped(one.step.value, fault)
