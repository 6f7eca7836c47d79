"""Values under paths and keys, kept as facts: what the stores of LangChain and LangGraph share.

A value is one fact, its head, that holds it whole, and one more for every further text by which it
is found. The head names how many those are, so a text that a half-done write left behind is passed
over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any, Final
from urllib.parse import quote, unquote

from pydantic import JsonValue

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
from crp_integrations.seals import iso
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
    """A value to be kept, under a path and a key.

    Attributes:
        value: plain JSON.
        texts: what a query finds it by; none for a value that no query finds.
    """

    path: Labels
    key: str
    value: dict[str, JsonValue]
    texts: tuple[str, ...] = ()
    ttl_minutes: float | None = None


def json_value(key: str, value: Mapping[Any, Any]) -> dict[str, JsonValue]:
    """A value as plain JSON that shares nothing with what was given."""
    return plain_metadata(value, name=f"the value of {key!r:.40}", refusal=RequestError)


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

    def now(self) -> datetime:
        """The fabric's time."""
        return self.namespace.clock.now()

    # --- reading -------------------------------------------------------------------------

    def get(self, places: Sequence[Place]) -> dict[Place, StoredValue]:
        """Values by path and key; those that are not there, or whose time ran out, are left out."""
        now = self.now()
        return {place: one for place, one in self._stored(places).items() if one.alive(now)}

    def under(self, prefix: Labels = ()) -> list[StoredValue]:
        """Values whose path begins so, those that were written last first."""
        now = self.now()
        alive = [one for one in self._all(prefix) if one.alive(now)]
        alive.sort(key=lambda one: (one.path, one.key))
        alive.sort(key=lambda one: one.updated_at, reverse=True)
        return alive

    def nearest(self, prefix: Labels, query: str) -> Iterator[tuple[StoredValue, float]]:
        """Values found by a query with the cosine of their nearest text, highest first."""
        sources = self._sources(prefix)
        if not sources or not query.strip():
            return
        vector = self.namespace.embedder.embed_query(query)
        where, now = Where(sources=sources), self.now()
        told: set[Place] = set()
        wanted = 32
        while True:
            hits = self._items.nearest(vector, wanted, where=where)
            heads = self._heads_of([fact for fact, _ in hits])
            for fact, score in hits:
                number, of = _part(fact)
                head = heads.get(of or fact.fact_id)
                # What a half-done write left behind is no text of its head any more.
                if head is None or number > head.parts or not head.found or not head.alive(now):
                    continue
                if head.place not in told:
                    told.add(head.place)
                    yield head, score
            if len(hits) < wanted:
                return
            wanted *= _WIDER

    # --- writing -------------------------------------------------------------------------

    def put(self, written: Sequence[NewValue]) -> None:
        """Keep values, in the place of those with the same path and key: all of them or none."""
        with self._writing:
            self._put(written, self.now())

    def _put(self, written: Sequence[NewValue], now: datetime) -> None:
        there = self._stored([(one.path, one.key) for one in written])
        items: list[StoreItem] = []
        left: list[str] = []
        for one in written:
            texts = self._texts(one)
            before = there.get((one.path, one.key))
            created = before.created_at if before is not None and before.alive(now) else now
            kept = StoredValue(
                path=one.path,
                key=one.key,
                value=one.value,
                created_at=created,
                updated_at=now,
                ttl_minutes=one.ttl_minutes,
                expires_at=_expiry(now, one.ttl_minutes),
                parts=max(0, len(texts) - 1),
                found=bool(texts),
            )
            items += self._facts_of(kept, texts or [self._framed_text(one.path, one.key, "")])
            if before is not None:
                # Further texts that the value has no more.
                stale = range(kept.parts + 1, before.parts + 1)
                left += [named(_id_of_part(self._id(kept.place), n)) for n in stale]
        if items:
            self._items.put(items)
        self._forget(left)

    def refresh(self, read: Sequence[StoredValue]) -> None:
        """Let values that were read live on from now; those that live for ever stay as they are."""
        mortal = {named(self._id(one.place)) for one in read if one.ttl_minutes is not None}
        if not mortal:
            return
        with self._writing:
            now = self.now()
            items: list[StoreItem] = []
            # As they are now, since another writer may have put another value there.
            for fact in self.namespace.facts(sorted(mortal)):
                one = self._read(fact)
                later = None if one is None else _expiry(now, one.ttl_minutes)
                if one is not None and later is not None and later != one.expires_at:
                    items.append(self._head(replace(one, expires_at=later), fact.content))
            if items:
                self._items.put(items)

    def remove(self, places: Sequence[Place]) -> None:
        """Delete values; those that are not there are left out."""
        with self._writing:
            self._drop(list(self._stored(places).values()))

    def sweep(self) -> int:
        """Delete the values whose time has run out; how many they were."""
        with self._writing:
            now = self.now()
            dead = [one for one in self._all(()) if not one.alive(now)]
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

    def _sources(self, prefix: Labels) -> tuple[str, ...]:
        found = []
        for source in self.namespace.sources():
            path = self._path(source.uri)
            if path is not None and path[: len(prefix)] == prefix:
                found.append(source.source_id)
        return tuple(found)

    def _id(self, place: Place) -> str:
        path, key = place
        return json.dumps([self._scheme, *path, key], ensure_ascii=False)

    def _all(self, prefix: Labels) -> list[StoredValue]:
        """Values whose path begins so, also those whose time ran out."""
        sources = self._sources(prefix)
        if not sources:
            return []
        return self._heads(self.namespace.facts(self.namespace.find_own(Where(sources=sources))))

    def _uri(self, path: Labels) -> str:
        return self._scheme + ":" + "/".join(quote(label, safe="") for label in path)

    def _path(self, uri: str) -> Labels | None:
        scheme, colon, rest = uri.partition(":")
        if not colon or scheme != self._scheme:
            return None
        return tuple(unquote(label) for label in rest.split("/")) if rest else ()

    def _stored(self, places: Sequence[Place]) -> dict[Place, StoredValue]:
        """Values by path and key, also those whose time ran out."""
        wanted = list(dict.fromkeys(named(self._id(place)) for place in places))
        found = self._heads(self.namespace.facts(wanted)) if wanted else ()
        return {one.place: one for one in found}

    def _heads(self, facts: Sequence[Fact]) -> list[StoredValue]:
        return [kept for fact in facts if (kept := self._read(fact)) is not None]

    def _heads_of(self, facts: Sequence[Fact]) -> dict[str, StoredValue]:
        """The heads of facts by the head's fact id."""
        heads = {fact.fact_id: kept for fact in facts if (kept := self._read(fact)) is not None}
        missing = {of for fact in facts if (of := _part(fact)[1]) and of not in heads}
        for fact in self.namespace.facts(sorted(missing)):
            kept = self._read(fact)
            if kept is not None:
                heads[fact.fact_id] = kept
        return heads

    def _read(self, fact: Fact) -> StoredValue | None:
        told = item_extra(fact).get(_HEAD)
        if not isinstance(told, dict) or fact.source_id != source_id(
            self._uri(tuple(told["path"]))
        ):
            return None
        expires = told.get("expires_at")
        return StoredValue(
            path=tuple(told["path"]),
            key=told["key"],
            value=told["value"],
            created_at=datetime.fromisoformat(told["created_at"]),
            updated_at=datetime.fromisoformat(told["updated_at"]),
            ttl_minutes=told.get("ttl_minutes"),
            expires_at=datetime.fromisoformat(expires) if expires else None,
            parts=told["parts"],
            found=told["found"],
        )

    def _facts_of(self, kept: StoredValue, texts: Sequence[str]) -> list[StoreItem]:
        first, *others = texts
        head = self._head(kept, first)
        return [
            head,
            *(
                StoreItem(
                    id=_id_of_part(head.id, number),
                    content=text,
                    metadata={},
                    origin=head.origin,
                    extra={_PART: [named(head.id), number]},
                )
                for number, text in enumerate(others, 1)
            ),
        ]

    def _head(self, kept: StoredValue, content: str) -> StoreItem:
        told: dict[str, JsonValue] = {
            "path": list(kept.path),
            "key": kept.key,
            "value": kept.value,
            "created_at": iso(kept.created_at),
            "updated_at": iso(kept.updated_at),
            "ttl_minutes": kept.ttl_minutes,
            "expires_at": iso(kept.expires_at) if kept.expires_at else None,
            "parts": kept.parts,
            "found": kept.found,
        }
        return StoreItem(
            id=self._id(kept.place),
            content=content,
            metadata={},
            origin=self._uri(kept.path),
            extra={_HEAD: told},
        )

    def _texts(self, one: NewValue) -> list[str]:
        """What is embedded, each of a fact's length; a short one says where it stands too."""
        counter, settings = self.namespace.counter, self.namespace.settings.chunking
        made: list[str] = []
        for text in dict.fromkeys(one.texts):
            for chunk in cut_blocks(split_paragraphs(text), counter=counter, settings=settings):
                short = counter.count(chunk.content) < settings.min_fact_tokens
                made.append(
                    self._framed_text(one.path, one.key, chunk.content) if short else chunk.content
                )
        return list(dict.fromkeys(made))

    def _framed_text(self, path: Labels, key: str, text: str) -> str:
        where = " / ".join(path) or "the root"
        said = f"Kept in the {self._scheme} store under {where}, the item {key}"
        return f"{said} says: {text}" if text else f"{said} is there for who asks by key."

    def _drop(self, dead: Sequence[StoredValue]) -> None:
        ids: list[str] = []
        for one in dead:
            head = self._id(one.place)
            ids += [named(head), *(named(_id_of_part(head, n + 1)) for n in range(one.parts))]
        self._forget(ids)

    def _forget(self, ids: Sequence[str]) -> None:
        there = [fact.fact_id for fact in self.namespace.facts(list(ids))] if ids else []
        self._items.forget(there)


def _id_of_part(head: str, number: int) -> str:
    return f"{head}#{number}"


def _part(fact: Fact) -> tuple[int, str]:
    """A further text's number and its head's fact id; 0 and an empty one for a head."""
    told = item_extra(fact).get(_PART)
    return (int(told[1]), str(told[0])) if isinstance(told, list) else (0, "")


def _expiry(now: datetime, minutes: float | None) -> datetime | None:
    if minutes is None:
        return None
    try:
        return now + timedelta(minutes=minutes)
    except OverflowError:
        return None
    except ValueError:
        raise RequestError(f"ttl is {minutes}, wanted a number of minutes") from None
