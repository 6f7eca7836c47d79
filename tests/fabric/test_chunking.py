"""Laws and examples of the cutting of documents."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.fabric.ingest.chunker import DocumentChunk, chunk_document
from crp_integrations.fabric.records import Block, Document
from crp_integrations.fabric.settings import ChunkingSettings, FabricSettings
from crp_integrations.loaders.text import read_markdown, split_paragraphs
from crp_integrations.seals import sha256
from tests.doubles import WordCounter

COUNTER = WordCounter()
# Paragraph by paragraph, and to the letter of §4.2 without its overlap between paragraphs.
SMALL = ChunkingSettings(
    join_up_to_tokens=0, split_above_tokens=40, min_fact_tokens=5, max_fact_tokens=120
)
LITERAL = FabricSettings.preset("literal").chunking
LETTER = LITERAL.model_copy(update={"overlap_between": "split"})


def document(text: str, **fields: object) -> Document:
    return Document(
        uri="test:doc", title="t", blocks=tuple(split_paragraphs(text)), document_hash="sha256:0"
    ).model_copy(update=fields)


def cut(text: str, settings: ChunkingSettings = SMALL) -> list[DocumentChunk]:
    return chunk_document(document(text), counter=COUNTER, settings=settings)


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
    join_up_to_tokens=st.integers(0, 20),
    anchor_every=st.sampled_from([0, 1, 2, 16]),
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
    assert len(cut(sentences(64), LETTER)) == 1  # 512 tokens
    chunks = cut(sentences(65), LETTER)  # 520 tokens
    assert len(chunks) == 2
    for piece in chunks:
        assert COUNTER.count(piece.content) <= 512
        assert piece.content.startswith("Sentence")
        assert piece.content.endswith(".")


@pytest.mark.requirement("009-4.2-3")
def test_chunks_of_a_split_paragraph_overlap_by_a_tenth() -> None:
    text = sentences(300)
    chunks = cut(text, LETTER)
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
    chunks = cut(text, LETTER)
    for before, after in pairwise(chunks):
        shared = text[after.start : before.end]
        assert text[after.start - 1] == " "
        assert COUNTER.count(shared) == round(0.10 * COUNTER.count(before.content))


@pytest.mark.requirement("009-4.2-3")
def test_to_the_letter_all_adjacent_chunks_overlap() -> None:
    text = "\n\n".join([sentences(5), sentences(6), sentences(7)])
    chunks = cut(text, LITERAL)
    assert len(chunks) == 3
    for before, after in pairwise(chunks):
        assert after.start < before.end
        shared = COUNTER.count(text[after.start : before.end])
        assert shared >= round(0.10 * COUNTER.count(before.content)) >= 1
    plain = cut(text, LETTER)
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
    chunks = chunk_document(
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
    made = chunk_document(
        read_markdown(text.encode(), uri="u", name="a.md"), counter=COUNTER, settings=SMALL
    )
    assert [piece.content.split("\n")[0] for piece in made] == [
        "# Long heading of more than five words in all",
        "## Next",
    ]
    assert made[0].content.endswith("Bye now")
    assert made[1].heading == "Long heading of more than five words in all > Next"


def test_a_line_that_announces_a_list_stays_with_it() -> None:
    listing = "- one thing to do\n- another thing to do\n- a third thing"
    text = f"These are all of the things to do:\n\n{listing}\n\n{sentences(2)}"
    made = chunk_document(
        read_markdown(text.encode(), uri="u", name="a.md"), counter=COUNTER, settings=SMALL
    )
    assert made[0].content == f"These are all of the things to do:\n\n{listing}"


def test_a_word_longer_than_any_limit_is_cut() -> None:
    class Letters(WordCounter):
        def count(self, text: str) -> int:
            return len(text)

    word = "x" * 1000
    chunks = chunk_document(document(word), counter=Letters(), settings=SMALL)
    assert all(len(piece.content) <= SMALL.max_fact_tokens for piece in chunks)
    assert "".join(word[a.start : a.end] for a in chunks).startswith(word)


def test_lines_without_sentence_ends_are_cut_between_lines() -> None:
    text = "\n".join(f"entry {n} says value {n * 7} at noon today" for n in range(100))
    chunks = cut(text)
    assert len(chunks) > 5
    for piece in chunks[:-1]:
        assert text[piece.end] == "\n"


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        ChunkingSettings(split_above_tokens=100, max_fact_tokens=99)


# --- joined passages -------------------------------------------------------------------

JOINING = ChunkingSettings(
    join_up_to_tokens=40,
    anchor_every=0,
    split_above_tokens=40,
    min_fact_tokens=5,
    max_fact_tokens=120,
)
# The defaults, whatever the hashes of a fixture's paragraphs are.
NO_ANCHORS = ChunkingSettings(anchor_every=0)


@settings(max_examples=80)
@given(TEXT, st.integers(0, 60), st.sampled_from([0, 1, 3]))
def test_a_joined_passage_keeps_to_its_limit_unless_one_paragraph_alone_does_not(
    text: str, most: int, every: int
) -> None:
    chunking = ChunkingSettings(
        join_up_to_tokens=most,
        anchor_every=every,
        split_above_tokens=60,
        min_fact_tokens=1,
        max_fact_tokens=200,
    )
    parts = [COUNTER.count(part) for part in text.split("\n\n")]
    for piece in cut(text, chunking):
        inside = [COUNTER.count(part) for part in piece.content.split("\n\n")]
        assert sum(inside) <= most or len(inside) == 1
        assert len(inside) == 1 or all(count in parts for count in inside)


@settings(max_examples=60)
@given(TEXT)
def test_joining_moves_no_cut_that_was_there_for_another_reason(text: str) -> None:
    apart = [(piece.start, piece.end) for piece in cut(text, SMALL)]
    joined = [(piece.start, piece.end) for piece in cut(text, JOINING)]
    assert {start for start, _ in joined} <= {start for start, _ in apart}
    assert {end for _, end in joined} <= {end for _, end in apart}
    # Where each paragraph begins a passage, nothing is joined.
    assert [
        (p.start, p.end) for p in cut(text, JOINING.model_copy(update={"anchor_every": 1}))
    ] == apart


def test_neighbours_of_one_section_join_and_those_of_two_do_not() -> None:
    text = f"# One\n\n{sentences(2)}\n\n{sentences(2)}\n\n# Two\n\n{sentences(2)}\n\n{sentences(2)}"
    made = chunk_document(
        read_markdown(text.encode(), uri="u", name="a.md"), counter=COUNTER, settings=JOINING
    )
    assert [piece.heading for piece in made] == ["One", "Two"]
    assert made[0].content == f"# One\n\n{sentences(2)}\n\n{sentences(2)}"
    assert text[made[1].start : made[1].end] == made[1].content


def test_a_joined_passage_tells_both_of_its_pages_and_where_each_stretch_is_from() -> None:
    first, second = sentences(2), sentences(2, words=7)
    gap = 5
    blocks = (
        Block(text=first, start=0, page=3),
        Block(text=second, start=len(first) + gap, page=4),
    )
    (made,) = chunk_document(
        Document(uri="u", title="t", blocks=blocks, document_hash="x"),
        counter=COUNTER,
        settings=JOINING,
    )
    assert made.content == f"{first}\n\n{second}"
    assert made.location == f"p. 3-4 · 0-{len(first) + gap + len(second)}"
    assert [(origin.start, origin.page) for origin in made.origins] == [
        (0, 3),
        (len(first) + gap, 4),
    ]
    for origin, part in zip(made.origins, (first, second), strict=True):
        assert made.content[origin.offset :].startswith(part)


def test_tables_code_and_line_ends_of_windows_are_joined_as_they_are_written() -> None:
    table = "| city | year |\n|---|---|\n| Rome | 476 |"
    code = "    if ready:\n        start()"
    text = f"---\ntitle: T\n---\n# One\n\n{sentences(1)}\n\n{table}\n\n{sentences(1)}\n\n{code}\n"
    loaded = read_markdown(text.replace("\n", "\r\n").encode(), uri="u", name="a.md")
    (made,) = chunk_document(loaded, counter=COUNTER, settings=ChunkingSettings(min_fact_tokens=1))
    assert made.content == f"# One\n\n{sentences(1)}\n\n{table}\n\n{sentences(1)}\n\n{code}"
    assert text[made.start : made.end] == made.content


def test_passages_are_the_same_again_behind_an_insertion() -> None:
    # Equal lengths are the worst case: nothing but an anchor brings two versions together.
    parts = [f"Entry{n} " + " ".join(f"e{n}w{m}" for m in range(58)) + "." for n in range(2000)]

    def changed(every: int) -> int:
        chunking = ChunkingSettings(anchor_every=every)
        before = {piece.content for piece in cut("\n\n".join(parts), chunking)}
        longer = [parts[0], "New " + parts[1], *parts[1:]]
        return len({piece.content for piece in cut("\n\n".join(longer), chunking)} - before)

    assert changed(0) > 600
    assert changed(64) < 60
    assert changed(8) < 10


@settings(max_examples=40)
@given(st.lists(st.integers(8, 90), min_size=2, max_size=60), st.data())
def test_an_anchor_ends_what_an_insertion_changes(lengths: list[int], data: st.DataObject) -> None:
    parts = [" ".join(f"p{n}w{m}" for m in range(size)) + "." for n, size in enumerate(lengths)]
    place = data.draw(st.integers(0, len(parts) - 1))
    chunking = ChunkingSettings(anchor_every=4, min_fact_tokens=1)
    before = cut("\n\n".join(parts), chunking)
    after = cut("\n\n".join([*parts[:place], "Something new.", *parts[place:]]), chunking)
    anchors = [n for n in range(place + 1, len(parts)) if int(sha256(parts[n])[-8:], 16) % 4 == 0]
    if anchors:
        behind = "\n\n".join(parts[anchors[0] :])
        tail = [piece.content for piece in cut(behind, chunking)]
        assert [piece.content for piece in after][-len(tail) :] == tail
        assert [piece.content for piece in before][-len(tail) :] == tail


def test_the_default_joins_to_200_tokens_and_splits_above_256() -> None:
    short = "\n\n".join(sentences(8) for _ in range(6))  # 64 tokens each
    assert [
        COUNTER.count(piece.content.replace("\n", " ")) for piece in cut(short, NO_ANCHORS)
    ] == [
        192,
        192,
    ]
    assert len(cut(sentences(32), NO_ANCHORS)) == 1  # 256 tokens
    assert len(cut(sentences(33), NO_ANCHORS)) == 2
    assert (LITERAL.join_up_to_tokens, LITERAL.split_above_tokens) == (0, 512)
    assert (LITERAL.overlap_between, LITERAL.decompose) == ("all", "always")
