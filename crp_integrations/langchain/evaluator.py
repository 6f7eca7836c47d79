"""A LangSmith evaluator that scores whether an answer is supported, with one judge call each.

It returns a dictionary, so LangSmith is not imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, Unpack

from crp_integrations.errors import RequestError
from crp_integrations.evaluation.answer_score import Scorer
from crp_integrations.relay.judge import JudgeOptions, JudgeSource
from crp_integrations.relay.settings import Settings
from crp_integrations.vocabulary.context import GroundingMode

KEY: Final = "crp"
QUESTIONS: Final = ("question", "input", "query", "user_input")
ANSWERS: Final = ("answer", "output", "response", "result")
CONTEXTS: Final = (
    "context", "contexts", "documents", "source_documents", "retrieved_contexts",
)  # fmt: skip
# Keys and attributes that may contain the text of a document or message.
TEXTS: Final = ("page_content", "content", "text")

# Takes `(inputs, outputs, reference_outputs)` or `(run, example)`; returns a dict with `key`,
# `score` and `comment`.
Evaluator: TypeAlias = Callable[..., dict[str, Any]]


def crp_evaluator(
    judge: JudgeSource = None,
    *,
    key: str = KEY,
    question: Sequence[str] = QUESTIONS,
    answer: Sequence[str] = ANSWERS,
    context: Sequence[str] = CONTEXTS,
    grounding: GroundingMode | str = GroundingMode.PREFERRED,
    settings: Settings | None = None,
    **options: Unpack[JudgeOptions],
) -> Evaluator:
    """Make a function for `evaluators=` of LangSmith's `evaluate` and `aevaluate`.

    The score is 1.0 for an answer that its context supports, 0.0 for a flagged one, and None where
    no judge checked it.

    Args:
        judge: a LiteLLM name, a mapping with `model` and LiteLLM's parameters, a LangChain chat
            model, or a `Judge`; None for the judge in the settings.
        key: name of the score.
        question: keys of the inputs tried for the question; the first present one is used.
        answer: keys of the outputs tried for the answer.
        context: keys tried for the context in outputs, reference outputs, then inputs.

    Raises:
        RequestError: no judge is given or set.
        ConfigError: an argument has no usable value.
    """
    scorer = Scorer(judge, grounding=grounding, settings=settings, **options)

    def evaluator(
        inputs: Any, outputs: Any = None, reference_outputs: Any = None
    ) -> dict[str, Any]:
        if not isinstance(inputs, Mapping):
            inputs, outputs, reference_outputs = _run_fields(inputs, outputs)
        input_fields, shown, meant = inputs or {}, outputs or {}, reference_outputs or {}
        asked = _first_value((input_fields,), question, "question")
        answer_value = _first_value((shown,), answer, "answer")
        context_value = _first_value((shown, meant, input_fields), context, "context")
        answer_score = scorer.score(_text(asked), _texts(context_value), _text(answer_value))
        return {"key": key, "score": answer_score.score, "comment": answer_score.comment}

    evaluator.__name__ = key
    return evaluator


def _run_fields(run: Any, example: Any) -> tuple[Any, Any, Any]:
    """Inputs, outputs and reference outputs of a run and its example."""
    inputs = getattr(example, "inputs", None) or getattr(run, "inputs", None)
    return inputs, getattr(run, "outputs", None), getattr(example, "outputs", None)


def _first_value(places: Sequence[Mapping[str, Any]], names: Sequence[str], what: str) -> Any:
    for place in places:
        for name in names:
            if place.get(name) is not None:
                return place[name]
    there = ", ".join(sorted({str(name) for place in places for name in place})) or "nothing"
    raise RequestError(
        f"there is no {what}: looked for {', '.join(names)}, and found {there:.120}; give "
        f"{what}=['…'] to crp_evaluator"
    )


def _text(value: Any) -> str:
    """A text, or the text of a message or document."""
    if isinstance(value, Mapping):
        value = next((value[name] for name in TEXTS if name in value), value)
    for name in TEXTS:
        if not isinstance(value, str):
            value = getattr(value, name, value)
    if not isinstance(value, str):
        raise RequestError(f"{type(value).__name__} is not a text, message or document")
    return value


def _texts(value: Any) -> list[str]:
    several = isinstance(value, Sequence) and not isinstance(value, str)
    return [_text(item) for item in (value if several else [value])]
