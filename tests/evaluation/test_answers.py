"""Verdicts on labelled answers, scored in both directions; the recorded replies of a model.

The replies in `replies/` are those of Claude (Anthropic) to the package's own prompts, given once,
blind to the labels, in November 2026. Quotations stand there as offsets, since the answers are no
part of the project; the tests that need the answers are skipped where they are absent.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crp_integrations.cli.app import app
from crp_integrations.errors import RequestError
from crp_integrations.evaluation.answers import (
    OracleVerifier,
    ScoredAnswer,
    Screened,
    oracle,
    prompts,
    read_cases,
    screened,
    verdict,
)
from crp_integrations.evaluation.figures import auroc, figures
from crp_integrations.evaluation.recorded_replies import recorded, replies
from tests.evaluation.short_replies import shortened

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
REPLIES = Path(__file__).parent / "replies"
with_data = pytest.mark.skipif(not DATA.is_dir(), reason="the labelled answers are not here")

PASSAGES = ["Lunch costs 12 euros.", "Dinner costs 35 euros on weekdays."]
ROWS: list[dict[str, Any]] = [
    {
        "id": "a/1", "task": "prices", "question": "What does dinner cost?", "passages": PASSAGES,
        "answer": "Dinner costs 35 euros on weekdays.", "hallucinated": False, "spans": [],
        "style": "short",
    },
    {
        "id": "a/2", "task": "prices", "question": "What does dinner cost?", "passages": PASSAGES,
        "answer": "Lunch is cheaper. Dinner costs 12 euros.", "hallucinated": True,
        "spans": [{"start": 31, "end": 39, "type": "NUMBER"}], "style": "short",
    },
]  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "prices.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n", encoding="utf-8")
    return path


def judged(path: Path, **how: Any) -> list[ScoredAnswer]:
    screens = [screened(case) for case in read_cases([path])]
    return [verdict(one, oracle(one, **how)) for one in screens]


def test_a_judge_that_is_always_right_is_believed(data: Path) -> None:
    found = figures(judged(data))
    whole = found["all"]
    assert (whole["right_flagged"], whole["wrong_passed"]) == (0.0, 0.0)
    assert (whole["stretch_met"], whole["one_call"], whole["auroc"]) == (1.0, 1.0, 1.0)
    assert list(found["domain"]) == ["prices"]
    assert list(found["kind"]) == ["NUMBER"]
    assert list(found["style"]) == ["others"]


def test_a_judge_that_is_always_wrong_is_believed_too(data: Path) -> None:
    whole = figures(judged(data, errs=1.0))["all"]
    assert (whole["right_flagged"], whole["wrong_passed"]) == (1.0, 0.0)
    assert whole["stretch_met"] == 0.0


def test_a_verifier_that_is_always_right_decides_as_well(data: Path) -> None:
    found = [verdict(screened(case, verifier=OracleVerifier(case))) for case in read_cases([data])]
    assert [one.flagged for one in found] == [False, True]


def test_pairs_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl.gz"
    row = {"id": "p", "evidence": "Born: 1854", "claim": "He was born in 1854.", "label": "refuted"}
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(json.dumps(row))
    (case,) = read_cases([path])
    assert (case.domain, case.passages, case.wrong) == ("pairs", ("Born: 1854",), True)


@pytest.mark.parametrize("row", [{"id": "x"}, {**ROWS[0], "answer": 5}, {**ROWS[0], "spans": [{}]}])
def test_a_row_of_another_form_is_named(tmp_path: Path, row: dict[str, Any]) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(RequestError, match=r"odd\.jsonl line 1 is not an object with id"):
        read_cases([path])


def test_an_answer_may_have_no_question(tmp_path: Path) -> None:
    path = tmp_path / "summaries.jsonl"
    path.write_text(json.dumps({**ROWS[0], "question": None}), encoding="utf-8")
    (case,) = read_cases([path])
    assert case.question == ""


def test_prompts_hold_no_label(data: Path) -> None:
    for one, row in zip(prompts([screened(c) for c in read_cases([data])]), ROWS, strict=True):
        assert one["name"] == row["id"]
        assert set(one) == {"name", "messages"}
        user = json.loads(one["messages"][1]["content"])
        assert set(user) == {"id", "question", "needs", "passages", "answer"}


def test_a_reply_without_texts_says_the_same(data: Path) -> None:
    for case in read_cases([data]):
        one = screened(case)
        call = one.inquiry("m").call()
        assert call is not None
        whole = oracle(one)(call).text
        short = shortened(one, whole)
        assert "euros" not in json.dumps(short)
        first, again = verdict(one, recorded(one, whole)), verdict(one, recorded(one, short))
        assert [c.status for c in first.report.claims] == [c.status for c in again.report.claims]
        assert [c.quotations for c in first.report.claims] == [
            c.quotations for c in again.report.claims
        ]


def whole_reply(case_id: str) -> dict[str, Any]:
    """What a judge says of the wrong row, with everything that the schema has."""
    return {
        "id": case_id,
        "claims": [
            {"n": 1, "status": "SUPPORTED", "quotes": [
                {"in": "passage 1", "text": "Lunch costs 12 euros"}, {"in": "2", "text": "Dinner"},
            ]},
            {"n": 2, "status": "CONTRADICTED", "quotes": [{"in": "2", "text": "costs 35 euros"}],
             "kind": "NUMBER", "wrong": "12", "reason": "It is 35.",
             "fix": "Dinner costs 35 euros."},
        ],
        "unnumbered": [{"text": "is cheaper", "status": "UNSUPPORTED", "quotes": []}],
        "needs": [{"n": 1, "answered": True, "by": [2]}],
        "conflicts": [
            {"claims": [1, 2], "reason": "They differ."},
            {"claims": [], "passages": [
                {"in": "1", "text": "12 euros"}, {"in": "2", "text": "35 euros"},
            ]},
        ],
    }  # fmt: skip


def wrong_row(path: Path) -> tuple[Screened, str]:
    """The wrong row, and the id that a reply to it repeats."""
    one = screened(read_cases([path])[1])
    call = one.inquiry("m").call()
    assert call is not None
    return one, json.loads(call.messages[1].content)["id"]


def outcome(one: Screened, reply: str | dict[str, Any]) -> list[Any]:
    report = verdict(one, recorded(one, reply)).report
    assert report.judge is not None
    claims = [
        (c.text, c.status, c.error, c.wrong, c.fix, c.quotations) for c in report.claims
    ]  # fmt: skip
    conflicts = [(c.claims, c.quotations) for c in report.judge.conflicts]
    return [claims, report.judge.needs, conflicts]


def test_the_short_form_keeps_fixes_needs_and_conflicts(data: Path) -> None:
    one, case_id = wrong_row(data)
    whole = whole_reply(case_id)
    short = shortened(one, f"Here it is:\n```json\n{json.dumps(whole)}\n```")
    assert short["claims"][1]["fix"] == [13, 15, "35"]
    assert short["needs"] == [{"n": 1, "answered": True, "by": [2]}]
    assert "euros" not in json.dumps(short)
    expected = outcome(one, json.dumps(whole))
    assert expected[0][-1][4] == "Dinner costs 35 euros."
    assert len(expected[1]) == 1
    assert len(expected[2]) == 2
    assert outcome(one, short) == expected


def test_a_reply_is_read_as_a_text_and_as_an_object_alike(data: Path) -> None:
    one, case_id = wrong_row(data)
    whole = whole_reply(case_id)
    assert outcome(one, whole) == outcome(one, json.dumps(whole))
    without_id = {name: value for name, value in whole.items() if name != "id"}
    assert outcome(one, without_id) == outcome(one, whole)


@pytest.mark.parametrize(
    "row",
    [
        {"name": "a/1", "reply": 5},
        {"name": "a/1"},
        {"name": "a/1", "reply": {"verdict": "fine"}},
        {"name": "a/1", "reply": {"claims": "all of them"}},
        {"name": "a/1", "reply": {"claims": [5]}},
    ],
)
def test_a_line_that_holds_no_reply_is_named(data: Path, tmp_path: Path, row: Any) -> None:
    path = tmp_path / "back.jsonl"
    path.write_text(json.dumps({"name": "a/2", "reply": "no"}) + "\n" + json.dumps(row))
    given = ["eval", "answers", "--data", str(data), "--replies", str(path)]
    done = CliRunner().invoke(app, given)
    assert isinstance(done.exception, RequestError)
    assert "back.jsonl line 2 is not an object with name and reply" in str(done.exception)


@pytest.mark.parametrize(
    "change",
    [
        {"n": 99}, {"n": "two"}, {"n": None}, {"quotes": 5}, {"quotes": [5]},
        {"quotes": [["7", 0, 4]]}, {"quotes": [["1", "a", "b"]]}, {"quotes": [[]]},
        {"wrong": [9]}, {"wrong": [-4, 900]}, {"fix": [1, 2]}, {"fix": {}}, {"status": []},
    ],
)  # fmt: skip
def test_an_odd_verdict_leaves_its_claim_unread(data: Path, change: dict[str, Any]) -> None:
    one, _ = wrong_row(data)
    row = {"n": 1, "status": "SUPPORTED", "quotes": [["1", 0, 20]], **change}
    reply = {"claims": [row], "needs": 3, "conflicts": [4], "unnumbered": [{"text": []}]}
    done = verdict(one, recorded(one, reply))
    assert done.report.judge is not None


def test_auroc_counts_ties_half(data: Path) -> None:
    plain = [verdict(screened(case)) for case in read_cases([data])]
    assert auroc([plain[0]]) is None
    same = [ScoredAnswer(one.case, plain[0].report, 0, False, False, None, False) for one in plain]
    assert auroc(same) == 0.5


def test_the_command_writes_prompts_and_scores_replies(data: Path, tmp_path: Path) -> None:
    run = CliRunner()
    out, back = tmp_path / "prompts.jsonl", tmp_path / "back.jsonl"
    done = run.invoke(app, ["eval", "answers", "--data", str(data), "--prompts", str(out)])
    assert done.exit_code == 0, done.output
    by_name = {case.name: screened(case) for case in read_cases([data])}
    with back.open("w", encoding="utf-8") as file:
        for line in out.read_text(encoding="utf-8").splitlines():
            one = by_name[json.loads(line)["name"]]
            call = one.inquiry("m").call()
            assert call is not None
            file.write(json.dumps({"name": one.case.name, "reply": oracle(one)(call).text}) + "\n")
    given = ["eval", "answers", "--data", str(data), "--replies", str(back)]
    done = run.invoke(app, given)
    assert done.exit_code == 0, done.output
    assert "judge_when doubt" in done.output
    assert done.output.split("\n")[0].split().count("unknown") == 2
    done = run.invoke(app, [*given, "--json"])
    assert json.loads(done.stdout)["all"]["wrong_passed"] == 0.0


def test_two_ways_at_once_are_refused(data: Path) -> None:
    done = CliRunner().invoke(
        app, ["eval", "answers", "--data", str(data), "--judge", "x/y", "--oracle", "judge"]
    )
    assert isinstance(done.exception, RequestError)


# --- the recorded replies ----------------------------------------------------------------------


def scored(name: str, files: list[Path]) -> dict[str, Any]:
    known = replies(REPLIES / f"claude-2026-11-{name}.jsonl")
    screens = [screened(case) for case in read_cases(files) if case.name in known]
    assert len(screens) == len(known)
    found: dict[str, Any] = figures(
        [verdict(one, recorded(one, known[one.case.name])) for one in screens]
    )["all"]
    return found


@with_data
def test_recorded_replies_to_realistic_answers() -> None:
    found = scored("field", sorted((DATA / "field").glob("*.jsonl.gz")))
    assert found["right"] + found["wrong"] == 220
    assert found["right_flagged"] == 0.0
    assert found["right_unknown"] <= 0.02
    assert found["wrong_passed"] == 0.0
    assert found["stretch_met"] >= 0.95
    assert found["one_call"] >= 0.98


@with_data
def test_recorded_replies_to_statements_over_records() -> None:
    found = scored("infotabs", [DATA / "verification" / "infotabs_train.jsonl.gz"])
    assert found["right_flagged"] <= 0.12
    assert found["wrong_passed"] <= 0.08


@with_data
def test_judges_and_verifiers_that_are_always_right_over_realistic_answers() -> None:
    cases = read_cases(sorted((DATA / "field").glob("*.jsonl.gz")), most=8)
    by_judge = figures([verdict(one, oracle(one)) for one in map(screened, cases)])["all"]
    by_verifier = figures([verdict(screened(c, verifier=OracleVerifier(c))) for c in cases])["all"]
    assert (by_judge["right_flagged"], by_judge["wrong_passed"]) == (0.0, 0.0)
    # One answer of the whole set is wrong in a sentence that passes for talk about the answer.
    assert by_verifier["right_flagged"] <= 0.01
    assert by_verifier["wrong_passed"] * by_verifier["wrong"] <= 1.001
