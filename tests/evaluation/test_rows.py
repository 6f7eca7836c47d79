"""Rows in the shape that RAGAS has, scored by a judge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.evaluation.answer_score import HOLDS, evaluate_rows
from crp_integrations.relay.judge import Judge
from crp_integrations.relay.settings import Settings
from tests.evaluation.judges import WordJudge

PASSAGE = "The fee is 30 euros a year."
RIGHT = {"user_input": "The fee?", "retrieved_contexts": [PASSAGE], "response": "It is 30 euros."}
WRONG = {**RIGHT, "response": "It is 45 euros."}


@dataclass
class Sample:
    """The shape of a `SingleTurnSample`."""

    user_input: str = "The fee?"
    response: str = "It is 45 euros."
    retrieved_contexts: list[str] = field(default_factory=lambda: [PASSAGE])
    reference: str | None = None


def test_rows_are_scored_in_their_order() -> None:
    judge = WordJudge("45")
    found = evaluate_rows([RIGHT, WRONG, RIGHT], judge=judge, concurrency=1)
    assert [one.score for one in found] == [1.0, 0.0, 1.0]
    assert [one.passed for one in found] == [True, False, True]
    assert found[0].comment == HOLDS
    assert found[1].comment == "The answer says 45; passage 1 says “The fee is 30”."
    assert found[1].report.checked_by == "judge word-judge"
    # The third row is the first one again.
    assert len(judge.calls) == 2
    assert judge.calls[0]["question"] == "The fee?"


@pytest.mark.parametrize(
    "row",
    [
        WRONG,
        Sample(),
        {"question": "The fee?", "contexts": (PASSAGE,), "answer": "It is 45 euros."},
        {**WRONG, "reference": "30 euros", "extra": 1},
    ],
)
def test_rows_of_several_shapes(row: Any) -> None:
    (found,) = evaluate_rows(iter([row]), judge=WordJudge("45"))
    assert found.score == 0.0


def test_no_more_rows_than_wanted_are_under_way() -> None:
    rows = [{**RIGHT, "response": f"It is {n} euros."} for n in range(24)]
    judge = WordJudge()
    assert len(evaluate_rows(rows, judge=judge, concurrency=3)) == 24
    assert 1 <= judge.most <= 3


def test_where_no_judge_looked_there_is_no_score() -> None:
    (broken,) = evaluate_rows([RIGHT], judge=WordJudge(broken=True))
    assert (broken.score, broken.passed) == (None, None)
    assert broken.comment == "judge-failed=Unreadable"
    found = evaluate_rows([RIGHT, WRONG], judge=WordJudge(), judge_budget=1, concurrency=1)
    assert [one.score for one in found] == [1.0, None]
    assert found[1].comment == "judge-not-asked=budget"


def test_what_the_evidence_has_word_for_word_needs_no_judge() -> None:
    judge = WordJudge()
    row = {**RIGHT, "response": "The fee is 30 euros a year."}
    (found,) = evaluate_rows([row], judge=judge, judge_when="doubt")
    assert (found.score, judge.calls) == (1.0, [])


def test_a_judge_and_its_settings_are_taken() -> None:
    judge = Judge(WordJudge("45"), language="de")
    (found,) = evaluate_rows([WRONG], judge=judge)
    assert found.comment.startswith("In der Antwort steht")
    with pytest.raises(RequestError, match="judge is None; give a model"):
        evaluate_rows([WRONG], settings=Settings())
    with pytest.raises(RequestError, match="judge is True; give a model"):
        evaluate_rows([WRONG], judge=True)
    with pytest.raises(ConfigError):
        evaluate_rows([WRONG], judge=WordJudge(), judge_when="never")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("rows", "rows is one str; give a list of rows"),
        (RIGHT, "rows is one dict; give a list of rows"),
        ([RIGHT, {}], "row 2: user_input is not a string"),
        ([{**RIGHT, "user_input": ["a", "b"]}], "row 1: user_input is not a string; rows have one"),
        ([{**RIGHT, "response": None}], "row 1: response is not a string"),
        (
            [{**RIGHT, "retrieved_contexts": PASSAGE}],
            "row 1: retrieved_contexts is not a list of strings",
        ),
        (
            [{**RIGHT, "retrieved_contexts": []}],
            "row 1: retrieved_contexts is not a list of strings",
        ),
        ([{**RIGHT, "retrieved_contexts": [1]}], "row 1: retrieved_contexts is not a list"),
    ],
)
def test_rows_of_another_shape_are_refused_before_anything_is_paid(rows: Any, said: str) -> None:
    judge = WordJudge()
    with pytest.raises(RequestError, match=said):
        evaluate_rows(rows, judge=judge)
    assert judge.calls == []


def test_a_concurrency_of_none_is_refused() -> None:
    with pytest.raises(RequestError, match="concurrency is 0, wanted 1 or more"):
        evaluate_rows([RIGHT], judge=WordJudge(), concurrency=0)
