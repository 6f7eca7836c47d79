"""Passages with several assertions, and the facts that they become."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.dpe import state as said
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.ingest import document_passages, ingestion_plan
from crp_integrations.fabric.ingest.chunker import DocumentChunk, cut_blocks
from crp_integrations.fabric.ingest.document_passages import decompose_document
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Block, Document, StreamedDocument, Where
from crp_integrations.fabric.settings import ChunkingSettings, FabricSettings
from crp_integrations.guard.decisions import Subject
from crp_integrations.language.claims import segment
from crp_integrations.loaders.text import read_markdown, read_text, split_paragraphs
from crp_integrations.seals import sha256
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vocabulary import ClaimType
from tests.doubles import FixedClock, HashEmbedder, WordCounter
from tests.fabric.lifecycle_fixtures import ACME, fabric, sentence


class Streamed:
    """A document that counts how often it is cut."""

    def __init__(self, lines: list[str]) -> None:
        self.passes = 0
        self.lines = lines

    def blocks(self) -> Iterator[Block]:
        self.passes += 1
        start = 0
        for number, line in enumerate(self.lines):
            yield Block(text=line, start=start, page=1 + number // 10, heading=f"Part {number}")
            start += len(line) + 2

    def given(self) -> StreamedDocument:
        hashed = sha256("".join(self.lines))
        return StreamedDocument(uri="test:a", title="a", document_hash=hashed, blocks=self.blocks)


def told(namespace: Namespace) -> list[dict[str, Any]]:
    facts = namespace.facts(namespace.find(Where()))
    return sorted((fact.model_dump(mode="json") for fact in facts), key=lambda one: one["fact_id"])


def test_a_document_that_is_not_held_is_stored_as_one_that_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = [sentence(number) + " \u05e9\u05dc\u05d5\u05dd \U0001f600" for number in range(120)]
    held, long = Streamed(lines), Streamed(lines)
    whole = fabric(MemoryStore()).bind(ACME)
    whole.ingest([held.given()])
    assert held.passes == 1
    # As if the document were long.
    monkeypatch.setattr(ingestion_plan, "_HELD_CHARACTERS", 1_000)
    cut_again = fabric(MemoryStore()).bind(ACME)
    cut_again.ingest([long.given()])
    assert long.passes > 1
    assert told(cut_again) == told(whole)


Way = Literal["never", "standalone", "always"]
COUNTER = WordCounter()
TWO = (
    "The Treaty of Paris ended the American Revolutionary War in the year 1783. "
    "Benjamin Franklin signed the treaty for the United States at the Hotel d'York."
)
LEANING = (
    "The Treaty of Paris ended the American Revolutionary War in the year 1783. "
    "It was signed at the Hotel d'York by Benjamin Franklin and three other men."
)


def made(
    text: str, way: Way, *, overlap: Literal["split", "all"] = "split", **limits: int
) -> list[DocumentChunk]:
    chosen = ChunkingSettings(join_up_to_tokens=0, decompose=way, overlap_between=overlap, **limits)
    return list(decompose_document(split_paragraphs(text), counter=COUNTER, settings=chosen))


def bare(text: str) -> str:
    return "".join(text.split())


WORD = st.sampled_from(["Rome", "fell", "in", "476", "it", "The law", "is", "U.S.", "漢字", "and"])
SENTENCE = st.lists(WORD, min_size=1, max_size=12).map(lambda ws: " ".join(ws) + ".")
PARAGRAPH = st.one_of(
    st.lists(SENTENCE, min_size=1, max_size=8).map(" ".join),
    st.sampled_from(
        [
            "- Rome fell in the year 476.\n- Paris was founded long before.\n- It is old.",
            "| city | year |\n|---|---|\n| Rome | 476 |\n| Paris | 250 |",
            "```\nx = 1\nprint(x)\n```",
            "What is it? Go away! I think that Rome is fine.",
        ]
    ),
)
TEXT = st.lists(PARAGRAPH, min_size=1, max_size=5).map("\n\n".join)


@settings(max_examples=80)
@given(TEXT, st.sampled_from(["standalone", "always"]), st.sampled_from(["split", "all"]))
def test_nothing_is_lost_and_every_piece_is_a_slice(text: str, way: Way, overlap: Any) -> None:
    limits = {"split_above_tokens": 30, "min_fact_tokens": 5, "max_fact_tokens": 60}
    pieces = made(text, way, overlap=overlap, **limits)
    covered: set[int] = set()
    for piece in pieces:
        assert bare(piece.content) == bare(text[piece.start : piece.end])
        assert piece.location.endswith(f"{piece.start}-{piece.end}")
        covered.update(range(piece.start, piece.end))
    assert all(text[place].isspace() for place in range(len(text)) if place not in covered)
    if len(pieces) > 1:
        assert min(COUNTER.count(piece.content) for piece in pieces) >= 5
    # No passage twice, or two facts would have one id.
    places = [(piece.start, piece.end) for piece in pieces]
    assert len(set(places)) == len(places)


@pytest.mark.requirement("009-4.3-2")
def test_to_the_letter_a_chunk_becomes_as_many_facts_as_it_has_assertions() -> None:
    text = f"{TWO} {LEANING}"
    chosen = FabricSettings.preset("literal")
    fabric = Fabric(
        MemoryStore(),
        HashEmbedder(),
        COUNTER,
        FixedClock(),
        FixedKeyRing(b"k" * 32),
        settings=chosen,
    )
    namespace = fabric.bind(Subject(tenant="acme"))
    report = namespace.ingest([read_text(text.encode(), uri="test:a", name="a")])
    contents = [fact.content for fact in namespace.facts(report.facts)]
    # Each assertion has at least ten tokens, so none had to join another.
    sentences = [f"{part}." for part in text.removesuffix(".").split(". ")]
    assert contents == sentences
    factual = [one for one in segment(text) if one.claim_type is ClaimType.FACTUAL]
    assert len(contents) == len(factual) == 4
    for fact in namespace.facts(report.facts):
        start, _, end = fact.source_location.partition("-")
        assert text[int(start) : int(end)] == fact.content


@pytest.mark.requirement("009-4.3-3")
def test_the_assertions_are_those_of_stage_1(monkeypatch: pytest.MonkeyPatch) -> None:
    # Stage 1 takes its segments from what is known of the answer's text.
    assert vars(document_passages)["segment"] is vars(said)["segment"] is segment
    # What that code answers is what is cut: one claim, one fact.
    monkeypatch.setattr(document_passages, "segment", lambda text: segment(text)[:1])
    assert len(made(TWO, "always")) == 1


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (TWO, 2),
        (LEANING, 1),
        (TWO.replace("Benjamin", "However, Benjamin"), 1),
        (TWO.replace("Benjamin Franklin", "The latter of the two men"), 1),
        (TWO.replace("Benjamin Franklin signed", "This old man had then signed"), 1),
        # A second assertion that is too short to be a fact.
        ("The Treaty of Paris ended the American Revolutionary War in 1783. Rome fell.", 1),
        # A question is no assertion.
        (f"{TWO.split('. ')[0]}. What did the others say about all of that in London?", 1),
    ],
)
def test_standalone_cuts_only_what_can_stand_alone(text: str, pieces: int) -> None:
    assert len(made(text, "standalone")) == pieces
    assert len(made(text, "never")) == 1


@pytest.mark.parametrize(
    "text",
    [
        f"The treaty says:\n\n- {TWO.split('. ')[0]}.\n- {TWO.split('. ')[1]}",
        (
            "| city | founded in the year |\n|---|---|\n| Rome is old | 753 BC it is said |"
            "\n| Paris is old | 250 BC it is said |"
        ),
        "```\nThe war ended in 1783 after eight long years of it all.\nFranklin signed it.\n```",
    ],
)
def test_standalone_leaves_lists_tables_and_code_whole(text: str) -> None:
    document = read_markdown(text.encode(), uri="u", name="a.md")
    chosen = ChunkingSettings(decompose="standalone")
    pieces = list(decompose_document(document.blocks, counter=COUNTER, settings=chosen))
    whole = list(cut_blocks(document.blocks, counter=COUNTER, settings=chosen))
    assert [piece.content for piece in pieces] == [piece.content for piece in whole]


def test_always_keeps_the_marker_of_a_list_item_with_its_item() -> None:
    text = (
        "- The Treaty of Paris ended the American Revolutionary War in 1783.\n"
        "- Benjamin Franklin signed the treaty for the United States in Paris."
    )
    assert [piece.content for piece in made(text, "always")] == text.split("\n")


def test_pieces_keep_page_heading_and_offsets_across_blocks() -> None:
    first, _, second = TWO.partition(". ")
    blocks = (
        Block(text="Short start.", start=7, page=1, heading="Peace"),
        Block(text=TWO, start=100, page=2, heading="Peace"),
    )
    chosen = ChunkingSettings(decompose="always")
    one, two = decompose_document(blocks, counter=COUNTER, settings=chosen)
    assert one.content == f"Short start.\n\n{first}."
    assert (one.start, one.end) == (7, 100 + len(first) + 1)
    assert one.location.startswith("p. 1-2 · Peace · ")
    assert two.content == second
    assert (two.start, two.end) == (100 + len(first) + 2, 100 + len(TWO))
    assert two.location.startswith("p. 2 · Peace · ")


def test_a_streamed_document_is_decomposed_alike() -> None:
    text = "\n\n".join([TWO, LEANING, f"{TWO} {LEANING} {TWO}"] * 40)
    chosen = ChunkingSettings(
        join_up_to_tokens=30, decompose="always", split_above_tokens=40, max_fact_tokens=80
    )
    document = Document(
        uri="u", title="t", blocks=tuple(split_paragraphs(text)), document_hash="sha256:0"
    )
    held = list(decompose_document(document.blocks, counter=COUNTER, settings=chosen))
    flowing = list(decompose_document(iter(document.blocks), counter=COUNTER, settings=chosen))
    assert held == flowing
    assert len(held) > 200


def test_what_a_chunk_becomes_is_chosen_by_the_preset() -> None:
    assert FabricSettings().chunking.decompose == "never"
    assert FabricSettings.preset("literal").chunking.decompose == "always"
