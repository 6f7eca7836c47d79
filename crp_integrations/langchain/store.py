"""LangGraph's store over the fabric: what agents and graphs remember beyond a thread.

Which values and which namespaces a search of LangGraph's store means.

What LangGraph's store is given, looked at: names, paths and times to live.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any, Final, cast

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

from crp_integrations.errors import RequestError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.langchain.stored_values import Kept, Labels, Place, Shelf, Written, json_value
from crp_integrations.relay.adapting.taking import check_count
from crp_integrations.vocabulary import SourceKind

_ANY: Final = "*"
_SIGN: Final = "$"
_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def holds(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether every condition of a filter holds for a value.

    Args:
        wanted: keys with the values wanted, or with operators: `$eq`, `$ne`, `$gt`, `$gte`, `$lt`,
            `$lte`. None means all.

    Raises:
        RequestError: there is no such operator, or the filter is no dict.
    """
    if wanted is not None and not isinstance(wanted, Mapping):
        raise RequestError(f"filter is {type(wanted).__name__}, wanted a dict of keys and values")
    return all(_same(value.get(key), one) for key, one in (wanted or {}).items())


def matches(path: Sequence[str], conditions: Sequence[MatchCondition] | None) -> bool:
    """Whether a namespace begins and ends as it is wanted; `*` stands for any one label.

    Raises:
        RequestError: a condition is neither a prefix nor a suffix.
    """
    return all(_fits(path, condition) for condition in conditions or ())


def _fits(path: Sequence[str], condition: MatchCondition) -> bool:
    wanted = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise RequestError(
            f"match type {str(condition.match_type)!r:.40} is neither prefix nor suffix"
        )
    if len(path) < len(wanted):
        return False
    begin = 0 if condition.match_type == "prefix" else len(path) - len(wanted)
    part = path[begin : begin + len(wanted)]
    return all(one in (_ANY, label) for one, label in zip(wanted, part, strict=True))


def _same(value: Any, wanted: Any) -> bool:
    """Equality as of JSON documents; an object wanted may leave keys out."""
    if isinstance(wanted, Mapping):
        if any(str(key).startswith(_SIGN) for key in wanted):
            return all(_compared(value, str(sign), bound) for sign, bound in wanted.items())
        return isinstance(value, Mapping) and all(
            _same(value.get(key), one) for key, one in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(_same(one, other) for one, other in zip(value, wanted, strict=True))
        )
    return bool(value == wanted)


def _compared(value: Any, sign: str, bound: Any) -> bool:
    if sign == "$eq":
        return _same(value, bound)
    if sign == "$ne":
        return not _same(value, bound)
    order = _ORDERS.get(sign)
    if order is None:
        wanted = ", ".join(("$eq", "$ne", *_ORDERS))
        raise RequestError(f"operator {sign!r:.40} is not one of {wanted}")
    try:
        # Numbers in words are numbers, as in the stores of LangGraph.
        return order(float(value), float(bound))
    except (TypeError, ValueError):
        return isinstance(value, str) and isinstance(bound, str) and order(value, bound)


def labels_of(path: Any) -> Labels:
    """A namespace or a prefix of one; a text in its place would be read letter by letter.

    Raises:
        RequestError: it is no list of texts.
    """
    if isinstance(path, str):
        raise RequestError(f"namespace is the text {path!r:.60}; give a tuple, as ({path!r:.60},)")
    if not isinstance(path, Iterable):
        raise RequestError(f"namespace is {type(path).__name__}, wanted a tuple of names")
    labels = tuple(path)
    for label in labels:
        if not isinstance(label, str):
            raise RequestError(f"namespace {labels!r:.80} holds {label!r:.40}, wanted names alone")
    return labels


def paths_of(name: str, given: Any) -> tuple[str, ...]:
    """Paths of a value by which a query finds it; none where nothing is given.

    Args:
        name: of the argument.

    Raises:
        RequestError: it is no list of texts.
    """
    if given is None and name == "index":
        return ()
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        shown = f"the text {given!r:.40}" if isinstance(given, str) else type(given).__name__
        rest = ", or False for a value that no query finds" if name == "index" else ""
        raise RequestError(f"{name} is {shown}; give a list of paths, as {name}=['text']{rest}")
    paths = tuple(given)
    for path in paths:
        if not isinstance(path, str):
            raise RequestError(f"{name} holds {path!r:.40}, wanted paths as texts")
    return paths


def minutes_of(ttl: Any) -> float | None:
    """How long an item lives; None for ever.

    Raises:
        RequestError: it is no number.
    """
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, Real):
        raise RequestError(f"ttl is {ttl!r:.40}, wanted a number of minutes")
    return float(ttl)


def checked_ttl(given: Any) -> TTLConfig | None:
    """How long items live where `put` does not say it.

    Raises:
        RequestError: it is no such dict; a misspelt key would let items live for ever.
    """
    if given is None:
        return None
    known = sorted(TTLConfig.__annotations__)
    if not isinstance(given, Mapping):
        raise RequestError(
            f"ttl is {type(given).__name__}; give a dict, as ttl={{'default_ttl': 60}}, in minutes"
        )
    for name in given:
        if name not in known:
            raise RequestError(f"ttl has no key {name!r:.40}; it takes {', '.join(known)}")
    minutes_of(given.get("default_ttl"))
    return cast("TTLConfig", dict(given))


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
