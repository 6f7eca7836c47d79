"""Which paragraphs of a document stay together: the first three rules of `chunker`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

from crp_integrations.fabric.records import Block
from crp_integrations.fabric.settings import ChunkingSettings
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import sha256

_UNDERLINE = re.compile(r"\s*(?:=+|-+)\s*\Z")
_LISTING = re.compile(r"\s{0,3}(?:[-*+•|>]|\d{1,3}[.)]|```|~~~|<(?:ul|ol|table|pre))")
# Blocks whose tokens are counted at once, and the characters after which fewer are.
_COUNTED_BLOCKS = 256
_COUNTED_CHARACTERS = 1_000_000
# Hexadecimal digits of a hash that are drawn from.
_HASH_DIGITS = 8


@dataclass(frozen=True, slots=True)
class ParagraphGroup:
    """Paragraphs that stay together, each with its tokens."""

    blocks: tuple[Block, ...]
    counts: tuple[int, ...]
    tokens: int
    heading: str


def _counted(blocks: Iterator[Block], counter: TokenCounter) -> Iterator[ParagraphGroup]:
    """Each block as a group of its own, tokens counted many at a time."""
    while batch := list(islice(_within(blocks), _COUNTED_BLOCKS)):
        for block, count in zip(
            batch, counter.count_many([block.text for block in batch]), strict=True
        ):
            yield ParagraphGroup((block,), (count,), count, block.heading)


def paragraph_groups(
    blocks: Iterator[Block], counter: TokenCounter, settings: ChunkingSettings
) -> Iterator[ParagraphGroup]:
    """Join what cannot stand alone with a neighbour, in one pass."""
    least = settings.min_fact_tokens
    most_carried = max(least, settings.split_above_tokens // 2)
    # The last group that is complete; one more short paragraph may still join it.
    done: ParagraphGroup | None = None
    carried: ParagraphGroup | None = None
    ahead: Iterator[ParagraphGroup | None] = chain(_counted(blocks, counter), [None])
    own = next(ahead)
    while own is not None:
        following = next(ahead)
        block, group = own.blocks[0], own
        if carried is not None:
            if carried.tokens > most_carried:
                if done is not None:
                    yield done
                done = carried
            else:
                group = _joined(carried, own, own.heading)
            carried = None
        if following is not None and (
            _is_heading(block) or _announces(own, following, settings.split_above_tokens)
        ):
            carried = group
        elif group.tokens >= least:
            if done is not None:
                yield done
            done = group
        elif following is not None and following.heading == block.heading:
            carried = group
        elif done is not None and done.heading == block.heading:
            done = _joined(done, group, done.heading)
        elif following is not None:
            carried = group
        else:
            done = group if done is None else _joined(done, group, done.heading)
        own = following
    if done is not None:
        yield done


def fill_groups(
    ahead: Iterator[ParagraphGroup], settings: ChunkingSettings
) -> Iterator[ParagraphGroup]:
    """Join neighbours of one section as long as they stay within `join_up_to_tokens`."""
    held: ParagraphGroup | None = None
    for group in ahead:
        if (
            held is not None
            and held.heading == group.heading
            and held.tokens + group.tokens <= settings.join_up_to_tokens
            and not _is_anchor(group, settings.anchor_every)
        ):
            held = _joined(held, group, held.heading)
            continue
        if held is not None:
            yield held
        held = group
    if held is not None:
        yield held


def _is_anchor(group: ParagraphGroup, every: int) -> bool:
    return every > 0 and int(sha256(group.blocks[0].text)[-_HASH_DIGITS:], 16) % every == 0


def _announces(own: ParagraphGroup, following: ParagraphGroup, limit: int) -> bool:
    """Whether a paragraph ends in a colon and a list, table or code comes next."""
    return (
        own.blocks[0].text.rstrip("*_ \n").endswith(":")
        and own.tokens + following.tokens <= limit
        and _LISTING.match(following.blocks[0].text) is not None
    )


def _within(blocks: Iterator[Block]) -> Iterator[Block]:
    """Blocks up to and with the one that reaches the characters counted at once."""
    characters = 0
    for block in blocks:
        yield block
        characters += len(block.text)
        if characters >= _COUNTED_CHARACTERS:
            return


def _joined(left: ParagraphGroup, right: ParagraphGroup, heading: str) -> ParagraphGroup:
    return ParagraphGroup(
        (*left.blocks, *right.blocks),
        (*left.counts, *right.counts),
        left.tokens + right.tokens,
        heading,
    )


def _is_heading(block: Block) -> bool:
    """Whether a block is the last of its own headings, as loaders write them."""
    if not block.heading:
        return False
    first, *rest = block.text.split("\n")
    words = first.strip("# \t")
    return (
        bool(words)
        and (block.heading == words or block.heading.endswith(" > " + words))
        and (not rest or (len(rest) == 1 and _UNDERLINE.match(rest[0]) is not None))
    )
