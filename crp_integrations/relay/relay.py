"""The front door over a store: ingest, ask, preview."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from crp_integrations.audit.trail import AuditTrail, verify_trail
from crp_integrations.audit.window_seals import journal_key, session_key
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.cfs.assembly import ContextCache
from crp_integrations.envelope.cfs.records import AssembledContext, PackingName, TokenBudget
from crp_integrations.errors import RequestError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Document, Fact, IngestReport, StreamedDocument
from crp_integrations.headers.records import CacheDirectives
from crp_integrations.ports import Model
from crp_integrations.receipt.records import Receipt
from crp_integrations.relay.context_packs import ArtifactSandboxes, ContextPacks, assemble_for
from crp_integrations.relay.delegation import delegate, reset_budget, take_result
from crp_integrations.relay.prior_windows import window_report
from crp_integrations.relay.prompt import Conversation, count_tokens_of
from crp_integrations.relay.question_fields import check_model_name
from crp_integrations.relay.receipts import Receipts
from crp_integrations.relay.records import TokenCount
from crp_integrations.relay.report_delivery import PendingDeliveries
from crp_integrations.relay.world import World
from crp_integrations.session.agents import Downward, Upward
from crp_integrations.session.records import session_id_of
from crp_integrations.vocabulary import SafetyMode, SourceKind

Progress = Callable[[str, int, int], None]


class Loader(Protocol):
    """Makes documents of what a caller gives to be ingested."""

    def __call__(
        self, what: Any, *, prefix: str | None = None
    ) -> Iterable[Document | StreamedDocument]:
        """The documents of a path, of a document of whatever make, or of many of them."""
        ...


class Relay(ContextPacks, ArtifactSandboxes):
    """Answers questions from a fabric and checks every answer. Safe under threads.

    Made by `Relay.open`. Every call takes the same optional fields of a `Request`: `model`,
    `budget_tokens`, `grounding`, `session_id`, `sub_queries`, `decompose`, `k`, `system_prompt`,
    `history`, `results`, `max_tokens`, `temperature`, `seed`, `tools`, `cache`, `residency`,
    `if_match`, `prior`, `loop_depth`.

    Attributes:
        fabric: the namespace of the tenant, and of the region, that the relay was opened for.
    """

    def __init__(
        self,
        world: World,
        models: Model,
        store: Store,
        loader: Loader,
        known: Callable[[str], None],
        residency: str = "",
        others: Sequence[Store] = (),
        handed: Sequence[PendingDeliveries] = (),
    ) -> None:
        super().__init__(world, models, known, residency)
        self._store = store
        self._others = tuple(others)
        self._handed = tuple(handed)
        self._loader = loader
        self._contexts = ContextCache(world.settings.envelope.assembly.cache_size)

    @classmethod
    def open(cls, store: str | Path | Store | None = None, **options: Any) -> Relay:
        """Open a store and everything that is needed around it.

        Args:
            store: a folder (made at the first write), a store object, or None for a store in
                memory that is gone with the relay.
            options: see `crp_integrations.relay.build.open_relay`. `llm` is a chat model of
                LangChain, an LLM of LlamaIndex or a name; an object's own settings hold.

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
        return self.region(None)

    def region(self, residency: str | None) -> Namespace:
        """The knowledge of a region.

        Spec: CRP-SPEC-009 §7.2

        Args:
            residency: a region's name; None for the one that the relay was opened for.

        Raises:
            RequestError: there is no such region; names those that there are.
        """
        return self._world.namespace_in(self._residency if residency is None else residency)

    @property
    def settings(self) -> Any:
        """The settings in force, frozen."""
        return self._world.settings

    def ingest(
        self,
        what: str | Path | Document | Iterable[Any],
        *,
        kind: SourceKind | str | None = None,
        labels: Iterable[str] = (),
        ttl: str | None = None,
        prefix: str | None = None,
        progress: Progress | None = None,
        residency: str | None = None,
    ) -> IngestReport:
        """Put files, folders or documents into the fabric, all of them or none.

        Spec: CRP-SPEC-009 §4

        Args:
            what: a path or a document, or several of them. Documents are those of this package
                and those, pages, chunks and nodes of LangChain and LlamaIndex. Pieces of one
                `metadata["source"]` (else of one document id) that follow each other are one
                source; give all of them in one call, since what is missing becomes STALE.
            kind: kind of source; a document's own front matter wins over None only.
            labels: access labels put on every fact.
            ttl: ISO 8601 duration such as `P90D`, after which the facts turn STALE; counted from
                when each was first ingested. None leaves what is stored.
            prefix: what the URIs of paths begin with, so that ids do not depend on where the
                files lie; None takes the absolute path.
            progress: called with a step's name, how much is done and how much there is.
            residency: region whose store is written; None for the relay's own.

        Returns:
            What was added, what was unchanged, and which documents had too little text.

        Raises:
            IngestError: a path or file cannot be read; the store is as it was.
        """
        namespace = self.region(residency)
        documents = self._loader(what, prefix=prefix)
        chosen = None if kind is None else _kind(kind)
        return namespace.ingest(documents, kind=chosen, labels=labels, ttl=ttl, progress=progress)

    def add(
        self,
        facts: Sequence[Fact | str],
        *,
        kind: SourceKind | str | None = None,
        session_id: str = "",
        cache: CacheDirectives | str | None = None,
        residency: str | None = None,
    ) -> IngestReport:
        """Add facts as they are; under `no-store` keep them in memory for their session alone.

        Spec: CRP-SPEC-009 §7.2

        Args:
            session_id: whose facts they are; needed under `no-store`, where that session's
                questions alone find them, until `end_session`.
            cache: `no-store`, or None to write them to the fabric.
            residency: region whose data they are; None for the relay's own.

        Raises:
            RequestError: a directive says nothing about adding, or no session is named.
            FactRejected: a fact is too short or too long.
            LimitReached: the session would hold too much in memory.
        """
        namespace = self.region(residency)
        chosen = None if kind is None else _kind(kind)
        if not _adding(cache).no_store:
            return namespace.add(facts, kind=chosen)
        return namespace.hold(session_id_of(session_id), facts, kind=chosen)

    def end_session(self, session_id: str) -> int:
        """Purge everything that a session holds in memory, in every region.

        Spec: CRP-SPEC-009 §7.2

        Returns:
            How many facts it held.
        """
        session_id = session_id_of(session_id)
        self._world.known.end(session_id)
        self._world.session_memories.end(session_id)
        self._world.unwritten.end(session_id)
        places = (self._world.namespace, *self._world.regions.values())
        return sum(place.end_session(session_id) for place in places)

    def assemble(
        self,
        query: str,
        budget: int | TokenBudget = 2000,
        packing: PackingName | None = None,
        model: str | None = None,
        *,
        session_id: str = "",
        residency: str | None = None,
        **choices: Any,
    ) -> AssembledContext:
        """The context of a question with its documents marked, by CFS-021; no model is called.

        Nothing is sealed, and no quality tier is given: that is what `ask` and `preview` do.

        Spec: CFS-021 §11

        Args:
            budget: tokens of the whole call, of which the settings keep some free for system
                prompt, question and answer; or a `TokenBudget` with reserves of its own.
            packing: `greedy`, `interleaved` or `score_weighted`; None takes the setting.
            model: whose tokens are counted; None takes the settings' model.
            session_id: whose facts in memory are searched too.
            residency: region whose data are read; None for the relay's own.
            choices: other fields of `AssemblySettings`, such as `allow_partial=True`.

        Raises:
            RequestError: an argument has no usable value; names it.
            StoreError: the store could not be read.
        """
        return assemble_for(
            self._world,
            self._contexts,
            query,
            budget=budget,
            model=model,
            session_id=session_id,
            residency=self._residency if residency is None else residency,
            choices={"packing": packing, **choices},
        )

    def count_tokens(
        self,
        what: str | Conversation,
        model: str | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> TokenCount:
        """How many tokens a model makes of a text or a conversation, and how sure that is.

        Spec: CRP-SPEC-003 §10.1

        Args:
            what: a text, or messages of this package or in the OpenAI shape.
            model: None takes the settings' model.
            tools: tool definitions in the OpenAI shape.

        Raises:
            RequestError: what is given is neither a text nor messages of text.
            ConfigError: the model's tokenizer file cannot be read.
        """
        check_model_name(model)
        counter = self._world.counter_for(model or self._world.settings.model)
        return count_tokens_of(what, counter, tools)

    def delegate(
        self,
        session_id: str,
        *,
        safety_mode: SafetyMode | None = None,
        residency: str | None = None,
    ) -> Downward:
        """What a session hands down with a question to another agent; the delegation is counted.

        Ask the other agent with `relay.ask(question, **asked_by(down))` in this process, or send
        it as headers (`headers.propagate`).

        Spec: related facts §8

        Args:
            safety_mode: that the other agent works under, besides the session's policy.
            residency: region that the session belongs to, and the other agent keeps to; None for
                the relay's own.

        Raises:
            RequestError: the session is not known.
            SafetyHalt: its safety budget withholds every answer.
            AccessDenied: its circuit is half open, it is too deep, or has delegated too often.
        """
        session_id = session_id_of(session_id)
        return delegate(self.region(residency), self._world, session_id, safety_mode=safety_mode)

    def take(self, session_id: str, up: Upward, *, residency: str | None = None) -> float:
        """Take what another agent has handed back; the session's safety budget, which only falls.

        Spec: related facts §8

        Raises:
            RequestError: the session is not known.
        """
        return take_result(self.region(residency), self._world, session_id_of(session_id), up)

    def reset_budget(self, session_id: str, *, residency: str | None = None) -> float:
        """Begin a session's safety budget anew, once a person has reviewed its answers.

        Spec: related facts §8

        Returns:
            The budget that the session has now.

        Raises:
            RequestError: the session is not known.
            AccessDenied: the subject may not write.
        """
        return reset_budget(self.region(residency), self._world, session_id_of(session_id))

    def report(self, window_id: str, *, residency: str | None = None) -> Report | None:
        """The report on a window, as `CRP-Provenance-Report-URI` refers to it.

        Spec: CRP-SPEC-005 §15.4

        Args:
            residency: region whose window it is; None for the relay's own.

        Returns:
            None for a window that is not known, was under `no-store`, whose facts are gone, or
            that showed a fact which the relay's subject may not read.

        Raises:
            StoreError: the store could not be read.
        """
        return window_report(self.region(residency), window_id)

    def receipt(self, id_: str, *, residency: str | None = None) -> Receipt | None:
        """A receipt by its id, or by the id of its window; see `Receipts.get`."""
        return self.receipts(residency=residency).get(id_)

    def receipts(self, *, residency: str | None = None) -> Receipts:
        """The receipts of a region, and proofs that they are in their log."""
        return Receipts(self.region(residency), self._world)

    def verify(self, *, residency: str | None = None) -> AuditTrail:
        """Verify everything that was sealed in this namespace.

        Spec: CRP-SPEC-005 §15.3

        The whole journal and all windows are read, so the time grows with them. Windows that were
        cut off the end together with their events show only against a `Trail.tip` noted elsewhere.

        Args:
            residency: region whose windows are verified; None for the relay's own.

        Returns:
            How many events, windows and sessions were found whole, and the last event's HMAC.

        Raises:
            ChainBroken: something was changed, left out, added or moved; says what and where.
            StoreDamaged: a stored record does not read back.
            StoreError: the store could not be read.
        """
        keyring = self._world.keyring
        namespace = self.region(residency)
        with namespace.begin(write=False) as transaction:
            return verify_trail(
                transaction.journal.events(),
                transaction.journal.all_seals(),
                journal_key=journal_key(keyring, namespace.subject.tenant),
                session_key=lambda session_id: session_key(keyring, session_id),
            )

    def close(self) -> None:
        """Release the files of the store and of the regions' stores; deliver what is on its way."""
        for deliveries in self._handed:
            deliveries.close(self._world.settings.reports.close_seconds)
        for store in (self._store, *self._others):
            store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _adding(cache: CacheDirectives | str | None) -> CacheDirectives:
    """The directives of an `add`, of which `no-store` alone means anything."""
    directives = CacheDirectives.parse(cache) if isinstance(cache, str) else cache
    if directives is None:
        return CacheDirectives()
    if directives not in (CacheDirectives(), CacheDirectives(no_store=True)):
        raise RequestError(f"cache {directives.text!r} is more than add takes; wanted no-store")
    return directives


def _kind(kind: SourceKind | str) -> SourceKind:
    try:
        return SourceKind(kind)
    except ValueError:
        wanted = ", ".join(SourceKind)
        raise RequestError(f"kind {kind!r:.40} is not one of {wanted}") from None
