"""Scores answers, or rows of a RAGAS data set, with a judge: one number and a sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Unpack

from crp_integrations.dpe.records import Report
from crp_integrations.errors import RequestError
from crp_integrations.records import Part
from crp_integrations.relay.defaults import chosen_settings
from crp_integrations.relay.judge import Judge, JudgeOptions, JudgeSource
from crp_integrations.relay.settings import Settings
from crp_integrations.relay.storeless_functions import aexamine, examine
from crp_integrations.vocabulary import GroundingMode

# Prefixes of the flags of a report without a judge's verdict.
UNJUDGED: Final = ("judge-failed=", "judge-not-asked=")
# The evidence has every claim word for word, so that no judge is needed.
SETTLED: Final = "judge-not-asked=no doubt"
HOLDS: Final = "nothing speaks against the answer"


class AnswerScore(Part):
    """The score of one answer.

    Attributes:
        score: 0.0 for a flagged answer, else 1.0; None if no judge read it, which does not count
            against the answer.
        passed: True if the answer is not flagged; None if no judge read it.
        comment: the reasons in plain sentences, or why no judge read it.
        report: the full report.
    """

    score: float | None
    passed: bool | None
    comment: str
    report: Report


class Scorer:
    """Scores answers with one judge and its cache. Thread-safe.

    Args:
        judge: a LiteLLM name, a mapping with `model` and LiteLLM's parameters, a model object of
            LangChain or LlamaIndex, or a `Judge`; None for the judge in the settings.
        grounding: how far answers may go beyond their context.
        settings: the settings; None reads `CRP_*` and the defaults.
        options: see `JudgeOptions`.

    Raises:
        RequestError: there is no judge, or `judge` is True.
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
        self._settings = chosen_settings(settings)
        made = None if judge is True else Judge.of(judge, self._settings.judge, **options)
        if made is None or made.own:
            raise RequestError(
                f"judge is {judge!r:.20}; give a model that judges, such as "
                "judge='openai/gpt-4o-mini'"
            )
        self._judge = made
        self._grounding = grounding

    def score(self, question: str, contexts: Sequence[str], answer: str) -> AnswerScore:
        """Score an answer."""
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
        """Score an answer asynchronously."""
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
    """The score that follows from a report."""
    flags = [flag for flag in report.flags if flag.startswith(UNJUDGED)]
    if flags and flags[0] != SETTLED:
        return AnswerScore(score=None, passed=None, comment=flags[0], report=report)
    passed = not report.flagged
    comment = " ".join(report.reasons) or (HOLDS if passed else "")
    return AnswerScore(score=float(passed), passed=passed, comment=comment, report=report)


QUESTION: Final = ("user_input", "question")
CONTEXTS: Final = ("retrieved_contexts", "contexts")
ANSWER: Final = ("response", "answer")
CONCURRENCY: Final = 8


def evaluate_rows(
    rows: Iterable[Any],
    *,
    judge: JudgeSource = None,
    concurrency: int = CONCURRENCY,
    grounding: GroundingMode | str = GroundingMode.PREFERRED,
    settings: Settings | None = None,
    **options: Unpack[JudgeOptions],
) -> list[AnswerScore]:
    """Score the answer of each row, in the order of the rows."""
    scorer = Scorer(judge, grounding=grounding, settings=settings, **options)
    turns = _checked_rows(rows, concurrency)
    with ThreadPoolExecutor(concurrency, "crp-rows") as pool:
        return list(pool.map(lambda row: scorer.score(*row), turns))


def _checked_rows(rows: Iterable[Any], concurrency: int) -> list[tuple[str, list[str], str]]:
    """Question, contexts and answer of every row, checked before the first paid call."""
    if concurrency < 1:
        raise RequestError(f"concurrency is {concurrency!r:.20}, wanted 1 or more")
    if isinstance(rows, str | Mapping):
        raise RequestError(f"rows is one {type(rows).__name__}; give a list of rows")
    return [_row(number, row) for number, row in enumerate(rows, 1)]


def _row(number: int, row: Any) -> tuple[str, list[str], str]:
    question, contexts, answer = (_field(row, names) for names in (QUESTION, CONTEXTS, ANSWER))
    if not isinstance(question, str):
        # A list of messages is a conversation of several turns, which this function cannot score.
        raise RequestError(f"row {number}: {QUESTION[0]} is not a string; rows have one turn")
    if not isinstance(answer, str):
        raise RequestError(f"row {number}: {ANSWER[0]} is not a string")
    texts = list(contexts) if isinstance(contexts, Iterable) else []
    if isinstance(contexts, str) or not texts or not all(isinstance(text, str) for text in texts):
        raise RequestError(f"row {number}: {CONTEXTS[0]} is not a list of strings, or is empty")
    return question, texts, answer


def _field(row: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        value = row.get(name) if isinstance(row, Mapping) else getattr(row, name, None)
        if value is not None:
            return value
    return None
