"""`crp ingest`, `ask` and `quickstart`, with directives for caches and a judge."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import Here, command, process
from tests.doubles import stands
from tests.judges import NAME, both, judge_double
from tests.servers import Double, openai_double

KEY = "cd" * 32
SESSION = "crp_sess_7f3a9bc2d4e1f083"
PAGE = """---
kind: regulatory
---
# Meridian

## Output

The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts to the grid.

## Operator

The Meridian reactor is operated by Northfield Energy under a licence that ends in 2059.
"""


# By the real clock the facts would one day be archived for want of use.
FIXED = {"CRP_KEY": KEY, "CRP_CLOCK": "2026-05-26T12:00:00Z"}


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cli")
    (root / "docs").mkdir()
    (root / "docs" / "meridian.md").write_text(PAGE)
    fixed = {"CRP_KEY": KEY, "CRP_CLOCK": "2026-05-25T12:00:00Z"}
    done = command("ingest", "docs", "--store", "kb", cwd=root, **fixed)
    assert done.returncode == 0, done.stderr
    return root


def test_ask_shows_answer_envelope_and_verdict_and_headers_where_they_are_wanted(here, world):
    asked = ["ask", "How much power does the Meridian reactor deliver?"]
    shown = here(*asked, cwd=world, CRP_STORE="kb", **FIXED)
    assert shown.returncode == 0, shown.stderr
    for part in (
        "412 megawatts",
        "Envelope",
        "Verdict per claim",
        "SUPPORTED",
    ):
        assert part in shown.stdout
    assert "CRP-Context-ETag" not in shown.stdout
    assert (
        "CRP-Context-ETag" in here(*asked, "--headers", cwd=world, CRP_STORE="kb", **FIXED).stdout
    )
    assert re.search(r"Tier [SABCD]: score", shown.stdout)


def test_a_bulk_ingestion_commits_as_it_goes_and_is_begun_again(here, world, tmp_path, monkeypatch):
    from crp_integrations.cli import ask

    monkeypatch.setattr(ask, "_BULK_DOCUMENTS", 2)
    lines = [
        {"text": f"The gate number {n} of the harbour opens at {n} every day of the week."}
        for n in range(5)
    ]
    (tmp_path / "gates.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    bulk = ("ingest", "gates.jsonl", "--bulk", "--json", "--store")
    (tmp_path / "gates.jsonl").with_name("torn.jsonl").write_text(
        "\n".join(map(json.dumps, lines[:3])) + "\n{"
    )
    torn = here("ingest", "torn.jsonl", "--bulk", "--store", "kb", cwd=tmp_path, **FIXED)
    assert torn.returncode == 1
    (tmp_path / "torn.jsonl").write_text((tmp_path / "gates.jsonl").read_text())
    again = json.loads(here("ingest", "torn.jsonl", *bulk[2:], "kb", cwd=tmp_path, **FIXED).stdout)
    assert (len(again["unchanged"]), len(again["facts"])) == (2, 3)
    plain = here("ingest", "torn.jsonl", "--json", "--store", "other", cwd=tmp_path, **FIXED)
    assert json.loads(plain.stdout)["state_hash"] == again["state_hash"]


def test_a_bulk_ingestion_skips_and_refuses_as_a_plain_one(here, tmp_path, monkeypatch):
    from crp_integrations.cli import ask

    monkeypatch.setattr(ask, "_BULK_DOCUMENTS", 1)
    gates = [f"The gate number {n} of the harbour opens at {n} every day." for n in range(2)]

    def ingest(store, *lines):
        (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
        bulk = ("--bulk", "--json", "--store", store)
        return here("ingest", "lines.jsonl", *bulk, cwd=tmp_path, **FIXED)

    line = {"text": gates[0], "uri": "urn:a"}
    done = ingest("kb", {"text": "No.", "uri": "urn:short"}, line, line)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["skipped"], len(report["facts"]), report["unchanged"]) == (["urn:short"], 1, [])
    refused = ingest("other", line, {"text": gates[1], "uri": "urn:a"})
    assert refused.returncode == 1 and "given twice" in refused.stderr


def test_ask_json_says_when_and_in_which_session_it_was_asked(here, world, tmp_path):
    shutil.copytree(world / "kb", tmp_path / "kb")
    asked = ["ask", "Who operates the reactor?", "--json", "--store", "kb"]
    done = here(*asked, cwd=tmp_path, CRP_SESSION=SESSION, **FIXED)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["session_id"] == SESSION
    assert answer["envelope"]["created_at"] == FIXED["CRP_CLOCK"]
    assert "Northfield Energy" in answer["text"]


def test_front_matter_names_the_kind(here, world):
    asked = ["ask", "Who operates the reactor?", "--json", "--store", "kb"]
    shown = here(*asked, cwd=world, **FIXED)
    weights = {f["importance_weight"] for f in json.loads(shown.stdout)["envelope"]["facts"]}
    assert weights == {0.9}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["ingest", "nowhere.md", "--store", "kb"], "nowhere.md"),
        (["ingest", "empty.md", "--store", "kb"], "empty.md"),
        (["ingest", "binary.txt", "--store", "kb"], "binary.txt"),
        (["ingest", "docs", "empty.md", "--store", "kb"], "empty.md"),
        (["ask", "Who?", "--budget-tokens", "0", "--store", "kb"], "budget-tokens"),
        (["ask", "Who?", "--preview", "--budget-tokens", "0", "--store", "kb"], "budget-tokens"),
        (["ask", "Who?", "--model", "no-such-model", "--store", "kb"], "no-such-model"),
        (["ask", "Who?", "--grounding", "loose", "--store", "kb"], "loose"),
        (["ask", "Who?", "--store", "elsewhere"], "elsewhere"),
        (["ask", " ", "--store", "kb"], "query is empty"),
        (["ask", "", "--store", "kb"], "query is empty"),
        (["ask", "Who?", "--store", ""], "store is empty"),
        (["ask", "Who?", "--store", "mysql://db"], "mysql:// is not supported"),
        (["ask", "Who?", "--store", "docs"], "no store at 'docs'"),
        (["ask", "Who?", "--store", "empty.md"], "no store at 'empty.md'"),
        (["ask", "Who?", "--store", "a" * 300], "cannot be used"),
        (["ingest", "docs", "--store", "a" * 300], "cannot be used"),
        (["ask", "Who?", "--preview", "--store", "docs"], "no store at 'docs'"),
        (
            ["ask", "Who?", "--preview", "--model", "no-such-model", "--store", "kb"],
            "no-such-model",
        ),
        (["ingest", "nowhere.md", "--store", "elsewhere"], "nowhere.md"),
        (["ingest", "empty.md", "--store", "elsewhere"], "empty.md"),
        (["ingest", "docs", "--store", ""], "store is empty"),
        (["ingest", "", "--store", "elsewhere"], "the path '' is empty"),
        (["ingest", "docs", "", "--store", "kb"], "the path '' is empty"),
        (["ingest", "docs", "--store", "mysql://db"], "mysql:// is not supported"),
        (["ingest", "docs", "--store", "empty.md"], "empty.md is a file"),
        (["ingest", "docs", "--store", "empty.md/kb"], "empty.md is a file"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_and_the_store_stays(
    here, world, arguments, sentence
):
    (world / "empty.md").write_bytes(b"")
    (world / "binary.txt").write_bytes(bytes(range(256)) * 8)
    before = files(world)
    # Opened at a later time, the store would be rid of what sessions said long ago.
    done = here(*arguments, cwd=world, CRP_KEY=KEY, CRP_CLOCK="2026-05-25T12:00:00Z")
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert files(world) == before
    assert not (world / "elsewhere").exists()
    said = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(said) == 1 or said[0].startswith("Usage:")


def test_what_a_library_logs_is_not_printed_beside_the_sentence(world):
    (world / "binary.pdf").write_bytes(bytes(range(256)) * 8)
    done = process("ingest", "binary.pdf", "--store", "kb", cwd=world, **FIXED)
    assert done.returncode == 1
    assert done.stderr.startswith("crp: binary.pdf")
    assert len(done.stderr.splitlines()) == 1


def test_the_quickstart_runs_without_a_key_from_any_folder(tmp_path):
    done = process("quickstart", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) < 60
    first, second = done.stdout.split("The same answer with one changed figure")
    assert "Quoted from the context:" in first
    assert "Risk LOW" in first
    # The figure is caught, and the sentence that has the right one is quoted.
    caught = " ".join(second.split())
    assert re.search(r"CONTRADICTED.*“The risk score of a HIGH answer begins at 0\.45\.”", caught)
    assert "NUMBER_CHANGED: the context has 0.45" in caught
    assert "Risk HIGH" in second
    assert "CRP-Context" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_quickstart_shows_headers_or_json_where_they_are_wanted(here, tmp_path):
    shown = here("quickstart", "--headers", cwd=tmp_path)
    assert shown.stdout.count("CRP-Context-ETag") == 1
    told = json.loads(here("quickstart", "--json", "--store", "kb", cwd=tmp_path).stdout)
    assert told["answer"]["report"]["risk_level"] == "LOW"
    assert told["report_on_changed"]["risk_level"] == "HIGH"
    assert here("fabric", "stats", "--store", "kb", cwd=tmp_path).returncode == 0


def test_a_policy_withholds_and_a_strategy_acts(here, world):
    asked = ["ask", "Who operates the reactor?", "--store", "kb", "--json"]
    told = here(*asked, "--strategy", "pull", cwd=world, **FIXED)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["headers"]["CRP-Context-Strategy"] == "pull"
    withheld = here(*asked, "--policy", "oversight halt", cwd=world, **FIXED)
    assert withheld.returncode == 1
    assert "OVERSIGHT_REQUIRED" in withheld.stderr
    wrong = here(*asked, "--policy", "halt-on NEVER", cwd=world, **FIXED)
    assert wrong.returncode == 1
    assert "column" in wrong.stderr
    lost = here(
        *asked, "--session", SESSION, "--continue", "crp_cont_" + "a" * 20, cwd=world, **FIXED
    )
    assert lost.returncode == 1
    assert "crp_cont_" in lost.stderr


TEXT = "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.\n"


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


def test_an_error_names_the_options_of_the_shell(here: Here, kb: Path) -> None:
    asked = ["ask", QUESTION, "--store", "kb"]
    unread = here(*asked, "--policy", "halt-on HIGH", cwd=kb)
    assert "give --judge …, such as --judge openai/gpt-4o-mini, or write" in unread.stderr
    useless = here(*asked, "--judge-when", "always", cwd=kb)
    assert "--judge-when needs a judge; give --judge …" in useless.stderr
    assert unread.returncode == useless.returncode == 1


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
    assert not stands("412", halted.stdout)
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
        (("--judge-base", "http://127.0.0.1:9"), "--judge-base needs --judge"),
        (("--judge-base", "http://127.0.0.1:9", "--judge", "self"), "--judge-base needs"),
        (("--judge", "no-such-model"), "no-such-model"),
        (("--judge", ""), "--judge is empty"),
        (("--preview", "--receipt", "new.json"), "leave --receipt out"),
        (("--preview", "--continue", "crp_cont_" + "a" * 32), "crp_cont_aaaa"),
    ],
)
def test_what_cannot_be_meant(here: Here, kb: Path, arguments: tuple[str, ...], said: str) -> None:
    done = here("ask", QUESTION, "--store", "kb", *arguments, cwd=kb)
    assert done.returncode == 1
    assert said in done.stderr
