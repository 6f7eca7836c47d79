"""`crp memory lint` on files, folders, input and stores: what is wrong, where, and the status."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from crp_integrations import Relay
from crp_integrations.fabric.records import MEMORY_KEY, Fact
from crp_integrations.governance.memory_items import as_fact, item
from crp_integrations.guard.decisions import Subject
from tests.cli.conftest import Here
from tests.cli.test_ask import KEY
from tests.doubles import HashEmbedder

TEXT = "The boiler in hall four was inspected in spring and found sound."
EXPECTED = "Expecting property name enclosed in double quotes"
FIXED = {"CRP_KEY": KEY}


def fields(number: int = 1, **more: Any) -> dict[str, Any]:
    given = {
        "id": str(UUID(int=number, version=4)),
        "type": "episodic",
        "scope": {"tenant": "local"},
        "created_at": "2026-05-25T10:00:00Z",
        "updated_at": "2026-05-25T10:00:00Z",
        "confidence": 0.9,
        "provenance": {"source_uri": "turn:1"},
        "security_label": ["class:internal"],
        "content": TEXT,
    }
    return {**given, **more}


def lines(*items: dict[str, Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in items)


@pytest.mark.requirement("SUM-write-4")
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"security_label": []}, "security_label: has no label; wanted at least one, such as "),
        ({"scope": "local"}, "scope: wanted an object"),
        ({"id": 5}, "id: wanted a text"),
        ({"confidence": "high"}, "confidence: wanted a number"),
        ({"confidence": 2}, "confidence: wanted less than or equal to 1"),
        ({"type": "vague"}, "type: wanted 'episodic', 'procedural' or 'semantic'"),
        ({"created_at": "yesterday"}, "created_at: wanted a time such as 2026-05-25T10:00:00Z"),
        ({"content": None}, "content: wanted a text, an object or a list"),
        ({"content": " "}, "item: content is empty"),
        ({"vague": 1}, "vague: is not a field of a memory item"),
        ({"category": "vague"}, "item: category 'vague' of episodic is not in: transcript, "),
    ],
)
def test_each_fault_is_said_with_what_was_wanted(
    here: Here, tmp_path: Path, wrong: dict[str, Any], said: str
) -> None:
    (tmp_path / "items.jsonl").write_text(lines(fields(1), fields(2, **wrong)))
    done = here("memory", "lint", "items.jsonl", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    first, last = done.stdout.splitlines()
    assert first.startswith(f"items.jsonl:2: memory item is refused: {said}"), first
    assert last == "2 items, 1 refused"
    for alien in ("Input should be", "Value error", "Tuple", "dictionary", "instance of"):
        assert alien not in done.stdout


def test_what_is_no_item_is_told_by_its_line_and_the_rest_is_looked_at(
    here: Here, tmp_path: Path
) -> None:
    twice = json.dumps(fields(4))[:-1] + ', "security_label": ["class:public"]}\n'
    file = tmp_path / "items.jsonl"
    file.write_bytes(
        b"\xef\xbb\xbf"
        + lines(fields(1)).encode()
        + b'\n{"a": 1,\r\n'
        + '{"content": "caf\u00e9"}\n'.encode("latin-1")
        + twice.encode()
        + lines(fields(5)).encode().replace(b"\n", b"\r\n")
        + b'{"confidence": %s}\n' % (b"9" * 5_000)
    )
    done = here("memory", "lint", "items.jsonl", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"items.jsonl:3: is not a JSON object: {EXPECTED} at column 9",
        "items.jsonl:4: is not valid UTF-8 at byte 16",
        "items.jsonl:5: has two fields of the same name in an object",
        "items.jsonl:7: is not a JSON object",
        "6 items, 4 refused",
    ]


def test_a_list_and_a_drawn_out_object_are_items_as_well(here: Here, tmp_path: Path) -> None:
    listed = [fields(1), fields(2, security_label=[]), 5]
    (tmp_path / "list.json").write_text(json.dumps(listed, indent=1))
    (tmp_path / "one.json").write_text(json.dumps(fields(3), indent=1))
    done = here("memory", "lint", "list.json", "one.json", cwd=tmp_path)
    assert done.returncode == 1
    second, third, count = done.stdout.splitlines()
    assert second.startswith("list.json[2]: memory item is refused: security_label")
    assert third == "list.json[3]: is not a JSON object"
    assert count == "4 items, 2 refused"


def test_an_id_with_another_content_is_refused_as_a_writer_does(here: Here, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines(fields(1), fields(1, confidence=0.5)))
    (tmp_path / "b.jsonl").write_text(lines(fields(1, content=TEXT.upper())))
    assert here("memory", "lint", "a.jsonl", cwd=tmp_path).stdout == "2 items, 0 refused\n"
    done = here("memory", "lint", "a.jsonl", "b.jsonl", cwd=tmp_path)
    assert done.returncode == 1
    said = "b.jsonl:1: memory item is refused: id is that of a.jsonl:1, which has different content"
    assert done.stdout.splitlines()[0] == said


def test_a_folder_is_its_files(here: Here, tmp_path: Path) -> None:
    (tmp_path / "items" / "deep").mkdir(parents=True)
    (tmp_path / "items" / "deep" / "b.ndjson").write_text(lines(fields(1, security_label=[])))
    (tmp_path / "items" / "a.jsonl").write_text(lines(fields(2)))
    (tmp_path / "items" / "README.md").write_text("no item")
    done = here("memory", "lint", "items", cwd=tmp_path)
    assert done.returncode == 1
    first, last = done.stdout.splitlines()
    assert first.startswith(f"{Path('items', 'deep', 'b.ndjson')}:1: ")
    assert last == "2 items, 1 refused"


def test_standard_input_and_a_json_report(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = lines(fields(1), fields(2, security_label=[]))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
    done = here("memory", "lint", "-", "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert done.returncode == 1
    assert (told["items"], told["refused"]) == (2, 1)
    (problem,) = told["problems"]
    assert problem["place"] == "-:2"
    assert "has no label" in problem["problem"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to check; give FILE, a folder of files, or --store"),
        (["missing"], "'missing' cannot be read: No such file or directory"),
        (["nul\0"], r"'nul\x00' cannot be read: not a usable path"),
        (["folder"], "folder 'folder' has no file of memory items; wanted one that ends in .json"),
        (["empty", "empty"], "there is no memory item in empty, empty, so nothing was checked"),
        (["empty", "--tenant", "acme"], "--tenant needs --store"),
        (["--store", "missing"], "there is no store at 'missing'"),
    ],
)
def test_what_cannot_be_looked_at_is_one_sentence(
    here: Here, tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").write_text("\n")
    done = here("memory", "lint", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"crp: {said}")
    assert len(done.stderr.splitlines()) == 1


def test_a_name_of_a_field_does_not_steer_the_terminal(here: Here, tmp_path: Path) -> None:
    odd = "\x1b[31m" + "x" * 5_000
    (tmp_path / "items.jsonl").write_text(lines(fields(1, **{odd: 1})))
    done = here("memory", "lint", "items.jsonl", cwd=tmp_path)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert len(done.stdout) < 300


def test_the_items_of_a_store(here: Here, tmp_path: Path) -> None:
    acme = Subject(tenant="acme")
    options = {"key": KEY, "embedder": HashEmbedder()}
    with Relay.open(tmp_path / "kb", subject=acme, **options) as relay:
        whole = as_fact(item(fields(1, scope={"tenant": "acme"})))
        relay.fabric.add([whole.changed(namespace="acme"), f"No item: {TEXT}"])
        told = {**whole.metadata[MEMORY_KEY], "confidence": "high"}
        bad = Fact(content=TEXT.upper(), namespace="acme", metadata={MEMORY_KEY: told})
        (id_,) = relay.fabric.add([bad]).facts
    patched = pytest.MonkeyPatch()
    patched.setattr("crp_integrations.relay.defaults.default_embedder", HashEmbedder)
    with patched.context():
        done = here("memory", "lint", "--store", "kb", "--tenant", "acme", cwd=tmp_path, **FIXED)
        other = here("memory", "lint", "--store", "kb", "--tenant", "other", cwd=tmp_path, **FIXED)
    patched.undo()
    assert done.returncode == 1, done.stderr
    said = (
        f"kb: fact {id_} stores no valid memory item: memory item is refused: confidence: wanted a"
    )
    first, last = done.stdout.splitlines()
    assert first.startswith(said)
    assert last == "2 items, 1 refused"
    assert TEXT.upper() not in done.stdout
    assert other.returncode == 1
    assert "tenant 'other' has nothing in this store" in other.stderr
