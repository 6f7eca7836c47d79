"""Files and folders as users have them, good and bad."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from itertools import product
from pathlib import Path

import pytest

from crp_integrations.errors import IngestError
from crp_integrations.fabric.records import Document
from crp_integrations.loaders.documents import load_path
from crp_integrations.loaders.files import find_files
from tests.loaders.pdfs import pdf

TEXT = "The limit is forty kilometres an hour on every road within the town."


def texts(document: Document) -> list[str]:
    return [block.text for block in document.blocks]


def only(path: Path) -> Document:
    (document,) = load_path(path)
    return document


def test_a_folder_is_loaded_in_order_without_hidden_and_unknown_files(tmp_path: Path) -> None:
    for name in ("b.md", "a.TXT", ".hidden.md", "photo.png", "sub/c.html", ".git/d.md"):
        file = tmp_path / "docs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"<p>{TEXT}</p>" if name.endswith("html") else TEXT)
    loaded = list(load_path(tmp_path / "docs"))
    assert [document.uri.rpartition("/docs/")[2] for document in loaded] == [
        "a.TXT",
        "b.md",
        "sub/c.html",
    ]
    assert all(texts(document) == [TEXT] for document in loaded)
    found = find_files(tmp_path / "docs")
    assert [file.name for file in found.skipped] == ["photo.png"]


def test_one_file_is_one_source_from_wherever_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(TEXT)
    monkeypatch.chdir(tmp_path / "docs")
    uris = {
        only(Path(name)).uri for name in ("a.md", "./a.md", "../docs/a.md", str(tmp_path / "docs"))
    }
    assert uris == {(tmp_path / "docs" / "a.md").resolve().as_uri()}


def test_a_prefix_makes_uris_independent_of_the_place(tmp_path: Path) -> None:
    for place in ("one", "two"):
        (tmp_path / place / "docs" / "sub").mkdir(parents=True)
        (tmp_path / place / "docs" / "sub" / "a.md").write_text(TEXT)
    uris = [next(load_path(tmp_path / p / "docs", prefix="package:x/")).uri for p in ("one", "two")]
    assert uris == ["package:x/sub/a.md"] * 2
    file = tmp_path / "one" / "docs" / "sub" / "a.md"
    assert next(load_path(file, prefix="package:x/")).uri == "package:x/a.md"


def test_links_are_not_followed_out_of_the_folder_or_in_circles(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text(TEXT)
    (tmp_path / "outside.md").write_text("Not to be read by anybody at all.")
    (docs / "loop").symlink_to(docs, target_is_directory=True)
    (docs / "out.md").symlink_to(tmp_path / "outside.md")
    (docs / "broken.md").symlink_to(tmp_path / "nowhere.md")
    assert [document.title for document in load_path(docs)] == ["a"]
    assert sorted(file.name for file in find_files(docs).skipped) == ["broken.md", "out.md"]


def test_paths_that_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(IngestError, match="does not exist"):
        list(load_path(tmp_path / "nothing"))
    with pytest.raises(IngestError, match="contains no file that can be loaded"):
        list(load_path(tmp_path))
    with pytest.raises(IngestError, match="the path '' is empty"):
        list(load_path(""))
    with pytest.raises(IngestError, match=r"does not exist|cannot be read"):
        list(load_path("a\x00b"))
    fifo = tmp_path / "pipe.md"
    os.mkfifo(fifo)
    with pytest.raises(IngestError, match="neither a file nor a folder"):
        list(load_path(fifo))


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.pdf", "a.jsonl", "a"])
@pytest.mark.parametrize("data", [b"", b" \n\t\n"])
def test_empty_files_are_refused(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(IngestError, match=f"{name} is empty"):
        list(load_path(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        *product(("b.txt", "b.md", "b.html", "b.jsonl", "b.pdf"), (b"", b" \n\t\n")),
        # Marks of byte order around nothing; a PDF has none.
        *product(("b.txt", "b.md", "b.html", "b.jsonl"), (b"\xef\xbb\xbf", b"\xff\xfe \x00\n\x00")),
    ],
)
def test_an_empty_file_of_a_folder_is_a_document_without_blocks(
    tmp_path: Path, name: str, data: bytes
) -> None:
    (tmp_path / "a.md").write_text(TEXT)
    (tmp_path / name).write_bytes(data)
    full, empty = load_path(tmp_path)
    assert texts(full) == [TEXT]
    assert (empty.uri, empty.title, empty.blocks) == ((tmp_path / name).as_uri(), "b", ())
    with pytest.raises(IngestError, match=name):
        list(load_path(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "text"),
    [("b.md", "---\ntitle: T\n---\n"), ("b.md", "<!-- x -->"), ("b.html", "<nav>x</nav>")],
)
def test_a_file_of_a_folder_with_markup_only_has_no_blocks(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    assert [document.blocks for document in load_path(tmp_path)] == [()]
    with pytest.raises(IngestError, match="contains no text"):
        list(load_path(tmp_path / name))


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.jsonl", "a", "a.py"])
@pytest.mark.parametrize("data", [bytes(range(256)), b"\x89PNG\r\n\x1a\n\x00\x00", b"a\x00b" * 9])
def test_binary_files_are_refused(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(IngestError, match=f"{name} is not text"):
        list(load_path(tmp_path / name))


def test_one_bad_file_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(TEXT)
    (tmp_path / "b.txt").write_bytes(b"\xff\x00\x01")
    with pytest.raises(IngestError, match=r"b\.txt is not text"):
        list(load_path(tmp_path))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_encodings_and_line_ends(tmp_path: Path, encoding: str, end: str) -> None:
    (tmp_path / "a.txt").write_bytes(f"Größe und Maß{end}{end}漢字 🙂".encode(encoding))
    document = only(tmp_path / "a.txt")
    assert texts(document) == ["Größe und Maß", "漢字 🙂"]
    assert document.blocks[1].start == 15


def test_a_file_without_a_suffix_is_known_by_how_it_begins(tmp_path: Path) -> None:
    (tmp_path / "page").write_text(f"<!DOCTYPE html><html><body><p>{TEXT}</p></body></html>")
    (tmp_path / "paper").write_bytes(pdf([[TEXT]]))
    (tmp_path / "notes").write_text(TEXT)
    assert texts(only(tmp_path / "page")) == [TEXT]
    assert only(tmp_path / "paper").blocks[0].page == 1
    assert texts(only(tmp_path / "notes")) == [TEXT]
    (tmp_path / "paper.txt").write_bytes(pdf([[TEXT]]))
    with pytest.raises(IngestError, match=r"give it the suffix \.pdf"):
        only(tmp_path / "paper.txt")


def test_a_pdf_without_the_extra_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf([[TEXT]]))
    script = textwrap.dedent(
        """
        import sys
        sys.modules["pypdf"] = None
        from crp_integrations.errors import MissingExtra
        from crp_integrations.loaders.documents import load_path
        try:
            list(load_path(sys.argv[1]))
        except MissingExtra as error:
            print(error)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "a.pdf")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pip install 'crp-integrations[pdf]'" in done.stdout


@pytest.mark.parametrize("name", ["minutes.docx", "minutes", "minutes.txt"])
@pytest.mark.parametrize("head", [b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"])
def test_an_office_file_is_not_to_be_saved_in_another_encoding(
    tmp_path: Path, name: str, head: bytes
) -> None:
    file = tmp_path / name
    file.write_bytes(head + bytes(range(256)) * 4)
    with pytest.raises(IngestError, match="an archive, as Word, Excel and PowerPoint write them"):
        list(load_path(file))
