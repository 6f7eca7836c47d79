"""The retriever and the document compressor, which both return a packed envelope."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
    Callbacks,
    adispatch_custom_event,
    dispatch_custom_event,
)
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, Field, ModelWrapValidatorHandler, SkipValidation, model_validator

from crp_integrations.adapters.arguments import PackBudget, check_count, pydantic_errors
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import RequestError
from crp_integrations.langchain.messages import documents_of, facts_of, stored_document
from crp_integrations.relay.defaults import chosen_reranker
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.settings import Preset, Settings, load
from crp_integrations.relay.storeless_functions import CallerSelection
from crp_integrations.session.records import session_id_of
from crp_integrations.vocabulary.context import GroundingMode

EVENT = "crp_envelope"
CANDIDATES: Final = 50


class CRPRetriever(BaseRetriever):
    """Returns the documents that fit the budget best, in the order for the prompt.

    Spec: CRP-SPEC-003 §5 to §7

    The envelope, with the reason for each dropped document, is published as the custom event
    `crp_envelope`; each document has its own part in `metadata["crp_fact"]`.

    Attributes:
        relay: relay that finds the facts; None if `source` is given.
        source: retriever whose documents are packed instead; see `wrap`.
        model: model whose tokenizer counts.
        budget_tokens: maximum number of tokens of the documents as rendered by `envelope_text`;
            None or `auto` for what the question needs, `window` for all that the model can take.
        k: maximum number of documents, None for as many as fit; `invoke(query, k=…)` overrides it.
        reranker, preset: used for a source's documents; a relay has its own.
        second_look: maximum number of follow-up queries to a source, made from names and texts of
            its first documents, to find what only those lead to; 0 for none, 8 are enough.
        session_id: session of a relay whose facts in memory are also searched; `invoke(query,
            session_id=…)` overrides it.

    Raises:
        RequestError: a field has no usable value, or cannot be combined with another.
        ConfigError: `reranker` is not a reranker.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    relay: Relay | None = None
    source: BaseRetriever | None = None
    model: str = Field(min_length=1)
    budget_tokens: PackBudget | None = None
    k: int | None = Field(default=None, ge=1)
    grounding: GroundingMode = GroundingMode.PREFERRED
    reranker: SkipValidation[Any] | None = None
    preset: Preset | None = None
    second_look: int = Field(default=0, ge=0)
    session_id: str | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _validate(cls, fields: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        with pydantic_errors(cls):
            return handler(fields)

    @model_validator(mode="after")
    def _check_origin(self) -> Self:
        if (self.relay is None) == (self.source is None):
            raise RequestError("CRPRetriever takes either relay= or, through wrap(), a source")
        if self.relay is not None and self.reranker is not None:
            raise RequestError(
                "give the reranker to Relay.open(…, reranker=…), not to CRPRetriever"
            )
        if self.relay is not None and self.preset is not None:
            raise RequestError("give the preset to Relay.open(…, preset=…), not to CRPRetriever")
        if self.relay is not None and self.second_look:
            raise RequestError("a relay looks again by itself; second_look goes with a source")
        if self.relay is None and self.session_id is not None:
            raise RequestError("a source has no sessions; session_id goes with relay=")
        chosen_reranker(self.reranker, load())
        return self

    @classmethod
    def wrap(
        cls,
        source: BaseRetriever | VectorStore,
        *,
        model: str,
        candidates: int = CANDIDATES,
        **fields: Any,
    ) -> CRPRetriever:
        """Pack the documents of a retriever or vector store that you already have.

        Args:
            candidates: number of documents to request from a vector store; a retriever has its own.
            fields: attributes of this class, and of every LangChain retriever.

        Raises:
            RequestError: the source has the wrong type, or a field has no usable value.
        """
        check_count("candidates", candidates, least=1)
        untyped: object = source
        if not isinstance(untyped, BaseRetriever | VectorStore):
            hint = (
                "; a relay is given as CRPRetriever(relay=…)" if isinstance(untyped, Relay) else ""
            )
            raise RequestError(
                f"source is {type(untyped).__name__}, wanted a retriever or a vector store{hint}"
            )
        if isinstance(source, VectorStore):
            source = source.as_retriever(search_kwargs={"k": candidates})
        return cls(source=source, model=model, **fields)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **fields: Any
    ) -> list[Document]:
        child: Any = {"callbacks": run_manager.get_child()}
        if self.source is None:
            envelope, documents = self._from_relay(query, **fields)
        else:
            selection = self._selection(query, **fields)
            candidates = self.source.invoke(query, child)
            if self.second_look:
                again = selection.further_questions(facts_of(candidates)[0], self.second_look)
                candidates = _joined(candidates, self.source.batch(list(again), child))
            envelope, documents = _pack(selection, candidates)
        dispatch_custom_event(EVENT, envelope.model_dump(mode="json"), config=child)
        return documents

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **fields: Any
    ) -> list[Document]:
        child: Any = {"callbacks": run_manager.get_child()}
        # Packing is CPU work, so it runs in a worker thread instead of the event loop.
        if self.source is None:
            envelope, documents = await asyncio.to_thread(self._from_relay, query, **fields)
        else:
            selection = self._selection(query, **fields)
            candidates = await self.source.ainvoke(query, child)
            if self.second_look:
                facts, _ = facts_of(candidates)
                again = await asyncio.to_thread(
                    selection.further_questions, facts, self.second_look
                )
                candidates = _joined(candidates, await self.source.abatch(list(again), child))
            envelope, documents = await asyncio.to_thread(_pack, selection, candidates)
        await adispatch_custom_event(EVENT, envelope.model_dump(mode="json"), config=child)
        return documents

    def _selection(
        self, query: str, k: int | None = None, session_id: str | None = None, **unknown: Any
    ) -> CallerSelection:
        """The selection of a question to the source."""
        _refuse_unknown(unknown)
        if session_id is not None:
            raise RequestError("a source has no sessions; session_id goes with relay=")
        settings = None if self.preset is None else load(preset=self.preset)
        return _selection(self, query, self.k if k is None else k, settings)

    def _from_relay(
        self, query: str, k: int | None = None, session_id: str | None = None, **unknown: Any
    ) -> tuple[Envelope, list[Document]]:
        """The relay's envelope, and its facts as documents."""
        _refuse_unknown(unknown)
        assert self.relay is not None
        session = session_id or self.session_id
        turn = self.relay.turn(
            query,
            model=self.model,
            budget_tokens=self.budget_tokens,
            grounding=self.grounding,
            k=self.k if k is None else k,
            session_id=session_id_of(session) if session else None,
        )
        envelope = turn.retrieve()
        return envelope, documents_of(envelope, self._stored(envelope))

    def _stored(self, envelope: Envelope) -> dict[str, Document]:
        """The envelope's stored facts as documents with their metadata, by fact id."""
        assert self.relay is not None
        stored = self.relay.fabric.facts([fact.fact_id for fact in envelope.facts])
        return {fact.fact_id: stored_document(fact) for fact in stored}


class CRPDocumentCompressor(BaseDocumentCompressor):
    """Keeps the documents that fit the budget best, in the order for the prompt.

    For `ContextualCompressionRetriever`, and any chain with documents and a question. A document
    keeps its id and metadata, and has its own part of the envelope in `metadata["crp_fact"]`.

    Spec: CRP-SPEC-003 §6, §7

    `CRPRetriever` describes the fields.

    Raises:
        RequestError: a field has no usable value.
        ConfigError: `reranker` is not a reranker.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    model: str = Field(min_length=1)
    budget_tokens: PackBudget | None = None
    k: int | None = Field(default=None, ge=1)
    grounding: GroundingMode = GroundingMode.PREFERRED
    reranker: SkipValidation[Any] | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _validate(cls, fields: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        with pydantic_errors(cls):
            made = handler(fields)
        chosen_reranker(made.reranker, load())
        return made

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """The packed documents; the envelope is published as the custom event `crp_envelope`."""
        envelope, packed = self._pack(documents, query)
        if _has_parent_run(callbacks):
            payload = envelope.model_dump(mode="json")
            dispatch_custom_event(EVENT, payload, config={"callbacks": callbacks})
        return packed

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """The asynchronous twin of `compress_documents`; packs in a worker thread."""
        envelope, packed = await asyncio.to_thread(self._pack, documents, query)
        if _has_parent_run(callbacks):
            payload = envelope.model_dump(mode="json")
            await adispatch_custom_event(EVENT, payload, config={"callbacks": callbacks})
        return packed

    def _pack(self, documents: Sequence[Document], query: str) -> tuple[Envelope, list[Document]]:
        return _pack(_selection(self, query, self.k), documents)


def _selection(
    fields: CRPRetriever | CRPDocumentCompressor,
    query: str,
    k: int | None,
    settings: Settings | None = None,
) -> CallerSelection:
    return CallerSelection(
        query,
        model=fields.model,
        budget_tokens=fields.budget_tokens,
        grounding=fields.grounding,
        k=k,
        reranker=fields.reranker,
        settings=settings,
    )


def _pack(
    selection: CallerSelection, documents: Sequence[Document]
) -> tuple[Envelope, list[Document]]:
    facts, originals = facts_of(documents)
    envelope = selection.pack(facts)
    return envelope, documents_of(envelope, originals)


def _joined(first: Sequence[Document], more: Sequence[Sequence[Document]]) -> list[Document]:
    """The documents of the first query and of its follow-up queries."""
    return [*first, *(document for documents in more for document in documents)]


def _refuse_unknown(unknown: Mapping[str, Any]) -> None:
    if unknown:
        raise RequestError(
            f"CRPRetriever takes k and session_id with a question, not {min(unknown)!r:.40}; "
            "its other fields are given when it is made"
        )


def _has_parent_run(callbacks: Callbacks | None) -> bool:
    """Whether a run is active; LangChain refuses an event outside of a run."""
    return getattr(callbacks, "parent_run_id", None) is not None
