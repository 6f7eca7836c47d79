"""`crp ask --judge`: who checks the answer, and what the terminal shows of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import Here
from tests.judges import NAME, both, by_figures, judge_double
from tests.servers import Double, openai_double

FACT = "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.\n"
QUESTION = "How much power does the Meridian reactor deliver?"


@pytest.fixture
def judge() -> Iterator[Double]:
    with judge_double() as double:
        yield double


@pytest.fixture
def kb(here: Here, tmp_path: Path) -> Path:
    (tmp_path / "a.md").write_text(FACT, encoding="utf-8")
    assert here("ingest", "a.md", "--store", "kb", cwd=tmp_path).returncode == 0
    return tmp_path


def test_the_judge_of_one_question(here: Here, kb: Path, judge: Double) -> None:
    how = ("--store", "kb", "--judge", NAME, "--judge-base", judge.url)
    said = here("ask", QUESTION, *how, "--json", cwd=kb, OPENAI_API_KEY="sk-judge")
    assert said.returncode == 0, said.stderr
    report = json.loads(said.stdout)["report"]
    assert report["checked_by"] == f"judge {NAME}"
    assert report["risk_level"] == "LOW"
    assert judge.requests[0].headers["authorization"] == "Bearer sk-judge"
    shown = here("ask", QUESTION, *how, cwd=kb, OPENAI_API_KEY="sk-judge")
    assert f"Judge {NAME}: 1 call, 18 tokens" in " ".join(shown.stdout.split())
    assert "SUPPORTED" in shown.stdout


def test_what_is_wrong_is_said_in_a_sentence(here: Here, kb: Path, judge: Double) -> None:
    judge.answers = both("unused", lambda seen: {**by_figures(seen), "claims": _wrong(seen)})
    how = ("--store", "kb", "--judge", NAME, "--judge-base", judge.url)
    shown = here("ask", QUESTION, *how, cwd=kb, OPENAI_API_KEY="sk-judge")
    assert "CONTRADICTED" in shown.stdout
    assert "Risk HIGH" in shown.stdout


def _wrong(seen) -> list:
    passage, text = seen["passages"][0]
    quotes = [{"in": passage, "text": text}]
    return [{"n": 1, "status": "CONTRADICTED", "kind": "NUMBER", "quotes": quotes}]


def test_a_judge_that_fails_is_named_or_withholds(here: Here, kb: Path, judge: Double) -> None:
    judge.fault = "unauthorised"
    how = ("--store", "kb", "--judge", NAME, "--judge-base", judge.url)
    shown = here("ask", QUESTION, *how, cwd=kb, OPENAI_API_KEY="sk-judge")
    assert shown.returncode == 0
    assert "judge-failed=ModelAuthError 401" in " ".join(shown.stdout.split())
    halted = here(
        "ask", QUESTION, *how, "--judge-failure", "halt", cwd=kb, OPENAI_API_KEY="sk-judge"
    )
    assert halted.returncode != 0
    assert "412" not in halted.stdout
    assert len(halted.stderr.splitlines()) == 1


def test_the_model_that_answers_may_judge(here: Here, kb: Path) -> None:
    with openai_double(answers=both(FACT.strip())) as server:
        how = ("--store", "kb", "--judge", "self", "--model", "openai/gpt-4o", "--json")
        key = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": server.url}
        said = here("ask", QUESTION, *how, cwd=kb, **key)
    assert said.returncode == 0, said.stderr
    report = json.loads(said.stdout)["report"]
    assert report["judge"]["own_answer"]
    assert report["risk_level"] == "LOW"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--judge-when", "doubt"), "needs a judge"),
        (("--judge-base", "http://127.0.0.1:9"), "--judge-base goes with --judge"),
        (("--judge-base", "http://127.0.0.1:9", "--judge", "self"), "--judge-base goes with"),
        (("--judge", "no-such-model"), "no-such-model"),
        (("--judge", ""), "--judge is empty"),
    ],
)
def test_what_cannot_be_meant(here: Here, kb: Path, arguments: tuple[str, ...], said: str) -> None:
    done = here("ask", QUESTION, "--store", "kb", *arguments, cwd=kb)
    assert done.returncode == 1
    assert said in done.stderr
