"""Short ways to make retrieval results for tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from crp_integrations.envelope.cfs.assembly import assemble
from crp_integrations.envelope.cfs.records import (
    AssembledContext,
    AssemblySettings,
    RetrievalResult,
    SourceChunk,
    SourceDocument,
    TokenBudget,
)
from crp_integrations.envelope.ports import ContextTokenizer
from tests.doubles import NOON

QUERY = "blockchain consensus"


class LetterTokenizer:
    """One token a character, so a budget can be met to the token; cuts add three."""

    identity = "letters@1"
    keeps_counts = False

    def count_tokens(self, text: str) -> int:
        return len(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [len(text) for text in texts]

    def truncate_to_tokens(self, text: str, max_tokens: int) -> str:
        return text if len(text) <= max_tokens else text[: max(0, max_tokens)] + "..."


LETTERS = LetterTokenizer()


def found(
    id: str,
    score: float = 0.5,
    *,
    path: str = "a.md",
    text: str | None = None,
    tokens: int | None = None,
    sequence: int = 0,
    offset: int = 0,
    document: str | None = None,
    modified_at: datetime | None = None,
    **fields: Any,
) -> RetrievalResult:
    """A result; `tokens` makes a text of one long word with so many simple tokens."""
    if text is None:
        text = id if tokens is None else (id * 4 * tokens)[: 4 * tokens]
    return RetrievalResult(
        chunk=SourceChunk(id, text, sequence, offset, fields.pop("metadata", {})),
        document=SourceDocument(path if document is None else document, path, modified_at),
        score=score,
        **fields,
    )


def room(available: int, overhead: int = 10) -> TokenBudget:
    """A budget without reserves."""
    return TokenBudget(
        total_tokens=available,
        reserved_system=0,
        reserved_query=0,
        reserved_response=0,
        per_doc_overhead=overhead,
    )


def made(
    results: Sequence[RetrievalResult],
    budget: TokenBudget | int = 10_000,
    tokenizer: ContextTokenizer | None = None,
    *,
    now: datetime = NOON,
    **choices: Any,
) -> AssembledContext:
    return assemble(
        QUERY,
        results,
        room(budget) if isinstance(budget, int) else budget,
        *(() if tokenizer is None else (tokenizer,)),
        now=now,
        settings=AssemblySettings(**choices),
    )


def ids(context: AssembledContext) -> list[str]:
    return [chunk.chunk_id for chunk in context.chunks]
