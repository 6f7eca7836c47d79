"""One answer's score by a judge, as tools for evaluation want it: a number and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Unpack

from crp_integrations.dpe.records import Report
from crp_integrations.errors import RequestError
from crp_integrations.records import Part
from crp_integrations.relay.doors import aexamine, examine
from crp_integrations.relay.judge import Judge, JudgeOptions, JudgeSource
from crp_integrations.relay.settings import Settings, load
from crp_integrations.vocabulary import GroundingMode

# Flags of a report that no judge's word stands behind.
UNJUDGED: Final = ("judge-failed=", "judge-not-asked=")
# The evidence has every claim word for word, which needs no judge.
SETTLED: Final = "judge-not-asked=no doubt"
HOLDS: Final = "nothing speaks against the answer"


class AnswerScore(Part):
    """What became of one answer.

    Attributes:
        score: 1.0 for an answer that holds, 0.0 for a flagged one; None where no judge looked at
            it, which is no failure of the answer.
        passed: the answer is not flagged; None where no judge looked at it.
        comment: the reasons in plain sentences, or why no judge looked at it.
        report: the whole of it.
    """

    score: float | None
    passed: bool | None
    comment: str
    report: Report


class Scorer:
    """Scores answers by one judge, which it keeps with its cache. Safe under threads.

    Args:
        judge: a LiteLLM name, a mapping with `model` and LiteLLM's parameters, a model object of
            LangChain or LlamaIndex, or a `Judge`; None for that of the settings.
        grounding: how far answers may go beyond their context.
        settings: None reads `CRP_*` and the defaults.
        options: see `JudgeOptions`.

    Raises:
        RequestError: there is no judge, or it is True and there is no model that answers.
        ConfigError: an argument has no usable value.
    """

    def __init__(
        self,
        judge: JudgeSource = None,
        *,
        grounding: GroundingMode | str = GroundingMode.PREFERRED,
        settings: Settings | None = None,
        **options: Unpack[JudgeOptions],
    ) -> None:
        self._settings = settings or load()
        made = None if judge is True else Judge.of(judge, self._settings.judge, **options)
        if made is None or made.own:
            raise RequestError(
                f"judge is {judge!r:.20}; give a model that judges, such as "
                "judge='openai/gpt-4o-mini'"
            )
        self._judge = made
        self._grounding = grounding

    def score(self, question: str, contexts: Sequence[str], answer: str) -> AnswerScore:
        """The score of an answer."""
        return scored(
            examine(
                answer,
                contexts,
                question,
                grounding=self._grounding,
                settings=self._settings,
                judge=self._judge,
            )
        )

    async def ascore(self, question: str, contexts: Sequence[str], answer: str) -> AnswerScore:
        """The asynchronous twin of `score`."""
        return scored(
            await aexamine(
                answer,
                contexts,
                question,
                grounding=self._grounding,
                settings=self._settings,
                judge=self._judge,
            )
        )


def scored(report: Report) -> AnswerScore:
    """The score that a report comes to."""
    flags = [flag for flag in report.flags if flag.startswith(UNJUDGED)]
    if flags and flags[0] != SETTLED:
        return AnswerScore(score=None, passed=None, comment=flags[0], report=report)
    passed = not report.flagged
    comment = " ".join(report.reasons) or (HOLDS if passed else "")
    return AnswerScore(score=float(passed), passed=passed, comment=comment, report=report)
