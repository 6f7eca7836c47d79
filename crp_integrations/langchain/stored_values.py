"""Values under paths and keys, kept as facts: what the stores of LangChain and LangGraph share.

`CRPDocumentStore` is LangChain's key-value store over them; LangGraph's is in `store.py`.

A value is one fact, its head, that holds it whole, and one more for every further text by which it
is found. The head names how many those are, so a text that a half-done write left behind is passed
over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any, Final
from urllib.parse import quote, unquote

from langchain_core.documents import Document
from langchain_core.stores import BaseStore
from pydantic import JsonValue, TypeAdapter

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


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A value with where it stands.

    Attributes:
        path: the labels above its key.
        value: plain JSON.
        ttl_minutes: how long it lives after it was last read or written; None for ever.
        expires_at: when it is gone; None for never.
        parts: how many facts beside its head say its texts.
        found: whether a query may find it.
    """

    path: Labels
    key: str
    value: dict[str, JsonValue]
    created_at: datetime
    updated_at: datetime
    ttl_minutes: float | None = None
    expires_at: datetime | None = None
    parts: int = 0
    found: bool = True

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self.path, self.key

    def alive(self, now: datetime) -> bool:
        """Whether its time has not run out."""
        return self.expires_at is None or self.expires_at > now


@dataclass(frozen=True, slots=True)
class NewValue:
    """A value to be kept; `texts` is what a query finds it by, none for what no query finds."""

    path: Labels
    key: str
    value: dict[str, JsonValue]
    texts: tuple[str, ...] = ()
    ttl_minutes: float | None = None


def json_value(key: str, value: Mapping[Any, Any]) -> dict[str, JsonValue]:
    """A value as plain JSON that shares nothing with what was given."""
    return plain_metadata(value, name=f"the value of {key!r:.40}", refusal=RequestError)


def texts_in(name: str, given: Any, remedy: str, wanted: str) -> tuple[str, ...]:
    """Texts of a list; a text in its place would be read letter by letter."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        shown = f"the text {given!r:.60}" if isinstance(given, str) else type(given).__name__
        raise RequestError(f"{name} is {shown}; {remedy}")
    texts = tuple(given)
    for text in texts:
        if not isinstance(text, str):
            raise RequestError(f"{name} {texts!r:.80} holds {text!r:.40}, wanted {wanted} alone")
    return texts


_WRITTEN: Final = TypeAdapter(StoredValue)
# In a fact's extra data: the value of a head, or the head that a further text is of.
_HEAD: Final = "kept"
_PART: Final = "kept-part-of"
# How many more hits are asked for when those at hand belong to too few values.
_WIDER: Final = 4


class ValueStore:
    """The values of one namespace whose sources begin with one word. Safe under threads.

    Args:
        place: a namespace, a folder or store object of its own, or None for memory.
        scheme: what the URIs of the sources begin with.
        options: of `Relay.open`, where no namespace is given.

    Raises:
        RequestError: a relay is given, or nothing that holds facts, or options beside a namespace.
    """

    def __init__(
        self,
        place: Namespace | Store | str | Path | None,
        *,
        scheme: str,
        kind: SourceKind | str = SourceKind.USER,
        labels: Sequence[str] = (),
        **options: Any,
    ) -> None:
        if isinstance(place, Relay):
            raise RequestError(
                "a relay was given, which would answer everybody's questions from what is kept; "
                "give a folder, or the namespace relay.fabric if that is meant"
            )
        known = place is None or isinstance(place, str | Path | Namespace)
        if not known and not hasattr(place, "begin"):
            raise RequestError(
                f"{type(place).__name__} was given; give a folder, a store, or a namespace"
            )
        if isinstance(place, Namespace):
            if options:
                raise RequestError(f"a namespace and {sorted(options)[0]} were given; give one")
        else:
            place = Relay.open(place, **options).fabric
        self._items: StoreItems = items_of(place, kind, labels)
        self._scheme = scheme
        # Writers of one process wait for each other; those of others may find the store busy.
        self._writing = Lock()

    @property
    def namespace(self) -> Namespace:
        """Where everything is kept."""
        return self._items.namespace

    @property
    def _now(self) -> datetime:
        return self.namespace.clock.now()

    # --- reading -------------------------------------------------------------------------

    def get(self, places: Sequence[Place]) -> dict[Place, StoredValue]:
        """Values by path and key; those that are not there, or whose time ran out, are left out."""
        now = self._now
        return {place: value for place, value in self._stored(places).items() if value.alive(now)}

    def under(self, prefix: Labels = ()) -> list[StoredValue]:
        """Values whose path begins so, those that were written last first."""
        now = self._now
        alive = [value for value in self._all(prefix) if value.alive(now)]
        alive.sort(key=lambda value: value.place)
        alive.sort(key=lambda value: value.updated_at, reverse=True)
        return alive

    def nearest(self, prefix: Labels, query: str) -> Iterator[tuple[StoredValue, float]]:
        """Values found by a query with the cosine of their nearest text, highest first."""
        sources = self._sources(prefix)
        if not sources or not query.strip():
            return
        vector = self.namespace.embedder.embed_query(query)
        where, now = Where(sources=sources), self._now
        given_out: set[Place] = set()
        wanted = 32
        while True:
            hits = self._items.nearest(vector, wanted, where=where)
            heads = self._heads_of([fact for fact, _ in hits])
            for fact, score in hits:
                number, head_id = _part(fact)
                head = heads.get(head_id or fact.fact_id)
                # What a half-done write left behind is no text of its head any more.
                if head is None or number > head.parts or not head.found or not head.alive(now):
                    continue
                if head.place not in given_out:
                    given_out.add(head.place)
                    yield head, score
            if len(hits) < wanted:
                return
            wanted *= _WIDER

    # --- writing -------------------------------------------------------------------------

    def put(self, written: Sequence[NewValue]) -> None:
        """Keep values, in the place of those with the same path and key: all of them or none."""
        with self._writing:
            now = self._now
            there = self._stored([(new.path, new.key) for new in written])
            items: list[StoreItem] = []
            stale: list[str] = []
            for new in written:
                texts = self._texts(new)
                before = there.get((new.path, new.key))
                value = StoredValue(
                    path=new.path,
                    key=new.key,
                    value=new.value,
                    created_at=before.created_at if before and before.alive(now) else now,
                    updated_at=now,
                    ttl_minutes=new.ttl_minutes,
                    expires_at=_expiry(now, new.ttl_minutes),
                    parts=max(0, len(texts) - 1),
                    found=bool(texts),
                )
                first, *others = texts or [self._framed_text(new.path, new.key, "")]
                head = self._head(value, first)
                items.append(head)
                items += [
                    replace(
                        head,
                        id=_id_of_part(head.id, number),
                        content=text,
                        extra={_PART: [named(head.id), number]},
                    )
                    for number, text in enumerate(others, 1)
                ]
                if before is not None:
                    # Further texts that the value has no more.
                    stale += self._part_ids(before)[value.parts :]
            if items:
                self._items.put(items)
            self._forget(stale)

    def refresh(self, read: Sequence[StoredValue]) -> None:
        """Let values that were read live on from now; those that live for ever stay as they are."""
        mortal = {named(self._id(value.place)) for value in read if value.ttl_minutes is not None}
        if not mortal:
            return
        with self._writing:
            now = self._now
            items: list[StoreItem] = []
            # As they are now, since another writer may have put another value there.
            for fact in self.namespace.facts(sorted(mortal)):
                value = self._read(fact)
                later = None if value is None else _expiry(now, value.ttl_minutes)
                if value is not None and later is not None and later != value.expires_at:
                    items.append(self._head(replace(value, expires_at=later), fact.content))
            if items:
                self._items.put(items)

    def remove(self, places: Sequence[Place]) -> None:
        """Delete values; those that are not there are left out."""
        with self._writing:
            self._drop(list(self._stored(places).values()))

    def sweep(self) -> int:
        """Delete the values whose time has run out; how many they were."""
        with self._writing:
            now = self._now
            dead = [value for value in self._all(()) if not value.alive(now)]
            self._drop(dead)
        return len(dead)

    def erase(self, prefix: Labels) -> int:
        """Erase everything under a path, so that no byte of it stays in any file.

        Spec: CRP-SPEC-009 §8.3
        """
        sources = self._sources(prefix)
        for source in sources:
            self.namespace.erase(source)
        return len(sources)

    # --- places and facts ----------------------------------------------------------------

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
        """Values whose path begins so, also those whose time ran out."""
        sources = self._sources(prefix)
        where = Where(sources=sources)
        return self._heads(self.namespace.find_own(where)) if sources else []

    def _stored(self, places: Sequence[Place]) -> dict[Place, StoredValue]:
        """Values by path and key, also those whose time ran out."""
        wanted = list(dict.fromkeys(named(self._id(place)) for place in places))
        return {value.place: value for value in self._heads(wanted)}

    def _heads(self, ids: Sequence[str]) -> list[StoredValue]:
        facts = self.namespace.facts(list(ids)) if ids else ()
        return [value for fact in facts if (value := self._read(fact)) is not None]

    def _heads_of(self, facts: Sequence[Fact]) -> dict[str, StoredValue]:
        """The heads of facts by the head's fact id."""
        heads = {fact.fact_id: value for fact in facts if (value := self._read(fact)) is not None}
        missing = {head for fact in facts if (head := _part(fact)[1]) and head not in heads}
        return heads | {named(self._id(v.place)): v for v in self._heads(sorted(missing))}

    def _read(self, fact: Fact) -> StoredValue | None:
        written = item_extra(fact).get(_HEAD)
        if not isinstance(written, dict):
            return None
        value = _WRITTEN.validate_python(written)
        return value if fact.source_id == source_id(self._uri(value.path)) else None

    def _head(self, value: StoredValue, content: str) -> StoreItem:
        return StoreItem(
            id=self._id(value.place),
            content=content,
            metadata={},
            origin=self._uri(value.path),
            extra={_HEAD: _WRITTEN.dump_python(value, mode="json")},
        )

    def _texts(self, new: NewValue) -> list[str]:
        """What is embedded, each of a fact's length; a short one says where it stands too."""
        counter, settings = self.namespace.counter, self.namespace.settings.chunking
        texts: list[str] = []
        for text in dict.fromkeys(new.texts):
            for chunk in cut_blocks(split_paragraphs(text), counter=counter, settings=settings):
                short = counter.count(chunk.content) < settings.min_fact_tokens
                texts.append(
                    self._framed_text(new.path, new.key, chunk.content) if short else chunk.content
                )
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


def _id_of_part(head: str, number: int) -> str:
    return f"{head}#{number}"


def _part(fact: Fact) -> tuple[int, str]:
    """A further text's number and its head's fact id; 0 and an empty one for a head."""
    written = item_extra(fact).get(_PART)
    return (int(written[1]), str(written[0])) if isinstance(written, list) else (0, "")


def _expiry(now: datetime, minutes: float | None) -> datetime | None:
    try:
        return None if minutes is None else now + timedelta(minutes=minutes)
    except OverflowError:
        return None
    except ValueError:
        raise RequestError(f"ttl is {minutes}, wanted a number of minutes") from None


# What the URIs of its sources begin with: `documents:reports`.
DOCUMENTS: Final = "documents"


class CRPDocumentStore(BaseStore[str, Document]):
    """Documents of any length by key, in a crash-safe, erasable and sealed fabric.

    For what wants a `docstore`, such as a retriever that finds chunks and answers with the
    documents that they are of.

    Spec: CRP-SPEC-009 §2, §8

    Args:
        place: a folder of its own, made at the first write; None for memory; or a namespace of a
            fabric. Relays over that namespace answer questions from the documents too.
        name: of the collection; keys of two collections have nothing to do with each other.
        kind: kind of source of what is kept; decides its importance.
        labels: access labels put on what is kept.
        options: of `Relay.open`, such as `subject`, where no namespace is given.

    Raises:
        RequestError: a relay is given, options beside a namespace, or no name.
    """

    def __init__(
        self,
        place: Namespace | Store | str | Path | None = None,
        *,
        name: str = "documents",
        kind: SourceKind | str = SourceKind.USER,
        labels: Sequence[str] = (),
        **options: Any,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise RequestError(f"the collection's name is {name!r:.40}; give a text")
        self._values = ValueStore(place, scheme=DOCUMENTS, kind=kind, labels=labels, **options)
        self._path = (name,)

    @property
    def namespace(self) -> Namespace:
        """Where the documents are."""
        return self._values.namespace

    def mget(self, keys: Sequence[str]) -> list[Document | None]:
        """Documents in the order of the keys; None for what is not there."""
        places = [(self._path, key) for key in _keys(keys)]
        stored = self._values.get(places)
        return [_document(stored[place].value) if place in stored else None for place in places]

    def mset(self, key_value_pairs: Sequence[tuple[str, Document]]) -> None:
        """Keep documents, in the place of those with the same keys: all of them or none.

        Raises:
            RequestError: these are no pairs, a key is no text, or a document's metadata are no
                plain JSON.
        """
        try:
            last = dict(key_value_pairs)
        except (TypeError, ValueError):
            raise RequestError(
                "mset takes pairs of a key and a document, such as [('a', document)]"
            ) from None
        _keys(list(last))
        self._values.put([_new_value(self._path, key, document) for key, document in last.items()])

    def mdelete(self, keys: Sequence[str]) -> None:
        """Delete documents; keys that are not there are left out."""
        self._values.remove([(self._path, key) for key in _keys(keys)])

    def yield_keys(self, *, prefix: str | None = None) -> Iterator[str]:
        """Keys that begin so, ascending; all of them without a prefix."""
        keys = sorted(value.key for value in self._values.under(self._path))
        yield from (key for key in keys if key.startswith(prefix or ""))


def _keys(keys: Any) -> tuple[str, ...]:
    return texts_in("keys", keys, "give a list of keys", "texts")


def _new_value(path: tuple[str, ...], key: str, document: Document) -> NewValue:
    if not isinstance(document, Document):
        raise RequestError(f"the value of {key!r:.40} is {type(document).__name__}, not a Document")
    value = {"content": document.page_content, "metadata": document.metadata, "id": document.id}
    return NewValue(path, key, json_value(key, value), (document.page_content,))


def _document(value: dict[str, Any]) -> Document:
    return Document(value["content"], metadata=value["metadata"], id=value["id"])
