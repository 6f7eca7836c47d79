"""The judge as an evaluator of LangSmith and of LlamaIndex, by their own classes."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langsmith.evaluation import run_evaluator
from langsmith.schemas import Example, Run
from llama_index.core.base.response.schema import Response
from llama_index.core.evaluation import BaseEvaluator, BatchEvalRunner
from llama_index.core.schema import NodeWithScore, TextNode

from crp_integrations.errors import RequestError
from crp_integrations.langchain import crp_evaluator
from crp_integrations.llama_index import CRPEvaluator
from crp_integrations.relay.settings import Settings
from tests.evaluation.judges import WordJudge

PASSAGE = "The fee is 30 euros a year."
QUESTION = "What is the fee?"
RIGHT, WRONG = "It is 30 euros.", "It is 45 euros."
SAID = "passage 1 says “The fee is 30”"

# --- LangSmith -----------------------------------------------------------------------------------


def _run(answer: Any, **outputs: Any) -> tuple[Run, Example]:
    run = Run(
        id=uuid.uuid4(),
        name="chain",
        start_time=datetime.now(UTC),
        run_type="chain",
        inputs={"question": QUESTION},
        outputs={"answer": answer, **outputs},
        trace_id=uuid.uuid4(),
    )
    example = Example(
        id=uuid.uuid4(), inputs={"question": QUESTION}, outputs={"contexts": [PASSAGE]}
    )
    return run, example


@pytest.mark.parametrize(("answer", "score"), [(RIGHT, 1.0), (WRONG, 0.0)])
def test_langsmith_takes_it_as_it_takes_a_function(answer: str, score: float) -> None:
    evaluator = run_evaluator(crp_evaluator(WordJudge("45")))
    run, example = _run(answer)
    for found in (
        evaluator.evaluate_run(run, example),
        asyncio.run(evaluator.aevaluate_run(run, example)),
    ):
        assert (found.key, found.score) == ("crp", score)  # type: ignore[union-attr]
        assert SAID in (found.comment or "") or score  # type: ignore[union-attr]


def test_a_run_with_its_example_or_the_dictionaries_are_given() -> None:
    judge = WordJudge("45")
    evaluator = crp_evaluator(judge, key="holds")
    told = evaluator({"question": QUESTION}, {"answer": WRONG}, {"contexts": [PASSAGE]})
    assert told == evaluator(*_run(WRONG))
    assert (told["key"], told["score"]) == ("holds", 0.0)
    assert SAID in told["comment"]
    # The same answer is judged once.
    assert len(judge.calls) == 1


@pytest.mark.parametrize(
    "outputs",
    [
        {"answer": WRONG, "context": [Document(PASSAGE)]},
        {"output": AIMessage(WRONG), "documents": [{"page_content": PASSAGE}]},
        {"result": {"content": WRONG}, "source_documents": PASSAGE},
        {"response": WRONG, "retrieved_contexts": (PASSAGE,)},
    ],
)
def test_answers_and_documents_in_several_forms(outputs: dict[str, Any]) -> None:
    judge = WordJudge("45")
    assert crp_evaluator(judge)({"input": QUESTION}, outputs)["score"] == 0.0
    assert judge.calls[0]["passages"] == [["1", PASSAGE]]


def test_names_of_ones_own() -> None:
    evaluator = crp_evaluator(WordJudge("45"), question=["q"], answer=["a"], context=["c"])
    assert evaluator({"q": QUESTION}, {"a": WRONG, "c": [PASSAGE]})["score"] == 0.0
    with pytest.raises(RequestError, match=r"there is no answer: looked for a, and found x"):
        evaluator({"q": QUESTION}, {"x": WRONG})
    with pytest.raises(RequestError, match=r"there is no context: looked for c, and found a, q"):
        evaluator({"q": QUESTION}, {"a": WRONG})
    with pytest.raises(RequestError, match="SimpleNamespace is not a text, message or document"):
        evaluator({"q": QUESTION}, {"a": SimpleNamespace(), "c": [PASSAGE]})


def test_where_the_judge_fails_there_is_no_score() -> None:
    found = crp_evaluator(WordJudge(broken=True))(*_run(RIGHT))
    assert found == {"key": "crp", "score": None, "comment": "judge-failed=Unreadable"}


def test_without_a_judge_none_is_made() -> None:
    with pytest.raises(RequestError, match="judge is None; give a model"):
        crp_evaluator(settings=Settings())
    with pytest.raises(RequestError, match="judge is None; give a model"):
        CRPEvaluator(settings=Settings())


# --- LlamaIndex ----------------------------------------------------------------------------------


def _response(answer: str) -> Response:
    return Response(response=answer, source_nodes=[NodeWithScore(node=TextNode(text=PASSAGE))])


@pytest.mark.parametrize(("answer", "passing"), [(RIGHT, True), (WRONG, False)])
def test_llama_index_s_results_have_score_and_feedback(answer: str, passing: bool) -> None:
    evaluator = CRPEvaluator(WordJudge("45"))
    assert isinstance(evaluator, BaseEvaluator)
    for found in (
        evaluator.evaluate_response(QUESTION, _response(answer)),
        asyncio.run(evaluator.aevaluate_response(QUESTION, _response(answer))),
        evaluator.evaluate(QUESTION, answer, [PASSAGE]),
        asyncio.run(evaluator.aevaluate(query=QUESTION, response=answer, contexts=[PASSAGE])),
    ):
        assert (found.passing, found.score) == (passing, float(passing))
        assert (found.query, found.response, found.contexts) == (QUESTION, answer, [PASSAGE])
        assert passing or SAID in (found.feedback or "")
        assert not found.invalid_result
    assert evaluator.get_prompts() == {}


def test_it_runs_in_llama_index_s_batches() -> None:
    runner = BatchEvalRunner({"crp": CRPEvaluator(WordJudge("45"))}, workers=2)
    responses = [_response(RIGHT), _response(WRONG)] * 4
    found = asyncio.run(runner.aevaluate_responses(queries=[QUESTION] * 8, responses=responses))
    assert [one.passing for one in found["crp"]] == [True, False] * 4


def test_a_judge_that_fails_gives_an_invalid_result() -> None:
    found = CRPEvaluator(WordJudge(broken=True)).evaluate_response(QUESTION, _response(RIGHT))
    assert (found.invalid_result, found.passing, found.score) == (True, None, None)
    assert found.invalid_reason == "judge-failed=Unreadable"


def test_a_response_and_its_contexts_are_needed() -> None:
    evaluator = CRPEvaluator(WordJudge())
    with pytest.raises(RequestError, match="response is None"):
        evaluator.evaluate(QUESTION, None, [PASSAGE])
    with pytest.raises(RequestError, match="contexts is None"):
        asyncio.run(evaluator.aevaluate(QUESTION, RIGHT))
