"""Nodes offered for packing, and copies of them with their part of the envelope."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore

from crp_integrations.adapters.evidence import OfferedFact, fact_metadata
from crp_integrations.envelope.records import Envelope
from crp_integrations.fabric.records import Fact
from crp_integrations.llama_index.nodes import node_of
from crp_integrations.relay.relay import Relay

METADATA_KEY: Final = "crp"
# The id of the receipt on an answer; of ours, the one value that is no object.
RECEIPT_KEY: Final = "crp_receipt"
# What stands in the metadata of a response.
_KEYS: Final = frozenset({METADATA_KEY, "crp_envelope", "crp_headers", "crp_session", "crp_agent"})


def offers(nodes: Iterable[NodeWithScore]) -> Iterator[OfferedFact[NodeWithScore]]:
    """Nodes as offers: of each, the text that a synthesiser shows the model."""
    for scored in nodes:
        yield OfferedFact(
            scored,
            scored.node.get_content(metadata_mode=MetadataMode.LLM),
            fact_id=scored.node.node_id,
            source_id=scored.node.ref_doc_id or "user",
        )


def packed_nodes(envelope: Envelope, originals: Mapping[str, NodeWithScore]) -> list[NodeWithScore]:
    """An envelope's facts as nodes in their order; what each shows the model is the fact's text.

    Args:
        originals: the nodes by fact id; they stay as they are, copies are given out.

    Returns:
        Nodes with one more metadata key, `crp`: plain JSON about fact and envelope, which neither
        prompts nor embeddings get.
    """
    made = []
    for place, fact in enumerate(envelope.facts):
        scored = originals[fact.fact_id]
        node = _copy(scored.node)
        if node.get_content(metadata_mode=MetadataMode.LLM) != fact.content:
            _shows(node, fact.content)
        node.metadata[METADATA_KEY] = fact_metadata(envelope, place)
        _hide(node, (METADATA_KEY,))
        made.append(NodeWithScore(node=node, score=scored.score))
    return made


def stored_nodes(relay: Relay, envelope: Envelope) -> list[NodeWithScore]:
    """The facts of a relay's envelope as nodes, with the metadata that they were stored with.

    The envelope counts facts without metadata, so the model is shown none; the score is the
    fact's composite one.
    """
    stored = {
        fact.fact_id: fact for fact in relay.fabric.facts([one.fact_id for one in envelope.facts])
    }
    originals = {}
    for packed in envelope.facts:
        # What a session holds in memory is in no store.
        fact = stored.get(packed.fact_id) or Fact(
            content=packed.content, fact_id=packed.fact_id, source_id=packed.source_id
        )
        node = node_of(fact)
        _hide(node, node.metadata)
        originals[packed.fact_id] = NodeWithScore(node=node, score=float(packed.composite_score))
    return packed_nodes(envelope, originals)


def texts_of(nodes: Sequence[NodeWithScore]) -> list[str]:
    """What the model is shown of nodes."""
    return [scored.node.get_content(metadata_mode=MetadataMode.LLM) for scored in nodes]


def hide(nodes: Iterable[NodeWithScore]) -> None:
    """Hide what is ours in nodes that LlamaIndex made of a response with its whole metadata.

    It does so for an index node behind which there is a query engine.
    """
    for scored in nodes:
        node = scored.node
        ours = [
            key
            for key, value in node.metadata.items()
            if key == RECEIPT_KEY
            or (
                isinstance(value, dict)
                and (key in _KEYS or isinstance(value.get(METADATA_KEY), dict))
            )
        ]
        if ours:
            _hide(node, ours)


def _shows(node: BaseNode, text: str) -> None:
    """Let a node show the model this text and nothing else: parts of a fact, metadata among it."""
    node.set_content(text)
    _hide(node, node.metadata)


def _hide(node: BaseNode, keys: Iterable[str]) -> None:
    for hidden in (node.excluded_llm_metadata_keys, node.excluded_embed_metadata_keys):
        hidden.extend(key for key in keys if key not in hidden)


def _copy(node: BaseNode) -> Any:
    # In-memory stores hand out the same node objects again and again: only a copy may change.
    # What an index node points at (a retriever, an engine) stays the same object.
    target = getattr(node, "obj", None)
    return copy.deepcopy(node, {} if target is None else {id(target): target})
