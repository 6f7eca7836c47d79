"""LangGraph's store over the fabric: what agents and graphs remember beyond a thread."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
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

from crp_integrations.adapters.arguments import check_count
from crp_integrations.errors import RequestError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.langchain.stored_values import (
    Labels,
    NewValue,
    Place,
    StoredValue,
    ValueStore,
    json_value,
    texts_in,
)
from crp_integrations.vocabulary.context import SourceKind

_ANY: Final = "*"
_SIGN: Final = "$"
_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def filter_holds(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether every condition of a filter holds for a value."""
    if wanted is not None and not isinstance(wanted, Mapping):
        raise RequestError(f"filter is {type(wanted).__name__}, wanted a dict of keys and values")
    return all(_equals(value.get(key), bound) for key, bound in (wanted or {}).items())


def namespace_matches(path: Sequence[str], conditions: Sequence[MatchCondition] | None) -> bool:
    """Whether a namespace begins and ends as it is wanted; `*` stands for any one label."""
    for condition in conditions or ():
        wanted, kind = labels_of(condition.path), condition.match_type
        if kind not in ("prefix", "suffix"):
            raise RequestError(f"match type {str(kind)!r:.40} is neither prefix nor suffix")
        begin = 0 if kind == "prefix" else max(0, len(path) - len(wanted))
        part = path[begin : begin + len(wanted)]
        if len(part) < len(wanted) or any(
            pattern not in (_ANY, label) for pattern, label in zip(wanted, part, strict=True)
        ):
            return False
    return True


def _equals(value: Any, wanted: Any) -> bool:
    """Equality as of JSON documents; an object wanted may leave keys out."""
    if isinstance(wanted, Mapping):
        if any(str(key).startswith(_SIGN) for key in wanted):
            return all(_operator_holds(value, str(sign), bound) for sign, bound in wanted.items())
        return isinstance(value, Mapping) and all(
            _equals(value.get(key), bound) for key, bound in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(map(_equals, value, wanted))
        )
    return bool(value == wanted)


def _operator_holds(value: Any, sign: str, bound: Any) -> bool:
    if sign in ("$eq", "$ne"):
        return _equals(value, bound) is (sign == "$eq")
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
    """A namespace or a prefix of one; a text in its place would be read letter by letter."""
    return texts_in("namespace", path, f"give a tuple, as ({path!r:.60},)", "names")


def paths_of(name: str, paths: Any) -> tuple[str, ...]:
    """Paths of a value by which a query finds it."""
    rest = ", or False for a value that no query finds" if name == "index" else ""
    return texts_in(name, paths, f"give a list of paths, as {name}=['text']{rest}", "paths")


def minutes_of(ttl: Any) -> float | None:
    """How long an item lives; None for ever."""
    if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, Real)):
        raise RequestError(f"ttl is {ttl!r:.40}, wanted a number of minutes")
    return None if ttl is None else float(ttl)


def checked_ttl(given: Any) -> TTLConfig | None:
    """How long items live where `put` does not say it."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise RequestError(
            f"ttl is {type(given).__name__}; give a dict, as ttl={{'default_ttl': 60}}, in minutes"
        )
    known = sorted(TTLConfig.__annotations__)
    for name in given:
        if name not in known:
            raise RequestError(f"ttl has no key {name!r:.40}; it takes {', '.join(known)}")
    minutes_of(given.get("default_ttl"))
    return cast("TTLConfig", dict(given))


# What the URIs of its sources begin with: `langgraph:users/anna`.
SCHEME: Final = "langgraph"
WHOLE: Final = "$"


class CRPStore(BaseStore):
    """StoreItems under namespaces and keys, in a crash-safe, erasable and sealed fabric.

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
        self._values = ValueStore(place, scheme=SCHEME, kind=kind, labels=labels, **options)
        self._fields = paths_of("fields", fields)
        self.ttl_config = checked_ttl(ttl)

    @property
    def namespace(self) -> Namespace:
        """Where the items are."""
        return self._values.namespace

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do several operations; reads see what was there before the batch.

        All puts that are not deletions are written together or not at all, then the deletions.

        Raises:
            RequestError: an operation is not known, a namespace is empty, a value is no plain JSON,
                or a filter has an operator that there is not.
            FactRejected: a value cannot be a fact.
        """
        # Of several puts under one key the last counts.
        puts: dict[Place, PutOp] = {}
        read: list[StoredValue] = []
        results = [self._run(op, puts, read) for op in ops]
        self._values.refresh(read)
        written = [self._new_value(op) for op in puts.values() if op.value is not None]
        if written:
            self._values.put(written)
        gone = [place for place, op in puts.items() if op.value is None]
        if gone:
            self._values.remove(gone)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The asynchronous twin of `batch`; reads and embeds beside the event loop."""
        return await asyncio.to_thread(self.batch, list(ops))

    def sweep_ttl(self) -> int:
        """Delete the items whose time has run out, which no read shows any more; how many."""
        return self._values.sweep()

    def erase(self, namespace_prefix: tuple[str, ...]) -> int:
        """Erase everything under a prefix, so that no byte of it stays in any file.

        `delete` takes items out of reach at once, and their bytes leave with `maintain`.

        Spec: CRP-SPEC-009 §8.3

        Returns:
            How many namespaces were erased.

        Raises:
            RequestError: the prefix is no tuple of names.
        """
        return self._values.erase(labels_of(namespace_prefix))

    def _run(self, op: Op, puts: dict[Place, PutOp], read: list[StoredValue]) -> Result:
        """What an operation answers; notes what to write, and what was read and lives on."""
        match op:
            case GetOp(namespace=path, key=key):
                place = labels_of(path), key
                value = self._values.get([place]).get(place)
                if value is not None and op.refresh_ttl:
                    read.append(value)
                return None if value is None else Item(**_fields(value))
            case SearchOp():
                hits = self._search(op)
                if op.refresh_ttl:
                    read += [value for value, _ in hits]
                return [SearchItem(**_fields(value), score=score) for value, score in hits]
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
                puts.pop((labels, key), None)
                puts[labels, key] = op
                return None
        raise RequestError(f"an operation is {type(op).__name__}, wanted one of LangGraph's four")

    def _search(self, op: SearchOp) -> list[tuple[StoredValue, float | None]]:
        prefix = labels_of(op.namespace_prefix)
        if op.query is not None and not isinstance(op.query, str):
            raise RequestError(f"query is {type(op.query).__name__}, wanted a text")
        check_count("limit", op.limit, least=0)
        begin = max(0, op.offset)
        end = begin + op.limit
        scored = (
            hit
            for hit in self._values.nearest(prefix, op.query or "")
            if filter_holds(hit[0].value, op.filter)
        )
        hits: list[tuple[StoredValue, float | None]] = list(islice(scored, end))
        if len(hits) < end:
            # Those that no query finds fill up what is left, as in LangGraph's own stores.
            places = {value.place for value, _ in hits}
            rest = (
                (value, None)
                for value in self._values.under(prefix)
                if value.place not in places and filter_holds(value.value, op.filter)
            )
            hits += islice(rest, end - len(hits))
        return hits[begin:end]

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        every = {value.path for value in self._values.under()}
        paths = {path for path in every if namespace_matches(path, op.match_conditions)}
        if op.max_depth is not None:
            paths = {path[: op.max_depth] for path in paths}
        return sorted(paths)[op.offset : op.offset + op.limit]

    def _new_value(self, op: PutOp) -> NewValue:
        value = json_value(op.key, op.value or {})
        paths = self._fields if op.index is None else ()
        if op.index is not None and op.index is not False:
            paths = paths_of("index", op.index) or self._fields
        texts = [
            text
            for path in paths
            for text in get_text_at_path(value, path if path == WHOLE else tokenize_path(path))
        ]
        return NewValue(tuple(op.namespace), op.key, value, tuple(texts), minutes_of(op.ttl))


def _fields(value: StoredValue) -> dict[str, Any]:
    """What LangGraph's items have of a value."""
    return {
        "namespace": value.path,
        "key": value.key,
        "value": dict(value.value),
        "created_at": value.created_at,
        "updated_at": value.updated_at,
    }
