"""Counts by blocks against counts of whole texts, for every pattern that is said to allow it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crp_integrations.engines.tokens import vocabularies
from crp_integrations.engines.tokens.encoders import ENDING, BlockCounts, TiktokenEncoder, encoding
from crp_integrations.engines.tokens.vocabularies import PATTERNS
from crp_integrations.envelope.prompt import marker_text, render
from crp_integrations.language.memo import forget

# What the patterns tell apart, and what could be taken for a marker.
MARKERS = ["[", "]", "[1]", "[12] ", "\n\n[3] ", "\n\n[0007] ", "\n\n[9]x", "\n\n[x] "]
SPACES = [" ", "\n", "\n\n", "\r\n", "\t", "\x85", "\u2028"]
SIGNS = ["/", ".", "...", "=", "'s", "'LL", "e\u0301", "\u0301", "7", "1234", "٣", "\ud800"]
WORDS = ["a", "B", "word", "Über", "é", "漢字", "🙂"]
PIECES = st.sampled_from([*MARKERS, *SPACES, *SIGNS, *WORDS])
CONTENTS = st.lists(st.lists(PIECES, max_size=8).map("".join), max_size=5)


@pytest.fixture(scope="module", params=sorted(ENDING))
def plain(request: pytest.FixtureRequest) -> TiktokenEncoder:
    """An encoder that counts whole texts; merges of one vocabulary serve every pattern."""
    found = next(
        hit
        for one in vocabularies.WITH_PATTERN
        if (hit := vocabularies.find_vocabulary(one)) is not None
    )
    made = encoding(request.param, found.data, PATTERNS[request.param])
    return TiktokenEncoder(made, vocabulary_hash="")


@settings(max_examples=100)
@given(CONTENTS)
@example([".\n", " \n", "]\n\n[2] ", "'"])
@example(["", "", ""])
def test_blocks_add_up_to_the_whole(plain: TiktokenEncoder, contents: list[str]) -> None:
    by_blocks = BlockCounts(plain.count)
    texts = [render(contents), "".join(contents), *map(marker_text, contents)]
    for text in [*texts, *texts]:
        assert by_blocks.count(text) == plain.count(text)


def test_a_fact_that_was_counted_is_not_counted_in_the_rendered_text(
    plain: TiktokenEncoder,
) -> None:
    read: list[str] = []

    def count(text: str) -> int:
        read.append(text)
        return plain.count(text)

    by_blocks = BlockCounts(count)
    for content in ("Mills grind.", "Rivers rise."):
        by_blocks.count(marker_text(content))
    read.clear()
    by_blocks.count(render(["Rivers rise.", "Mills grind.", "Last."]))
    assert read == ["[1]", "[2]", "[3]", " Last."]


def test_an_erasure_lets_go_of_counted_blocks() -> None:
    read: list[str] = []
    by_blocks = BlockCounts(lambda text: read.append(text) or 1)  # type: ignore[func-returns-value]
    for _ in range(2):
        assert by_blocks.count("[1] One.\n\n[2] Two.") == 4
    assert len(read) == 4
    forget()
    by_blocks.count("[1] One.\n\n[2] Two.")
    assert len(read) == 8
