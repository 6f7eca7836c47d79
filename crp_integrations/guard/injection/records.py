"""Findings and settings of the injection rules."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from crp_integrations.records import Part

Level = Literal["certain", "clear", "hint"]
RuleName = Literal[
    "invisible",
    "role-marker",
    "override",
    "persona",
    "prompt-leak",
    "exfiltration",
    "encoded",
    "bloat",
    "addressed",
    "tool-call",
    "steering",
    "authority",
    "hidden-markup",
    "disguised",
    "model",
]


class InjectionSettings(Part):
    """The probabilities and the threshold of the rules.

    Spec: Summit §Context Assembly Pipeline

    Attributes:
        certain, clear, hint: probability of an injection after one finding of that level, (0, 1).
        threshold: minimum score at which a text counts as an injection.
    """

    certain: float = Field(default=0.9, gt=0.0, lt=1.0)
    clear: float = Field(default=0.6, gt=0.0, lt=1.0)
    hint: float = Field(default=0.3, gt=0.0, lt=1.0)
    threshold: float = Field(default=0.5, gt=0.0, le=1.0)


class InjectionFinding(Part):
    """One sign of an injection at one position.

    Attributes:
        level: how strong the sign is by itself.
        reason: one plain sentence that contains no word of the text.
    """

    rule: RuleName
    level: Level
    reason: str
    start: int = Field(ge=0)
    end: int = Field(ge=0)


class InjectionReport(Part):
    """The result of the rules for one text.

    Attributes:
        score: probability from the findings, taken as independent, [0, 1]; equal signs count once.
        injected: whether the score reaches the threshold.
        model: identity of the model that was also asked; empty for none.
    """

    rules: str
    score: float = Field(ge=0.0, le=1.0)
    injected: bool
    findings: tuple[InjectionFinding, ...] = ()
    model: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the rules that found something, each once, in alphabetical order."""
        return tuple(sorted({finding.rule for finding in self.findings}))
