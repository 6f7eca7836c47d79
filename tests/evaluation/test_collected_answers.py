"""Answers of one's own traffic: logged by `on_report`, reviewed in the terminal, scored."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crp_integrations import Relay, examine
from crp_integrations.cli.app import app
from crp_integrations.dpe.records import Report
from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.evaluation.answers import read_cases
from crp_integrations.evaluation.collected_answers import (
    answer_log,
    collected_answers,
    labelled_row,
)

PLAN = "The Meridian plan costs 4.20 euros a month. It can be cancelled at any time."
QUESTION = "What does the plan cost?"
RIGHT = "The Meridian plan costs 4.20 euros a month."
WRONG = "The Meridian plan costs 4.80 euros a month."
UNREAD = "Members like the plan very much."


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    for answer in (RIGHT, WRONG, UNREAD):
        examine(answer, [PLAN], QUESTION, on_report=answer_log(path))
    return path


def _reviewed(log: Path, replies: str) -> tuple[str, list[dict[str, Any]]]:
    labels = log.with_name("labels.jsonl")
    result = CliRunner().invoke(
        app, ["eval", "collect", str(log), "--to", str(labels)], input=replies
    )
    assert result.exit_code == 0, result.output
    return result.output, [json.loads(line) for line in labels.read_text("utf-8").splitlines()]


def test_a_line_holds_what_the_model_saw_and_what_was_said_of_it(log: Path) -> None:
    right, wrong, unread = collected_answers(log)
    assert (right.answer, wrong.answer, unread.answer) == (RIGHT, WRONG, UNREAD)
    assert {row.passages for row in (right, wrong, unread)} == {(PLAN,)}
    assert {row.question for row in (right, wrong, unread)} == {QUESTION}
    assert [str(row.report.risk_level) for row in (right, wrong, unread)] == [
        "LOW", "HIGH", "UNKNOWN",
    ]  # fmt: skip
    assert log.stat().st_mode & 0o077 == 0


def test_a_relay_logs_its_answers(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    relay = Relay.open(model="extractive", on_report=answer_log(path))
    relay.add([PLAN])
    answer = relay.ask(QUESTION)
    (row,) = collected_answers(path)
    assert row.answer == answer.text
    assert row.report.window_id == answer.report.window_id
    assert any(PLAN in passage for passage in row.passages)


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    append = answer_log(tmp_path / "run.jsonl")
    reports = [examine(f"{RIGHT} The fee is {n} euros.", [PLAN], QUESTION) for n in range(20)]
    threads = [threading.Thread(target=append, args=(report,)) for report in reports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(collected_answers(tmp_path / "run.jsonl"))) == 20


def test_a_review_labels_answers_for_the_score(log: Path) -> None:
    output, rows = _reviewed(log, "a\na\nw\nvery much\n")
    assert "3 labelled answers added" in output
    assert [row["hallucinated"] for row in rows] == [False, True, True]
    marked = [[row["answer"][s["start"] : s["end"]] for s in row["spans"]] for row in rows]
    assert marked[0] == []
    assert "4.80" in marked[1][0]
    assert marked[2] == ["very much"]
    cases = read_cases([log.with_name("labels.jsonl")])
    assert [case.wrong for case in cases] == [False, True, True]


def test_a_review_goes_on_where_it_was_left(log: Path) -> None:
    _, rows = _reviewed(log, "r\nq\n")
    assert [row["answer"] for row in rows] == [RIGHT]
    _, rows = _reviewed(log, "s\nr\n")
    assert [(row["answer"], row["hallucinated"]) for row in rows] == [
        (RIGHT, False), (UNREAD, False),
    ]  # fmt: skip


def test_a_verdict_that_nobody_gave_cannot_be_accepted(log: Path) -> None:
    output, rows = _reviewed(log, "s\ns\na\nr\n")
    assert "'a' is none of right, wrong, skip, quit" in output
    assert [row["answer"] for row in rows] == [UNREAD]


def test_words_that_are_not_in_the_answer_are_asked_again(log: Path) -> None:
    output, rows = _reviewed(log, "w\nfive euros\n4.20 euros\nq\n")
    assert "'five euros' is not in the answer" in output
    assert rows[0]["spans"] == [{"start": 24, "end": 34, "type": "reviewed"}]


def test_escape_sequences_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    examine(RIGHT, [f"{PLAN} \x1b[2J"], "\x1b]0;owned\x07?", on_report=answer_log(path))
    assert "\x1b" not in _reviewed(path, "q\n")[0]


def test_a_line_of_another_form_is_named(log: Path) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.write('{"id": "x"}\n')
    with pytest.raises(RequestError, match=r"line 4.*answer_log"):
        list(collected_answers(log))


@pytest.mark.parametrize("torn", [b'{"id": "x", "questi', '{"id": "€'.encode()[:-1]])
def test_a_torn_last_line_does_not_block_the_review(log: Path, torn: bytes) -> None:
    with log.open("ab") as file:
        file.write(torn)
    output, rows = _reviewed(log, "r\nr\nr\n")
    assert "line 4 is torn" in output
    assert len(rows) == 3
    assert log.with_name("labels.jsonl").stat().st_mode & 0o077 == 0
    with log.open("ab") as file:
        file.write(b"\n")
    with pytest.raises(RequestError):
        list(collected_answers(log, print))


def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be appended to"):
        answer_log(tmp_path / "none" / "run.jsonl")


def test_a_report_from_json_has_no_texts_to_log(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    report = examine(RIGHT, [PLAN], QUESTION)
    answer_log(path)(Report.model_validate_json(report.model_dump_json()))
    assert list(collected_answers(path)) == []
    assert PLAN not in report.model_dump_json().replace(RIGHT, "")


def test_an_accepted_flag_marks_what_the_report_marks(log: Path) -> None:
    wrong = list(collected_answers(log))[1]
    (span,) = labelled_row(wrong, wrong=True)["spans"]
    assert (span["start"], span["end"]) == wrong.report.claims[0].wrong
    assert span["type"] == "NUMBER"
