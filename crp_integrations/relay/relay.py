"""The main class over a store: ingest, ask, preview, delegate, verify.

Spec: CRP-SPEC-009 §7.2; related facts §8
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, Unpack, cast

from pydantic import ValidationError

from crp_integrations.audit.drafts import EventDraft, name_or_hash
from crp_integrations.audit.trail import AuditTrail, verify_trail
from crp_integrations.audit.window_seals import journal_key, session_key
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.assemble import preview
from crp_integrations.envelope.cfs.assembly import ContextCache, assemble_context
from crp_integrations.envelope.cfs.pack import ModelTokenizer, SimpleTokenizer
from crp_integrations.envelope.cfs.records import (
    AssembledContext,
    AssemblySettings,
    PackingName,
    TokenBudget,
)
from crp_integrations.envelope.ports import ContextTokenizer
from crp_integrations.envelope.records import EnvelopePreview
from crp_integrations.envelope.screen import ResultScreen
from crp_integrations.errors import RequestError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import (
    Document,
    Fact,
    IngestReport,
    StreamedDocument,
    access_labels,
)
from crp_integrations.governance.artifacts.sandbox import Sandbox
from crp_integrations.governance.compaction.records import CompactHistory
from crp_integrations.governance.context_assembler import ContextAssembler
from crp_integrations.governance.context_pack import ComposedPack
from crp_integrations.governance.pack_selection import AssemblerParts
from crp_integrations.governance.settings import HistorySettings
from crp_integrations.governance.tools import ToolSelector
from crp_integrations.governance.window_trace import Observer
from crp_integrations.headers.records import CacheDirectives
from crp_integrations.ports import KeyRing, Model, Tracer, share_in_copies
from crp_integrations.receipt.records import Receipt
from crp_integrations.relay import steps
from crp_integrations.relay.compaction import compact_messages, sandbox_of
from crp_integrations.relay.composition import (
    AUTO,
    Batch,
    BatchTurns,
    Composition,
    choose_strategy,
    compose,
    intent,
)
from crp_integrations.relay.delegation import delegate, reset_budget, take_result
from crp_integrations.relay.drive import (
    ASK,
    STREAM,
    adrive,
    adrive_stream,
    atrace_stream,
    drive,
    drive_stream,
    trace_stream,
)
from crp_integrations.relay.judge import JUDGE_OPTIONS, Judge, check_receiver
from crp_integrations.relay.judged_answer import Judges, asks_later
from crp_integrations.relay.prior_windows import window_report
from crp_integrations.relay.prompt import Conversation, count_tokens_of
from crp_integrations.relay.question_fields import (
    QuestionFields,
    admit,
    admit_depth,
    check_model_name,
)
from crp_integrations.relay.receipts import Receipts
from crp_integrations.relay.records import Answer, Request, TokenCount, conversation_of
from crp_integrations.relay.settings import Settings, first_problem
from crp_integrations.relay.steps import Outcome
from crp_integrations.relay.turn import Turn
from crp_integrations.relay.world import CheckCalls, World
from crp_integrations.seals import sha256
from crp_integrations.session.agents import Downward, Upward
from crp_integrations.session.records import session_id_of
from crp_integrations.validation import require_settings, several
from crp_integrations.vocabulary import EventType, SafetyMode, SourceKind

Progress = Callable[[str, int, int], None]


class Loader(Protocol):
    """Turns the input of `Relay.ingest` into documents."""

    def __call__(
        self, what: Any, *, prefix: str | None = None
    ) -> Iterable[Document | StreamedDocument]:
        """The documents of a path, of a document of any supported type, or of several of them."""
        ...


class PendingDeliveries(Protocol):
    """Deliveries in progress: reports, and violations of policies."""

    def close(self, timeout_s: float) -> None:
        """Wait for the deliveries, up to a timeout."""
        ...


class Relay:
    """Answers questions from a fabric and checks every answer. Safe under threads.

    Create it with `Relay.open`. Questions take the same optional fields of a `Request`: `model`,
    `budget_tokens`, `grounding`, `session_id`, `sub_queries`, `decompose`, `k`, `system_prompt`,
    `history`, `results`, `max_tokens`, `temperature`, `seed`, `tools`, `cache`, `residency`,
    `if_match`, `prior`, `loop_depth`.

    Attributes:
        fabric: the namespace of the tenant, and of the region, that the relay was opened for.
    """

    __deepcopy__ = share_in_copies

    def __init__(
        self,
        world: World,
        models: Model,
        stores: Sequence[Store],
        loader: Loader,
        check_model: Callable[[str], None],
        residency: str = "",
        deliveries: Sequence[PendingDeliveries] = (),
    ) -> None:
        self._world = world
        self._models = models
        self._store, *_ = self._stores = tuple(stores)
        self._loader = loader
        self._check_model = check_model
        self._residency = residency
        self._deliveries = tuple(deliveries)
        self._judges = Judges(world.settings.judge)
        self._contexts = ContextCache(world.settings.envelope.assembly.cache_size)

    @classmethod
    def open(cls, store: str | Path | Store | None = None, **options: Any) -> Relay:
        """Open a store and build a relay over it.

        Args:
            store: a folder (created at the first write), a store object, or None for a store in
                memory that ends with the relay.
            options: fields of `crp_integrations.relay.build.RelayParts`, and settings by name.
                `llm` is a LangChain chat model, a LlamaIndex LLM or a name; an object's own
                settings apply.

        Raises:
            ConfigError: a setting has no usable value, or the store needs another embedder.
            StoreError: the folder cannot be used.
        """
        # Imported here because the engines are slow to load, and importing the class must be fast.
        from crp_integrations.relay.build import open_relay

        return open_relay(store, **options)

    @property
    def fabric(self) -> Namespace:
        """The namespace that questions are answered from."""
        return self.region(None)

    def region(self, residency: str | None) -> Namespace:
        """The namespace of a region; None means the region that the relay was opened for.

        Raises:
            RequestError: there is no such region; names the existing ones.
        """
        return self._world.places.of(self._own(residency))

    def _own(self, residency: str | None) -> str:
        return self._residency if residency is None else residency

    @property
    def settings(self) -> Settings:
        """The settings in force, frozen."""
        return self._world.settings

    @property
    def observer(self) -> Observer | None:
        """The observer of windows and model calls, for callers that call a model themselves."""
        return self._world.listeners.observer

    @property
    def judge(self) -> Judge | None:
        """The judge of the answers; None without one."""
        return self._world.engines.judge

    @property
    def tracer(self) -> Tracer:
        """The tracer of a question's spans, for callers that run its windows themselves."""
        return self._world.tracer

    @property
    def keyring(self) -> KeyRing:
        """The store's keys, for code that checks a signed address; printing it shows no key."""
        return self._world.keyring

    def context_limit(self, model: str = "") -> tuple[int, str]:
        """Tokens that a model accepts, and the source of the number.

        Args:
            model: empty for the settings' model.

        Returns:
            Tokens, and `setting`, `stated`, `litellm`, `family NAME` or `default`.
        """
        return self._world.engines.limit_for(model or self._world.settings.model)

    # --- what goes into the fabric --------------------------------------------------------

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
            what: a path or a document, or several of them. Documents may be those of this package,
                or documents, pages, chunks and nodes of LangChain and LlamaIndex. Consecutive
                pieces with one `metadata["source"]` (else with one document id) are one source;
                give all of them in one call, since missing ones become STALE.
            kind: kind of source; None takes it from a document's front matter.
            labels: access labels of every fact.
            ttl: ISO 8601 duration such as `P90D`, after which the facts become STALE; counted from
                when each was first ingested. None leaves the stored value.
            prefix: beginning of the URIs of paths, so that ids do not depend on where the files
                are; None takes the absolute path.
            progress: called with a step's name, the amount done and the total.
            residency: region whose store is written; None for the relay's own.

        Returns:
            The added and unchanged facts, and the documents that had too little text.

        Raises:
            IngestError: a path or file cannot be read; the store is as it was.
        """
        namespace = self.region(residency)
        documents = self._loader(what, prefix=prefix)
        return namespace.ingest(
            documents, kind=_kind(kind), labels=labels, ttl=ttl, progress=progress
        )

    def add(
        self,
        facts: Sequence[Fact | str],
        *,
        kind: SourceKind | str | None = None,
        session_id: str = "",
        cache: CacheDirectives | str | None = None,
        residency: str | None = None,
    ) -> IngestReport:
        """Add facts unchanged; under `no-store` they are kept in memory for their session only.

        Args:
            session_id: session of the facts; required under `no-store`, where only that session's
                questions find them, until `end_session`.
            cache: `no-store`, or None to write them to the fabric.
            residency: region of the facts; None for the relay's own.

        Raises:
            RequestError: `cache` has another directive than `no-store`, or no session is given.
            FactRejected: a fact is too short or too long.
            LimitReached: the session would keep too much in memory.
        """
        namespace = self.region(residency)
        if not _no_store(cache, "add takes"):
            return namespace.add(facts, kind=_kind(kind))
        return namespace.hold(session_id_of(session_id), facts, kind=_kind(kind))

    def end_session(self, session_id: str) -> int:
        """Delete everything that is kept in memory for a session, in every region.

        Returns:
            The number of facts deleted.
        """
        session_id = session_id_of(session_id)
        memory, places = self._world.memory, self._world.places
        memory.envelopes.end(session_id)
        memory.sessions.end(session_id)
        memory.receipts.end(session_id)
        namespaces = (places.namespace, *places.regions.values())
        return sum(namespace.end_session(session_id) for namespace in namespaces)

    # --- questions ------------------------------------------------------------------------

    def turn(self, query: str, **asking: Unpack[QuestionFields]) -> Turn:
        """A window for callers that call the model themselves: `begin`, `receive`, `fail`."""
        world = self._judging(asking)
        return Turn(self._request(query, asking), world)

    def play(
        self,
        query: str,
        *,
        check_calls: CheckCalls | None = None,
        **asking: Unpack[QuestionFields],
    ) -> Composition:
        """A question as `ask` runs it: windows of its strategy, continued while incomplete.

        Args:
            check_calls: checks the tool calls of an answer before its release; None for no check.
        """
        world = self._judging(asking)
        if check_calls is not None:
            listeners = replace(world.listeners, check_calls=check_calls)
            world = replace(world, listeners=listeners)
        return compose(self._request(query, asking), world)

    def ask(self, query: str, **asking: Unpack[QuestionFields]) -> Answer:
        """Answer a question from the fabric, checked and sealed."""
        turn = self.play(query, **asking)
        self._check_model(turn.request.model)
        with self._world.tracer.step(ASK):
            return steps.answer_of(drive(turn, self._models))

    async def aask(self, query: str, **asking: Unpack[QuestionFields]) -> Answer:
        """The asynchronous twin of `ask`."""
        turn = self.play(query, **asking)
        await asyncio.to_thread(self._check_model, turn.request.model)
        with self._world.tracer.step(ASK):
            return steps.answer_of(await adrive(turn, self._models))

    def stream(
        self, query: str, *, live: bool = False, **asking: Unpack[QuestionFields]
    ) -> Iterator[str | Answer]:
        """Yield the pieces of the answer after the verdict, then the `Answer`: that of `ask`.

        The model is called as a stream. With `live` the pieces come before the verdict, unless
        something may withhold, repeat or continue the answer.
        """
        turn = self.play(query, **asking)
        self._check_model(turn.request.model)
        parts = drive_stream(turn, self._models, shows=turn.show_at_once if live else None)
        # A reader that stops early ends the stream at once.
        with closing(trace_stream(self._world.tracer, STREAM, _answered(parts))) as pieces:
            yield from pieces

    async def astream(
        self, query: str, *, live: bool = False, **asking: Unpack[QuestionFields]
    ) -> AsyncIterator[str | Answer]:
        """The asynchronous twin of `stream`."""
        turn = self.play(query, **asking)
        await asyncio.to_thread(self._check_model, turn.request.model)
        parts = adrive_stream(turn, self._models, shows=turn.show_at_once if live else None)
        async with aclosing(atrace_stream(self._world.tracer, STREAM, _aanswered(parts))) as pieces:
            async for part in pieces:
                yield part

    def batch(self, queries: Sequence[str], **asking: Unpack[QuestionFields]) -> Batch:
        """Answer several questions concurrently, each in its own session.

        Spec: related facts §7
        """
        together = self._together(queries, asking)
        for model in together.models:
            self._check_model(model)
        with self._world.tracer.step("batch"):
            drive(together, self._models)
        return together.batch()

    async def abatch(self, queries: Sequence[str], **asking: Unpack[QuestionFields]) -> Batch:
        """The asynchronous twin of `batch`."""
        together = self._together(queries, asking)
        for model in together.models:
            await asyncio.to_thread(self._check_model, model)
        with self._world.tracer.step("batch"):
            await adrive(together, self._models)
        return together.batch()

    def preview(self, query: str, **asking: Unpack[QuestionFields]) -> EnvelopePreview:
        """The envelope that `ask` would give to the model; no model is called, nothing is sealed.

        Spec: CRP-SPEC-003 §12

        Raises:
            CRPError: the question would be refused for the same reason.
        """
        turn = self.play(query, **asking).preview_window()
        self._check_model(turn.request.model)
        return preview(turn.preview(), turn.awaits)

    def _together(self, queries: Sequence[str], asking: QuestionFields) -> BatchTurns:
        questions = several(queries, "queries", "a list, such as [question]")
        world = self._judging(asking)
        return BatchTurns([self._request(query, asking) for query in questions], world)

    def _judging(self, asking: QuestionFields) -> World:
        """The world with one question's judge; removes the judge's fields from `asking`."""
        world, named = self._world, cast("dict[str, Any]", asking)
        source = named.pop("judge", None)
        options = {name: named.pop(name, None) for name in JUDGE_OPTIONS}
        chosen = {name: value for name, value in options.items() if value is not None}
        if source is None and not chosen:
            return world
        if source is None:
            # The relay's own judge, with other options.
            source = world.engines.judge
        on_report = chosen.get("on_report", world.listeners.on_report)
        check_receiver(on_report)
        if not asks_later(source, chosen, world.settings.judge):
            chosen.pop("on_report", None)
        elif on_report is chosen.get("on_report"):
            # The judge calls it after the judgement in the background.
            on_report = None
        return replace(
            world,
            engines=replace(world.engines, judge=self._judges.of(source, chosen)),
            listeners=replace(world.listeners, on_report=on_report),
        )

    def _request(self, query: str, asking: QuestionFields) -> Request:
        fields = {name: value for name, value in asking.items() if value is not None}
        own = {"model": self._world.settings.model, "residency": self._residency}
        if fields.get("strategy") == AUTO:
            fields["strategy"] = intent(query)
        request = admit(**{**own, **fields, "query": query})
        admit_depth(request, self._world.settings)
        accepted = request.accept_strategies
        if accepted and "strategy" not in fields:
            return request.changed(strategy=accepted[0])
        strategy = choose_strategy(request.strategy, accepted)
        return request if strategy is request.strategy else request.changed(strategy=strategy)

    # --- contexts and conversations -------------------------------------------------------

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
        """The context of a question with marked documents (CFS-021); no model is called.

        Nothing is sealed and there is no quality tier, unlike with `ask` and `preview`.

        Spec: CFS-021 §11

        Args:
            budget: tokens of the whole call, of which the settings reserve some for system
                prompt, question and answer; or a `TokenBudget` with its own reserves.
            packing: `greedy`, `interleaved` or `score_weighted`; None takes the setting.
            model: model whose tokenizer counts; None takes the settings' model.
            session_id: session whose facts in memory are searched too.
            residency: region whose data is read; None for the relay's own.
            choices: other fields of `AssemblySettings`, such as `allow_partial=True`.

        Raises:
            RequestError: an argument has no usable value; names it.
            StoreError: the store could not be read.
        """
        world, namespace = self._world, self.region(residency)
        settings = _assembly_settings(
            world.settings.envelope.assembly, {"packing": packing, **choices}
        )
        view = namespace.view(session_id_of(session_id)) if session_id else namespace
        tokenizer: ContextTokenizer
        if model is None and settings.tokenizer == "simple":
            tokenizer = SimpleTokenizer()
        else:
            tokenizer = ModelTokenizer(world.engines.counter_for(model or world.settings.model))
        subject, screening = namespace.subject, world.settings.envelope.screening
        # One search runs in a separate thread, the other one here.
        pool = ThreadPoolExecutor(max_workers=1) if settings.parallel_search else nullcontext()
        with world.tracer.step("assemble"), pool as searcher:
            return assemble_context(
                query,
                view,
                _token_budget(budget, settings),
                tokenizer,
                now=world.clock.now(),
                settings=settings,
                pool=searcher,
                cache=None if session_id else self._contexts,
                scope="\u241f".join((subject.tenant, subject.name, self._own(residency).lower())),
                screen=ResultScreen(screening, world.engines.detector)
                if screening.enabled
                else None,
            )

    def assembler(
        self, *, model: str | None = None, residency: str | None = None, log: bool = True
    ) -> ContextAssembler:
        """An assembler of context packs from the relay's fabric; no model is called.

        Spec: Summit §Key APIs
        """
        world, namespace = self._world, self.region(residency)
        packs = world.settings.packs
        return ContextAssembler(
            AssemblerParts(
                namespace=namespace,
                counter=world.engines.counter_for(model or world.settings.model),
                clock=world.clock,
                settings=packs,
                envelope=world.settings.envelope,
                selector=ToolSelector(namespace.embedder, packs.tools),
                detector=world.engines.detector.under(packs.screening.injection),
                walker=world.engines.walker,
                reranker=world.engines.reranker,
                log=(lambda composed: log_pack(composed, namespace, world)) if log else None,
            )
        )

    def sandbox(
        self,
        *,
        session_id: str = "",
        labels: Iterable[str] = (),
        residency: str | None = None,
        cache: CacheDirectives | str | None = None,
    ) -> Sandbox:
        """The artifacts that the relay's subject may use.

        An artifact has the labels of the stored facts that it is made from. Under `no-store`
        nothing is written: artifacts exist only in the memory of this sandbox. Their addresses
        work only in it, and nothing is journalled. The same applies to a session whose windows or
        facts are in memory already.

        Spec: Summit §Isolation Strategy
        """
        world, no_store = self._world, _no_store(cache, "artifacts take")
        held = bool(session_id) and (
            world.memory.sessions.of(session_id).session is not None
            or bool(self.region(residency).view(session_id, keep_counts=False).held())
        )
        return sandbox_of(
            world,
            self._own(residency),
            session_id=session_id,
            labels=access_labels(labels, RequestError),
            keep=not (held or no_store),
        )

    def compact(
        self,
        messages: Conversation,
        *,
        model: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        question: str | None = None,
        budget_tokens: int | None = None,
        ids: Sequence[str] | None = None,
        pinned: Collection[str] = (),
        session_id: str = "",
        residency: str | None = None,
        settings: HistorySettings | None = None,
    ) -> CompactHistory:
        """Shorten an agent's messages if a trigger fires; nothing is journalled.

        Pass the account to the question that the messages belong to (`compaction=`), and it is
        journalled with the question's window.

        Spec: Summit §Compression Strategy
        """
        own = self._world.settings.compaction.model_copy(update={"enabled": True})
        return compact_messages(
            conversation_of(messages),
            self._world,
            require_settings(settings, HistorySettings, lambda: own),
            model=model or self._world.settings.model,
            tools=tools,
            question=question,
            budget=budget_tokens,
            ids=ids,
            pinned=pinned,
            residency=self._own(residency),
            session_id=session_id,
        )

    def count_tokens(
        self,
        what: str | Conversation,
        model: str | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> TokenCount:
        """Count the tokens of a text or a conversation for a model, with the count's exactness.

        Spec: CRP-SPEC-003 §10.1

        Args:
            what: a text, or messages in the format of this package or of OpenAI.
            model: None takes the settings' model.
            tools: tool definitions in the OpenAI format.

        Raises:
            RequestError: `what` is neither a text nor messages of text.
            ConfigError: the model's tokenizer file cannot be read.
        """
        check_model_name(model)
        counter = self._world.engines.counter_for(model or self._world.settings.model)
        return count_tokens_of(what, counter, tools)

    # --- agents that ask other agents -----------------------------------------------------

    def delegate(
        self,
        session_id: str,
        *,
        safety_mode: SafetyMode | None = None,
        residency: str | None = None,
    ) -> Downward:
        """The values that a session passes on with a question to another agent; counts it.

        Ask the other agent with `relay.ask(question, **asked_by(down))` in this process, or send
        it as headers (`headers.codec.write_downward`).

        Args:
            safety_mode: safety mode for the other agent, in addition to the session's policy.
            residency: region of the session, which is passed on to the other agent; None for the
                relay's own.

        Raises:
            RequestError: the session is not known.
            SafetyHalt: its safety budget is spent, so every answer is withheld.
            AccessDenied: its circuit is half open, it is too deep, or has delegated too often.
        """
        session_id = session_id_of(session_id)
        return delegate(self.region(residency), self._world, session_id, safety_mode=safety_mode)

    def take(self, session_id: str, up: Upward, *, residency: str | None = None) -> float:
        """Apply another agent's result; returns the session's safety budget, which only falls.

        Raises:
            RequestError: the session is not known.
        """
        return take_result(self.region(residency), self._world, session_id_of(session_id), up)

    def reset_budget(self, session_id: str, *, residency: str | None = None) -> float:
        """Reset a session's safety budget, after a person has reviewed its answers.

        Returns:
            The new budget.

        Raises:
            RequestError: the session is not known.
            AccessDenied: the subject may not write.
        """
        return reset_budget(self.region(residency), self._world, session_id_of(session_id))

    # --- what was sealed ------------------------------------------------------------------

    def report(self, window_id: str, *, residency: str | None = None) -> Report | None:
        """The report on a window, as `CRP-Provenance-Report-URI` refers to it.

        Spec: CRP-SPEC-005 §15.4

        Returns:
            None for a window that is unknown, was under `no-store`, whose facts were deleted, or
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

        The whole journal and all windows are read, so the time grows with them. If the last windows
        were removed together with their events, only a separately kept `AuditTrail.tip` shows it.

        Returns:
            The numbers of intact events, windows and sessions, and the last event's HMAC.

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
        """Finish pending deliveries, then close the stores, except one that was given open."""
        for deliveries in self._deliveries:
            deliveries.close(self._world.settings.reports.close_seconds)
        for store in self._stores:
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


def _answered(parts: Generator[str | Outcome]) -> Generator[str | Answer]:
    with closing(parts):
        for part in parts:
            yield part if isinstance(part, str) else steps.answer_of(part)


async def _aanswered(parts: AsyncGenerator[str | Outcome]) -> AsyncGenerator[str | Answer]:
    async with aclosing(parts):
        async for part in parts:
            yield part if isinstance(part, str) else steps.answer_of(part)


def _no_store(cache: CacheDirectives | str | None, taker: str) -> bool:
    """Whether `no-store` is set; any other directive is refused."""
    directives = CacheDirectives.parse(cache) if isinstance(cache, str) else cache
    if directives not in (None, CacheDirectives(), CacheDirectives(no_store=True)):
        raise RequestError(f"cache {directives.text!r} is more than {taker}; wanted no-store")
    return directives is not None and directives.no_store


def _kind(kind: SourceKind | str | None) -> SourceKind | None:
    try:
        return None if kind is None else SourceKind(kind)
    except ValueError:
        wanted = ", ".join(SourceKind)
        raise RequestError(f"kind {kind!r:.40} is not one of {wanted}") from None


def _assembly_settings(settings: AssemblySettings, choices: Mapping[str, Any]) -> AssemblySettings:
    options = {name: value for name, value in choices.items() if value is not None}
    if not options:
        return settings
    try:
        return AssemblySettings.model_validate({**settings.model_dump(), **options})
    except ValidationError as error:
        field, problem = first_problem(error)
        value = options.get(field)
        raise RequestError(f"{field} {value!r:.60} is not usable: {problem}") from error


def _token_budget(budget: int | TokenBudget, settings: AssemblySettings) -> TokenBudget:
    if isinstance(budget, TokenBudget):
        return budget
    try:
        return TokenBudget.new(budget, settings)
    except ValidationError as error:
        raise RequestError(
            f"budget is {budget!r:.60}, wanted a TokenBudget or whole tokens from 0"
        ) from error


def log_pack(composed: ComposedPack, namespace: Namespace, world: World) -> None:
    """Journal the items of a context pack, in the order in which they are shown.

    Spec: Summit §Principles
    """
    pack = composed.pack
    draft = EventDraft(
        EventType.CONTEXT_PACKED,
        {
            "pack": pack.id,
            "shown_hash": sha256(composed.text),
            "sections": [section.type for section in pack.sections],
            "item_counts": [len(section.items) for section in pack.sections],
            "section_tokens": [section.token_actual for section in pack.sections],
            "items": [name_or_hash(item.id) for item in pack.items],
            "item_hashes": [item.shown_ref for item in pack.items],
            "budget": pack.token_budget,
            "tokens": pack.token_actual,
            "decisions": [name_or_hash(decision.id) for decision in pack.policy_decisions],
            "reports": [report.id for report in composed.drop_reports],
            "minimal": composed.minimal,
        },
        session_id=pack.session_id,
    )
    world.journal(namespace, [draft])
