"""Refusals of empty options, unusable files, unknown names and closed outputs, a sentence each."""

from __future__ import annotations

import errno
import io
import json
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.cli.fabric import write_bytes
from crp_integrations.errors import ConfigError
from crp_integrations.observability.evaluations import Evaluation, EvaluationLog
from crp_integrations.receipt.records import write
from tests.cli.conftest import Here
from tests.cli.test_ask import KEY, SESSION

FACT = "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts."
QUESTION = "When was the Meridian reactor commissioned?"
OLD = ("--since", "2026-01-01T00:00:00Z")


@pytest.fixture(scope="module")
def kb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("wrong") / "kb"
    with Relay.open(root, key=KEY) as relay:
        relay.add([FACT])
        relay.ask(QUESTION, model="extractive", session_id=SESSION)
    return root


@pytest.fixture
def run(here: Here, kb: Path, tmp_path: Path) -> Any:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x80")
    (tmp_path / "list.json").write_text("[]\n")
    (tmp_path / "golden.jsonl").write_text(
        json.dumps({"id": "a", "question": QUESTION, "sources": ["a.md"]}) + "\n"
    )

    def ran(*words: str) -> Any:
        return here(*words, "--store", str(kb), cwd=tmp_path, CRP_KEY=KEY)

    return ran


def sentence(done: Any) -> str:
    """The one line on standard error of a command that was refused."""
    assert done.returncode == 1, done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("crp: ")
    return str(line.removeprefix("crp: "))


def window(run: Any) -> str:
    shown = json.loads(run("audit", "show", SESSION, "--json").stdout)
    return str(shown["windows"][0]["window_id"])


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_last_line_without_its_end_stays_a_line(tmp_path: Path, end: str) -> None:
    log = EvaluationLog(tmp_path / "log.jsonl")
    one, other = (Evaluation(window_id=f"crp_win_{name}") for name in "ab")
    log.add(one)
    log.path.write_text(log.path.read_text().rstrip("\n") + end)
    log.add(other)
    assert list(log.read()) == [one, other]
    assert log.path.read_text().count("\n") == 2


def test_a_bundle_that_cannot_be_written_whole_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.BytesIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    made = Path.open

    def opened(path: Path, mode: str) -> Any:
        made(path, mode).close()
        return Full()

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(ConfigError, match="bundle' cannot be written: No space left on device"):
        write_bytes(b"bytes", str(tmp_path / "bundle"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("audit", "verify"),
        ("audit", "show"),
        ("audit", "export"),
        ("slo",),
        ("slo", "--bundle", "made.tar.gz"),
        ("eval", "drift", "golden.jsonl"),
    ],
)
def test_a_tenant_that_nobody_is_is_refused(
    run: Any, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = run(*words, "--tenant", "nobody")
    assert sentence(done) == "tenant 'nobody' has nothing in this store"
    assert done.stdout == ""
    assert not (tmp_path / "made.tar.gz").exists()


def test_an_export_of_what_nobody_asked_is_refused(run: Any, tmp_path: Path) -> None:
    whole = ("audit", "export", "--out", "trail")
    for form in ("ndjson", "ocsf"):
        said = sentence(run(*whole, "--format", form, "--session", "nobody's"))
        assert said == 'this trail has no event of session "nobody\'s"'
        said = sentence(run(*whole, "--format", form, "--session", SESSION, "--window", "x"))
        assert said == f"this trail has no event of session {SESSION!r} and window 'x'"
        assert not (tmp_path / "trail").exists()
    assert run(*whole, "--window", window(run)).returncode == 0
    # Of a session that is there, a time or a type may leave nothing.
    chosen = ("--session", SESSION, "--until", "2001-01-01T00:00:00Z")
    assert run("audit", "export", *chosen).returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--since", "yesterday"),
            "time 'yesterday' is not ISO 8601, such as 2026-05-25T00:00:00Z",
        ),
        (
            ("--since", "2026-05-25"),
            "time '2026-05-25' has no time zone; wanted one such as 2026-05-25T",
        ),
        (
            (*OLD, "--until", "2025-01-01T00:00:00Z"),
            "since 2026-01-01T00:00:00+00:00 is not before ",
        ),
        ((*OLD, "--until", OLD[1]), "since 2026-01-01T00:00:00+00:00 is not before until 2026-"),
    ],
)
def test_a_time_that_chooses_nothing_is_refused(
    run: Any, words: tuple[str, ...], said: str
) -> None:
    assert sentence(run("audit", "export", *words)).startswith(said)


def test_the_time_that_a_refusal_names_is_taken(run: Any) -> None:
    said = sentence(run("audit", "export", "--since", "2026-05-25"))
    assert run("audit", "export", "--since", said.rpartition(" ")[2]).returncode == 0


def test_a_doctor_counts_one_as_one(run: Any) -> None:
    said = run("fabric", "doctor").stdout
    assert said.startswith("1 fact, 1 source and "), said


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty")
    with Relay.open(folder / "kb", key=KEY) as relay:
        relay.add([FACT])
        answer = relay.ask(QUESTION, model="extractive", session_id=SESSION)
        receipt = relay.receipt(answer.receipt_id)
        assert receipt is not None
        (folder / "answer.json").write_bytes(write(receipt))
    return folder


@pytest.mark.parametrize(
    ("words", "name"),
    [
        # Each of these went on, and was another command than the one that was meant.
        (["receipt", "verify", "answer.json", "--key", ""], "--key"),
        (["receipt", "verify", "answer.json", "--proof", "", "--head", ""], "--proof"),
        (["ask", QUESTION, "--store", "kb", "--model", "extractive", "--policy", ""], "--policy"),
        (["fabric", "stats", "--store", "kb", "--tenant", ""], "--tenant"),
        (["fabric", "stats", "--store", "kb", "--shared="], "--shared"),
        (["audit", "verify", "--store", "kb", "--file", ""], "--file"),
        (["audit", "export", "--store", "kb", "--since", ""], "--since"),
        (["audit", "show", "", "--store", "kb"], "session"),
        (["receipt", "show", "--store", "kb", "--session", ""], "--session"),
        (["guard", "--bundle", ""], "--bundle"),
        (["receipt", "replay", "answer.json", "--without", ""], "--without"),
        (["memory", "lint", ""], "FILE"),
    ],
)
def test_an_empty_text_is_refused_by_the_options_name(
    here: Here, world: Path, words: list[str], name: str
) -> None:
    done = here(*words, cwd=world, CRP_KEY=KEY)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"crp: {name} is empty; give ")
