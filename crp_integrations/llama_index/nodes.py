"""Conversion between LlamaIndex nodes and facts, and metadata filters over them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

import numpy as np
from llama_index.core.schema import (
    BaseNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

from crp_integrations.adapters.evidence import FACT_KEY, OfferedFact, fact_metadata, facts_of
from crp_integrations.adapters.vector_stores import (
    StoreItem,
    item_extra,
    item_metadata,
    own_metadata,
)
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import EngineError, FactRejected
from crp_integrations.fabric.records import Fact
from crp_integrations.llama_index.spans import SpanEvidence
from crp_integrations.relay.evidence import without_echoes
from crp_integrations.relay.relay import Relay
from crp_integrations.vectors import FloatRows

# Keys of the data to rebuild a node: its other fields, its class and its document's id.
NODE, CLASS, DOCUMENT = "node", "class", "document"
# Names for the document's id in filters, in addition to the node's metadata.
DOCUMENT_KEYS = ("document_id", "doc_id", "ref_doc_id")


def items_from(nodes: Iterable[BaseNode]) -> list[StoreItem]:
    """Nodes as items of a vector store."""
    made = []
    for number, node in enumerate(nodes, 1):
        content = node.get_content(metadata_mode=MetadataMode.NONE)
        if not content:
            raise FactRejected(f"node {node.node_id} has no text, and a fact is text")
        node_fields = node_to_metadata_dict(node, remove_text=True)
        rest = json.loads(node_fields["_node_content"])
        for field in ("metadata", "embedding", "text"):
            rest.pop(field, None)
        about = {NODE: rest, CLASS: node_fields["_node_type"], DOCUMENT: node.ref_doc_id}
        made.append(
            StoreItem(
                id=node.node_id,
                content=content,
                metadata=own_metadata(node.metadata, number),
                origin=node.ref_doc_id or "",
                extra=about,
            )
        )
    return made


def vectors_of(nodes: Sequence[BaseNode], dimensions: int) -> FloatRows | None:
    """The nodes' vectors, shape (n, dimensions); None when no node has one."""
    vectors = [node.embedding for node in nodes if node.embedding is not None]
    if not vectors:
        return None
    if len(vectors) != len(nodes):
        raise EngineError(f"{len(vectors)} of {len(nodes)} nodes have a vector, wanted all or none")
    wrong = next((len(row) for row in vectors if len(row) != dimensions), None)
    if wrong is not None:
        raise EngineError(
            f"a node's vector has {wrong} numbers, and the fabric's embedder makes {dimensions}; "
            "give the index embed_model=vector_store.embed_model"
        )
    return np.asarray(vectors, dtype=np.float32)


def node_of(fact: Fact) -> BaseNode:
    """Rebuild the node that a fact was added as.

    A fact not added by a view becomes a text node with the fact's id and source.
    """
    id_, metadata = item_metadata(fact)
    about = item_extra(fact)
    if NODE not in about:
        related = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=fact.source_id)}
        return TextNode(id_=id_, text=fact.content, metadata=metadata, relationships=related)
    node = {**about[NODE], "metadata": metadata, "embedding": None}
    stored = {"_node_content": json.dumps(node, ensure_ascii=False), "_node_type": about[CLASS]}
    made = metadata_dict_to_node(stored, text=fact.content)
    separator = node.get("metadata_separator")
    # The first versions of 0.14 write this name but read a misspelled one.
    if separator is not None and made.metadata_separator != separator:
        made.metadata_separator = separator
    return made


def filterable(fact: Fact) -> dict[str, Any]:
    """Values for filters: the metadata, and the document's id under LlamaIndex's names."""
    document = item_extra(fact).get(DOCUMENT, fact.source_id)
    return {**fact.metadata, **dict.fromkeys(DOCUMENT_KEYS, document or "None")}


METADATA_KEY: Final = "crp"
# Key of an answer's receipt id, a string; the values of all other keys are objects.
RECEIPT_KEY: Final = "crp_receipt"
# Keys of this package in the metadata of a response.
_KEYS: Final = frozenset({METADATA_KEY, "crp_envelope", "crp_headers", "crp_session", "crp_agent"})


def offers(nodes: Iterable[NodeWithScore]) -> Iterator[OfferedFact[NodeWithScore]]:
    """Nodes as offers, each with the text that a synthesizer shows the model."""
    for scored in nodes:
        yield OfferedFact(
            scored,
            scored.node.get_content(metadata_mode=MetadataMode.LLM),
            fact_id=scored.node.node_id,
            source_id=scored.node.ref_doc_id or "user",
            source_location=_location(scored.node),
        )


def _location(node: BaseNode) -> str:
    """Character range of a node in its document; empty if the parser did not record it."""
    start, end = getattr(node, "start_char_idx", None), getattr(node, "end_char_idx", None)
    known = node.ref_doc_id is not None and isinstance(start, int) and isinstance(end, int)
    return f"{start}-{end}" if known else ""


def packed_nodes(envelope: Envelope, originals: Mapping[str, NodeWithScore]) -> list[NodeWithScore]:
    """An envelope's facts as nodes in the same order; each shows the model the fact's text."""
    made = []
    for place, fact in enumerate(envelope.facts):
        scored = originals[fact.fact_id]
        node = _copy(scored.node)
        if node.get_content(metadata_mode=MetadataMode.LLM) != fact.content:
            _show_only(node, fact.content)
        node.metadata[FACT_KEY] = fact_metadata(envelope, place)
        _hide(node, (FACT_KEY,))
        made.append(NodeWithScore(node=node, score=scored.score))
    return made


def stored_nodes(
    relay: Relay, envelope: Envelope, residency: str | None = None
) -> list[NodeWithScore]:
    """The facts of a relay's envelope as nodes, with their stored metadata.

    The envelope's token count excludes metadata, so it is hidden from the model. The score is the
    fact's composite score.

    Args:
        residency: region of the facts; None for the relay's own.
    """
    ids = [packed.fact_id for packed in envelope.facts]
    stored = {fact.fact_id: fact for fact in relay.region(residency).facts(ids)}
    originals = {}
    for packed in envelope.facts:
        # Facts that a session keeps in memory are not in the store.
        fact = stored.get(packed.fact_id) or Fact(
            content=packed.content, fact_id=packed.fact_id, source_id=packed.source_id
        )
        node = node_of(fact)
        _hide(node, node.metadata)
        originals[packed.fact_id] = NodeWithScore(node=node, score=float(packed.composite_score))
    return packed_nodes(envelope, originals)


def texts_of(nodes: Sequence[NodeWithScore]) -> list[str]:
    """The texts of nodes that the model is shown."""
    return [scored.node.get_content(metadata_mode=MetadataMode.LLM) for scored in nodes]


def hide_own_metadata(nodes: Iterable[NodeWithScore]) -> None:
    """Hide this package's metadata in nodes that LlamaIndex made from a response.

    LlamaIndex copies a response's metadata if an index node points to a query engine.
    """
    for scored in nodes:
        node = scored.node
        ours = [
            key
            for key, value in node.metadata.items()
            if key == RECEIPT_KEY
            or (isinstance(value, dict) and (key in _KEYS or isinstance(value.get(FACT_KEY), dict)))
        ]
        if ours:
            _hide(node, ours)


def _show_only(node: BaseNode, text: str) -> None:
    """Make a node show the model only this text, without metadata."""
    node.set_content(text)
    _hide(node, node.metadata)


def _hide(node: BaseNode, keys: Iterable[str]) -> None:
    for hidden in (node.excluded_llm_metadata_keys, node.excluded_embed_metadata_keys):
        hidden.extend(key for key in keys if key not in hidden)


def _copy(node: BaseNode) -> Any:
    # A copy, because in-memory stores return the same node objects each time.
    # The target of an index node (a retriever, an engine) is not copied.
    target = getattr(node, "obj", None)
    return copy.deepcopy(node, {} if target is None else {id(target): target})


def evidence_facts(evidence: Sequence[SpanEvidence]) -> list[Fact]:
    """Retrieved nodes, with the text shown to the model, and tool results as facts."""
    return facts_of(_evidence_offers(evidence), noun="passage")[0]


def _evidence_offers(
    gathered: Sequence[SpanEvidence],
) -> Iterator[OfferedFact[NodeWithScore | None]]:
    for number, evidence in enumerate(gathered, 1):
        for offer in offers(evidence.nodes):
            yield OfferedFact(
                offer.item, offer.content, fact_id=offer.fact_id, source_id=offer.source_id
            )
        text = without_echoes(evidence.text, evidence.asked)
        if text:
            yield OfferedFact(
                None, text, source_id=f"tool:{evidence.tool}", source_location=f"#{number}"
            )


def filters_hold(filters: MetadataFilters | None, metadata: Mapping[str, Any]) -> bool:
    """Whether metadata satisfies filters; a missing key equals no value."""
    if filters is None or not filters.filters:
        return True
    holds = [_filter_holds(item, metadata) for item in filters.filters]
    condition = filters.condition or FilterCondition.AND
    if condition is FilterCondition.AND:
        return all(holds)
    if condition is FilterCondition.OR:
        return any(holds)
    if condition is FilterCondition.NOT:
        return not any(holds)
    raise ValueError(f"condition {str(condition)!r:.40} is not known")


def _filter_holds(condition: MetadataFilter | MetadataFilters, metadata: Mapping[str, Any]) -> bool:
    if isinstance(condition, MetadataFilters):
        raise ValueError("Nested filters are not supported")
    value, operator = metadata.get(condition.key), condition.operator
    if operator is FilterOperator.IS_EMPTY:
        return value is None or value in ("", [])
    if value is None:
        return operator in (FilterOperator.NE, FilterOperator.NIN)
    if operator not in _CHECKS:
        raise ValueError(f"operator {str(operator)!r:.40} is not known")
    return bool(_CHECKS[operator](value, condition.value))


def _text_check(name: str, fold: Callable[[str], str]) -> Callable[[Any, Any], bool]:
    def check(value: Any, wanted: Any) -> bool:
        if not isinstance(value, str) or not isinstance(wanted, str):
            raise TypeError(f"{name} compares texts, and one of the two is not a text")
        return fold(wanted) in fold(value)

    return check


_CHECKS: Final[dict[FilterOperator, Callable[[Any, Any], bool]]] = {
    FilterOperator.EQ: eq,
    FilterOperator.NE: ne,
    FilterOperator.GT: gt,
    FilterOperator.GTE: ge,
    FilterOperator.LT: lt,
    FilterOperator.LTE: le,
    FilterOperator.IN: lambda value, wanted: value in wanted,
    FilterOperator.NIN: lambda value, wanted: value not in wanted,
    FilterOperator.CONTAINS: lambda value, wanted: wanted in value,
    FilterOperator.ALL: lambda value, wanted: all(item in value for item in wanted),
    FilterOperator.ANY: lambda value, wanted: any(item in value for item in wanted),
    FilterOperator.TEXT_MATCH: _text_check("TEXT_MATCH", str),
    FilterOperator.TEXT_MATCH_INSENSITIVE: _text_check("TEXT_MATCH_INSENSITIVE", str.lower),
}
