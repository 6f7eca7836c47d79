"""Stand-ins for the ports: a small embedder, a standing clock, counting ids, scripted models."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np

from crp_integrations.fabric.settings import ChunkingSettings
from crp_integrations.messages import Message, ModelCall, Reply
from crp_integrations.ports import Embedder
from crp_integrations.vectors import FloatRows, unit_rows
from crp_integrations.vocabulary import Exactness

NOON = datetime(2026, 5, 25, 12, 0, tzinfo=UTC)
# For fixtures that write one fact a paragraph, however short it is.
PARAGRAPHS = ChunkingSettings(join_up_to_tokens=0)


class HashEmbedder:
    """A bag of lower-cased words hashed into 256 dimensions; equal words, near vectors."""

    identity = "hash-embedder/256"
    dimensions = 256
    thresholds: Mapping[str, float] = {}

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()) or [""]:
                row[_place(word)] += 1.0
        return unit_rows(rows)

    def embed_query(self, text: str) -> FloatRows:
        return self.embed_passages([text])[0]


class CountingEmbedder:
    """An embedder that lists the texts that it embeds."""

    def __init__(self, base: Embedder) -> None:
        self._base = base
        self.identity, self.thresholds = base.identity, base.thresholds
        self.dimensions = base.dimensions
        self.symmetric = getattr(base, "symmetric", False)
        self.texts: list[str] = []

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        self.texts += texts
        return self._base.embed_passages(texts)

    def embed_query(self, text: str) -> FloatRows:
        self.texts.append(text)
        return self._base.embed_query(text)


@lru_cache(maxsize=100_000)
def _place(word: str) -> int:
    """The dimension of a word."""
    return int.from_bytes(hashlib.sha256(word.encode()).digest()[:2], "big") % 256


class Recording(HashEmbedder):
    """Keeps the texts that it embeds."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        self.texts += texts
        return super().embed_passages(texts)


class WordCounter:
    """One token a word and one a line break; adds up exactly."""

    identity = "words@1"
    exactness = Exactness.EXACT
    source = "tests"

    def count(self, text: str) -> int:
        return len(re.findall(r"\S+|\n", text))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[Message]) -> int:
        return sum(3 + self.count(message.content) for message in messages)

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        return sum(self.count(json.dumps(tool)) for tool in tools)


class FixedClock:
    """Stands at a moment until it is moved."""

    def __init__(self, moment: datetime = NOON) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment


class CountingIds:
    """`crp_sess_0000000000000001`, and so on."""

    def __init__(self) -> None:
        self.made = 0

    def new(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}{self.made:016d}"


Script = str | Reply | BaseException | Callable[[ModelCall], str | Reply]


class ScriptedModel:
    """Answers calls with a script, in order, the last entry again and again; keeps the calls."""

    def __init__(self, *script: Script) -> None:
        self.script = script
        self.calls: list[ModelCall] = []

    def call(self, call: ModelCall) -> Reply:
        entry = self.script[min(len(self.calls), len(self.script) - 1)]
        self.calls.append(call)
        if callable(entry) and not isinstance(entry, BaseException):
            entry = entry(call)
        if isinstance(entry, BaseException):
            raise entry
        return entry if isinstance(entry, Reply) else Reply(text=entry, model=call.model)

    async def acall(self, call: ModelCall) -> Reply:
        return self.call(call)

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        reply = self.call(call)
        yield from re.findall(r"\S+\s*", reply.text)
        yield reply

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        for part in self.stream(call):
            yield part


def stands(value: str, text: str) -> bool:
    """Whether `value` stands in `text` by itself: a hash may hold the same figures by chance."""
    return bool(re.search(rf"(?<![\w+/=-]){re.escape(value)}(?![\w+/=-])", text))


def erase_all(namespace: Any) -> Any:
    """Erase every source of a namespace; returns the last report."""
    return [namespace.erase(source.source_id) for source in namespace.sources()][-1]
