"""LangGraph's store over the fabric: what agents and graphs remember beyond a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
    tokenize_path,
)

from crp_integrations.adapters.arguments import check_count
from crp_integrations.errors import RequestError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.langchain.kept import Shelf
from crp_integrations.langchain.matching import holds, matches
from crp_integrations.langchain.storing import checked_ttl, labels_of, minutes_of, paths_of
from crp_integrations.langchain.values import Kept, Labels, Place, Written, json_value
from crp_integrations.vocabulary import SourceKind

# What the URIs of its sources begin with: `langgraph:users/anna`.
SCHEME: Final = "langgraph"
WHOLE: Final = "$"


@dataclass(slots=True)
class _Asked:
    """The operations of one batch, by what is to be done for them.

    Attributes:
        puts: the last one of each path and key; those before it in the batch have no effect.
        read: values that the batch's reads gave out, of which some are to live on.
    """

    puts: dict[Place, PutOp] = field(default_factory=dict)
    read: list[Kept] = field(default_factory=list)


class CRPStore(BaseStore):
    """Items under namespaces and keys, in a crash-safe, erasable and sealed fabric.

    For `create_agent(…, store=CRPStore("./memory"))`, `graph.compile(store=…)` and nodes. Every
    item is kept as facts of a source of its namespace, and found by the fabric's own embedder.

    Spec: CRP-SPEC-009 §2, §8

    Args:
        place: a folder of its own, made at the first write; None for memory; or a namespace of a
            fabric. Relays over that namespace answer questions from its items too.
        fields: paths of a value that a query finds it by, `$` for all of it; `put(index=…)` wins.
        ttl: how long items live where `put` does not say it, as LangGraph configures it.
        kind: kind of source of what is kept; decides its importance.
        labels: access labels put on what is kept.
        options: of `Relay.open`, such as `subject`, where no namespace is given.

    Raises:
        RequestError: a relay is given, options beside a namespace, or fields or a time to live
            that have no use.
    """

    supports_ttl = True

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
        self._shelf = Shelf(place, scheme=SCHEME, kind=kind, labels=labels, **options)
        self._fields = paths_of("fields", fields)
        self.ttl_config = checked_ttl(ttl)

    @property
    def namespace(self) -> Namespace:
        """Where the items are."""
        return self._shelf.namespace

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do several operations; reads see what was there before the batch.

        Of several puts under one key the last counts. All that are not deletions are written
        together or not at all, and then the deletions.

        Raises:
            RequestError: an operation is not known, a namespace is empty, a value is no plain JSON,
                or a filter has an operator that there is not.
            FactRejected: a value cannot be a fact.
        """
        asked = _Asked()
        results = [self._done(op, asked) for op in ops]
        self._shelf.refresh(asked.read)
        written = [self._written(op) for op in asked.puts.values() if op.value is not None]
        if written:
            self._shelf.put(written)
        gone = [place for place, op in asked.puts.items() if op.value is None]
        if gone:
            self._shelf.remove(gone)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The asynchronous twin of `batch`; reads and embeds beside the event loop."""
        return await asyncio.to_thread(self.batch, list(ops))

    def sweep_ttl(self) -> int:
        """Delete the items whose time has run out, which no read shows any more; how many."""
        return self._shelf.sweep()

    def erase(self, namespace_prefix: tuple[str, ...]) -> int:
        """Erase everything under a prefix, so that no byte of it stays in any file.

        `delete` takes items out of reach at once, and their bytes leave with `maintain`.

        Spec: CRP-SPEC-009 §8.3

        Returns:
            How many namespaces were erased.

        Raises:
            RequestError: the prefix is no tuple of names.
        """
        return self._shelf.erase(labels_of(namespace_prefix))

    # --- within --------------------------------------------------------------------------

    def _done(self, op: Op, asked: _Asked) -> Result:
        match op:
            case GetOp(namespace=path, key=key):
                place = labels_of(path), key
                found = self._shelf.get([place]).get(place)
                if found is not None and op.refresh_ttl:
                    asked.read.append(found)
                return None if found is None else _item(found)
            case SearchOp():
                hits = self._search(op)
                if op.refresh_ttl:
                    asked.read += [kept for kept, _ in hits]
                return [_search_item(kept, score) for kept, score in hits]
            case ListNamespacesOp():
                return self._namespaces(op)
            case PutOp(namespace=path, key=key):
                labels = labels_of(path)
                if not labels or not all(labels):
                    raise RequestError(f"namespace {labels!r:.80} is not one or more names")
                if op.value is not None and not isinstance(op.value, dict):
                    raise RequestError(
                        f"the value of {key!r:.40} is {type(op.value).__name__}, wanted a dict"
                    )
                asked.puts.pop((labels, key), None)
                asked.puts[labels, key] = op
                return None
        raise RequestError(f"an operation is {type(op).__name__}, wanted one of LangGraph's four")

    def _search(self, op: SearchOp) -> list[tuple[Kept, float | None]]:
        prefix = labels_of(op.namespace_prefix)
        if op.query is not None and not isinstance(op.query, str):
            raise RequestError(f"query is {type(op.query).__name__}, wanted a text")
        check_count("limit", op.limit, least=0)
        begin, end = max(0, op.offset), max(0, op.offset) + max(0, op.limit)
        if not op.query:
            kept = (one for one in self._shelf.under(prefix) if holds(one.value, op.filter))
            return [(one, None) for one in islice(kept, begin, end)]
        found: list[tuple[Kept, float | None]] = list(islice(self._scored(prefix, op), end))
        if len(found) < end:
            # Those that no query finds fill up what is left, as in LangGraph's own stores.
            told = {one.place for one, _ in found}
            rest = (
                one
                for one in self._shelf.under(prefix)
                if one.place not in told and holds(one.value, op.filter)
            )
            found += [(one, None) for one in islice(rest, end - len(found))]
        return found[begin:end]

    def _scored(self, prefix: Labels, op: SearchOp) -> Iterator[tuple[Kept, float]]:
        for kept, score in self._shelf.nearest(prefix, op.query or ""):
            if holds(kept.value, op.filter):
                yield kept, score

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        paths = {one.path for one in self._shelf.under()}
        for condition in op.match_conditions or ():
            labels_of(condition.path)
        found = {path for path in paths if matches(path, op.match_conditions)}
        if op.max_depth is not None:
            found = {path[: op.max_depth] for path in found}
        return sorted(found)[op.offset : op.offset + op.limit]

    def _written(self, op: PutOp) -> Written:
        value = json_value(op.key, op.value or {})
        given = None if op.index is False else op.index
        paths = () if op.index is False else paths_of("index", given) or self._fields
        texts = [
            text
            for path in paths
            for text in get_text_at_path(value, path if path == WHOLE else tokenize_path(path))
        ]
        return Written(tuple(op.namespace), op.key, value, tuple(texts), minutes_of(op.ttl))


def _item(kept: Kept) -> Item:
    return Item(
        value=dict(kept.value),
        key=kept.key,
        namespace=kept.path,
        created_at=kept.created_at,
        updated_at=kept.updated_at,
    )


def _search_item(kept: Kept, score: float | None) -> SearchItem:
    return SearchItem(
        namespace=kept.path,
        key=kept.key,
        value=dict(kept.value),
        created_at=kept.created_at,
        updated_at=kept.updated_at,
        score=score,
    )
