"""What a caller gives becomes documents, whatever framework it is of."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from langchain_core.documents import Document as LangChainDocument
from llama_index.core import Document as LlamaIndexDocument
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from crp_integrations.errors import IngestError
from crp_integrations.fabric.records import Block, Document
from crp_integrations.loaders.documents import load_documents
from crp_integrations.seals import sha256

ONE = "The first paragraph of a page.\n\nIts second paragraph."


def only(what: object) -> Document:
    (document,) = load_documents(what)
    return document


@pytest.mark.requirement("009-4.5-1")
@pytest.mark.parametrize(
    "given",
    [
        LangChainDocument(ONE, metadata={"source": "docs/a.txt", "author": "B"}),
        LlamaIndexDocument(text=ONE, metadata={"source": "docs/a.txt", "author": "B"}),
        TextNode(text=ONE, metadata={"source": "docs/a.txt", "author": "B"}),
    ],
)
@pytest.mark.parametrize("alone", [True, False])
def test_a_framework_document_names_its_source_text_and_metadata(given, alone):
    document = only(given if alone else [given])
    assert document.uri == "docs/a.txt"
    assert document.title == "a.txt"
    assert document.document_hash == sha256(ONE)
    assert document.metadata == {"source": "docs/a.txt", "author": "B"}
    assert document.blocks == (
        Block(text="The first paragraph of a page.", start=0),
        Block(text="Its second paragraph.", start=32),
    )


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        (LangChainDocument("text", metadata={"source": "s", "url": "u"}), "s"),
        (LangChainDocument("text", metadata={"source": 3, "url": "https://a.example/b"}), "https://a.example/b"),
        (LangChainDocument("text", metadata={"source": " "}, id="7"), "document:7"),
        (LlamaIndexDocument(text="text", metadata={"file_path": "/a/b.pdf"}), "/a/b.pdf"),
        (LlamaIndexDocument(text="text", id_="d1"), "document:d1"),
        (TextNode(text="text", id_="n1"), "document:n1"),
        (
            TextNode(
                text="text",
                id_="n1",
                relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="d1")},
            ),
            "document:d1",
        ),
        (LangChainDocument("text"), "text:" + sha256("text")),
    ],
)  # fmt: skip
def test_where_a_document_is_from(given, uri):
    assert only(given).uri == uri


def test_pieces_of_one_source_that_follow_each_other_are_one_document():
    pages = [
        LangChainDocument(
            f"Page {n} says this.", metadata={"source": "a.pdf", "page": n, "title": "A"}
        )
        for n in range(3)
    ]
    other = LangChainDocument("Another one.", metadata={"source": "b.pdf", "page_label": "4"})
    first, second = load_documents([*pages, other])
    assert (first.uri, first.title, second.uri) == ("a.pdf", "A", "b.pdf")
    assert [(block.text, block.page) for block in first.blocks] == [
        (f"Page {n} says this.", n + 1) for n in range(3)
    ]
    starts = [block.start for block in first.blocks]
    joined = "\n\n".join(page.page_content for page in pages)
    assert [joined[s : s + 6] for s in starts] == ["Page 0", "Page 1", "Page 2"]
    assert first.document_hash == sha256(joined)
    assert first.metadata == {"source": "a.pdf", "title": "A"}
    assert second.blocks[0].page == 4


def test_headings_of_langchains_markdown_splitter_are_kept():
    piece = LangChainDocument(
        "text", metadata={"source": "a", "Header 1": "Top", "Header 3": "Low"}
    )
    assert only(piece).blocks[0].heading == "Top > Low"


def test_paths_own_documents_and_foreign_ones_in_one_call(tmp_path):
    (tmp_path / "a.txt").write_text("From a file.")
    own = Document(uri="own", title="", blocks=(), document_hash=sha256(""))
    foreign = LangChainDocument("Foreign.", metadata={"source": "f"})
    made = list(
        load_documents([tmp_path / "a.txt", own, foreign, str(tmp_path / "a.txt")], prefix="p:")
    )
    assert [document.uri for document in made] == ["p:a.txt", "own", "f", "p:a.txt"]
    assert list(load_documents(own)) == [own]
    assert [d.uri for d in load_documents(tmp_path, prefix="p:")] == ["p:a.txt"]


def test_what_was_given_stays_as_it_was_and_shares_nothing():
    deep = {"list": [1, {"a": None}]}
    given = LangChainDocument("text", metadata={"source": "a", "deep": deep})
    made = only(given)
    made.metadata["deep"]["list"].append(2)
    assert given.metadata == {"source": "a", "deep": {"list": [1, {"a": None}]}}


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"when": date(2026, 1, 1)}, "document 2 has metadata 'when' of type date"),
        ({"path": Path("a")}, "'path'"),
        ({"deep": {"tuple": (1, 2)}}, "'deep'"),
        ({"nan": float("inf")}, "'nan'"),
    ],
)
def test_metadata_that_are_not_plain_json_are_refused_by_name(metadata, named):
    # LangChain takes any metadata when the model is not validated anew.
    fine = LangChainDocument("secret words", metadata={"source": "a"})
    bad = LangChainDocument("secret words", metadata={"source": "b", **metadata})
    with pytest.raises(IngestError, match=named) as refusal:
        list(load_documents([fine, bad]))
    assert "secret" not in str(refusal.value)


def test_what_is_no_document_is_refused_by_its_type():
    for wrong in ([3], [None], [{"page_content": "text"}]):
        with pytest.raises(IngestError, match=f"{type(wrong[0]).__name__} cannot be ingested"):
            list(load_documents(wrong))
    with pytest.raises(IngestError, match="UTF-8"):
        list(load_documents(LangChainDocument("\ud800", metadata={"source": "a"})))
