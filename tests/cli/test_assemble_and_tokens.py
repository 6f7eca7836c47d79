"""`crp assemble` and `crp tokens`: what they print, and what they refuse."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import count_tokens
from crp_integrations.engines.tokens import vocabularies
from crp_integrations.envelope.cfs.records import AssembledContext
from tests.cli.conftest import Here
from tests.cli.test_ask import PAGE

QUERY = "How much power does the Meridian reactor deliver?"
FIXED = {"CRP_CLOCK": "2026-05-25T12:00:00Z", "CRP_KEY": "cd" * 32}


@pytest.fixture
def kb(here: Here, tmp_path: Path) -> Path:
    (tmp_path / "meridian.md").write_text(PAGE)
    assert here("ingest", "meridian.md", "--store", "kb", cwd=tmp_path, **FIXED).returncode == 0
    return tmp_path


def test_assemble_prints_the_context_and_what_was_counted(here: Here, kb: Path) -> None:
    shown = here("assemble", QUERY, "--store", "kb", cwd=kb, **FIXED)
    assert shown.returncode == 0, shown.stderr
    assert f"[DOC: {(kb / 'meridian.md').as_posix()}]" in shown.stdout
    for part in ("412 megawatts", "Context: greedy", "of 1200", "blake3:", "tiktoken:"):
        assert part in shown.stdout


def test_assemble_json_is_the_record(here: Here, kb: Path) -> None:
    options = ["--store", "kb", "--budget", "840", "--packing", "interleaved",
               "--model", "gpt-4o", "--json"]  # fmt: skip
    shown = [here("assemble", QUERY, *options, cwd=kb, **FIXED).stdout for _ in range(2)]
    assert shown[0] == shown[1]
    context = AssembledContext.model_validate(json.loads(shown[0]))
    assert (context.packing, context.budget.available) == ("interleaved", 40)
    assert context.rendered_tokens <= 40


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--packing", "random"], "packing 'random' is not usable"),
        (["--budget", "-5"], "budget is -5"),
        (["--store", "nowhere"], "there is no store"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    here: Here, kb: Path, words: list[str], sentence: str
) -> None:
    place = [] if "--store" in words else ["--store", "kb"]
    said = here("assemble", QUERY, *words, *place, cwd=kb, **FIXED)
    assert said.returncode == 1
    assert sentence in said.stderr
    assert len(said.stderr.splitlines()) == 1
    assert said.stdout == ""


TEXT = "The harbour board approved a revised budget of $4.2 million.\n— Umleitungsgebühren, 港务\n"
ASKED: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Who pays?"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "look_up", "description": "Looks it up."}}],
}


@pytest.mark.requirement("003-10.1-4")
@pytest.mark.parametrize(
    ("model", "worth"),
    [
        ("gpt-4o", "exact: tiktoken o200k_base from litellm"),
        ("azure/gpt-4o", "family: tiktoken o200k_base from litellm"),
        (
            "claude-3-opus",
            "estimate: tiktoken o200k_base from litellm × 1.18 for Claude 3 and 4",
        ),
    ],
)
def test_a_text_is_counted_and_the_count_says_what_it_is_worth(
    model: str, worth: str, here: Here, tmp_path: Path
) -> None:
    (tmp_path / "note.txt").write_text(TEXT, encoding="utf-8")
    done = here("tokens", "--model", model, "note.txt", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{count_tokens(TEXT, model).n} tokens ({worth})\n"


def test_json_is_the_record(here: Here, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text(TEXT, encoding="utf-8")
    done = here("tokens", "--model", "gpt-4", "note.txt", "--json", cwd=tmp_path)
    assert json.loads(done.stdout) == count_tokens(TEXT, "gpt-4").model_dump(mode="json")


def test_standard_input_is_read(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    done = here("tokens", "--model", "gpt-4o", "-", cwd=tmp_path)
    assert done.stdout.startswith(f"{count_tokens(TEXT, 'gpt-4o').n} tokens (exact")


@pytest.mark.parametrize("whole", [True, False])
def test_messages_are_counted_with_what_stands_around_them(
    whole: bool, here: Here, tmp_path: Path
) -> None:
    given = ASKED if whole else ASKED["messages"]
    (tmp_path / "asked.json").write_text(json.dumps(given), encoding="utf-8")
    tools = ASKED["tools"] if whole else []
    count = count_tokens(ASKED["messages"], "gpt-4o", tools=tools)
    done = here("tokens", "--model", "gpt-4o", "asked.json", cwd=tmp_path)
    beside = " and for 1 tool" if whole else ""
    assert done.stdout.splitlines() == [
        f"{count.n} tokens (exact: tiktoken o200k_base from litellm)",
        f"{count.overhead} of them around 2 messages{beside}",
    ]
    assert count.overhead == count.n - count_tokens("Be brief.Who pays?", "gpt-4o").n
    # As text, the file is no conversation.
    done = here("tokens", "--model", "gpt-4o", "asked.json", "--text", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["n"] == count_tokens(json.dumps(given), "gpt-4o").n


@pytest.mark.parametrize(
    "text",
    ["[1, 2, 3]", "{}", "[", '[{"id": 1}]', '{"messages": 5}', '{"messages": []}', "[]", "null"],
)
def test_json_that_is_no_conversation_is_a_text(text: str, here: Here, tmp_path: Path) -> None:
    (tmp_path / "some.json").write_text(text, encoding="utf-8")
    done = here("tokens", "--model", "gpt-4o", "some.json", cwd=tmp_path)
    assert done.stdout.splitlines()[1:] == []
    assert done.stdout.startswith(f"{count_tokens(text, 'gpt-4o').n} tokens")


def test_the_environments_tokenizer_file_is_used(here: Here, tmp_path: Path) -> None:

    found = vocabularies.find_vocabulary(vocabularies.CL100K)
    assert found is not None
    (tmp_path / "own.tiktoken").write_bytes(found.data)
    (tmp_path / "note.txt").write_text(TEXT, encoding="utf-8")
    own = json.dumps({"our/model": "own.tiktoken"})
    done = here("tokens", "--model", "our/model", "note.txt", cwd=tmp_path, CRP_TOKENIZER_FILES=own)
    assert "(exact: tiktoken file own.tiktoken)" in done.stdout


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("gone.txt", None, "'gone.txt' cannot be read: No such file"),
        ("bytes.bin", b"abc\xff\xfe", "'bytes.bin' is no UTF-8 text: byte 3"),
        (
            "odd.json",
            b'[{"role": "robot", "content": "x"}]',
            "role 'robot' is not one of system, user, assistant, tool",
        ),
    ],
)
def test_trouble_is_one_sentence(
    name: str, data: bytes | None, problem: str, here: Here, tmp_path: Path
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    done = here("tokens", "--model", "gpt-4o", name, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("crp: ") and problem in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_model_is_needed(here: Here, tmp_path: Path) -> None:
    done = here("tokens", "note.txt", cwd=tmp_path)
    assert done.returncode == 2
    assert "--model" in done.stderr
