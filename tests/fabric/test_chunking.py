"""Laws and examples of the cutting of documents."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.fabric.ingest.chunking import Chunk, chunk
from crp_integrations.fabric.records import Block, Document
from crp_integrations.fabric.settings import ChunkingSettings, FabricSettings
from crp_integrations.loaders.markdown import read
from crp_integrations.loaders.text import paragraphs
from tests.doubles import WordCounter

COUNTER = WordCounter()
SMALL = ChunkingSettings(split_above_tokens=40, min_fact_tokens=5, max_fact_tokens=120)


def document(text: str, **fields: object) -> Document:
    return Document(
        uri="test:doc", title="t", blocks=tuple(paragraphs(text)), document_hash="sha256:0"
    ).model_copy(update=fields)


def cut(text: str, settings: ChunkingSettings = SMALL) -> list[Chunk]:
    return chunk(document(text), counter=COUNTER, settings=settings)


def sentences(count: int, words: int = 8) -> str:
    return " ".join(
        f"Sentence{n} " + " ".join(f"w{n}x{m}" for m in range(words - 2)) + f" end{n}."
        for n in range(count)
    )


WORD = st.sampled_from(
    ["a", "zwei", "Drei", "4,5", "e.g.", "naïve", "漢字", "U.S.", "x" * 30, "-", "🙂"]
)
SENTENCE = st.lists(WORD, min_size=1, max_size=10).map(lambda ws: " ".join(ws) + ".")
PARAGRAPH = st.lists(SENTENCE, min_size=1, max_size=10).map(" ".join)
TEXT = st.lists(PARAGRAPH, min_size=1, max_size=5).map("\n\n".join)
SETTINGS = st.builds(
    ChunkingSettings,
    split_above_tokens=st.integers(20, 60),
    overlap_share=st.sampled_from([0.0, 0.1, 0.25]),
    overlap_between=st.sampled_from(["split", "all"]),
    min_fact_tokens=st.integers(1, 20),
    max_fact_tokens=st.integers(100, 200),
)


@settings(max_examples=60)
@given(TEXT, SETTINGS)
def test_every_chunk_is_a_slice_and_nothing_is_lost(text: str, chunking: ChunkingSettings) -> None:
    chunks = cut(text, chunking)
    covered: set[int] = set()
    for piece in chunks:
        assert piece.content.split() == text[piece.start : piece.end].split()
        covered.update(range(piece.start, piece.end))
    assert all(text[place].isspace() for place in range(len(text)) if place not in covered)
    assert [c.start for c in chunks] == sorted(c.start for c in chunks)


@settings(max_examples=60)
@given(TEXT, SETTINGS)
def test_lengths_stay_within_the_limits(text: str, chunking: ChunkingSettings) -> None:
    chunks = cut(text, chunking)
    sizes = [COUNTER.count(piece.content) for piece in chunks]
    assert all(size <= chunking.max_fact_tokens for size in sizes)
    if len(chunks) > 1:
        assert min(sizes) >= chunking.min_fact_tokens


@pytest.mark.requirement("009-4.2-1")
def test_paragraphs_are_the_first_cut() -> None:
    first, second = sentences(3), sentences(2, words=9)
    assert [piece.content for piece in cut(f"{first}\n\n{second}")] == [first, second]


@pytest.mark.requirement("009-4.2-2")
def test_512_tokens_stay_whole_and_more_are_split_at_sentences() -> None:
    settings = ChunkingSettings()
    assert len(cut(sentences(64), settings)) == 1  # 512 tokens
    chunks = cut(sentences(65), settings)  # 520 tokens
    assert len(chunks) == 2
    for piece in chunks:
        assert COUNTER.count(piece.content) <= 512
        assert piece.content.startswith("Sentence")
        assert piece.content.endswith(".")


@pytest.mark.requirement("009-4.2-3")
def test_chunks_of_a_split_paragraph_overlap_by_a_tenth() -> None:
    text = sentences(300)
    chunks = cut(text, ChunkingSettings())
    assert len(chunks) > 4
    for before, after in pairwise(chunks):
        shared = COUNTER.count(text[after.start : before.end])
        wanted = 0.10 * COUNTER.count(before.content)
        assert wanted - 0.5 <= shared <= 2 * wanted
        assert before.content.endswith(text[after.start : before.end])
        assert after.content.startswith(text[after.start : before.end])


@pytest.mark.requirement("009-4.2-3")
def test_overlap_of_long_sentences_begins_at_a_word() -> None:
    text = sentences(6, words=200)
    chunks = cut(text, ChunkingSettings())
    for before, after in pairwise(chunks):
        shared = text[after.start : before.end]
        assert text[after.start - 1] == " "
        assert COUNTER.count(shared) == round(0.10 * COUNTER.count(before.content))


@pytest.mark.requirement("009-4.2-3")
def test_to_the_letter_all_adjacent_chunks_overlap() -> None:
    literal = FabricSettings.preset("literal").chunking
    text = "\n\n".join([sentences(5), sentences(6), sentences(7)])
    chunks = cut(text, literal)
    assert len(chunks) == 3
    for before, after in pairwise(chunks):
        assert after.start < before.end
        shared = COUNTER.count(text[after.start : before.end])
        assert shared >= round(0.10 * COUNTER.count(before.content)) >= 1
    plain = cut(text, ChunkingSettings())
    assert [piece.content for piece in plain] == text.split("\n\n")


@settings(max_examples=25)
@given(st.integers(66, 400), st.integers(4, 40))
def test_overlap_is_between_one_and_two_tenths_whatever_the_sentences(
    count: int, words: int
) -> None:
    text = sentences(count, words)
    chunks = cut(text, ChunkingSettings())
    for before, after in pairwise(chunks):
        wanted = 0.10 * COUNTER.count(before.content)
        assert wanted - 0.5 <= COUNTER.count(text[after.start : before.end]) <= 2 * wanted + 1


@pytest.mark.requirement("009-4.2-4")
def test_chunks_keep_page_heading_and_offsets() -> None:
    long = sentences(8)
    blocks = (
        Block(text=long, start=0, page=3, heading="Intro > Scope"),
        Block(text=sentences(2), start=len(long) + 2, page=4, heading="Intro > End"),
    )
    chunks = chunk(
        Document(uri="u", title="t", blocks=blocks, document_hash="x"),
        counter=COUNTER,
        settings=SMALL,
    )
    assert len(chunks) > 2
    for piece in chunks[:-1]:
        assert (piece.page, piece.heading) == (3, "Intro > Scope")
        assert piece.location == f"p. 3 · Intro > Scope · {piece.start}-{piece.end}"
    assert chunks[-1].page == 4


def test_a_heading_and_a_short_paragraph_join_what_follows() -> None:
    chunks = cut(f"Note well\n\n{sentences(2)}\n\n{sentences(3)}")
    assert chunks[0].content == f"Note well\n\n{sentences(2)}"
    assert len(chunks) == 2
    text = f"# Long heading of more than five words in all\n\n{sentences(2)}\n\nBye now\n\n## Next\n\n{sentences(2)}"
    made = chunk(read(text.encode(), uri="u", name="a.md"), counter=COUNTER, settings=SMALL)
    assert [piece.content.split("\n")[0] for piece in made] == [
        "# Long heading of more than five words in all",
        "## Next",
    ]
    assert made[0].content.endswith("Bye now")
    assert made[1].heading == "Long heading of more than five words in all > Next"


def test_a_line_that_announces_a_list_stays_with_it() -> None:
    listing = "- one thing to do\n- another thing to do\n- a third thing"
    text = f"These are all of the things to do:\n\n{listing}\n\n{sentences(2)}"
    made = chunk(read(text.encode(), uri="u", name="a.md"), counter=COUNTER, settings=SMALL)
    assert made[0].content == f"These are all of the things to do:\n\n{listing}"


def test_a_word_longer_than_any_limit_is_cut() -> None:
    class Letters(WordCounter):
        def count(self, text: str) -> int:
            return len(text)

    word = "x" * 1000
    chunks = chunk(document(word), counter=Letters(), settings=SMALL)
    assert all(len(piece.content) <= SMALL.max_fact_tokens for piece in chunks)
    assert "".join(word[a.start : a.end] for a in chunks).startswith(word)


def test_indented_code_keeps_the_place_of_its_lines() -> None:
    code = "    if ready:\n        start the first of all reactors now\n    stop them again at noon"
    text = f"Some words before the code, so that it is not the first.\n\n{code}\n"
    loaded = read(text.encode(), uri="test:code", name="code.md")
    chunks = chunk(loaded, counter=COUNTER, settings=SMALL)
    assert [piece.content for piece in chunks][-1] == code


def test_lines_without_sentence_ends_are_cut_between_lines() -> None:
    text = "\n".join(f"entry {n} says value {n * 7} at noon today" for n in range(100))
    chunks = cut(text)
    assert len(chunks) > 5
    for piece in chunks[:-1]:
        assert text[piece.end] == "\n"


def test_the_work_grows_with_the_text() -> None:
    class Measured(WordCounter):
        read = 0

        def count(self, text: str) -> int:
            self.read += len(text)
            return super().count(text)

    for text in ("x" * 400_000, "word " * 80_000, sentences(8000), "- a b c d\n" * 40_000):
        counter = Measured()
        chunk(document(text), counter=counter, settings=ChunkingSettings())
        assert counter.read < 60 * len(text)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="leave no room"):
        ChunkingSettings(split_above_tokens=100, max_fact_tokens=99)
