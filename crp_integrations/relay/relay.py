"""The front door over a store: ingest, ask, preview."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, Unpack

from crp_integrations.audit.keys import journal_key, session_key
from crp_integrations.audit.trail import Trail, verify_trail
from crp_integrations.envelope.assemble import preview
from crp_integrations.envelope.records import EnvelopePreview
from crp_integrations.errors import RequestError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Document, IngestReport
from crp_integrations.ports import Model
from crp_integrations.relay import outcomes
from crp_integrations.relay.admit import admit
from crp_integrations.relay.asking import Asking
from crp_integrations.relay.drive import adrive, adrive_stream, drive, drive_stream
from crp_integrations.relay.records import Answer, Request
from crp_integrations.relay.turn import Turn, World
from crp_integrations.vocabulary import SourceKind

Progress = Callable[[str, int, int], None]


class Loader(Protocol):
    """Reads files and folders into documents."""

    def __call__(self, path: str | Path, *, prefix: str | None = None) -> Iterable[Document]:
        """The documents of a path."""
        ...


class Relay:
    """Answers questions from a fabric and checks every answer. Safe under threads.

    Made by `Relay.open`. Every call takes the same optional fields of a `Request`: `model`,
    `budget_tokens`, `grounding`, `session_id`, `sub_queries`, `k`, `system_prompt`, `history`,
    `max_tokens`, `temperature`, `seed`, `tools`.

    Attributes:
        fabric: the namespace of the tenant that the relay was opened for.
    """

    def __init__(
        self,
        world: World,
        models: Model,
        store: Store,
        loader: Loader,
        known: Callable[[str], None],
    ) -> None:
        self._world = world
        self._models = models
        self._store = store
        self._loader = loader
        self._known = known

    @classmethod
    def open(cls, store: str | Path | Store | None = None, **options: Any) -> Relay:
        """Open a store and everything that is needed around it.

        Args:
            store: a folder (made at the first write), a store object, or None for a store in
                memory that is gone with the relay.
            options: see `crp_integrations.relay.build.open_relay`.

        Raises:
            ConfigError: a setting has no usable value, or the store needs another embedder.
            StoreError: the folder cannot be used.
        """
        # The engines below this line are heavy; who only imports the class pays nothing.
        from crp_integrations.relay.build import open_relay

        return open_relay(store, **options)

    @property
    def fabric(self) -> Namespace:
        """The knowledge behind the answers."""
        return self._world.namespace

    @property
    def settings(self) -> Any:
        """The settings in force, frozen."""
        return self._world.settings

    def ingest(
        self,
        what: str | Path | Iterable[str | Path | Document],
        *,
        kind: SourceKind | str | None = None,
        labels: Iterable[str] = (),
        prefix: str | None = None,
        progress: Progress | None = None,
    ) -> IngestReport:
        """Put files, folders or documents into the fabric, all of them or none.

        Spec: CRP-SPEC-009 §4

        Args:
            what: a path, or several paths and documents.
            kind: kind of source; a document's own front matter wins over None only.
            labels: access labels put on every fact.
            prefix: what the URIs of paths begin with, so that ids do not depend on where the
                files lie; None takes the absolute path.
            progress: called with a step's name, how much is done and how much there is.

        Returns:
            What was added, what was unchanged, and which documents had too little text.

        Raises:
            IngestError: a path or file cannot be read; the store is as it was.
        """
        items = [what] if isinstance(what, str | Path) else what
        documents = chain.from_iterable(
            (item,) if isinstance(item, Document) else self._loader(item, prefix=prefix)
            for item in items
        )
        chosen = None if kind is None else _kind(kind)
        return self.fabric.ingest(documents, kind=chosen, labels=tuple(labels), progress=progress)

    def turn(self, query: str, **asking: Unpack[Asking]) -> Turn:
        """A window for who calls the model himself: `begin`, then `receive` or `fail`."""
        return Turn(self._request(query, asking), self._world)

    def ask(self, query: str, **asking: Unpack[Asking]) -> Answer:
        """Answer a question from the fabric, checked and sealed.

        Raises:
            RequestError: the request is malformed.
            ModelError: the model could not be called; the window is sealed as failed.
            StoreError: the store could not be read or written.
        """
        turn = self.turn(query, **asking)
        self._known(turn.request.model)
        return outcomes.answer(drive(turn, self._models))

    async def aask(self, query: str, **asking: Unpack[Asking]) -> Answer:
        """The asynchronous twin of `ask`."""
        turn = self.turn(query, **asking)
        await asyncio.to_thread(self._known, turn.request.model)
        return outcomes.answer(await adrive(turn, self._models))

    def stream(self, query: str, **asking: Unpack[Asking]) -> Iterator[str | Answer]:
        """Pieces of the answer, released after the verdict, then the `Answer`.

        The model is called as a stream; nothing is given out before the whole text is examined.
        """
        turn = self.turn(query, **asking)
        self._known(turn.request.model)
        for part in drive_stream(turn, self._models):
            yield part if isinstance(part, str) else outcomes.answer(part)

    async def astream(self, query: str, **asking: Unpack[Asking]) -> AsyncIterator[str | Answer]:
        """The asynchronous twin of `stream`."""
        turn = self.turn(query, **asking)
        await asyncio.to_thread(self._known, turn.request.model)
        async for part in adrive_stream(turn, self._models):
            yield part if isinstance(part, str) else outcomes.answer(part)

    def preview(self, query: str, **asking: Unpack[Asking]) -> EnvelopePreview:
        """What the envelope for a question would be; no model is called, nothing is sealed.

        Spec: CRP-SPEC-003 §12

        Raises:
            RequestError: the request is malformed.
            ModelNotFound: no provider is known for the model.
            StoreError: the store could not be read.
        """
        turn = self.turn(query, **asking)
        self._known(turn.request.model)
        return preview(turn.preview())

    def verify(self) -> Trail:
        """Verify everything that was sealed in this namespace.

        Spec: CRP-SPEC-005 §15.3

        The whole journal and all windows are read, so the time grows with them. Windows that were
        cut off the end together with their events show only against a `Trail.tip` noted elsewhere.

        Returns:
            How many events, windows and sessions were found whole, and the last event's HMAC.

        Raises:
            ChainBroken: something was changed, left out, added or moved; says what and where.
            StoreDamaged: a stored record does not read back.
            StoreError: the store could not be read.
        """
        keyring = self._world.keyring
        with self.fabric.begin(write=False) as transaction:
            return verify_trail(
                transaction.journal.events(),
                transaction.journal.all_seals(),
                journal_key=journal_key(keyring, self.fabric.subject.tenant),
                session_key=lambda session_id: session_key(keyring, session_id),
            )

    def close(self) -> None:
        """Release the store's files."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _request(self, query: str, asking: Asking) -> Request:
        given = {name: value for name, value in asking.items() if value is not None}
        return admit(**{"model": self._world.settings.model, **given, "query": query})


def _kind(kind: SourceKind | str) -> SourceKind:
    try:
        return SourceKind(kind)
    except ValueError:
        wanted = ", ".join(SourceKind)
        raise RequestError(f"kind {kind!r:.40} is not one of {wanted}") from None
