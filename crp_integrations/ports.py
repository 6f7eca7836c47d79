"""Protocols that several subpackages need: embedder, token counter, model, clock, ids, keys.

Implementations live in `engines/` and `stores/`; only `relay/build.py` chooses between them.
Their methods are synchronous and may block, except the asynchronous ones of `Model`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, Protocol, TypeVar, runtime_checkable

from crp_integrations.messages import Message, ModelCall, Reply
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import Exactness


@runtime_checkable
class Embedder(Protocol):
    """Turns text into unit vectors; thread-safe, since several slices are embedded at once.

    Spec: CRP-SPEC-009 §3.4

    Attributes:
        identity: name and hash of everything that determines the vectors' bytes.
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
        """Unit rows, shape (n, dimensions), float32; each row depends only on its own text."""
        ...

    def embed_query(self, text: str) -> FloatRows:
        """A unit vector, shape (dimensions,), float32."""
        ...


def without_keeping(embedder: Embedder) -> Embedder:
    """An embedder that adds nothing to its cache of vectors; itself if it has none."""
    unkept: Embedder = getattr(embedder, "without_keeping", lambda: embedder)()
    return unkept


def embedder_of_tenant(embedder: Embedder, tenant: str) -> Embedder:
    """An embedder whose cached vectors serve only one tenant; itself if it has no cache."""
    own: Embedder = getattr(embedder, "of_tenant", lambda _: embedder)(tenant)
    return own


def cached_values(
    embedder: Embedder,
    kind: str,
    texts: Sequence[str],
    make: Callable[[list[str]], Sequence[bytes]],
) -> Sequence[bytes]:
    """The values of a function of texts, from the embedder's cache if it has one."""
    cached: Callable[..., Sequence[bytes]] | None = getattr(embedder, "cached_values", None)
    return make(list(texts)) if cached is None else cached(kind, texts, make)


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens as one model's tokenizer does.

    Attributes:
        identity: the tokenizer's name, the key under which counts are stored.
        exactness: `exact` only where the model's own vocabulary is used (decision E19).
        source: origin of the vocabulary, such as `tiktoken o200k_base`.
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
        """Tokens of a conversation with the model family's overhead for each message."""
        ...

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of tool definitions in the format sent to the model family; 0 without any."""
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
        """Pieces of text as they arrive, and finally the whole `Reply`."""
        ...

    def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous version of `stream`."""
        ...


class Tracer(Protocol):
    """Opens a tracing span around a step; the default, `Silent`, does nothing."""

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
        """The prefix and at least 16 random alphanumeric characters, such as `crp_sess_…`."""
        ...


class KeyRing(Protocol):
    """Keeps the master key, which is never logged, exported or put into a record."""

    def master(self) -> bytes:
        """At least 32 bytes."""
        ...


@runtime_checkable
class RotatedKeyRing(KeyRing, Protocol):
    """A key ring that also keeps earlier master keys."""

    def retired(self) -> Sequence[bytes]:
        """Master keys of earlier epochs, oldest first; what they sealed still verifies."""
        ...


def retired_of(keyring: KeyRing) -> Sequence[bytes]:
    """Master keys of a ring's earlier epochs, oldest first; empty if the ring has none."""
    # `getattr` is faster than `isinstance`, which checks all members of a protocol every time.
    retired = getattr(keyring, "retired", None)
    return () if retired is None else retired()


class Silent:
    """The tracer that does nothing."""

    def step(self, name: str) -> AbstractContextManager[None]:
        """A context manager without effect."""
        return nullcontext()


T = TypeVar("T")


def share_in_copies(original: T, memo: object = None) -> T:
    """The `__deepcopy__` of an object that a deep copy shares instead of copying.

    LangChain, LlamaIndex and LangGraph copy callbacks and components. Locks and connections cannot
    be copied, and a copied handler would get the reports that the caller's own handler waits for.
    """
    return original
