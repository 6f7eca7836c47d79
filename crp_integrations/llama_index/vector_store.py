"""A namespace of the fabric as a LlamaIndex vector store, and its embedder as embedding."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, ClassVar

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from crp_integrations.adapters.arguments import check_embedder
from crp_integrations.adapters.vector_stores import StoreItems, check_k, items_of
from crp_integrations.errors import RequestError
from crp_integrations.fabric.ingest.fact_preparation import plain_metadata
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Fact, Where, source_id
from crp_integrations.llama_index.model import check_fields
from crp_integrations.llama_index.nodes import (
    DOCUMENT_KEYS,
    filterable,
    filters_hold,
    items_from,
    node_of,
    vectors_of,
)
from crp_integrations.ports import Embedder
from crp_integrations.relay.relay import Relay
from crp_integrations.vocabulary.context import SourceKind


class FabricEmbedding(BaseEmbedding):
    """A fabric's embedder as the `embed_model` of an index over that fabric.

    Args:
        embedder: a fabric's embedder, `namespace.embedder`.

    Raises:
        RequestError: `embedder` is not an embedder, or a field is unknown.
    """

    _embedder: Embedder = PrivateAttr()

    def __init__(self, embedder: Embedder, **fields: Any) -> None:
        check_embedder(embedder)
        checked = check_fields(type(self), fields)
        super().__init__(**{"model_name": embedder.identity, **checked})
        self._embedder = embedder

    @classmethod
    def class_name(cls) -> str:
        """The component's name."""
        return "FabricEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        row: list[float] = self._embedder.embed_query(query).tolist()
        return row

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = self._embedder.embed_passages(texts).tolist()
        return rows

    async def _aget_query_embedding(self, query: str) -> list[float]:
        # Embedding is CPU work, so it runs in a worker thread instead of the event loop.
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)


_VECTOR_MODES = (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR)
_TEXT_MODES = (VectorStoreQueryMode.TEXT_SEARCH, VectorStoreQueryMode.SPARSE)
# The MMR mode chooses from `similarity_top_k` times this factor nearest nodes.
_PREFETCH = 4.0
_MAX_PREFETCH = 1_000.0
_OPTIONS = ("mmr_threshold", "mmr_prefetch_factor")


def _in_thread(method: Callable[..., Any]) -> Any:
    """The asynchronous twin of a method; runs it in a worker thread."""

    @wraps(method)
    async def twin(*args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(method, *args, **kwargs)

    return twin


class CRPVectorStore(BasePydanticVectorStore):
    """A vector store with exact search whose nodes are crash-safe, erasable, sealed facts.

    It shows all facts that the namespace's subject may retrieve, including those added elsewhere.
    A node with a known id is replaced. Nodes of one document are facts of one source, whose URI is
    the document's id. Scores are cosines, in text modes BM25, highest first.

    Give the index `embed_model=vector_store.embed_model`, so that nodes, queries and facts have
    vectors of one model. `persist` is not needed: nodes are stored when they are added.

    Spec: CRP-SPEC-009 §2, §3

    Args:
        place: a relay, or a namespace of a fabric.
        kind: source kind of added nodes; decides their importance.
        labels: access labels of added nodes.
    """

    stores_text: bool = True
    is_embedding_query: bool = True

    _items: StoreItems = PrivateAttr()
    _relay: Relay | None = PrivateAttr()

    def __init__(
        self,
        place: Namespace | Relay,
        *,
        kind: SourceKind | str = SourceKind.USER,
        labels: Iterable[str] = (),
    ) -> None:
        super().__init__(stores_text=True)
        self._items = items_of(place, kind, labels)
        # Kept so that its store stays open as long as this object exists.
        self._relay = place if isinstance(place, Relay) else None

    @classmethod
    def class_name(cls) -> str:
        """The component's name."""
        return "CRPVectorStore"

    @property
    def client(self) -> Namespace:
        """The namespace that contains the nodes."""
        return self._items.namespace

    @property
    def embed_model(self) -> FabricEmbedding:
        """The fabric's embedder, for the index and its queries."""
        return FabricEmbedding(self._items.namespace.embedder)

    # --- adding and removing -----------------------------------------------------------

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes, replacing those with a known id: all of them or none.

        The fabric embeds nodes without a vector.

        Returns:
            The nodes' ids in order.

        Raises:
            FactRejected: a node's text is empty or too long for a fact, or its metadata is not
                plain JSON; nothing was added.
            RequestError: `nodes` is not a list of nodes.
            EngineError: a vector is not from the fabric's embedder.
        """
        _refuse_options(kwargs)
        nodes = _nodes(nodes)
        if not nodes:
            return []
        rows = vectors_of(nodes, self._items.namespace.embedder.dimensions)
        return self._items.put(items_from(nodes), rows)

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document; an unknown document is ignored."""
        _refuse_options(delete_kwargs)
        where = Where(sources=_sources([ref_doc_id]))
        self._items.forget(self._items.namespace.find_own(where))

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Delete nodes by id, by filters, or by both.

        Raises:
            RequestError: neither is given; `clear` deletes everything.
        """
        _refuse_options(delete_kwargs)
        if node_ids is None and filters is None:
            raise RequestError("delete_nodes needs node_ids or filters; clear() deletes all nodes")
        self._items.forget([fact.fact_id for fact in self._matching_facts(node_ids, filters)])

    def clear(self) -> None:
        """Delete all nodes shown here that the tenant owns."""
        self._items.forget(self._items.namespace.find_own(Where()))

    # --- reading -----------------------------------------------------------------------

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Nodes by id, by filters, by both, or all of them."""
        return [node_of(fact) for fact in self._matching_facts(node_ids, filters)]

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """The best nodes for a query.

        The modes are `default`, `mmr`, and the lexical `text_search` and `sparse`. Filters for
        equal text in metadata, documents and node ids use the index; all other filters read the
        metadata of every remaining fact.

        Args:
            query: an empty list of node ids is no restriction; one of documents excludes all.
            kwargs: `mmr_threshold` in [0, 1] and `mmr_prefetch_factor`.

        Raises:
            RequestError: a mode, option or filter is unknown; the message names it.
        """
        _refuse_options({name: value for name, value in kwargs.items() if name not in _OPTIONS})
        if not isinstance(query, VectorStoreQuery):
            raise RequestError(f"query is {type(query).__name__}; give a VectorStoreQuery")
        for name in ("output_fields", "embedding_field"):
            if getattr(query, name) is not None:
                raise RequestError(f"{name} is not known to CRPVectorStore; leave it out")
        where = _where(query.filters, query.doc_ids)
        among = None
        # LlamaIndex's retriever passes an empty list for no restriction.
        node_ids = query.node_ids or None
        if node_ids is not None or not _all_indexed(query.filters):
            chosen = self._matching_facts(node_ids, query.filters, query.doc_ids)
            among = [fact.fact_id for fact in chosen]
        hits = self._search(query, where, among, kwargs)
        nodes = [node_of(fact) for fact, _ in hits]
        return VectorStoreQueryResult(
            nodes=nodes,
            similarities=[score for _, score in hits],
            ids=[node.node_id for node in nodes],
        )

    # --- asynchronous methods -------------------------------------------------------------

    async_add: ClassVar[Any] = _in_thread(add)
    adelete: ClassVar[Any] = _in_thread(delete)
    adelete_nodes: ClassVar[Any] = _in_thread(delete_nodes)
    aclear: ClassVar[Any] = _in_thread(clear)
    aget_nodes: ClassVar[Any] = _in_thread(get_nodes)
    aquery: ClassVar[Any] = _in_thread(query)

    # --- helpers -----------------------------------------------------------------------

    def _search(
        self,
        query: VectorStoreQuery,
        where: Where,
        among: list[str] | None,
        options: Mapping[str, Any],
    ) -> list[tuple[Fact, float]]:
        items, k = self._items, query.similarity_top_k
        check_k(k)
        mode = _mode(query.mode)
        if mode in _TEXT_MODES:
            if query.query_str is None:
                raise RequestError(f"mode {mode.value} needs query_str")
            return items.worded(query.query_str, k, where=where, among=among)
        if query.query_embedding is None:
            raise RequestError(f"mode {mode.value} needs query_embedding")
        if mode is VectorStoreQueryMode.DEFAULT:
            return items.nearest(query.query_embedding, k, where=where, among=among)
        wanted = max(k, int(k * _prefetch(options.get("mmr_prefetch_factor"))))
        hits = items.nearest(query.query_embedding, wanted, where=where, among=among)
        threshold = options.get("mmr_threshold", query.mmr_threshold)
        return items.diverse(hits, k, 0.5 if threshold is None else threshold)

    def _matching_facts(
        self,
        node_ids: Sequence[str] | None,
        filters: MetadataFilters | None,
        doc_ids: Sequence[str] | None = None,
    ) -> list[Fact]:
        """Facts that satisfy all given conditions."""
        where = _where(filters, doc_ids)
        if node_ids is not None:
            facts = self._items.get(node_ids)
            if doc_ids is not None:
                sources = set(_sources(doc_ids))
                facts = [fact for fact in facts if fact.source_id in sources]
        else:
            namespace = self._items.namespace
            facts = namespace.facts(namespace.find(where))
        try:
            return [fact for fact in facts if filters_hold(filters, filterable(fact))]
        except (TypeError, ValueError) as error:
            raise RequestError(f"the filters cannot be applied: {error}") from error


def _nodes(values: object) -> list[BaseNode]:
    """Check that a value is a list of nodes."""
    if isinstance(values, str | BaseNode) or not isinstance(values, Iterable):
        raise RequestError(f"nodes is {type(values).__name__}, wanted a list of nodes")
    nodes = list(values)
    for number, node in enumerate(nodes, 1):
        if not isinstance(node, BaseNode):
            raise RequestError(f"node {number} is {type(node).__name__}, wanted a node")
    return nodes


def _mode(value: object) -> VectorStoreQueryMode:
    """A supported mode, given as an enum member or its value."""
    modes = (*_VECTOR_MODES, *_TEXT_MODES)
    mode = next((mode for mode in modes if mode == value), None)
    if mode is None:
        shown = value.value if isinstance(value, VectorStoreQueryMode) else value
        raise RequestError(
            f"query mode {shown!r:.40} is not one of {', '.join(mode.value for mode in modes)}"
        )
    return mode


def _sources(doc_ids: Sequence[str]) -> tuple[str, ...]:
    """Source ids of documents; a document not added by a view is named by its source id."""
    if isinstance(doc_ids, str):
        raise RequestError(f"doc_ids is the text {doc_ids!r:.40}; give a list of ids")
    for doc in doc_ids:
        if not isinstance(doc, str):
            raise RequestError(f"a document's id is {type(doc).__name__}, wanted a text")
    return tuple(sorted({id_ for doc in doc_ids for id_ in (doc, source_id(doc))}))


def _where(filters: MetadataFilters | None, doc_ids: Sequence[str] | None) -> Where:
    """The conditions that the store's index can evaluate."""
    if filters is not None and not isinstance(filters, MetadataFilters):
        raise RequestError(
            f"filters is {type(filters).__name__}; give MetadataFilters(filters=[…])"
        )
    wanted = {item.key: item.value for item in _equal(filters)}
    return Where(
        sources=None if doc_ids is None else _sources(doc_ids),
        metadata=plain_metadata(wanted, name="the filter", refusal=RequestError),
    )


def _equal(filters: MetadataFilters | None) -> list[MetadataFilter]:
    """Filters for equal text that must all hold: only on those JSON and Python agree."""
    if filters is None or filters.condition not in (FilterCondition.AND, None):
        return []
    keys = [item.key for item in filters.filters if isinstance(item, MetadataFilter)]
    return [
        item
        for item in filters.filters
        if isinstance(item, MetadataFilter)
        and item.operator is FilterOperator.EQ
        and isinstance(item.value, str)
        and item.key not in DOCUMENT_KEYS
        and keys.count(item.key) == 1
    ]


def _all_indexed(filters: MetadataFilters | None) -> bool:
    """Whether the store's index can evaluate all filters."""
    return filters is None or len(_equal(filters)) == len(filters.filters)


def _refuse_options(kwargs: Mapping[str, Any]) -> None:
    """Raise an error for an unknown option instead of ignoring it."""
    if kwargs:
        raise RequestError(f"option {sorted(kwargs)[0]!r} is not known to CRPVectorStore")


def _prefetch(factor: Any) -> float:
    """Check the factor for the number of nodes that the MMR mode chooses from."""
    if factor is None:
        return _PREFETCH
    try:
        number = float(factor)
    except (TypeError, ValueError, OverflowError):
        number = 0.0
    if not 0.0 < number <= _MAX_PREFETCH:
        raise RequestError(
            f"mmr_prefetch_factor is {factor!r:.40}, wanted a number above 0 and at most "
            f"{_MAX_PREFETCH:g}"
        )
    return number
