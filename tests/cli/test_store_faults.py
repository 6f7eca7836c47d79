"""What happens to a store under a command: two at once, a stop, damage, a lost key, a copy."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.cli.fabric import new_file
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.errors import ConfigError
from tests.cli.test_ask import KEY, PAGE, SESSION, files
from tests.commands import MODULE, command, process

FIXED = {"CRP_CLOCK": "2026-05-25T12:00:00Z", "CRP_KEY": KEY}
QUESTION = "Who operates the reactor?"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("trouble")
    (root / "docs").mkdir()
    (root / "docs" / "meridian.md").write_text(PAGE)
    done = command("ingest", "docs", "--store", "kb", cwd=root)
    assert (done.returncode, done.stderr) == (0, "")
    return root


@pytest.fixture
def kb(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "kb", tmp_path / "kb")
    return tmp_path / "kb"


def refused(done: subprocess.CompletedProcess[str], sentence: str) -> None:
    assert done.returncode == 1
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_two_questions_at_once_are_both_answered_and_chained(kb):
    asking = ["ask", QUESTION, "--store", "kb", "--session", SESSION, "--json"]
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: process(*asking, cwd=kb.parent), range(2)))
    assert [one.returncode for one in both] == [0, 0], both
    answers = sorted((json.loads(one.stdout) for one in both), key=lambda a: a["window_number"])
    assert [answer["window_number"] for answer in answers] == [1, 2]
    assert answers[1]["report"]["chain_integrity"] == "VALID"


def test_an_interrupted_ingestion_says_so_and_leaves_the_store(here, kb, monkeypatch):
    def interrupted(self, texts):
        raise KeyboardInterrupt

    monkeypatch.setattr(OnnxEmbedder, "embed_passages", interrupted)
    (kb.parent / "more.md").write_text(PAGE.replace("Meridian", "Aurora"))
    before = files(kb)
    done = here("ingest", "more.md", "--store", "kb", cwd=kb.parent)
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1].startswith("crp: interrupted")
    assert files(kb) == before


@pytest.mark.parametrize(
    "command", [["ask", QUESTION], ["ask", QUESTION, "--preview"], ["ingest", "docs"]]
)
def test_a_damaged_database_is_named_and_left_alone(here, kb, command):
    (database,) = kb.rglob("*.sqlite")
    with database.open("r+b") as file:
        file.write(b"no database any more")
    shutil.copytree(kb, kb.parent / "docs")
    before = files(kb)
    refused(here(*command, "--store", "kb", cwd=kb.parent), "is damaged")
    assert files(kb) == before


@pytest.mark.parametrize("command", [["ask", QUESTION], ["ingest", "more.md"]])
def test_a_lost_key_is_not_replaced(here, kb, command):
    (kb.parent / "more.md").write_text(PAGE.replace("Meridian", "Aurora"))
    (kb / "keys").unlink()
    before = files(kb)
    refused(here(*command, "--store", "kb", cwd=kb.parent), "keys is missing")
    assert files(kb) == before


@pytest.mark.parametrize("content", [b"{}", b"\xff\xfe", b""])
def test_a_broken_key_file_is_named(here, kb, content):
    (kb / "keys").write_bytes(content)
    before = files(kb)
    refused(here("ask", QUESTION, "--store", "kb", cwd=kb.parent), "key file")
    assert files(kb) == before


def test_another_key_does_not_go_on_with_a_chain(here, kb):
    before = files(kb)
    refused(here("ask", QUESTION, "--store", "kb", cwd=kb.parent, CRP_KEY=KEY), "another key")
    assert files(kb) == before


def test_a_copied_store_goes_on_where_it_was(here, kb, tmp_path):
    asking = ["ask", QUESTION, "--session", SESSION, "--json", "--store"]
    assert here(*asking, "kb", cwd=tmp_path).returncode == 0
    shutil.copytree(kb, tmp_path / "elsewhere" / "copy")
    shutil.rmtree(kb)
    done = here(*asking, "elsewhere/copy", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["window_number"] == 2
    assert answer["report"]["chain_integrity"] == "VALID"


def without_secrets(said: dict[str, Any]) -> dict[str, Any]:
    """A document without what nobody can guess: the continuation id, and the token that names it."""
    said.pop("continuation_id", None)
    for name in ("CRP-Set-Session", "CRP-Context-Continuation-Id"):
        said.get("headers", {}).pop(name, None)
    return said


# Runs commands, one a line, and writes a line after what each of them says.
ONE_AFTER_ANOTHER = """
import json
import sys
from crp_integrations.cli.app import main
for line in sys.stdin:
    sys.argv = ["crp", *json.loads(line)]
    try:
        main()
    except SystemExit as leaving:
        assert not leaving.code, leaving.code
    print("{END}", flush=True)
"""
END = "=== end ==="


def test_new_stores_of_equal_documents_answer_the_same(made, tmp_path):
    outputs = []
    for seed in ("1", "2"):
        commands = (
            ["ingest", "docs", "--json"],
            ["ask", QUESTION, "--session", SESSION, "--json"],
            ["ask", "How much power?", "--session", SESSION, "--json"],
        )
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("CRP_")}
        done = subprocess.run(
            [sys.executable, "-c", ONE_AFTER_ANOTHER.replace("{END}", END)],
            input="".join(
                json.dumps([*command, "--store", str(tmp_path / seed)]) + "\n"
                for command in commands
            ),
            cwd=made,
            env={**inherited, "PYTHONHASHSEED": seed, **FIXED},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        *said, rest = done.stdout.split(END)
        assert (len(said), rest.strip()) == (len(commands), "")
        outputs.append([without_secrets(json.loads(one)) for one in said])
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    ("module", "command", "sentence"),
    [
        ("pypdf", ["ingest", "page.pdf"], "crp-integrations[pdf]"),
        (
            "litellm",
            ["ask", QUESTION, "--model", "anthropic/claude-haiku"],
            "crp-integrations[litellm]",
        ),
    ],
)
def test_a_missing_extra_is_named_with_its_pip_line(
    here, kb, monkeypatch, module, command, sentence
):
    (kb.parent / "page.pdf").write_bytes(b"%PDF-1.4")
    monkeypatch.delitem(sys.modules, "crp_integrations.loaders.pdf", raising=False)
    monkeypatch.delattr("crp_integrations.loaders.pdf", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    before = files(kb)
    refused(here(*command, "--store", "kb", cwd=kb.parent), sentence)
    assert files(kb) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CRP_KEY", "not-a-key-but-a-secret"),
        ("CRP_KEY", "ab" * 20),
        ("CRP_CLOCK", "yesterday"),
        ("CRP_MAX_WINDOWS", "0"),
        ("CRP_ENVELOPE", "{not json"),
        ("CRP_ENVELOPE__K_NEAREST", "many"),
    ],
)
def test_an_unusable_setting_is_named_and_a_key_never_shown(here, kb, name, value):
    before = files(kb)
    done = here("ask", QUESTION, "--store", "kb", cwd=kb.parent, **{name: value})
    refused(done, name.removeprefix("CRP_").lower().split("__")[0])
    if name == "CRP_KEY":
        assert value not in done.stderr
    assert files(kb) == before


@pytest.mark.parametrize("content", [b"modle = 1", b"model = = 1", b"\xff"])
def test_a_broken_settings_file_is_named(here, kb, content):
    (kb / "crp.toml").write_bytes(content)
    before = files(kb)
    refused(here("ask", QUESTION, "--store", "kb", cwd=kb.parent), "setting")
    assert files(kb) == before


def test_letters_that_are_no_text_are_refused(here, kb):
    done = here("ask", os.fsdecode(b"caf\xe9?"), "--store", "kb", cwd=kb.parent)
    refused(done, "query")


def test_odd_files_of_a_folder_are_skipped_and_named(here, tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "good.md").write_text(PAGE)
    (docs / "jinja.md").write_text("---\n{{ page }}\n---\n" + PAGE.split("---\n")[2])
    for number in range(6):
        (docs / f"empty{number}.md").write_text("")
    (docs / "tiny.md").write_text("See README.")
    done = here("ingest", "docs", "--store", "kb", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    first, second, *names = done.stdout.splitlines()
    assert "from 2 sources added to kb" in first
    assert second == "7 documents skipped: too little text for a fact"
    assert [name.rpartition("/")[2] for name in names] == [
        *(f"empty{number}.md" for number in range(5)),
        "  and 2 more",
    ]
    assert "file:" not in done.stdout
    told = json.loads(here("ingest", "docs", "--store", "kb", "--json", cwd=tmp_path).stdout)
    assert (len(told["skipped"]), len(told["unchanged"])) == (7, 2)
    assert told["skipped"][-1] == (docs / "tiny.md").as_uri()


def ended(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What a shell says to a command of `crp`."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("CRP_")}
    return subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", command.replace("crp ", RUN, 1)],
        cwd=cwd,
        env=inherited,
        capture_output=True,
        text=True,
        timeout=240,
    )


RUN = f"{sys.executable} -m {MODULE} "


@pytest.mark.parametrize(
    "command",
    [["fabric", "export", "--store", "kb"], ["conformance"], ["--help"]],
)
def test_an_output_on_a_full_disk_is_one_sentence_and_a_status(kb, command):
    with Path("/dev/full").open("wb") as full:
        done = process(*command, cwd=kb.parent, stdout=full.fileno())
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("crp: the output cannot be written")
    assert line.endswith("No space left on device")


def test_a_file_on_a_full_disk_is_named_and_removed(tmp_path):
    place = tmp_path / "facts.jsonl"
    full = OSError(errno.ENOSPC, "No space left on device")

    def export() -> None:
        with new_file(str(place)) as file:
            file.write("a line\n")
            raise full

    with pytest.raises(ConfigError, match=r"facts.jsonl' cannot be written: No space left"):
        export()
    assert not place.exists()


@pytest.mark.parametrize("command", ["fabric export --store kb", "conformance"])
def test_a_pipe_that_nobody_reads_is_quiet(kb, command):
    read, write = os.pipe()
    os.close(read)
    try:
        done = process(*command.split(), cwd=kb.parent, stdout=write)
    finally:
        os.close(write)
    assert done.stderr == ""
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("command", "chosen"),
    [
        ("ask 'What family?'", {"PYTHONIOENCODING": "ascii"}),
        ("fabric export", {"LC_ALL": "C"}),
    ],
)
def test_an_output_without_a_letter_for_it_is_written(here, tmp_path, command, chosen):
    (tmp_path / "family.md").write_text(
        "The \u05de\u05e9\u05e4\u05d7\u05d4 \U0001f468\u200d\U0001f469 is a family, and this is a fact.",
        encoding="utf-8",
    )
    plain = {**chosen, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert here("ingest", "family.md", "--store", "kb", cwd=tmp_path).returncode == 0
    words = shlex.split(command)
    done = process(*words, "--store", "kb", cwd=tmp_path, **plain)
    assert (done.returncode, done.stderr) == (0, "")
    if "LC_ALL" in chosen:
        assert "\u05de\u05e9\u05e4\u05d7\u05d4" in done.stdout
        assert all(json.loads(line) for line in done.stdout.splitlines())


def test_without_an_output_a_command_does_what_it_does(kb):
    (kb.parent / "more.md").write_text(PAGE.replace("Meridian", "Aurora"))
    done = ended("crp ingest more.md --store kb >&-", cwd=kb.parent)
    assert (done.returncode, done.stderr) == (0, "")
