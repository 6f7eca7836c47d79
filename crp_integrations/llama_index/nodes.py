"""Between LlamaIndex nodes and facts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from llama_index.core.schema import (
    BaseNode,
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

from crp_integrations.adapters.vector_stores import (
    StoreItem,
    item_extra,
    item_metadata,
    own_metadata,
)
from crp_integrations.errors import EngineError, FactRejected
from crp_integrations.fabric.records import Fact
from crp_integrations.vectors import FloatRows

# Under our own key of a fact's metadata: the node without text, vector and metadata, and its class.
NODE, CLASS, DOCUMENT = "node", "class", "document"
# What LlamaIndex's stores let filters ask for besides the node's own metadata.
DOCUMENT_KEYS = ("document_id", "doc_id", "ref_doc_id")


def items_from(nodes: Iterable[BaseNode]) -> list[StoreItem]:
    """Nodes as items.

    Raises:
        FactRejected: a node holds no text, or metadata that are not plain JSON.
    """
    made = []
    for number, node in enumerate(nodes, 1):
        content = node.get_content(metadata_mode=MetadataMode.NONE)
        if not content:
            raise FactRejected(f"node {node.node_id} holds no text, and a fact is text")
        told = node_to_metadata_dict(node, remove_text=True)
        rest = json.loads(told["_node_content"])
        for field in ("metadata", "embedding", "text"):
            rest.pop(field, None)
        about = {NODE: rest, CLASS: told["_node_type"], DOCUMENT: node.ref_doc_id}
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
    """The nodes' vectors, shape (n, dimensions); None when no node has one.

    Raises:
        EngineError: some nodes have one and others do not, or one is of another length.
    """
    given = [node.embedding for node in nodes if node.embedding is not None]
    if not given:
        return None
    if len(given) != len(nodes):
        raise EngineError(f"{len(given)} of {len(nodes)} nodes have a vector, wanted all or none")
    wrong = next((len(row) for row in given if len(row) != dimensions), None)
    if wrong is not None:
        raise EngineError(
            f"a node's vector has {wrong} numbers, and the fabric's embedder makes {dimensions}; "
            "give the index embed_model=vector_store.embed_model"
        )
    return np.asarray(given, dtype=np.float32)


def node_of(fact: Fact) -> BaseNode:
    """A fact as the node that it was added as.

    One that no view has added is a text node with the fact's id, whose source is the fact's.
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
    # The first versions of 0.14 write this name and read another one, a misspelling of theirs.
    if separator is not None and made.metadata_separator != separator:
        made.metadata_separator = separator
    return made


def filterable(fact: Fact) -> dict[str, Any]:
    """What filters look at: the metadata, and the document's id under LlamaIndex's names."""
    document = item_extra(fact).get(DOCUMENT, fact.source_id)
    return {**fact.metadata, **dict.fromkeys(DOCUMENT_KEYS, document or "None")}
