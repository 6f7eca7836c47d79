"""Pack chunks into a budget: tokenizers, three packing algorithms, duplicates, and the text.

The text has a marker for each document (`cfs-format@1`) and is counted whole (`cfs-whole@1`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from crp_integrations.envelope.cfs.records import (
    ContextChunk,
    DocumentGroup,
    PackingName,
    RetrievalResult,
)
from crp_integrations.envelope.ports import ContextTokenizer
from crp_integrations.language.text import plain
from crp_integrations.ports import TokenCounter
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.seals import blake3_of

DOTS = "..."
SIMPLE = "simple@1"
CHARACTERS = 4


class SimpleTokenizer:
    """Counts four characters as a token; the default where no model is named.

    >>> SimpleTokenizer().count_tokens("12345"), SimpleTokenizer().truncate_to_tokens("1234567", 1)
    (2, '1234...')
    """

    identity: Final = SIMPLE
    keeps_counts: Final = False

    def count_tokens(self, text: str) -> int:
        """A quarter of the characters, rounded up."""
        return (len(text) + CHARACTERS - 1) // CHARACTERS

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return [self.count_tokens(text) for text in texts]

    def truncate_to_tokens(self, text: str, max_tokens: int) -> str:
        """The text up to four characters a token; the three dots are not counted."""
        end = max(0, max_tokens) * CHARACTERS
        return text if len(text) <= end else text[:end].strip() + DOTS


class ModelTokenizer:
    """Counts tokens with a model's token counter."""

    keeps_counts: Final = True

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    @property
    def identity(self) -> str:
        """The counter's identity."""
        return self._counter.identity

    def count_tokens(self, text: str) -> int:
        """Tokens as the model counts them."""
        return max(0, self._counter.count(text))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return [max(0, count) for count in self._counter.count_many(texts)]

    def truncate_to_tokens(self, text: str, max_tokens: int) -> str:
        """The text, or its beginning and three dots with together at most `max_tokens`.

        The beginning is as long as fits. Empty if not even the dots fit.
        """
        if self.count_tokens(text) <= max_tokens:
            return text

        def cut(end: int) -> str:
            return text[:end].strip() + DOTS

        def fits(end: int) -> bool:
            return self.count_tokens(cut(end)) <= max_tokens

        if not fits(0):
            return ""
        # Doubling the end first avoids counting all of a long text to keep a short beginning.
        low, high = 0, min(len(text), max(1, max_tokens) * CHARACTERS)
        while fits(high):
            if high == len(text):
                return cut(high)
            low, high = high, min(len(text), 2 * high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return cut(low)


ALGORITHMS: Mapping[PackingName, str] = {
    "greedy": "cfs-greedy@1",
    "interleaved": "cfs-interleaved@1",
    "score_weighted": "cfs-score-weighted@1",
}


@dataclass(frozen=True, slots=True)
class PlacedChunk:
    """A chunk with its text as it goes into the context."""

    result: RetrievalResult
    text: str
    tokens: int
    cut: bool = False

    @property
    def document_id(self) -> str:
        """Id of the chunk's document."""
        return self.result.document.id

    @property
    def document_path(self) -> str:
        """Path of the chunk's document, which its marker shows."""
        return self.result.document.path


@dataclass(frozen=True, slots=True)
class ContextPackResult:
    """The packed chunks in the order of the context.

    Attributes:
        ended: whether the budget ended the packing before every chunk was tried.
    """

    placed: tuple[PlacedChunk, ...]
    ended: bool

    @property
    def truncated(self) -> bool:
        """Whether a chunk was cut, or the budget ended the packing (decision E23)."""
        return self.ended or any(chunk.cut for chunk in self.placed)


@dataclass(slots=True)
class _Filling:
    """A budget that is being filled; content and markers together never exceed it.

    Attributes:
        available: tokens of the budget.
        overhead: tokens of a document's marker, charged with its first chunk.
        used: tokens of content and markers so far.
    """

    available: int
    overhead: int
    counts: Mapping[str, int]
    tokenizer: ContextTokenizer
    allow_partial: bool
    used: int = 0
    placed: list[PlacedChunk] = field(default_factory=list)
    documents: set[str] = field(default_factory=set)

    @property
    def full(self) -> bool:
        return self.used >= self.available

    def take(self, result: RetrievalResult) -> bool:
        """Add a chunk if it fits whole; whether it did."""
        tokens = self.counts[result.chunk.id]
        if tokens > self._left(result):
            return False
        self._place(PlacedChunk(result, result.chunk.text, tokens))
        return True

    def cut(self, result: RetrievalResult) -> bool:
        """Add the beginning of a chunk, if chunks may be cut and any of it fits; whether it did."""
        if not self.allow_partial:
            return False
        piece = cut_to(result.chunk.text, self._left(result), self.tokenizer)
        if piece is None:
            return False
        text, tokens = piece
        self._place(PlacedChunk(result, text, tokens, cut=True))
        return True

    def _left(self, result: RetrievalResult) -> int:
        marker = 0 if result.document.id in self.documents else self.overhead
        return self.available - self.used - marker

    def _place(self, placed: PlacedChunk) -> None:
        if placed.document_id not in self.documents:
            self.documents.add(placed.document_id)
            self.used += self.overhead
        self.used += placed.tokens
        self.placed.append(placed)


def cut_to(text: str, tokens: int, tokenizer: ContextTokenizer) -> tuple[str, int] | None:
    """The text cut to at most this many tokens, dots included, with its count; None if none fits.

    A tokenizer's cut may exceed the requested tokens, as `SimpleTokenizer` does not count its
    dots, so fewer tokens are requested until the cut fits.

    Spec: CFS-021 §7 (decision F1)
    """
    wanted = tokens
    while wanted > 0:
        short = tokenizer.truncate_to_tokens(text, wanted)
        count = tokenizer.count_tokens(short)
        if count <= tokens:
            return (short, count) if short.removesuffix(DOTS) else None
        wanted -= count - tokens
    return None


def pack(
    groups: Sequence[DocumentGroup],
    results: Sequence[RetrievalResult],
    *,
    packing: PackingName,
    available: int,
    overhead: int,
    counts: Mapping[str, int],
    tokenizer: ContextTokenizer,
    allow_partial: bool,
) -> ContextPackResult:
    """Fill the available tokens with whole chunks, and with cut ones if `allow_partial`.

    Spec: CFS-021 §7, §8
    """
    filling = _Filling(available, overhead, counts, tokenizer, allow_partial)
    if packing == "score_weighted":
        ended = _score_weighted(results, filling)
    else:
        ended = (_greedy if packing == "greedy" else _interleaved)(groups, filling)
    return ContextPackResult(tuple(filling.placed), ended)


def reading_order(group: DocumentGroup) -> list[RetrievalResult]:
    """The chunks of a group by sequence, then byte offset; ties keep the total order.

    Spec: CFS-021 §7
    """
    return sorted(group.chunks, key=lambda r: (r.chunk.sequence, r.chunk.byte_offset))


def _greedy(groups: Sequence[DocumentGroup], filling: _Filling) -> bool:
    """Document by document in reading order; a chunk that does not fit is skipped.

    Spec: CFS-021 §7
    """
    for group in groups:
        if filling.full:
            return True
        for result in reading_order(group):
            if not filling.take(result) and filling.cut(result):
                break
    return False


def _interleaved(groups: Sequence[DocumentGroup], filling: _Filling) -> bool:
    """The best chunk of each document, then the second of each, until a round adds nothing.

    Spec: CFS-021 §8.1
    """
    left, depth = list(groups), 0
    while left:
        if filling.full:
            return True
        before = len(filling.placed)
        for group in left:
            result = group.chunks[depth]
            if not filling.take(result) and filling.cut(result):
                break
        depth += 1
        left = [group for group in left if len(group.chunks) > depth]
        if len(filling.placed) == before:
            break
    return bool(left)


def _score_weighted(results: Sequence[RetrievalResult], filling: _Filling) -> bool:
    """Chunk by chunk in the total order, up to the first that does not fit.

    Spec: CFS-021 §8.2
    """
    for number, result in enumerate(results, start=1):
        if not filling.take(result):
            filling.cut(result)
            return number < len(results)
    return False


DEDUP = "cfs-dedup@1"

_WORD = re.compile(r"[^\W_]+")


def token_set(text: str) -> frozenset[str]:
    """The distinct words of a text, in lower case."""
    return frozenset(_WORD.findall(plain(text)))


def deduplicate(
    results: Sequence[RetrievalResult], threshold: float
) -> tuple[list[RetrievalResult], list[tuple[RetrievalResult, str]]]:
    """Drop each result whose text equals an earlier one or overlaps it above the threshold.

    Spec: CFS-021 §10 (decisions F3, E23)
    """
    least = to_fixed(threshold)
    unique: list[RetrievalResult] = []
    dropped: list[tuple[RetrievalResult, str]] = []
    hashes: dict[str, str] = {}
    sizes: list[int] = []
    # Numbers of unique results by their words, so that only results that share words are compared.
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for result in results:
        text_hash = blake3_of(result.chunk.text)
        words = token_set(result.chunk.text)
        kept_id = hashes.get(text_hash)
        if kept_id is None:
            shared = Counter(chain.from_iterable(holders[word] for word in words))
            alike = [
                number
                for number, count in shared.items()
                if count * SCALE > least * min(sizes[number], len(words))
            ]
            kept_id = unique[min(alike)].chunk.id if alike else None
        if kept_id is not None:
            dropped.append((result, kept_id))
            continue
        hashes[text_hash] = result.chunk.id
        for word in words:
            holders[word].append(len(unique))
        sizes.append(len(words))
        unique.append(result)
    return unique, dropped


FORMAT = "cfs-format@1"


def marker(path: str) -> str:
    r"""The line above a document's chunks; line breaks in a path could forge one and are removed.

    >>> marker("notes/a.md")
    '[DOC: notes/a.md]\n'
    """
    return f"[DOC: {' '.join(path.splitlines())}]\n"


def format_context(chunks: Iterable[PlacedChunk | ContextChunk], separator: str = "\n") -> str:
    """The chunks in their order, with a marker wherever the document changes.

    Spec: CFS-021 §9 (decision F2)
    """
    parts: list[str] = []
    current: str | None = None
    for chunk in chunks:
        if chunk.document_id != current:
            if current is not None:
                parts.append(separator)
            parts.append(marker(chunk.document_path))
            current = chunk.document_id
        parts += (chunk.text, "\n")
    return "".join(parts)


WHOLE = "cfs-whole@1"


def fit_text(
    packing: ContextPackResult,
    *,
    available: int,
    places: Mapping[str, int],
    tokenizer: ContextTokenizer,
    separator: str,
    binding: bool,
) -> tuple[ContextPackResult, str, int]:
    """Format and count the text; if `binding`, shorten or drop chunks until it fits.

    The text can exceed the budget because each marker was charged a fixed number of tokens, and
    because counts of parts may not add up to the count of the whole.

    Spec: CFS-021 §9, §P2 (decision F1)
    """
    while True:
        text = format_context(packing.placed, separator)
        count = tokenizer.count_tokens(text)
        if not binding or count <= available or not packing.placed:
            return packing, text, count
        packing = ContextPackResult(
            _lighter(packing.placed, count - available, places, tokenizer), packing.ended
        )


def _lighter(
    placed: Sequence[PlacedChunk], excess: int, rank: Mapping[str, int], tokenizer: ContextTokenizer
) -> tuple[PlacedChunk, ...]:
    """The chunks with at least one token less: the cut one shorter, else lowest-ranked dropped."""
    cut = next((number for number, chunk in enumerate(placed) if chunk.cut), None)
    if cut is not None:
        chunk = placed[cut]
        shorter = cut_to(chunk.result.chunk.text, chunk.tokens - excess, tokenizer)
        shortened = [] if shorter is None else [replace(chunk, text=shorter[0], tokens=shorter[1])]
        return (*placed[:cut], *shortened, *placed[cut + 1 :])
    gone: set[str] = set()
    freed = 0
    # In the text a chunk takes at most twice its count, so stopping at half of the excess
    # removes no chunk that removing one at a time would have kept.
    for chunk in sorted(placed, key=lambda chunk: -rank[chunk.result.chunk.id]):
        gone.add(chunk.result.chunk.id)
        freed += chunk.tokens
        if 2 * freed >= excess:
            break
    return tuple(chunk for chunk in placed if chunk.result.chunk.id not in gone)
