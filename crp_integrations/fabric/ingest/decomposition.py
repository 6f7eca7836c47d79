"""From passages to facts: a passage with several assertions can become several facts.

The assertions are those that the provenance engine finds in an answer, by the same code. A piece
is a slice of the passage, from the beginning of an assertion to that of the next, so nothing is
rewritten and nothing lost: what is no assertion stays with the one before.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from crp_integrations.fabric.ingest.chunking import Chunk, Origin, cut
from crp_integrations.fabric.records import Block
from crp_integrations.fabric.settings import ChunkingSettings
from crp_integrations.language.blocks import blocks as text_blocks
from crp_integrations.language.claims import Segment, segment
from crp_integrations.ports import TokenCounter
from crp_integrations.vocabulary import ClaimType

# What an assertion that leans on the one before begins with.
_LEANING = re.compile(
    r"[\"'(\[\u201c\u2018*_]*(?:it|its|he|his|him|she|hers?|they|their|theirs|them|this|that|these"
    r"|those|such|here|there|then|thus|hence|so|therefore|however|moreover|furthermore|also"
    r"|additionally|besides|instead|nevertheless|nonetheless|otherwise|meanwhile|similarly"
    r"|likewise|conversely|consequently|accordingly|subsequently|afterwards?|later|earlier"
    r"|finally|and|but|or|nor|yet|because|since|although|though|while|whereas|which|who|whose"
    r"|where|both|neither|either|one|some|others?|another|each|most|many|all|none|as a result"
    r"|in addition|in contrast|for example|for instance|the (?:former|latter|same|other|first"
    r"|second|third|last|two|three|following|above))\b",
    re.IGNORECASE,
)
_PROSE = frozenset({"paragraph", "heading"})


def passages(
    blocks: Iterable[Block], *, counter: TokenCounter, settings: ChunkingSettings
) -> Iterator[Chunk]:
    """Cut the blocks of one document into what becomes its facts, in order, as the blocks come.

    Spec: CRP-SPEC-009 §4.2, §4.3

    Args:
        blocks: in order of their offsets.
        counter: counts the tokens that the settings' limits mean.
    """
    chunks = cut(blocks, counter=counter, settings=settings)
    if settings.decompose == "never":
        yield from chunks
        return
    before = 0
    for whole in chunks:
        yield from decomposed(whole, counter=counter, settings=settings, told=before)
        before = whole.end


def decomposed(
    whole: Chunk, *, counter: TokenCounter, settings: ChunkingSettings, told: int = 0
) -> list[Chunk]:
    """The pieces of a passage, or the passage itself when it is to stay whole.

    Spec: CRP-SPEC-009 §4.3

    Args:
        told: offset in the document up to which the passage before reached; assertions that
            lie before it are in that passage already.

    Returns:
        Pieces in order that hold every character from `told` on that is no white space, each with
        at least `min_fact_tokens` unless the passage has fewer.
    """
    content = whole.content
    claims = [claim for claim in segment(content) if claim.claim_type is ClaimType.FACTUAL]
    if len(claims) < 2:
        return [whole]
    starts = _starts(content, claims)
    if settings.decompose == "standalone" and not _all_stand_alone(
        content, claims, starts, counter, settings.min_fact_tokens
    ):
        return [whole]
    ends = [*starts[1:], len(content)]
    spans = [
        (start, end)
        for start, end in zip(starts, ends, strict=True)
        if _place(whole, start + len(content[start:end].rstrip()), behind=True) > told
    ]
    if not spans:
        return [whole]
    counts = counter.count_many([_body(content, start, end) for start, end in spans])
    joined: list[list[int]] = []
    for (start, end), count in zip(spans, counts, strict=True):
        if joined and joined[-1][2] < settings.min_fact_tokens:
            joined[-1][1:] = [end, counter.count(_body(content, joined[-1][0], end))]
        else:
            joined.append([start, end, count])
    if len(joined) > 1 and joined[-1][2] < settings.min_fact_tokens:
        joined[-2:] = [[joined[-2][0], joined[-1][1], 0]]
    # What is new is too little for a fact, so it is told with what comes before it.
    for start in reversed(starts[: len(starts) - len(spans)]):
        if len(joined) > 1 or joined[0][2] >= settings.min_fact_tokens:
            break
        joined[0] = [start, joined[0][1], counter.count(_body(content, start, joined[0][1]))]
    if len(joined) == 1 and joined[0][0] == 0:
        return [whole]
    return [_piece(whole, start, end) for start, end, _ in joined]


def _starts(content: str, claims: Sequence[Segment]) -> list[int]:
    """Where each piece begins: at its assertion, or at the list marker in front of it."""
    starts = [0]
    for before, claim in pairwise(claims):
        line = content.rfind("\n", before.end, claim.start)
        starts.append(claim.start if line < 0 else line + 1)
    return starts


def _all_stand_alone(
    content: str,
    claims: Sequence[Segment],
    starts: Sequence[int],
    counter: TokenCounter,
    least: int,
) -> bool:
    """Whether each assertion can be understood without the ones around it."""
    if any(len(claim.parts) > 1 for claim in claims):
        return False
    if any(_LEANING.match(content, claim.start) for claim in claims):
        return False
    if any(block.kind not in _PROSE for block in text_blocks(content)):
        return False
    ends = [*starts[1:], len(content)]
    counts = counter.count_many(
        [_body(content, start, end) for start, end in zip(starts, ends, strict=True)]
    )
    return min(counts) >= least


def _body(content: str, start: int, end: int) -> str:
    """A slice without outer empty lines; the indentation of its first line belongs to code."""
    return content[start:end].rstrip().lstrip("\n")


def _piece(whole: Chunk, start: int, end: int) -> Chunk:
    body = whole.content[start:end]
    start += len(body) - len(body.lstrip("\n"))
    content = _body(whole.content, start, end)
    last = start + len(content)
    return replace(
        whole,
        content=content,
        start=_place(whole, start),
        end=_place(whole, last, behind=True),
        page=_origin(whole, start).page,
        last_page=_origin(whole, last - 1).page,
        origins=(),
    )


def _place(whole: Chunk, offset: int, *, behind: bool = False) -> int:
    """The offset in the document of an offset in a passage's content.

    Args:
        behind: the offset is behind a character and belongs to it.
    """
    origin = _origin(whole, offset - behind)
    return origin.start + offset - origin.offset


def _origin(whole: Chunk, offset: int) -> Origin:
    place = bisect_right(whole.origins, offset, key=lambda origin: origin.offset)
    return whole.origins[max(0, place - 1)]
