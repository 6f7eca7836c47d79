"""A node postprocessor whose nodes are a packed envelope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from llama_index.core.bridge.pydantic import Field, model_validator
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from crp_integrations.adapters.arguments import pydantic_errors
from crp_integrations.adapters.evidence import facts_of
from crp_integrations.errors import RequestError
from crp_integrations.llama_index.events import EnvelopeEvent
from crp_integrations.llama_index.given import check_fields, check_nodes
from crp_integrations.llama_index.listening import listen
from crp_integrations.llama_index.packing import offers, packed_nodes
from crp_integrations.relay.doors import pack
from crp_integrations.vocabulary import GroundingMode

dispatcher = get_dispatcher(__name__)


class CRPNodePostprocessor(BaseNodePostprocessor):
    """Keeps the nodes that fit the budget best, as copies, in the envelope's order.

    Spec: CRP-SPEC-003 §6, §7

    What is counted is what a synthesiser shows the model: the node's text with the metadata
    that the node lets through. Each copy carries `metadata["crp"]`, which is excluded from
    prompts and embeddings. Nodes that show the model no text, such as bare images, are left
    out. Rerank events and an `EnvelopeEvent` go to the dispatcher.

    Attributes:
        model: whose tokenizer counts.
        budget_tokens: most tokens of the nodes together, None for the model's context limit.
        k: most nodes, None for as many as fit.

    Raises:
        RequestError: there is no such field, or it has no usable value.
    """

    model: str = Field(min_length=1)
    budget_tokens: int | None = Field(default=None, ge=1)
    k: int | None = Field(default=None, ge=1)
    grounding: GroundingMode = GroundingMode.PREFERRED

    @model_validator(mode="wrap")
    @classmethod
    def _fields_alone(cls, given: Any, handler: Callable[[Any], Self]) -> Self:
        with pydantic_errors(cls):
            return handler(check_fields(cls, given))

    @classmethod
    def class_name(cls) -> str:
        """The component's name."""
        return "CRPNodePostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise RequestError("CRPNodePostprocessor needs the query: query_bundle or query_str")
        given: object = query_bundle
        if not isinstance(given, QueryBundle):
            raise RequestError(
                f"query_bundle is {type(given).__name__}; give a QueryBundle, or query_str"
            )
        nodes = check_nodes(nodes)
        # An engine behind an index node would else show the model what it found about its answer.
        listen()
        dispatcher.event(
            ReRankStartEvent(
                query=query_bundle, nodes=nodes, top_n=self.k or len(nodes), model_name=self.model
            )
        )
        facts, originals = facts_of(offers(nodes), noun="node")
        envelope = pack(
            query_bundle.query_str,
            facts,
            model=self.model,
            budget_tokens=self.budget_tokens,
            grounding=self.grounding,
            k=self.k,
        )
        packed = packed_nodes(envelope, originals)
        dispatcher.event(EnvelopeEvent(envelope=envelope.model_dump(mode="json")))
        dispatcher.event(ReRankEndEvent(nodes=packed))
        return packed
