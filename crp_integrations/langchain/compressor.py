"""A document compressor whose result is a packed envelope."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Self

from langchain_core.callbacks import (
    Callbacks,
    adispatch_custom_event,
    dispatch_custom_event,
)
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import (
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SkipValidation,
    model_validator,
)

from crp_integrations.adapters.arguments import pydantic_errors
from crp_integrations.envelope.ports import Reranker
from crp_integrations.envelope.records import Envelope
from crp_integrations.langchain.documents import documents_of, facts_of
from crp_integrations.langchain.retriever import EVENT
from crp_integrations.relay.components import check_components
from crp_integrations.relay.doors import pack
from crp_integrations.vocabulary import GroundingMode


class CRPDocumentCompressor(BaseDocumentCompressor):
    """Keeps the documents that fit the budget best, in the order in which a model should see them.

    For `ContextualCompressionRetriever`, and wherever a chain has documents and a question. A
    document keeps its id and metadata, and has its part of the envelope in `metadata["crp"]`.

    Spec: CRP-SPEC-003 §6, §7

    Attributes:
        model: whose tokenizer counts.
        budget_tokens: most tokens of the documents rendered by `envelope_text`.
        k: most documents, None for as many as fit.
        reranker: looks at the documents again; None for none.

    Raises:
        RequestError: a field has no usable value.
        ConfigError: what is given as a reranker is none.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    model: str = Field(min_length=1)
    budget_tokens: int | None = Field(default=None, ge=1)
    k: int | None = Field(default=None, ge=1)
    grounding: GroundingMode = GroundingMode.PREFERRED
    reranker: SkipValidation[Reranker] | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _told(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        with pydantic_errors(cls):
            made = handler(given)
        check_components(reranker=made.reranker)
        return made

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """The packed documents; the envelope is published as the custom event `crp_envelope`."""
        envelope, packed = self._pack(documents, query)
        if _heard(callbacks):
            told = envelope.model_dump(mode="json")
            dispatch_custom_event(EVENT, told, config={"callbacks": callbacks})
        return packed

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """The asynchronous twin of `compress_documents`; packs beside the event loop."""
        envelope, packed = await asyncio.to_thread(self._pack, documents, query)
        if _heard(callbacks):
            told = envelope.model_dump(mode="json")
            await adispatch_custom_event(EVENT, told, config={"callbacks": callbacks})
        return packed

    def _pack(self, documents: Sequence[Document], query: str) -> tuple[Envelope, list[Document]]:
        facts, originals = facts_of(documents)
        envelope = pack(
            query,
            facts,
            model=self.model,
            budget_tokens=self.budget_tokens,
            grounding=self.grounding,
            k=self.k,
            reranker=self.reranker,
        )
        return envelope, documents_of(envelope, originals)


def _heard(callbacks: Callbacks | None) -> bool:
    """Whether there is a run to publish under; LangChain refuses an event without one."""
    return getattr(callbacks, "parent_run_id", None) is not None
