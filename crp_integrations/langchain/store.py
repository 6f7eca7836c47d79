"""LangGraph's store and LangChain's document store over the fabric.

A value is one fact, its head, which contains the whole value, plus one fact per further text that
queries can find. The head records their number; texts left by an interrupted write are ignored.
"""

from __future__ import annotations

import asyncio
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from numbers import Real
from pathlib import Path
from threading import Lock
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from langchain_core.documents import Document
from langchain_core.stores import BaseStore as BaseKeyValueStore
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
    tokenize_path,
)
from pydantic import JsonValue, TypeAdapter

from crp_integrations.adapters.arguments import check_count
from crp_integrations.adapters.vector_stores import StoreItem, StoreItems, item_extra, items_of
from crp_integrations.errors import RequestError
from crp_integrations.fabric.ingest.chunker import cut_blocks
from crp_integrations.fabric.ingest.fact_preparation import plain_metadata
from crp_integrations.fabric.ingest.fact_upsert import named
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact, Where, source_id
from crp_integrations.loaders.text import split_paragraphs
from crp_integrations.relay.relay import Relay
from crp_integrations.vocabulary.context import SourceKind

Labels = tuple[str, ...]
Place = tuple[Labels, str]

# LangGraph's index path for the whole value.
WHOLE: Final = "$"
# Keys in a fact's extra data: the value, on a head; the head's id and a number, on further texts.
_HEAD: Final = "kept"
_PART: Final = "kept-part-of"
# Number of hits that a query requests first, and the factor for each further request while the
# hits belong to too few values.
_FIRST_HITS: Final = 32
_WIDER: Final = 4
_ANY_LABEL: Final = "*"
_OPERATOR_PREFIX: Final = "$"
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A stored value with its path and key.

    Attributes:
        path: LangGraph namespace of the value.
        ttl_minutes: lifetime after the last read or write; None for unlimited.
        expires_at: time when the value expires; None for never.
        parts: number of facts with its further texts, not counting the head.
        searchable: whether queries may find it.
    """

    path: Labels
    key: str
    value: dict[str, JsonValue]
    created_at: datetime
    updated_at: datetime
    ttl_minutes: float | None = None
    expires_at: datetime | None = None
    parts: int = 0
    searchable: bool = True

    @property
    def place(self) -> Place:
        """Path and key, which identify the value."""
        return self.path, self.key

    def alive(self, now: datetime) -> bool:
        """Whether the value has not expired."""
        return self.expires_at is None or self.expires_at > now


_VALUE: Final = TypeAdapter(StoredValue)


class CRPStore(BaseStore):
    """A LangGraph store of items by namespace and key, in a crash-safe, erasable and sealed fabric.

    For `create_agent(…, store=CRPStore("./memory"))`, `graph.compile(store=…)` and nodes. Each
    namespace is a source whose facts contain its items; the fabric's embedder searches them.

    Spec: CRP-SPEC-009 §2, §8

    Args:
        place: a separate folder, created at the first write; None for memory; or a namespace of a
            fabric. Relays over that namespace also answer questions from its items.
        fields: paths of a value to search, `$` for the whole value; `put(index=…)` overrides it.
        ttl: default lifetime of items in LangGraph's form; `put` may override it.
        kind: source kind of stored items; decides their importance.
        labels: access labels of stored items.
        options: options of `Relay.open`, such as `subject`, if no namespace is given.

    Raises:
        RequestError: `place` is a relay, options come with a namespace, or fields or ttl are not
            usable.
    """

    supports_ttl = True
    # Scheme of its source URIs, such as `langgraph:users/anna`.
    _scheme = "langgraph"

    def __init__(
        self,
        place: Namespace | Store | str | Path | None = None,
        *,
        fields: Sequence[str] = (WHOLE,),
        ttl: TTLConfig | None = None,
        kind: SourceKind | str = SourceKind.USER,
        labels: Sequence[str] = (),
        **options: Any,
    ) -> None:
        if "index" in options:
            raise RequestError(
                "index is not an option here: the fabric embeds by itself; fields=[…] says by "
                "which paths of a value a query finds it"
            )
        self._items: StoreItems = items_of(_namespace_of(place, options), kind, labels)
        self._fields = _paths("fields", fields)
        self.ttl_config = _checked_ttl(ttl)
        # Writers in this process wait for each other; a writer in another may get a busy error.
        self._writing = Lock()

    @property
    def namespace(self) -> Namespace:
        """The namespace that contains the items."""
        return self._items.namespace

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run several operations; reads see the state before the batch.

        All puts except deletions are written together or not at all; deletions follow.

        Raises:
            RequestError: an operation or a filter's operator is unknown, a namespace is empty, or
                a value is not plain JSON.
            FactRejected: a value cannot be stored as a fact.
        """
        # The last of several puts to one key counts.
        puts: dict[Place, PutOp] = {}
        read: list[StoredValue] = []
        results = [self._run(op, puts, read) for op in ops]
        self._refresh(read)
        written = [(op, _json_value(op)) for op in puts.values() if op.value is not None]
        if written:
            self._put(written)
        gone = [place for place, op in puts.items() if op.value is None]
        if gone:
            with self._writing:
                self._drop(list(self._stored(gone).values()))
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The asynchronous twin of `batch`; runs it in a worker thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def sweep_ttl(self) -> int:
        """Delete expired items, which reads no longer return; return their number."""
        with self._writing:
            now = self._now
            dead = [value for value in self._all(()) if not value.alive(now)]
            self._drop(dead)
        return len(dead)

    def erase(self, namespace_prefix: tuple[str, ...]) -> int:
        """Erase everything under a prefix, so that no byte of it remains in any file.

        `delete` hides items at once, but their bytes remain until `maintain`.

        Spec: CRP-SPEC-009 §8.3

        Returns:
            Number of erased namespaces.

        Raises:
            RequestError: the prefix is not a tuple of names.
        """
        sources = self._sources(_labels(namespace_prefix))
        for source in sources:
            self.namespace.erase(source)
        return len(sources)

    # --- operations ----------------------------------------------------------------------

    def _run(self, op: Op, puts: dict[Place, PutOp], read: list[StoredValue]) -> Result:
        """Result of an operation; adds writes to `puts` and values to be refreshed to `read`."""
        match op:
            case GetOp(namespace=path, key=key):
                stored = self._stored([(_labels(path), key)])
                value = next(iter(self._alive(stored.values())), None)
                if value is not None and op.refresh_ttl:
                    read.append(value)
                return None if value is None else Item(**_item_fields(value))
            case SearchOp():
                hits = self._search(op)
                if op.refresh_ttl:
                    read += [value for value, _ in hits]
                return [SearchItem(**_item_fields(value), score=score) for value, score in hits]
            case ListNamespacesOp():
                return self._namespaces(op)
            case PutOp(namespace=path, key=key):
                labels = _labels(path)
                if not labels or not all(labels):
                    raise RequestError(f"namespace {labels!r:.80} is not one or more names")
                if op.value is not None and not isinstance(op.value, dict):
                    raise RequestError(
                        f"the value of {key!r:.40} is {type(op.value).__name__}, wanted a dict"
                    )
                puts.pop((labels, key), None)
                puts[labels, key] = op
                return None
        raise RequestError(f"an operation is {type(op).__name__}, wanted one of LangGraph's four")

    def _search(self, op: SearchOp) -> list[tuple[StoredValue, float | None]]:
        prefix = _labels(op.namespace_prefix)
        if op.query is not None and not isinstance(op.query, str):
            raise RequestError(f"query is {type(op.query).__name__}, wanted a text")
        check_count("limit", op.limit, least=0)
        begin = max(0, op.offset)
        end = begin + op.limit
        scored = (
            hit
            for hit in self._nearest(prefix, op.query or "")
            if _filter_holds(hit[0].value, op.filter)
        )
        hits: list[tuple[StoredValue, float | None]] = list(islice(scored, end))
        if len(hits) < end:
            # Values not found by the query fill the rest, as in LangGraph's own stores.
            places = {value.place for value, _ in hits}
            rest = (
                (value, None)
                for value in self._under(prefix)
                if value.place not in places and _filter_holds(value.value, op.filter)
            )
            hits += islice(rest, end - len(hits))
        return hits[begin:end]

    def _nearest(self, prefix: Labels, query: str) -> Iterator[tuple[StoredValue, float]]:
        """Values matching a query, with the cosine of their nearest text, highest first."""
        sources = self._sources(prefix)
        if not sources or not query.strip():
            return
        vector = self.namespace.embedder.embed_query(query)
        where, now = Where(sources=sources), self._now
        given_out: set[Place] = set()
        wanted = _FIRST_HITS
        while True:
            hits = self._items.nearest(vector, wanted, where=where)
            heads = self._heads_of([fact for fact, _ in hits])
            for fact, score in hits:
                number, head_id = _part(fact)
                head = heads.get(head_id or fact.fact_id)
                # A text left over from an interrupted write no longer belongs to its head.
                if head is None or number > head.parts or not head.searchable:
                    continue
                if head.alive(now) and head.place not in given_out:
                    given_out.add(head.place)
                    yield head, score
            if len(hits) < wanted:
                return
            wanted *= _WIDER

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        every = {value.path for value in self._under()}
        paths = {path for path in every if _namespace_matches(path, op.match_conditions)}
        if op.max_depth is not None:
            paths = {path[: op.max_depth] for path in paths}
        return sorted(paths)[op.offset : op.offset + op.limit]

    def _put(self, written: Sequence[tuple[PutOp, dict[str, JsonValue]]]) -> None:
        """Store values, replacing those with the same path and key: all of them or none."""
        with self._writing:
            now = self._now
            there = self._stored([(tuple(op.namespace), op.key) for op, _ in written])
            items: list[StoreItem] = []
            stale: list[str] = []
            for op, content in written:
                path, minutes = tuple(op.namespace), _minutes(op.ttl)
                texts = self._texts(op, content)
                before = there.get((path, op.key))
                value = StoredValue(
                    path=path,
                    key=op.key,
                    value=content,
                    created_at=before.created_at if before and before.alive(now) else now,
                    updated_at=now,
                    ttl_minutes=minutes,
                    expires_at=_expiry(now, minutes),
                    parts=max(0, len(texts) - 1),
                    searchable=bool(texts),
                )
                first, *others = texts or [self._framed_text(path, op.key, "")]
                head = self._head(value, first)
                items.append(head)
                for number, text in enumerate(others, 1):
                    extra: dict[str, JsonValue] = {_PART: [named(head.id), number]}
                    id_ = _id_of_part(head.id, number)
                    items.append(replace(head, id=id_, content=text, extra=extra))
                if before is not None:
                    # Texts that the new value no longer has.
                    stale += self._part_ids(before)[value.parts :]
            self._items.put(items)
            self._forget(stale)

    def _refresh(self, read: Sequence[StoredValue]) -> None:
        """Restart the lifetime of values that were read; values without one do not change."""
        expiring = {named(self._id(value.place)) for value in read if value.ttl_minutes is not None}
        if not expiring:
            return
        with self._writing:
            now = self._now
            items: list[StoreItem] = []
            # Read again, since another writer may have changed them.
            for fact in self.namespace.facts(sorted(expiring)):
                value = self._read(fact)
                later = None if value is None else _expiry(now, value.ttl_minutes)
                if value is not None and later is not None and later != value.expires_at:
                    items.append(self._head(replace(value, expires_at=later), fact.content))
            if items:
                self._items.put(items)

    # --- places and facts ----------------------------------------------------------------

    @property
    def _now(self) -> datetime:
        return self.namespace.clock.now()

    def _alive(self, values: Iterable[StoredValue]) -> list[StoredValue]:
        now = self._now
        return [value for value in values if value.alive(now)]

    def _under(self, prefix: Labels = ()) -> list[StoredValue]:
        """Values whose path begins with `prefix`, the last written first."""
        values = sorted(self._alive(self._all(prefix)), key=lambda value: value.place)
        return sorted(values, key=lambda value: value.updated_at, reverse=True)

    def _sources(self, prefix: Labels) -> tuple[str, ...]:
        return tuple(
            source.source_id
            for source in self.namespace.sources()
            if (path := self._path(source.uri)) is not None and path[: len(prefix)] == prefix
        )

    def _id(self, place: Place) -> str:
        path, key = place
        return json.dumps([self._scheme, *path, key], ensure_ascii=False)

    def _part_ids(self, value: StoredValue) -> list[str]:
        """Fact ids of a value's further texts."""
        head = self._id(value.place)
        return [named(_id_of_part(head, number + 1)) for number in range(value.parts)]

    def _uri(self, path: Labels) -> str:
        return self._scheme + ":" + "/".join(quote(label, safe="") for label in path)

    def _path(self, uri: str) -> Labels | None:
        scheme, colon, rest = uri.partition(":")
        if not colon or scheme != self._scheme:
            return None
        return tuple(unquote(label) for label in rest.split("/")) if rest else ()

    def _all(self, prefix: Labels) -> list[StoredValue]:
        """Values whose path begins with `prefix`, including expired ones."""
        sources = self._sources(prefix)
        where = Where(sources=sources)
        return self._heads(self.namespace.find_own(where)) if sources else []

    def _stored(self, places: Sequence[Place]) -> dict[Place, StoredValue]:
        """Values by path and key, including expired ones."""
        wanted = list(dict.fromkeys(named(self._id(place)) for place in places))
        return {value.place: value for value in self._heads(wanted)}

    def _heads(self, ids: Sequence[str]) -> list[StoredValue]:
        facts = self.namespace.facts(list(ids)) if ids else ()
        return [value for fact in facts if (value := self._read(fact)) is not None]

    def _heads_of(self, facts: Sequence[Fact]) -> dict[str, StoredValue]:
        """The heads that facts belong to, by the head's fact id."""
        heads = {fact.fact_id: value for fact in facts if (value := self._read(fact)) is not None}
        missing = {head for fact in facts if (head := _part(fact)[1]) and head not in heads}
        return heads | {named(self._id(v.place)): v for v in self._heads(sorted(missing))}

    def _read(self, fact: Fact) -> StoredValue | None:
        fields = item_extra(fact).get(_HEAD)
        if not isinstance(fields, dict):
            return None
        value = _VALUE.validate_python(fields)
        return value if fact.source_id == source_id(self._uri(value.path)) else None

    def _head(self, value: StoredValue, content: str) -> StoreItem:
        return StoreItem(
            id=self._id(value.place),
            content=content,
            metadata={},
            origin=self._uri(value.path),
            extra={_HEAD: _VALUE.dump_python(value, mode="json")},
        )

    def _texts(self, op: PutOp, value: dict[str, JsonValue]) -> list[str]:
        """Texts to embed, each within a fact's length; a short one also names its path and key."""
        paths = self._fields if op.index is None else ()
        if op.index is not None and op.index is not False:
            paths = _paths("index", op.index) or self._fields
        counter, settings = self.namespace.counter, self.namespace.settings.chunking
        chosen = [
            text
            for path in paths
            for text in get_text_at_path(value, path if path == WHOLE else tokenize_path(path))
        ]
        texts: list[str] = []
        for text in dict.fromkeys(chosen):
            for chunk in cut_blocks(split_paragraphs(text), counter=counter, settings=settings):
                short = counter.count(chunk.content) < settings.min_fact_tokens
                place = tuple(op.namespace), op.key
                texts.append(self._framed_text(*place, chunk.content) if short else chunk.content)
        return list(dict.fromkeys(texts))

    def _framed_text(self, path: Labels, key: str, text: str) -> str:
        where = " / ".join(path) or "the root"
        frame = f"Kept in the {self._scheme} store under {where}, the item {key}"
        return f"{frame} says: {text}" if text else f"{frame} is there for who asks by key."

    def _drop(self, dead: Sequence[StoredValue]) -> None:
        heads = [named(self._id(value.place)) for value in dead]
        self._forget([*heads, *(id_ for value in dead for id_ in self._part_ids(value))])

    def _forget(self, ids: Sequence[str]) -> None:
        there = [fact.fact_id for fact in self.namespace.facts(list(ids))] if ids else []
        self._items.forget(there)


class _DocumentValues(CRPStore):
    # Scheme of its source URIs, such as `documents:reports`.
    _scheme = "documents"


class CRPDocumentStore(BaseKeyValueStore[str, Document]):
    """Documents of any length by key, in a crash-safe, erasable and sealed fabric.

    For components that need a `docstore`, such as a retriever that searches chunks and returns the
    documents they belong to.

    Spec: CRP-SPEC-009 §2, §8

    Args:
        place: a separate folder, created at the first write; None for memory; or a namespace of a
            fabric. Relays over that namespace also answer questions from the documents.
        name: name of the collection; each collection has its own keys.
        options: `kind`, `labels` and options of `Relay.open`, as for `CRPStore`.

    Raises:
        RequestError: `place` is a relay, options come with a namespace, or the name is empty.
    """

    def __init__(
        self,
        place: Namespace | Store | str | Path | None = None,
        *,
        name: str = "documents",
        **options: Any,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise RequestError(f"the collection's name is {name!r:.40}; give a text")
        self._values = _DocumentValues(place, **options)
        self._path = (name,)

    @property
    def namespace(self) -> Namespace:
        """The namespace that contains the documents."""
        return self._values.namespace

    def mget(self, keys: Sequence[str]) -> list[Document | None]:
        """Documents in the order of the keys; None for unknown keys."""
        items: list[Any] = self._values.batch([GetOp(self._path, key) for key in _keys(keys)])
        return [None if item is None else _document(item.value) for item in items]

    def mset(self, key_value_pairs: Sequence[tuple[str, Document]]) -> None:
        """Store documents, replacing those with the same keys: all of them or none.

        Raises:
            RequestError: an item is not a pair, a key is not a string, or a document's metadata is
                not plain JSON.
        """
        try:
            last = dict(key_value_pairs)
        except (TypeError, ValueError):
            raise RequestError(
                "mset takes pairs of a key and a document, such as [('a', document)]"
            ) from None
        _keys(list(last))
        self._values.batch([_put_op(self._path, key, value) for key, value in last.items()])

    def mdelete(self, keys: Sequence[str]) -> None:
        """Delete documents; unknown keys are ignored."""
        self._values.batch([PutOp(self._path, key, None) for key in _keys(keys)])

    def yield_keys(self, *, prefix: str | None = None) -> Iterator[str]:
        """Keys that begin with `prefix`, in ascending order; without a prefix, all keys."""
        keys = sorted(value.key for value in self._values._under(self._path))
        yield from (key for key in keys if key.startswith(prefix or ""))


def _keys(keys: Any) -> tuple[str, ...]:
    return _texts_in("keys", keys, "give a list of keys", "texts")


def _put_op(path: Labels, key: str, document: Document) -> PutOp:
    if not isinstance(document, Document):
        raise RequestError(f"the value of {key!r:.40} is {type(document).__name__}, not a Document")
    value = {"content": document.page_content, "metadata": document.metadata, "id": document.id}
    return PutOp(path, key, value, index=["content"])


def _document(value: dict[str, Any]) -> Document:
    return Document(value["content"], metadata=value["metadata"], id=value["id"])


def _namespace_of(place: object, options: Mapping[str, Any]) -> Namespace:
    """The given namespace, or the namespace of a new relay over a folder or store."""
    if isinstance(place, Relay):
        raise RequestError(
            "a relay was given, which would answer everybody's questions from what is kept; "
            "give a folder, or the namespace relay.fabric if that is meant"
        )
    if isinstance(place, Namespace):
        if options:
            raise RequestError(f"a namespace and {sorted(options)[0]} were given; give one")
        return place
    if not (place is None or isinstance(place, str | Path) or hasattr(place, "begin")):
        raise RequestError(
            f"{type(place).__name__} was given; give a folder, a store, or a namespace"
        )
    return Relay.open(cast("Any", place), **options).fabric


def _json_value(op: PutOp) -> dict[str, JsonValue]:
    """A deep copy of a value as plain JSON."""
    name = f"the value of {op.key!r:.40}"
    return plain_metadata(op.value or {}, name=name, refusal=RequestError)


def _item_fields(value: StoredValue) -> dict[str, Any]:
    """A value as fields of LangGraph's `Item`."""
    return {
        "namespace": value.path,
        "key": value.key,
        "value": dict(value.value),
        "created_at": value.created_at,
        "updated_at": value.updated_at,
    }


def _filter_holds(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether every condition of a filter holds for a value."""
    if wanted is not None and not isinstance(wanted, Mapping):
        raise RequestError(f"filter is {type(wanted).__name__}, wanted a dict of keys and values")
    return all(_equals(value.get(key), bound) for key, bound in (wanted or {}).items())


def _equals(value: Any, wanted: Any) -> bool:
    """JSON equality; an object in `wanted` need not list all keys."""
    if isinstance(wanted, Mapping):
        if any(str(key).startswith(_OPERATOR_PREFIX) for key in wanted):
            return all(_operator_holds(value, str(sign), bound) for sign, bound in wanted.items())
        return isinstance(value, Mapping) and _filter_holds(value, wanted)
    if isinstance(wanted, list | tuple):
        same = isinstance(value, list | tuple) and len(value) == len(wanted)
        return same and all(map(_equals, value, wanted))
    return bool(value == wanted)


def _operator_holds(value: Any, sign: str, bound: Any) -> bool:
    if sign in ("$eq", "$ne"):
        return _equals(value, bound) is (sign == "$eq")
    order = _COMPARISONS.get(sign)
    if order is None:
        wanted = ", ".join(("$eq", "$ne", *_COMPARISONS))
        raise RequestError(f"operator {sign!r:.40} is not one of {wanted}")
    try:
        # Numeric strings compare as numbers, as in LangGraph's stores.
        return order(float(value), float(bound))
    except (TypeError, ValueError):
        return isinstance(value, str) and isinstance(bound, str) and order(value, bound)


def _namespace_matches(path: Sequence[str], conditions: Sequence[MatchCondition] | None) -> bool:
    """Whether a namespace has the wanted prefix and suffix; `*` matches any one label."""
    for condition in conditions or ():
        wanted, kind = _labels(condition.path), condition.match_type
        if kind not in ("prefix", "suffix"):
            raise RequestError(f"match type {str(kind)!r:.40} is neither prefix nor suffix")
        begin = 0 if kind == "prefix" else max(0, len(path) - len(wanted))
        part = path[begin : begin + len(wanted)]
        if len(part) < len(wanted) or any(
            pattern not in (_ANY_LABEL, label) for pattern, label in zip(wanted, part, strict=True)
        ):
            return False
    return True


def _texts_in(name: str, texts: Any, remedy: str, wanted: str) -> tuple[str, ...]:
    """Check a list of strings; a single string is refused, as it would be read by characters."""
    if isinstance(texts, str | Mapping) or not isinstance(texts, Iterable):
        shown = f"the text {texts!r:.60}" if isinstance(texts, str) else type(texts).__name__
        raise RequestError(f"{name} is {shown}; {remedy}")
    listed = tuple(texts)
    for text in listed:
        if not isinstance(text, str):
            raise RequestError(f"{name} {listed!r:.80} contains {text!r:.40}, wanted only {wanted}")
    return listed


def _labels(path: Any) -> Labels:
    return _texts_in("namespace", path, f"give a tuple, as ({path!r:.60},)", "names")


def _paths(name: str, paths: Any) -> tuple[str, ...]:
    """Check the paths of a value that queries search."""
    rest = ", or False for a value that no query finds" if name == "index" else ""
    return _texts_in(name, paths, f"give a list of paths, as {name}=['text']{rest}", "paths")


def _minutes(ttl: Any) -> float | None:
    """Lifetime of an item in minutes; None for unlimited."""
    if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, Real)):
        raise RequestError(f"ttl is {ttl!r:.40}, wanted a number of minutes")
    return None if ttl is None else float(ttl)


def _checked_ttl(ttl: Any) -> TTLConfig | None:
    """Check the default lifetime of items."""
    if ttl is None:
        return None
    if not isinstance(ttl, Mapping):
        raise RequestError(
            f"ttl is {type(ttl).__name__}; give a dict, as ttl={{'default_ttl': 60}}, in minutes"
        )
    known = sorted(TTLConfig.__annotations__)
    for name in ttl:
        if name not in known:
            raise RequestError(f"ttl has no key {name!r:.40}; it takes {', '.join(known)}")
    _minutes(ttl.get("default_ttl"))
    return cast("TTLConfig", dict(ttl))


def _id_of_part(head: str, number: int) -> str:
    return f"{head}#{number}"


def _part(fact: Fact) -> tuple[int, str]:
    """A further text's number and its head's fact id; for a head, 0 and an empty string."""
    fields = item_extra(fact).get(_PART)
    return (int(fields[1]), str(fields[0])) if isinstance(fields, list) else (0, "")


def _expiry(now: datetime, minutes: float | None) -> datetime | None:
    try:
        return None if minutes is None else now + timedelta(minutes=minutes)
    except OverflowError:
        return None
    except ValueError:
        raise RequestError(f"ttl is {minutes}, wanted a number of minutes") from None
