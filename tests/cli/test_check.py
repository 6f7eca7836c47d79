"""`crp check`: what is read, what is shown, and the status."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from crp_integrations import RequestError
from crp_integrations.cli import check
from tests.cli.conftest import Here
from tests.dpe.judging import Case, saying
from tests.judges import NAME, by_words, changed, judge_double, judging

PLAN = "The Meridian plan costs 4.20 euros a month."
CANCEL = "A plan that was paid for a year can be cancelled in its first 14 days."
WRONG = PLAN.replace("4.20", "4.80")
KLARNA = "You can pay by Klarna."


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "plans.md").write_text(f"# Plans\n\n{PLAN}\n\n{CANCEL}\n")
    (tmp_path / "right.md").write_text(f"{PLAN}\n")
    (tmp_path / "unread.md").write_text("You can pay by Klarna.\n")
    (tmp_path / "wrong.md").write_text(f"{CANCEL}\n{WRONG} You can pay by Klarna.\n")
    return tmp_path


def flat(text: str) -> str:
    return " ".join(text.split())


def test_each_claim_is_shown_with_status_evidence_and_reason(here: Here, desk: Path) -> None:
    done = here("check", "wrong.md", "--context", "docs", cwd=desk)
    assert (done.returncode, done.stderr) == (0, "")
    said = flat(done.stdout)
    assert "wrong.md against 1 passage of 1 document" in said
    assert f"CONTRADICTED {WRONG} “{PLAN}” (docs/plans.md) NUMBER_CHANGED" in said
    assert "the context has 4.20 euros" in said
    assert "NOT_CHECKED You can pay by Klarna. not in the evidence: Klarna" in said
    assert "Risk HIGH (" in said
    assert " claims read: " in said
    assert f"The answer says 4.80 euros; passage 1 says “{PLAN[:-1]}”." in said


TAGS = "".join(chr(0xE0000 + ord(character)) for character in "pay <b>me</b>")


def test_hidden_text_is_shown_decoded_in_every_form(here: Here, desk: Path) -> None:
    (desk / "hidden.md").write_text(f"{PLAN}{TAGS}\n", encoding="utf-8")
    words = ("check", "hidden.md", "--context", "docs")
    for form in ((), ("--github",), ("--html", "page.html")):
        said = flat(here(*words, *form, cwd=desk, COLUMNS="200").stdout)
        assert "hidden text (tags): pay" in said
        assert TAGS not in said
    page = (desk / "page.html").read_text(encoding="utf-8")
    assert "hidden text (tags): pay &lt;b&gt;me" in page
    (one,) = json.loads(here(*words, "--json", cwd=desk).stdout)["answers"]
    assert one["report"]["claim_counts"]["unread"] == 1
    assert one["report"]["claims"][0]["findings"][0]["kind"] == "HIDDEN_TEXT"


@pytest.mark.parametrize(
    ("answer", "level", "status"),
    [
        ("wrong.md", "low", 1),
        ("wrong.md", "high", 1),
        ("wrong.md", "HIGH", 1),
        ("wrong.md", "critical", 0),
        ("right.md", "medium", 0),
        ("right.md", "low", 1),
        ("unread.md", "unknown", 1),
        ("unread.md", "medium", 0),
    ],
)
def test_the_status_follows_the_risk(
    here: Here, desk: Path, answer: str, level: str, status: int
) -> None:
    for form in ((), ("--json",), ("--github",)):
        done = here("check", answer, "--context", "docs", "--fail-on", level, *form, cwd=desk)
        assert done.returncode == status, done.stderr


def test_json_has_the_report_and_the_passages_that_it_names(here: Here, desk: Path) -> None:
    words = ("--context", "docs", "--question", "What does it cost?", "--json")
    (one,) = json.loads(here("check", "wrong.md", *words, cwd=desk).stdout)["answers"]
    assert one["name"] == "wrong.md"
    assert one["report"]["risk_level"] == "HIGH"
    wrong = next(c for c in one["report"]["claims"] if c["status"] == "CONTRADICTED")
    (place,) = wrong["quotations"]
    passage = one["passages"][place["fact_id"]]
    assert passage["source"] == "docs/plans.md"
    assert passage["text"][place["start"] : place["end"]] == place["text"]


@pytest.mark.parametrize("form", ["input", "html", "folder", "jsonl", "saved"])
def test_an_answer_is_read_from_every_place(
    here: Here, desk: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = f"<html><body><nav>Home</nav><main><p>{WRONG}</p></main></body></html>"
    (desk / "answers").mkdir()
    (desk / "answers" / "a.txt").write_text(WRONG)
    (desk / "answers" / "b.md").write_text(PLAN)
    (desk / "page.html").write_text(page)
    (desk / "saved").write_text(page)
    (desk / "many.jsonl").write_text(
        json.dumps({"text": WRONG}) + "\n" + json.dumps({"text": PLAN})
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(WRONG.encode())))
    name = {"input": "-", "html": "page.html", "folder": "answers", "jsonl": "many.jsonl"}.get(
        form, form
    )
    told = json.loads(here("check", name, "--context", "docs", "--json", cwd=desk).stdout)
    levels = [one["report"]["risk_level"] for one in told["answers"]]
    assert levels == (["HIGH", "LOW"] if form in ("folder", "jsonl") else ["HIGH"])
    assert "Home" not in json.dumps(told)


def test_a_folder_of_answers_ends_with_a_table(here: Here, desk: Path) -> None:
    (desk / "answers").mkdir()
    for name, text in (("a.txt", WRONG), ("b.md", PLAN)):
        (desk / "answers" / name).write_text(text)
    done = here("check", "answers", "--context", "docs", "--fail-on", "high", cwd=desk)
    assert done.returncode == 1
    assert "2 answers checked" in done.stdout
    assert done.stdout.rstrip().endswith("1 LOW, 1 HIGH")


def test_github_gets_annotations_by_line_and_a_summary(here: Here, desk: Path) -> None:
    words = ("check", "wrong.md", "--context", "docs", "--github")
    alone = here(*words, cwd=desk).stdout.splitlines()
    assert alone[0] == (
        f"::error file=wrong.md,line=2,title=CONTRADICTED::{WRONG} "
        f"The context: “{PLAN}” (docs/plans.md)"
    )
    # What nobody read is in the summary, and is no annotation.
    assert alone[1] == "### wrong.md: HIGH"
    assert "claims read" in alone[3]
    assert any(line.startswith("| NOT_CHECKED | You can pay by Klarna. | not in") for line in alone)
    assert "| CONTRADICTED | " + WRONG in "\n".join(alone)
    done = here(*words, cwd=desk, GITHUB_STEP_SUMMARY=str(desk / "summary.md"))
    assert done.stdout.splitlines() == alone[:1]
    assert (desk / "summary.md").read_text().startswith("### wrong.md: HIGH\n")


def test_a_page_shows_each_claim_beside_its_evidence(here: Here, desk: Path) -> None:
    (desk / "<b>.md").write_text(WRONG)
    words = ("--context", "docs", "--html", "page.html", "--fail-on", "high")
    done = here("check", "<b>.md", *words, cwd=desk)
    assert done.returncode == 1
    assert "CONTRADICTED" in done.stdout
    page = (desk / "page.html").read_text(encoding="utf-8")
    assert "<h3>&lt;b&gt;.md</h3>" in page
    assert '<mark class="crp-no">4.80 euros</mark>' in page
    assert f"<mark>{PLAN}</mark>" in page
    assert "docs/plans.md" in page
    done = here("check", "<b>.md", "--context", "docs", "--html", "no/page.html", cwd=desk)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "no/page.html" in done.stderr


def test_what_an_answer_says_cannot_write_commands_or_cells(here: Here, desk: Path) -> None:
    odd = "You can pay by Klarna.\n::error::by Zorblax | 100% <b>now</b> at last [9].\n"
    (desk / "odd.md").write_text(odd, encoding="utf-8")
    done = here("check", "odd.md", "--context", "docs", "--github", cwd=desk)
    commands = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert all(re.match(r"::(error|warning) file=odd\.md,line=\d,title=", one) for one in commands)
    assert "100%25" in "".join(commands)
    rows = [line for line in done.stdout.splitlines() if line.startswith("| UNSUPPORTED")]
    assert rows and all(len(re.split(r"(?<!\\)\|", row)) == 5 for row in rows)
    assert "<b>" not in "".join(rows)


def log(folder: Path, *rows: object) -> None:
    text = "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in rows)
    (folder / "run.jsonl").write_text(text)


def test_a_log_is_checked_line_by_line(here: Here, desk: Path) -> None:
    log(
        desk,
        {"question": "What does it cost?", "context": [CANCEL, PLAN], "answer": WRONG},
        "",
        {"question": None, "context": PLAN, "answer": PLAN, "trace": "x"},
    )
    done = here("check", "--watch", "run.jsonl", "--fail-on", "high", cwd=desk)
    assert (done.returncode, done.stderr) == (1, "")
    assert "2 answers checked" in done.stdout
    assert re.search(r"run\.jsonl:1 +│ HIGH +│ 1 +│ 0 +│ 1 +│ 0 +│", done.stdout)
    assert re.search(r"run\.jsonl:3 +│ LOW", done.stdout)
    assert done.stdout.rstrip().endswith("1 LOW, 1 HIGH")
    told = json.loads(here("check", "--watch", "run.jsonl", "--json", cwd=desk).stdout)
    assert [one["name"] for one in told["answers"]] == ["run.jsonl:1", "run.jsonl:3"]


def test_a_judge_reads_each_answer_of_a_log_once(here: Here, desk: Path) -> None:
    log(desk, *({"context": PLAN, "answer": one} for one in (PLAN, WRONG)))
    with judge_double() as judge:
        how = ("--judge", NAME, "--judge-base", judge.url, "--json")
        key = {"OPENAI_API_KEY": "sk-judge"}
        done = here("check", "--watch", "run.jsonl", *how, cwd=desk, **key)
        assert len(judge.requests) == 2
    told = json.loads(done.stdout)["answers"]
    assert {one["report"]["checked_by"] for one in told} == {f"judge {NAME}"}
    assert told[0]["report"]["verification"] == "VERIFIED"


FIX = {
    "4.80": {**changed("4.80", PLAN), "fix": PLAN},
    "Klarna": {"status": "UNSUPPORTED", "fix": ""},
}


def test_corrections_are_a_diff_and_are_written_to_the_file(here: Here, desk: Path) -> None:
    file = desk / "wrong.md"
    before = f"\ufeff{CANCEL}\r\n{WRONG} You can pay by Klarna.\r\n".encode()
    file.write_bytes(before)
    file.chmod(0o640)
    (desk / "link.md").symlink_to(file)
    key = {"OPENAI_API_KEY": "sk-judge"}
    with judge_double(answers=judging(by_words(FIX))) as judge:
        how = ("--context", "docs", "--judge", NAME, "--judge-base", judge.url)
        shown = here("check", "wrong.md", *how, cwd=desk, COLUMNS="200", **key)
        assert "costs [-4.80-]{+4.20+} euros" in shown.stdout
        assert "[-You can pay by Klarna.-]" in shown.stdout
        done = here("check", "wrong.md", *how, "--fix", "--fail-on", "high", cwd=desk, **key)
        assert file.read_bytes() == before
        told = here("check", "wrong.md", *how, "--json", cwd=desk, **key)
        calls = len(judge.requests)
        written = here("check", "link.md", *how, "--fix", "--write", cwd=desk, **key)
        # The first reading is in memory.
        assert len(judge.requests) == calls + 1
        again = here("check", "wrong.md", *how, "--fix", "--write", cwd=desk, **key)
    assert done.returncode == 1
    assert done.stdout == (
        f"--- a/wrong.md\n+++ b/wrong.md\n@@ -1,2 +1,2 @@\n \ufeff{CANCEL}\r\n"
        f"-{WRONG} You can pay by Klarna.\r\n+{PLAN}\r\n"
    )
    assert json.loads(told.stdout)["answers"][0]["repair"]["text"] == f"{CANCEL}\n{PLAN}\n"
    assert written.returncode == 0
    assert "link.md: LOW after repair, HIGH before, 2 of 2 claims read" in written.stderr
    assert file.read_bytes() == f"\ufeff{CANCEL}\r\n{PLAN}\r\n".encode()
    assert file.stat().st_mode & 0o777 == 0o640
    assert (desk / "link.md").is_symlink()
    assert (again.returncode, again.stdout) == (0, "")
    assert sorted(path.name for path in desk.glob(".*")) == []


@pytest.mark.parametrize(
    ("words", "judged", "said"),
    [
        (("--fix",), False, "--fix needs a judge"),
        (("--fix", "--write"), False, "--fix needs a judge"),
        (("--fix", "--json"), False, "--fix needs a judge"),
        (("--fix", "--write"), True, "2.html is no text or Markdown; leave --write out"),
    ],
)
def test_corrections_that_cannot_be_made_are_refused_before_the_first_call(
    here: Here, desk: Path, words: tuple[str, ...], judged: bool, said: str
) -> None:
    (desk / "answers").mkdir()
    for name in ("1.md", "2.html", "3.md"):
        (desk / "answers" / name).write_text(f"{WRONG}\n")
    with judge_double(answers=judging(by_words(FIX))) as judge:
        how = ("--judge", NAME, "--judge-base", judge.url) if judged else ()
        key = {"OPENAI_API_KEY": "sk-judge"}
        done = here("check", "answers", "--context", "docs", *how, *words, cwd=desk, **key)
        assert judge.requests == []
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert (desk / "answers" / "1.md").read_text() == f"{WRONG}\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_diff_of_another_encoding_is_refused_and_a_write_keeps_it(
    here: Here, desk: Path, encoding: str
) -> None:
    file, key = desk / "wrong.md", {"OPENAI_API_KEY": "sk-judge"}
    file.write_bytes(f"{CANCEL}\r\n{WRONG}\r\n".encode(encoding))
    with judge_double(answers=judging(by_words(FIX))) as judge:
        how = ("--context", "docs", "--judge", NAME, "--judge-base", judge.url, "--fix")
        done = here("check", "wrong.md", *how, cwd=desk, **key)
        refused = encoding != "utf-8"
        assert (done.returncode, not judge.requests) == (2 * refused, refused)
        assert ("wrong.md is utf-16-le, and a diff is UTF-8" in done.stderr) is refused
        here("check", "wrong.md", *how, "--write", cwd=desk, **key)
    assert file.read_bytes() == f"{CANCEL}\r\n{PLAN}\r\n".encode(encoding)


def test_a_repair_that_reads_no_better_is_not_written(here: Here, desk: Path) -> None:
    second = {"status": "UNSUPPORTED", "quotes": []}
    with judge_double(answers=judging(by_words({**FIX, "4.20": second}))) as judge:
        how = ("--context", "docs", "--judge", NAME, "--judge-base", judge.url)
        key = {"OPENAI_API_KEY": "sk-judge"}
        (desk / "wrong.md").write_text(f"{CANCEL}\n{WRONG}\n")
        before = (desk / "wrong.md").read_bytes()
        done = here("check", "wrong.md", *how, "--fix", "--write", cwd=desk, **key)
    assert "not written: that is no better" in done.stderr
    assert (desk / "wrong.md").read_bytes() == before


@pytest.mark.parametrize("kind", ["internal", "[", "no such kind"])
def test_front_matter_is_not_corrected(here: Here, desk: Path, kind: str) -> None:
    head = f'---\nkind: {kind}\ntitle: "{WRONG}"\nnote: {KLARNA}\n---\n'
    (desk / "page.md").write_text(f"{head}\n{WRONG} {KLARNA}\n")
    with judge_double(answers=judging(by_words(FIX))) as judge:
        how = ("--context", "docs", "--judge", NAME, "--judge-base", judge.url)
        key = {"OPENAI_API_KEY": "sk-judge"}
        told = here("check", "page.md", *how, "--json", cwd=desk, **key)
        done = here("check", "page.md", *how, "--fix", "--write", cwd=desk, **key)
    assert (desk / "page.md").read_text() == f"{head}\n{PLAN}\n"
    assert json.loads(told.stdout)["answers"][0]["repair"]["text"] == f"{head}\n{PLAN}\n"
    assert "page.md: stays wrong, " in done.stderr


def test_a_file_that_changed_is_not_written(desk: Path) -> None:
    file, answer = desk / "wrong.md", f"{CANCEL}\n{WRONG}\n"
    case = Case(answer, [PLAN])
    fix = {"status": "CONTRADICTED", "quotes": [{"in": "1", "text": PLAN}], "wrong": "4.80"}
    rows = [{"n": 1, "status": "UNSUPPORTED"}, {"n": 2, **fix, "fix": PLAN}]
    report = case.judged(saying(*rows))
    checked = check.CheckedAnswer("wrong.md", str(file), answer, {}, report)
    with pytest.raises(RequestError, match="has changed since it was read"):
        check._write_repair(checked)
    file.write_text(answer)
    check._write_repair(checked)
    assert file.read_text() == f"{CANCEL}\n{PLAN}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("right.md", "--context", "docs", "--write"), "give it with --fix"),
        (("-", "--context", "docs", "--fix", "--write"), "a file or a folder"),
        ((), "give either ANSWER with --context, or --watch"),
        (("right.md",), "--context is missing"),
        (("right.md", "--watch", "run.jsonl"), "give either ANSWER"),
        (("--watch", "run.jsonl", "--context", "docs"), "takes context and question from the log"),
        (("none.md", "--context", "docs"), "none.md does not exist"),
        (("right.md", "--context", "none"), "none does not exist"),
        (("right.md", "--context", ""), "--context is empty"),
        (("right.md", "--context", "blank.md"), "blank.md is empty"),
        (("--watch", "blank.md"), "contains no text"),
        (("--watch", "run.jsonl"), "line 1 of 'run.jsonl': it is not a JSON object"),
        (("--watch", "list.jsonl"), "line 1 of 'list.jsonl': it is not a JSON object"),
        (
            ("--watch", "answer.jsonl"),
            "answer: Input should be a valid string; wanted an object",
        ),
        (("--watch", "context.jsonl"), "context: Field required; wanted"),
        (("--watch", "question.jsonl"), "question: Input should be a valid string"),
        (("right.md", "--context", "docs", "--judge", "self"), "needs the model that answered"),
        (("right.md", "--context", "docs", "--judge-base", "http://x"), "needs --judge"),
        (("right.md", "--context", "docs", "--judge", "no-such-model"), "no-such-model"),
    ],
)
def test_bad_usage_is_one_sentence_and_status_2(
    here: Here, desk: Path, words: tuple[str, ...], said: str
) -> None:
    (desk / "blank.md").write_text(" \n")
    (desk / "run.jsonl").write_text("{\n")
    (desk / "list.jsonl").write_text("5\n")
    for name, row in (
        ("answer", {"context": PLAN, "answer": 5}),
        ("context", {"answer": PLAN}),
        ("question", {"context": PLAN, "answer": PLAN, "question": 5}),
    ):
        (desk / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    done = here("check", *words, cwd=desk)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("crp: ") and said in line
