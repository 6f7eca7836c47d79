"""A namespace of the fabric as a LangChain vector store, and its embedder as `Embeddings`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore

from crp_integrations.adapters.arguments import check_embedder
from crp_integrations.adapters.vector_stores import StoreItem, check_k, items_of, own_metadata
from crp_integrations.engines.embeddings import LangChainEmbedder
from crp_integrations.errors import RequestError
from crp_integrations.fabric.ingest.fact_preparation import plain_metadata
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.langchain.messages import stored_document
from crp_integrations.ports import Embedder
from crp_integrations.relay.relay import Relay
from crp_integrations.vocabulary.context import SourceKind


class FabricEmbeddings(Embeddings):
    """A fabric's embedder as `Embeddings`, for chains that compute vectors themselves.

    Args:
        embedder: a fabric's embedder, `namespace.embedder`.

    Raises:
        RequestError: `embedder` is not an embedder.
    """

    def __init__(self, embedder: Embedder) -> None:
        check_embedder(embedder)
        self.embedder = embedder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Unit vectors of passages."""
        rows: list[list[float]] = self.embedder.embed_passages(texts).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        """The unit vector of a query."""
        row: list[float] = self.embedder.embed_query(text).tolist()
        return row


Filter = Mapping[str, Any] | Where | None


class CRPVectorStore(VectorStore):
    """A vector store with exact search whose documents are crash-safe, erasable, sealed facts.

    It shows all facts that the namespace's subject may retrieve, including those added elsewhere.
    The caller chooses the ids; a document with a known id is replaced. Without ids, equal text
    with equal metadata from one source is one document. `metadata["source"]` names the source,
    which `erase` uses to find its documents. Scores are cosines, highest first.

    Spec: CRP-SPEC-009 §2, §3

    Args:
        place: a relay, or a namespace of a fabric.
        kind: source kind of added documents; decides their importance.
        labels: access labels of added documents.
    """

    def __init__(
        self,
        place: Namespace | Relay,
        *,
        kind: SourceKind | str = SourceKind.USER,
        labels: Iterable[str] = (),
    ) -> None:
        self._items = items_of(place, kind, labels)
        self.relay = place if isinstance(place, Relay) else None

    @property
    def namespace(self) -> Namespace:
        """The namespace that contains the documents."""
        return self._items.namespace

    @property
    def embeddings(self) -> Embeddings:
        """The fabric's embedder."""
        return FabricEmbeddings(self.namespace.embedder)

    # --- adding and removing -----------------------------------------------------------

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[Any, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        place: Namespace | Relay | None = None,
        store: str | Path | Store | None = None,
        identity: str = "",
        kind: SourceKind | str = SourceKind.USER,
        labels: Iterable[str] = (),
        **options: Any,
    ) -> Self:
        """Open a vector store and put texts into it.

        Args:
            embedding: computes the vectors; None for the built-in embedder, or that of `place`.
            store: folder or store object to open instead of `place`; None for memory.
            identity: name and version of the embedding model; required for a store on disk, since
                vectors of two models must never be mixed.
            options: options of `Relay.open`.

        Raises:
            RequestError: two arguments cannot be combined.
        """
        if place is None:
            embedder = _embedder(embedding, identity, in_memory=store is None)
            place = Relay.open(store, **({"embedder": embedder} if embedder else {}), **options)
        elif store is not None or options:
            argument = "store" if store is not None else sorted(options)[0]
            raise RequestError(f"place and {argument} were given; give one of them")
        else:
            namespace = place.fabric if isinstance(place, Relay) else place
            own = getattr(getattr(embedding, "embedder", None), "identity", None)
            if embedding is not None and own != namespace.embedder.identity:
                raise RequestError(
                    f"the vectors here are made by {namespace.embedder.identity!r}; leave "
                    "embedding out, or open a store with the other one"
                )
        made = cls(place, kind=kind, labels=labels)
        made.add_texts(texts, metadatas, ids=ids)
        return made

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[Any, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add texts, replacing those with a known id: all of them or none.

        Args:
            batch_size: passed by LangChain's indexing, and ignored: one call is one batch.

        Raises:
            FactRejected: a text is empty or too long for a fact, or metadata is not plain
                JSON; nothing was added.
            RequestError: the number of ids or metadatas differs from that of the texts.
        """
        _refuse_options(kwargs)
        _check_lists(texts=texts, metadatas=metadatas, ids=ids)
        contents = list(texts)
        for name, values in (("metadatas", metadatas), ("ids", ids)):
            if values is not None and len(values) != len(contents):
                raise RequestError(f"{len(values)} {name} were given for {len(contents)} texts")
        items = []
        for number, text in enumerate(contents, 1):
            metadata = own_metadata(metadatas[number - 1] if metadatas else None, number)
            origin = metadata.get("source")
            items.append(
                StoreItem(
                    id=(ids[number - 1] if ids else None) or "",
                    content=text,
                    metadata=metadata,
                    origin=origin if isinstance(origin, str) else "",
                )
            )
        return self._items.put(items)

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Delete documents; unknown ids are ignored.

        Args:
            ids: None deletes all documents shown here that the tenant owns.
        """
        _refuse_options(kwargs)
        if ids is None:
            self._items.forget(self.namespace.find_own(Where()))
        else:
            self._items.remove(ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Documents in the order of `ids`, each once; unknown ids are left out."""
        return [stored_document(fact) for fact in self._items.get(ids)]

    # --- searching ---------------------------------------------------------------------

    def similarity_search(
        self, query: str, k: int = 4, filter: Filter = None, **kwargs: Any
    ) -> list[Document]:
        """The k documents nearest to a text.

        Args:
            filter: metadata keys and values that must all match; or a `Where`.
        """
        scored = self.similarity_search_with_score(query, k, filter, **kwargs)
        return [document for document, _ in scored]

    def similarity_search_with_score(
        self, query: str, k: int = 4, filter: Filter = None, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """The k documents nearest to a text with their cosines in [-1, 1]."""
        _refuse_options(kwargs)
        vector = self._vector(query)
        return _documents(self._items.nearest(vector, k, where=_where(filter)))

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, filter: Filter = None, **kwargs: Any
    ) -> list[Document]:
        """The k documents nearest to a vector of the fabric's embedder."""
        _refuse_options(kwargs)
        return [
            document
            for document, _ in _documents(self._items.nearest(embedding, k, where=_where(filter)))
        ]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Filter = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Documents near a text and unlike each other.

        Args:
            fetch_k: number of nearest documents to choose from.
            lambda_mult: weight in [0, 1]; 1 uses only similarity to the query, 0 only diversity.
        """
        vector = self._vector(query)
        return self.max_marginal_relevance_search_by_vector(
            vector.tolist(), k, fetch_k, lambda_mult, filter, **kwargs
        )

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Filter = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Documents near a vector and unlike each other."""
        _refuse_options(kwargs)
        check_k(k)
        check_k(fetch_k)
        nearest = self._items.nearest(embedding, max(k, fetch_k), where=_where(filter))
        return [
            document for document, _ in _documents(self._items.diverse(nearest, k, lambda_mult))
        ]

    def _vector(self, query: str) -> Any:
        if not isinstance(query, str):
            raise RequestError(f"query is {type(query).__name__}, wanted a text")
        return self.namespace.embedder.embed_query(query)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        """The cosine as relevance, with negative values set to 0."""
        return lambda cosine: min(1.0, max(0.0, cosine))


def _documents(hits: list[tuple[Fact, float]]) -> list[tuple[Document, float]]:
    return [(stored_document(fact), score) for fact, score in hits]


def _where(filter: Filter) -> Where | None:
    """A filter as conditions on facts."""
    if filter is None or isinstance(filter, Where):
        return filter
    if not isinstance(filter, Mapping):
        raise RequestError(
            f"filter is {type(filter).__name__}, wanted metadata keys with values, or a Where"
        )
    for key, value in filter.items():
        operator = key if str(key).startswith("$") else None
        if isinstance(value, Mapping):
            operator = next((name for name in value if str(name).startswith("$")), operator)
        if operator is not None:
            raise RequestError(
                f"filter operator {str(operator)!r:.40} is not supported; wanted values to equal"
            )
    return Where(metadata=plain_metadata(filter, name="the filter", refusal=RequestError))


def _embedder(embedding: object, identity: str, *, in_memory: bool) -> Embedder | None:
    if embedding is None:
        return None
    if isinstance(embedding, FabricEmbeddings):
        return embedding.embedder
    if not isinstance(embedding, Embeddings):
        seen = embedding if isinstance(embedding, type) else type(embedding)
        raise RequestError(f"embedding is {seen.__name__}; give an Embeddings object, or None")
    if not identity and not in_memory:
        raise RequestError(
            "a store on disk needs identity=, the name of the embedding model and its version"
        )
    return LangChainEmbedder(embedding, identity or f"langchain/{type(embedding).__name__}")


def _check_lists(*, texts: object, **lists: object) -> None:
    """Check that all arguments are lists; a string would be read by characters."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise RequestError(f"texts is {type(texts).__name__}, wanted a list of texts")
    for name, values in lists.items():
        wrong = isinstance(values, str) or not isinstance(values, Sequence)
        if values is not None and wrong:
            raise RequestError(
                f"{name} is {type(values).__name__}, wanted a list, one for each text"
            )


def _refuse_options(kwargs: Mapping[str, Any]) -> None:
    """Raise an error for an unknown option instead of ignoring it."""
    if kwargs:
        raise RequestError(f"option {sorted(kwargs)[0]!r} is not known to CRPVectorStore")
