"""Scores for the rows of a data set in the shape that RAGAS has: question, contexts, answer.

A row is a mapping with `user_input`, `retrieved_contexts` and `response` (or the older `question`,
`contexts` and `answer`), or an object with these attributes, such as a `SingleTurnSample`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Unpack

from crp_integrations.errors import RequestError
from crp_integrations.evaluation.answer_score import AnswerScore, Scorer
from crp_integrations.relay.judge import JudgeOptions, JudgeSource
from crp_integrations.relay.settings import Settings
from crp_integrations.vocabulary import GroundingMode

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
    given = _given(rows, concurrency)
    with ThreadPoolExecutor(concurrency, "crp-rows") as pool:
        return list(pool.map(lambda row: scorer.score(*row), given))


async def aevaluate_rows(
    rows: Iterable[Any],
    *,
    judge: JudgeSource = None,
    concurrency: int = CONCURRENCY,
    grounding: GroundingMode | str = GroundingMode.PREFERRED,
    settings: Settings | None = None,
    **options: Unpack[JudgeOptions],
) -> list[AnswerScore]:
    """The asynchronous twin of `evaluate_rows`."""
    scorer = Scorer(judge, grounding=grounding, settings=settings, **options)
    given = _given(rows, concurrency)
    slots = asyncio.Semaphore(concurrency)

    async def one(row: tuple[str, list[str], str]) -> AnswerScore:
        async with slots:
            return await scorer.ascore(*row)

    return list(await asyncio.gather(*map(one, given)))


def _given(rows: Iterable[Any], concurrency: int) -> list[tuple[str, list[str], str]]:
    """Question, contexts and answer of every row, read before anything is paid for."""
    if concurrency < 1:
        raise RequestError(f"concurrency is {concurrency!r:.20}, wanted 1 or more")
    if isinstance(rows, str | Mapping):
        raise RequestError(f"rows is one {type(rows).__name__}; give a list of rows")
    return [_row(number, row) for number, row in enumerate(rows, 1)]


def _row(number: int, row: Any) -> tuple[str, list[str], str]:
    question, contexts, answer = (_field(row, names) for names in (QUESTION, CONTEXTS, ANSWER))
    if not isinstance(question, str):
        # A list of messages is an answer of several turns, which is another thing to score.
        raise RequestError(f"row {number} has no text as {QUESTION[0]}; rows have one turn")
    if not isinstance(answer, str):
        raise RequestError(f"row {number} has no text as {ANSWER[0]}")
    texts = list(contexts) if isinstance(contexts, Iterable) else []
    if isinstance(contexts, str) or not texts or not all(isinstance(one, str) for one in texts):
        raise RequestError(f"row {number} has no list of texts as {CONTEXTS[0]}")
    return question, texts, answer


def _field(row: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        found = row.get(name) if isinstance(row, Mapping) else getattr(row, name, None)
        if found is not None:
            return found
    return None
