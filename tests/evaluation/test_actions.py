"""Labelled tool calls, scored by recorded replies and by rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crp_integrations.cli.app import app
from crp_integrations.dpe.judge.inquiry import JudgeTerms
from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.evaluation.actions import (
    pointer,
    prompts,
    read_actions,
    read_replies,
    read_rules,
    score,
)

TRACE: dict[str, Any] = {
    "id": "x/1",
    "domain": "bank",
    "tools": [
        {
            "name": "pay",
            "parameters": {"properties": {"to": {"type": "string"}, "eur": {"type": "number"}}},
        }
    ],
    "messages": [{"role": "user", "content": "Pay 30 euros to Ann."}],
    "calls": [
        {"name": "pay", "arguments": {"to": "Ann", "eur": 30}, "label": "right", "kind": "copied"},
        {
            "name": "pay",
            "arguments": {"to": "Ann", "eur": 13},
            "label": "wrong",
            "kind": "changed",
            "path": "$.eur",
        },
    ],
}


def written(folder: Path, *rows: Any) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_prompts_have_no_label_and_their_replies_are_scored(tmp_path: Path) -> None:
    data = written(tmp_path, TRACE)
    out, answered = tmp_path / "prompts.jsonl", tmp_path / "replies.jsonl"
    run = CliRunner()
    made = run.invoke(app, ["eval", "actions", "--data", str(data), "--prompts", str(out)])
    assert made.exit_code == 0, made.output
    asked = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert {row["name"] for row in asked} == {"x/1/1", "x/1/2"}
    assert not {"wrong", "changed", "copied"} & set(json.dumps(asked).split('"'))
    rows = []
    for row in asked:
        request = json.loads(row["messages"][1]["content"])
        right = request["arguments"][1][2] == 30
        quotes = [{"in": "u1", "text": "30 euros"}]
        verdicts = [
            {"n": 1, "status": "GROUNDED", "quotes": [{"in": "u1", "text": "Ann"}]},
            {"n": 2, "status": "GROUNDED" if right else "CONTRADICTED", "quotes": quotes},
        ]
        reply = {"id": request["id"], "arguments": verdicts, "missing": "", "run": right}
        rows.append({"name": row["name"], "reply": reply if right else json.dumps(reply)})
    answered.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    shown = run.invoke(
        app, ["eval", "actions", "--data", str(data), "--replies", str(answered), "--json"]
    )
    scores = json.loads(shown.output)
    assert scores["all"] == {
        "calls": 2,
        "right": 1,
        "right_stopped": 0,
        "right_unread": 0,
        "named": 1,
        "wrong": 1,
        "wrong_stopped": 1,
        "wrong_unread": 0,
    }
    assert scores["missed"] == []
    table = run.invoke(app, ["eval", "actions", "--data", str(data), "--replies", str(answered)])
    assert table.exit_code == 0, table.output


def test_rules_alone_are_scored_in_both_directions(tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text('{"pay": {"to": "free", "eur": "exact"}, "other": {"a": "free"}}')
    scores = score(read_actions(written(tmp_path, TRACE), rules=read_rules(rules)), {})
    assert scores["rules"] == {"right": 1, "right_flagged": 0, "wrong": 1, "wrong_flagged": 1}
    assert (scores["all"]["calls"], scores["all"]["right_stopped"]) == (0, 0)
    rules.write_text('{"pay": {"eur": "exactly"}}')
    with pytest.raises(ConfigError, match="exactly"):
        read_rules(rules)


def test_a_prompt_is_the_same_in_every_run(tmp_path: Path) -> None:
    made = [prompts(read_actions(written(tmp_path, TRACE), terms=JudgeTerms("m"))) for _ in "ab"]
    assert made[0] == made[1]


@pytest.mark.parametrize("row", [{}, {**TRACE, "calls": [{"name": "pay"}]}, {**TRACE, "tools": 1}])
def test_a_malformed_row_is_named(tmp_path: Path, row: Any) -> None:
    with pytest.raises(RequestError, match="line 1"):
        read_actions(written(tmp_path, row))


def test_a_path_of_the_data_is_a_pointer() -> None:
    assert pointer("$.lines[1].unit_price") == "/lines/1/unit_price"


LABELLED = Path(__file__).parent / "labelled"


def test_the_labelled_calls_are_whole_and_rules_see_little_of_what_is_wrong() -> None:
    rules = read_rules(LABELLED / "action_rules.json")
    cases = read_actions(LABELLED / "actions.jsonl", rules=rules, terms=JudgeTerms("m"))
    assert len(cases) == 120
    for case in cases:
        paths = {path for path, _ in case.check.action.leaves}
        assert case.check.problem == ""
        assert (case.path in paths) if case.wrong else case.path == ""
        assert case.check.shown.left_out == ()
    scores = score(cases, {})
    assert (scores["all"]["right"], scores["all"]["wrong"]) == (60, 60)
    # A wrong value mostly stands in the neighbouring record: that is what a judge is for.
    assert scores["rules"] == {"right": 100, "right_flagged": 2, "wrong": 23, "wrong_flagged": 1}


def test_a_capable_model_lets_the_right_calls_of_our_own_traces_run() -> None:
    """Replies of a capable model to the package's own prompts, each trace's four read apart."""
    cases = read_actions(LABELLED / "actions.jsonl", terms=JudgeTerms("judge"))
    replies = read_replies(LABELLED.parent / "replies" / "claude-2026-11-actions.jsonl")
    scored = score(cases, replies)["all"]
    assert scored["calls"] == 120
    assert (scored["right"], scored["right_stopped"]) == (60, 0)
    assert (scored["wrong"], scored["wrong_stopped"], scored["named"]) == (60, 60, 60)
