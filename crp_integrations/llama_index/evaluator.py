"""A LlamaIndex evaluator that scores whether an answer is supported, with one judge call each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from llama_index.core.evaluation import BaseEvaluator, EvaluationResult

from crp_integrations.errors import RequestError
from crp_integrations.evaluation.answer_score import AnswerScore, Scorer
from crp_integrations.relay.judge import JudgeOptions, JudgeSource
from crp_integrations.relay.settings import Settings
from crp_integrations.vocabulary.context import GroundingMode


class CRPEvaluator(BaseEvaluator):
    """Scores 1.0 for an answer that its contexts support, 0.0 for a flagged one.

    If no judge checked an answer, because the judge failed or its budget is spent, the result is
    invalid and gives that reason.

    Args:
        judge: a LiteLLM name, a mapping with `model` and LiteLLM's parameters, an LLM object of
            LlamaIndex, or a `Judge`; None for the judge in the settings.
        grounding: how far answers may go beyond their contexts.
        settings: None reads the `CRP_*` variables and the defaults.
        options: see `JudgeOptions`.

    Raises:
        RequestError: no judge is given or set.
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
        self._scorer = Scorer(judge, grounding=grounding, settings=settings, **options)

    def _get_prompts(self) -> dict[str, Any]:
        """No prompts: the judge has its own, see `JudgeSettings`."""
        return {}

    def _update_prompts(self, prompts: Any) -> None:
        """Do nothing: there are no prompts."""

    def evaluate(
        self,
        query: str | None = None,
        response: str | None = None,
        contexts: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> EvaluationResult:
        """The result for one answer.

        Raises:
            RequestError: the response or the contexts are None.
        """
        arguments = _check_arguments(query, response, contexts)
        return _result(self._scorer.score(*arguments), query, response, contexts)

    async def aevaluate(
        self,
        query: str | None = None,
        response: str | None = None,
        contexts: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> EvaluationResult:
        """The asynchronous twin of `evaluate`."""
        arguments = _check_arguments(query, response, contexts)
        return _result(await self._scorer.ascore(*arguments), query, response, contexts)


def _check_arguments(
    query: str | None, response: str | None, contexts: Sequence[str] | None
) -> tuple[str, list[str], str]:
    if response is None or contexts is None:
        missing = "response" if response is None else "contexts"
        raise RequestError(f"{missing} is None; CRPEvaluator needs a response and its contexts")
    return query or "", list(contexts), response


def _result(
    judged: AnswerScore, query: str | None, response: str | None, contexts: Sequence[str] | None
) -> EvaluationResult:
    unjudged = judged.score is None
    return EvaluationResult(
        query=query,
        response=response,
        contexts=contexts,
        passing=judged.passed,
        score=judged.score,
        feedback=judged.comment,
        invalid_result=unjudged,
        invalid_reason=judged.comment if unjudged else None,
    )
