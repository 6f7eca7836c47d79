"""Long files and large folders: the same documents, and never the whole of them in memory."""

from __future__ import annotations

import codecs
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.errors import IngestError
from crp_integrations.fabric.records import Document, StreamedDocument
from crp_integrations.loaders import documents as load_module
from crp_integrations.loaders import text as text_module
from crp_integrations.loaders.documents import load_path
from crp_integrations.loaders.files import decode, decode_pieces
from crp_integrations.loaders.text import split_paragraphs, stream_paragraphs

PIECE = st.sampled_from(
    [
        "word",
        " ",
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        "\f",
        "\t",
        "ü",
        "漢字",
        "🙂",
        " \n \n",
        "x" * 40,
        ".",
    ]
)
TEXT = st.lists(PIECE, max_size=40).map("".join)


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything above a hundred bytes is long."""
    monkeypatch.setattr(load_module, "MAX_IN_MEMORY", 100)
    monkeypatch.setattr(load_module, "MAX_WHOLE_FILE", 4_000)


@settings(max_examples=150)
@given(TEXT, st.integers(1, 9), st.sampled_from([8, 30, 1_000_000]))
def test_paragraphs_of_pieces_are_those_of_the_whole(text: str, size: int, longest: int) -> None:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "_MAX_PARAGRAPH", longest)
        whole = split_paragraphs(text)
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        assert list(stream_paragraphs(pieces)) == whole
        for block in whole:
            assert text[block.start : block.end] == block.text
            assert len(block.text) <= longest
    told = "".join(block.text for block in whole)
    assert "".join(told.split()) == "".join(text.split())


@settings(max_examples=150)
@given(
    TEXT,
    st.integers(4, 12),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-be"]),
)
def test_decoding_pieces_is_decoding_the_whole(text: str, size: int, encoding: str) -> None:
    data = f"a{text}".encode(encoding)
    if encoding == "utf-16-be":
        data = codecs.BOM_UTF16_BE + data
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert "".join(decode_pieces(pieces, name="f")) == decode(data, name="f")


@pytest.mark.parametrize("place", [0, 5, 4096, 9_999])
def test_a_bad_byte_is_named_by_its_place_in_the_file(place: int) -> None:
    data = bytearray("ü".encode() * 5_000)
    data[place : place + 1] = b"\xff" if place % 2 == 0 else b"\x20"
    wanted: list[str] = []
    for read in (
        lambda: decode(bytes(data), name="f"),
        lambda: list(
            decode_pieces([bytes(data[n : n + 7]) for n in range(0, len(data), 7)], name="f")
        ),
    ):
        with pytest.raises(IngestError, match="f is not text: byte") as caught:
            read()
        wanted.append(str(caught.value))
    assert wanted[0] == wanted[1]
    with pytest.raises(IngestError, match="NUL"):
        list(decode_pieces([b"abcd", b"e\x00f"], name="f"))


def shape(document: Any) -> tuple[Any, ...]:
    blocks = document.blocks if isinstance(document, Document) else tuple(document.blocks())
    return (
        document.uri,
        document.title,
        document.document_hash,
        document.kind,
        tuple(document.labels),
        dict(document.metadata),
        blocks,
    )


def files(folder: Path) -> None:
    long = "\n\n".join(f"Paragraph {n} says something of {n * n}." for n in range(30))
    (folder / "a.txt").write_text(long)
    (folder / "b.md").write_text(f"---\nkind: official\nlabels: x\n---\n# Head\n\n{long}\n")
    (folder / "c.html").write_text(f"<html><body><h1>Head</h1><p>{long}</p></body></html>")
    rows = [{"id": n, "text": f"Row {n}.\n\nMore of it.", "title": f"t{n}"} for n in range(20)]
    rows[3] |= {"labels": ["y"], "kind": "web", "metadata": {"k": 1}}
    (folder / "d.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\r\n\n")
    (folder / "e.jsonl").write_bytes(
        codecs.BOM_UTF8 + b'{"text": "One line."}\r{"text": "Another line."}\n{"text": ""}'
    )
    (folder / "f.txt").write_text(long.replace("Paragraph", "Section"), encoding="utf-16")
    (folder / "g.jsonl").write_text('{"text": "In sixteen bits."}\n' * 3, encoding="utf-16")
    (folder / "h.txt").write_text(" \n\n ")


def test_long_files_give_the_same_documents_read_when_they_are_wanted(
    tmp_path: Path, small_limits: None
) -> None:
    files(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load_module, "MAX_IN_MEMORY", 1 << 30)
        held = list(load_path(tmp_path))
    lazy = list(load_path(tmp_path))
    assert [shape(one) for one in lazy] == [shape(one) for one in held]
    assert {type(one) for one in held} == {Document}
    kinds = {one.title if one.title in "abcf" else one.uri: type(one) for one in lazy}
    assert kinds["a"] is kinds["f"] is StreamedDocument
    # They can be read again.
    assert [shape(one) for one in lazy] == [shape(one) for one in held]


@pytest.mark.parametrize("name", ["a.txt", "b.md", "c.html", "d.jsonl"])
def test_a_file_that_changes_meanwhile_is_refused(
    tmp_path: Path, small_limits: None, name: str
) -> None:
    files(tmp_path)
    (tmp_path / "0.txt").write_text("x " * 100)  # fills what a folder's files may take in memory
    found = [one for one in load_path(tmp_path) if f"/{name}" in one.uri]
    path = tmp_path / name
    path.write_text(path.read_text().replace("something", "anything").replace("Row", "Bow"))
    one = found[0]
    assert isinstance(one, StreamedDocument)
    with pytest.raises(IngestError, match=f"{name}.* changed while it was read"):
        list(one.blocks())


def test_formats_that_are_read_whole_have_a_largest_size(
    tmp_path: Path, small_limits: None
) -> None:
    for name in ("a.md", "a.html", "a.pdf"):
        (tmp_path / name).write_text("word " * 1_000)
        with pytest.raises(IngestError, match=rf"{name} has .* is read whole; wanted at most"):
            list(load_path(tmp_path / name))
    (tmp_path / "a.txt").write_text("word " * 1_000)
    assert isinstance(next(load_path(tmp_path / "a.txt")), StreamedDocument)


def test_a_long_file_without_text_is_refused(tmp_path: Path, small_limits: None) -> None:
    for name in ("a.txt", "a.jsonl"):
        (tmp_path / name).write_text(" \n" * 200)
        with pytest.raises(IngestError, match="contains no text"):
            list(load_path(tmp_path / name))


@pytest.mark.parametrize("name", ["long.txt", "long.jsonl"])
def test_a_long_file_is_never_in_memory_as_a_whole(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_module, "MAX_IN_MEMORY", 1 << 20)
    path, lines = tmp_path / name, 2_000 if "json" in name else 8_000
    with path.open("w") as out:
        for number in range(lines):
            words = f"Paragraph {number} " + "word " * 300
            out.write(json.dumps({"text": words}) + "\n" if "json" in name else words + "\n\n")
    tracemalloc.start()
    try:
        count = 0
        for one in load_path(path):
            assert isinstance(one, StreamedDocument)
            for _ in one.blocks():
                count += 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == lines
    assert peak < path.stat().st_size
