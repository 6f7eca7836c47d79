"""A node postprocessor whose nodes are a packed envelope."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from llama_index.core.bridge.pydantic import Field
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from pydantic import ValidationError

from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import FactRejected, RequestError
from crp_integrations.fabric.records import Fact
from crp_integrations.llama_index.events import EnvelopeEvent
from crp_integrations.relay.doors import pack
from crp_integrations.vocabulary import GroundingMode

METADATA_KEY = "crp"
# Of a content's hash, `sha256:…`, what tells texts with one node id apart.
HASH_PART = slice(7, 19)

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
    """

    model: str
    budget_tokens: int | None = Field(default=None, ge=1)
    k: int | None = Field(default=None, ge=1)
    grounding: GroundingMode = GroundingMode.PREFERRED

    @classmethod
    def class_name(cls) -> str:
        """The component's name."""
        return "CRPNodePostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise RequestError("CRPNodePostprocessor needs the query: query_bundle or query_str")
        dispatcher.event(
            ReRankStartEvent(
                query=query_bundle, nodes=nodes, top_n=self.k or len(nodes), model_name=self.model
            )
        )
        facts, originals = _facts(nodes)
        envelope = pack(
            query_bundle.query_str,
            facts,
            model=self.model,
            budget_tokens=self.budget_tokens,
            grounding=self.grounding,
            k=self.k,
        )
        packed = [
            _copy(originals[fact.fact_id], _about(envelope, place))
            for place, fact in enumerate(envelope.facts)
        ]
        dispatcher.event(EnvelopeEvent(envelope=envelope.model_dump(mode="json")))
        dispatcher.event(ReRankEndEvent(nodes=packed))
        return packed


def _facts(nodes: Sequence[NodeWithScore]) -> tuple[list[Fact], dict[str, NodeWithScore]]:
    """The nodes as facts, and the nodes by fact id; equal nodes count once.

    Where an id stands for several texts, each becomes a fact of its own, named `ID#` and the
    start of its text's hash.
    """
    made: list[tuple[Fact, NodeWithScore]] = []
    texts: dict[str, set[str]] = defaultdict(set)
    for number, scored in enumerate(nodes, start=1):
        shown = scored.node.get_content(metadata_mode=MetadataMode.LLM)
        if shown:
            fact = _fact(number, scored, shown)
            made.append((fact, scored))
            texts[fact.fact_id].add(fact.content_hash)
    facts: list[Fact] = []
    originals: dict[str, NodeWithScore] = {}
    for fact, scored in made:
        if len(texts[fact.fact_id]) > 1:
            fact = fact.changed(fact_id=f"{fact.fact_id}#{fact.content_hash[HASH_PART]}")
        if fact.fact_id not in originals:
            originals[fact.fact_id] = scored
            facts.append(fact)
    return facts, originals


def _fact(number: int, scored: NodeWithScore, shown: str) -> Fact:
    try:
        fact = Fact(
            content=shown,
            fact_id=scored.node.node_id,
            source_id=scored.node.ref_doc_id or "user",
        )
        (fact.fact_id + fact.source_id).encode()
    except (ValidationError, UnicodeEncodeError):
        # The library's message would quote the text.
        raise FactRejected(f"node {number} is not text that can be encoded as UTF-8") from None
    return fact


def _about(envelope: Envelope, place: int) -> dict[str, Any]:
    """What a node's metadata says: the fact's scores and the envelope's identity, plain JSON."""
    return {
        **envelope.facts[place].model_dump(mode="json", exclude={"content"}),
        "envelope": {
            "etag": envelope.etag,
            "quality_tier": envelope.quality_tier.value,
            "token_count": envelope.token_count,
            "token_budget": envelope.token_budget,
        },
    }


def _copy(scored: NodeWithScore, about: dict[str, Any]) -> NodeWithScore:
    # In-memory stores hand out the same node objects again and again: only a copy may change.
    # What an index node points at (a retriever, an engine) stays the same object.
    target = getattr(scored.node, "obj", None)
    node = copy.deepcopy(scored.node, {} if target is None else {id(target): target})
    node.metadata[METADATA_KEY] = about
    for keys in (node.excluded_llm_metadata_keys, node.excluded_embed_metadata_keys):
        if METADATA_KEY not in keys:
            keys.append(METADATA_KEY)
    return NodeWithScore(node=node, score=scored.score)
