"""Counts by blocks against counts of whole texts, for every pattern that is said to allow it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crp_integrations.engines.tokens import blocks, offline
from crp_integrations.engines.tokens.blocks import ENDING, Blocks
from crp_integrations.engines.tokens.patterns import PATTERNS
from crp_integrations.engines.tokens.tiktoken import TiktokenEncoder, encoding
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
    found = next(hit for one in offline.WITH_PATTERN if (hit := offline.find(one)) is not None)
    made = encoding(request.param, found.data, PATTERNS[request.param])
    return TiktokenEncoder(made, vocabulary_hash="")


@settings(max_examples=300)
@given(CONTENTS)
@example([".\n", " \n", "]\n\n[2] ", "'"])
@example(["", "", ""])
def test_blocks_add_up_to_the_whole(plain: TiktokenEncoder, contents: list[str]) -> None:
    by_blocks = Blocks(plain.count)
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

    by_blocks = Blocks(count)
    for content in ("Mills grind.", "Rivers rise."):
        by_blocks.count(marker_text(content))
    read.clear()
    by_blocks.count(render(["Rivers rise.", "Mills grind.", "Last."]))
    assert read == ["[1]", "[2]", "[3]", " Last."]


def test_blocks_are_bounded_and_forgotten(
    plain: TiktokenEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_KEPT", 100)
    by_blocks = Blocks(plain.count)
    for number in range(50):
        by_blocks.count(marker_text(f"fact {number}"))
    assert 0 < by_blocks._used == sum(map(len, by_blocks._kept)) <= 100
    monkeypatch.setattr(blocks, "_LONGEST_KEPT", 10)
    by_blocks.count(marker_text("a fact of some length"))
    assert not any("some length" in text for text in by_blocks._kept)
    forget()
    assert not by_blocks._kept and not by_blocks._used
