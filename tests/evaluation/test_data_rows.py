"""Every bench says of a file that it cannot use which one and which line, and measures no other."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.errors import RequestError
from crp_integrations.evaluation.data_sets import each, rows, rows_of, text_in
from tests.bench import compaction, embedder, injection, pii, sentences, windows
from tests.bench.distortions import __main__ as distortions
from tests.bench.verifier_systems import read as verifier_cases


def packed(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(text)
    return path


def test_rows_come_with_their_lines_and_blank_lines_are_none(tmp_path: Path) -> None:
    file = packed(tmp_path / "a.jsonl.gz", '{"a": 1}\n\n{"a": 2}\n')
    assert list(rows(file)) == [(f"{file} line 1", {"a": 1}), (f"{file} line 3", {"a": 2})]
    assert rows_of(file) == [{"a": 1}, {"a": 2}]
    assert list(each(file, "a", lambda row: row["a"] + 1)) == [2, 3]


@pytest.mark.parametrize("line", ["[1]", "nothing", "{", "1" * 5000, "[" * 100_000])
def test_a_line_that_is_no_object_is_named(tmp_path: Path, line: str) -> None:
    file = packed(tmp_path / "a.jsonl.gz", '{"a": 1}\n' + line)
    with pytest.raises(RequestError, match=r"a\.jsonl\.gz line 2 is not a JSON object"):
        rows_of(file)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file or directory$"),
        (b"text", "not a JSON object"),
        (gzip.compress(b'{"a": 1}\n' * 9)[:-9], "ended before"),
        (gzip.compress(b'{"a": "\xff"}'), "utf-8"),
        (gzip.compress(b"{}")[:12] + b"\x99" * 9, "."),
    ],
    ids=["missing", "plain", "cut", "bytes", "damaged"],
)
def test_a_file_that_cannot_be_read_is_named_once(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    file = tmp_path / "a.jsonl.gz"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(RequestError, match=why) as raised:
        rows_of(file)
    assert str(raised.value).count(str(file)) == 1


def test_a_plain_file_is_read_as_well(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"a": 1}\n', encoding="utf-8")
    assert rows_of(file) == [{"a": 1}]


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="holds no rows"):
        rows_of(packed(tmp_path / "a.jsonl.gz", "\n\n"))


def test_a_text_is_one_that_says_something() -> None:
    assert text_in({"a": "b"}, "a", "here") == "b"
    for row in ({}, {"a": 5}, {"a": " "}):
        with pytest.raises(RequestError, match=r"here: a is .*, wanted a text"):
            text_in(row, "a", "here")


@pytest.mark.parametrize(
    ("read", "form"),
    [
        (pii.read, "text, spans"),
        (sentences.read, "document, sentence"),
        (verifier_cases, "answer, context, hallucinated, or with claim, evidence, label"),
        (lambda path: list(compaction.answers(path)), "query, answers"),
    ],
    ids=["pii", "sentences", "verifier", "compaction"],
)
@pytest.mark.parametrize("row", [{"other": 1}, {"text": 5, "spans": [5], "answer": 3}], ids=str)
def test_a_row_of_another_form_is_named_with_the_form(
    tmp_path: Path, read: Any, form: str, row: dict[str, Any]
) -> None:
    file = packed(tmp_path / "a.jsonl.gz", json.dumps(row))
    with pytest.raises(RequestError, match=rf"a\.jsonl\.gz line 1 is not an object with {form}"):
        read(file)


def test_a_set_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"documents\.jsonl\.gz cannot be read"):
        embedder.measure(tmp_path, None, 512)  # type: ignore[arg-type]


@pytest.mark.parametrize("main", [distortions.main, windows.main], ids=["distortions", "windows"])
def test_a_folder_without_a_set_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main: Any
) -> None:
    # What this Python holds was measured instead, without a word.
    for module in (distortions, windows):
        monkeypatch.setattr(module, "has_one_thread", lambda: True)
    with pytest.raises(SystemExit, match=r"^crp: .* has none of the sets hotpot, .*; give the fol"):
        main(["--data", str(tmp_path)])


@pytest.mark.parametrize("name", ["pii", "sentences", "injection", "compaction"])
def test_the_command_ends_with_a_sentence(tmp_path: Path, name: str) -> None:
    odd = json.dumps({"other": 1})
    main: Any
    main, data, file = {
        "pii": (pii.main, "a.gz", "a.gz"),
        "sentences": (sentences.main, ".", "sentences/ewt_dev.jsonl.gz"),
        "injection": (injection.main, ".", "set/documents.jsonl.gz"),
        "compaction": (compaction.main, ".", "rot/a.jsonl.gz"),
    }[name]
    packed(tmp_path / file, odd)
    with pytest.raises(SystemExit, match=r"^crp: .* line 1 is not an object with "):
        main(["--data", str(tmp_path / data)])
