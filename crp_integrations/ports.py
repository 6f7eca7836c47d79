"""Ports that several rooms need: what the pure centre asks of the world.

Implementations live in `engines/` and `stores/`; only `relay/build.py` chooses between them.
Ports are synchronous and may block, apart from the asynchronous twins of `Model`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from crp_integrations.messages import Message, ModelCall, Reply
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import Exactness


@runtime_checkable
class Embedder(Protocol):
    """Turns text into unit vectors; safe under threads, since slices are embedded side by side.

    Spec: CRP-SPEC-009 §3.4

    Attributes:
        identity: name and hash of everything that decides the vectors' bytes.
        dimensions: length of a vector.
        thresholds: similarity thresholds calibrated for this embedder, from its card.
    """

    @property
    def identity(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    @property
    def thresholds(self) -> Mapping[str, float]: ...

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        """Unit rows, shape (n, dimensions), float32; a row depends on its own text alone."""
        ...

    def embed_query(self, text: str) -> FloatRows:
        """A unit vector, shape (dimensions,), float32."""
        ...


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens as one model's tokenizer does.

    Attributes:
        identity: the tokenizer's name, the key under which counts are stored.
        exactness: `exact` only where the model's own vocabulary is used (decision E19).
        source: where the vocabulary comes from, such as `tiktoken o200k_base`.
    """

    @property
    def identity(self) -> str: ...

    @property
    def exactness(self) -> Exactness: ...

    @property
    def source(self) -> str: ...

    def count(self, text: str) -> int:
        """Tokens of a text, at least 0."""
        ...

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        ...

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of a conversation with the family's overhead for each message."""
        ...

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of tool definitions as the family is sent them; 0 without any."""
        ...


@runtime_checkable
class Model(Protocol):
    """Answers a call; raises `ModelError` and its subclasses only."""

    def call(self, call: ModelCall) -> Reply:
        """Answer a call."""
        ...

    async def acall(self, call: ModelCall) -> Reply:
        """Answer a call without blocking the event loop."""
        ...

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        """Pieces of text as they come, then the whole `Reply` once, last."""
        ...

    def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous twin of `stream`."""
        ...


class Tracer(Protocol):
    """Opens a span around a step; the default does nothing."""

    def step(self, name: str) -> AbstractContextManager[None]:
        """A context manager that lasts as long as the step."""
        ...


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""
        ...


class Ids(Protocol):
    """Makes identifiers that cannot be guessed."""

    def new(self, prefix: str) -> str:
        """The prefix and at least 16 random alphanumerics, such as `crp_sess_…`."""
        ...


class KeyRing(Protocol):
    """Holds the master key; it is never logged, exported or put into a record."""

    def master(self) -> bytes:
        """At least 32 bytes."""
        ...


@runtime_checkable
class RotatedKeyRing(KeyRing, Protocol):
    """A key ring whose master key has others before it."""

    def retired(self) -> Sequence[bytes]:
        """Master keys of earlier epochs, oldest first; what they sealed still verifies."""
        ...


def retired_of(keyring: KeyRing) -> Sequence[bytes]:
    """Master keys of a ring's earlier epochs, oldest first; none where it has no such."""
    # Asked for by name: `isinstance` of a protocol looks through all its members, every time.
    retired = getattr(keyring, "retired", None)
    return () if retired is None else retired()


class Silent:
    """The tracer that does nothing."""

    def step(self, name: str) -> AbstractContextManager[None]:
        """A context manager without effect."""
        return nullcontext()
