"""A retriever whose documents are a packed envelope."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Self

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
    adispatch_custom_event,
    dispatch_custom_event,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from pydantic import (
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SkipValidation,
    model_validator,
)

from crp_integrations.adapters.arguments import check_count, pydantic_errors
from crp_integrations.envelope.ports import Reranker
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import RequestError
from crp_integrations.langchain.documents import documents_of, facts_of, stored_document
from crp_integrations.langchain.sessions import named_session
from crp_integrations.relay.components import check_components
from crp_integrations.relay.doors import pack
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.settings import Preset, load
from crp_integrations.vocabulary import GroundingMode

EVENT = "crp_envelope"
CANDIDATES: Final = 50


class CRPRetriever(BaseRetriever):
    """Returns what fits the budget best, in the order in which the model should see it.

    Spec: CRP-SPEC-003 §5 to §7

    The envelope, with everything dropped and why, is published as the custom event
    `crp_envelope`; each document carries its part in `metadata["crp"]`.

    Attributes:
        relay: where the facts are; or leave it out and give `source`.
        source: any retriever whose documents are packed instead; see `wrap`.
        model: whose tokenizer counts.
        budget_tokens: most tokens of the documents rendered by `envelope_text`.
        k: most documents, None for as many as fit; `invoke(query, k=…)` overrides it.
        reranker: looks at a source's documents again; a relay has its own.
        preset: settings for a source's documents, `default` or `literal`; a relay has its own.
        session_id: session of a relay whose facts in memory are found too, by whatever names a
            conversation; `invoke(query, session_id=…)` overrides it.

    Raises:
        RequestError: a field has no usable value, or does not go with another.
        ConfigError: what is given as a reranker is none.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    relay: Relay | None = None
    source: BaseRetriever | None = None
    model: str = Field(min_length=1)
    budget_tokens: int | None = Field(default=None, ge=1)
    k: int | None = Field(default=None, ge=1)
    grounding: GroundingMode = GroundingMode.PREFERRED
    reranker: SkipValidation[Reranker] | None = None
    preset: Preset | None = None
    session_id: str | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _told(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        with pydantic_errors(cls):
            return handler(given)

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.relay is None) == (self.source is None):
            raise RequestError("CRPRetriever takes either relay= or, through wrap(), a source")
        if self.relay is not None and self.reranker is not None:
            raise RequestError(
                "give the reranker to Relay.open(…, reranker=…), not to CRPRetriever"
            )
        if self.relay is not None and self.preset is not None:
            raise RequestError("give the preset to Relay.open(…, preset=…), not to CRPRetriever")
        if self.relay is None and self.session_id is not None:
            raise RequestError("a source has no sessions; session_id goes with relay=")
        check_components(reranker=self.reranker)
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
            source: any retriever, or a vector store, which is asked for its nearest documents.
            model: whose tokenizer counts.
            candidates: documents that a vector store is asked for; a retriever knows its own.
            fields: `budget_tokens`, `k`, `grounding`, `reranker`, `preset` and the fields of every
                retriever.

        Raises:
            RequestError: the source is neither, or a field has no usable value.
        """
        check_count("candidates", candidates, least=1)
        given: object = source
        if not isinstance(given, BaseRetriever | VectorStore):
            hint = "; a relay is given as CRPRetriever(relay=…)" if isinstance(given, Relay) else ""
            raise RequestError(
                f"source is {type(given).__name__}, wanted a retriever or a vector store{hint}"
            )
        if isinstance(source, VectorStore):
            source = source.as_retriever(search_kwargs={"k": candidates})
        return cls(source=source, model=model, **fields)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **given: Any
    ) -> list[Document]:
        child = {"callbacks": run_manager.get_child()}
        found = self.source.invoke(query, child) if self.source is not None else None  # type: ignore[arg-type]
        envelope, documents = self._pack(query, found, **given)
        dispatch_custom_event(EVENT, envelope.model_dump(mode="json"), config=child)  # type: ignore[arg-type]
        return documents

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **given: Any
    ) -> list[Document]:
        child = {"callbacks": run_manager.get_child()}
        found = await self.source.ainvoke(query, child) if self.source is not None else None  # type: ignore[arg-type]
        # Packing is computing, not waiting: it runs beside the event loop, not on it.
        envelope, documents = await asyncio.to_thread(self._pack, query, found, **given)
        await adispatch_custom_event(EVENT, envelope.model_dump(mode="json"), config=child)  # type: ignore[arg-type]
        return documents

    def _pack(
        self,
        query: str,
        found: list[Document] | None,
        k: int | None = None,
        session_id: str | None = None,
        **unknown: Any,
    ) -> tuple[Envelope, list[Document]]:
        if unknown:
            raise RequestError(
                f"CRPRetriever takes k and session_id with a question, not {min(unknown)!r:.40}; "
                "its other fields are given when it is made"
            )
        cap = self.k if k is None else k
        if self.relay is not None:
            session = session_id or self.session_id
            turn = self.relay.turn(
                query,
                model=self.model,
                budget_tokens=self.budget_tokens,
                grounding=self.grounding,
                k=cap,
                session_id=named_session(session) if session else None,
            )
            envelope = turn.preview()
            return envelope, documents_of(envelope, self._stored(envelope))
        if session_id is not None:
            raise RequestError("a source has no sessions; session_id goes with relay=")
        facts, originals = facts_of(found or [])
        envelope = pack(
            query,
            facts,
            model=self.model,
            budget_tokens=self.budget_tokens,
            grounding=self.grounding,
            k=cap,
            reranker=self.reranker,
            settings=None if self.preset is None else load(preset=self.preset),
        )
        return envelope, documents_of(envelope, originals)

    def _stored(self, envelope: Envelope) -> dict[str, Document]:
        """The facts' own metadata, as a fabric's documents carry it."""
        assert self.relay is not None
        stored = self.relay.fabric.facts([fact.fact_id for fact in envelope.facts])
        return {fact.fact_id: stored_document(fact) for fact in stored}
