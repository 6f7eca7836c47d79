"""A store finds the facts that a plain test in Python means; hypothesis looks for a difference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.testing.fixtures import NAMESPACE, NOON, fact, rows
from crp_integrations.vocabulary import FactStatus, SourceKind

# Few values, so that conditions hold for some facts, and strange ones among them.
strings = st.sampled_from(["a", "b", "", 'a"', '", "a', "a\\", '": 1', "a\0", "\0", "%", "ü", "🜁"])
keys = strings | st.sampled_from(["k", "$.k", "k.k", '"k"'])
scalars = (
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, 1.0, -0.0, 0.5, 2**53 + 1, float(2**53), 10**400, 1e300, -1])
    | strings
)
values = st.recursive(
    scalars, lambda one: st.lists(one, max_size=2) | st.dictionaries(keys, one, max_size=2)
)
metadata = st.dictionaries(keys, values, max_size=3)
moments = st.sampled_from(
    [NOON + timedelta(microseconds=n) for n in (-1_000_000, -1, 0, 1, 1_000_000)]
    + [NOON + timedelta(days=1), NOON + timedelta(days=1, microseconds=1)]
)
labels = st.lists(strings, max_size=2).map(tuple)
records = st.fixed_dictionaries(
    {
        "status": st.sampled_from(FactStatus),
        "archived_at": st.none() | moments,
        "source_id": strings,
        "kind": st.sampled_from(SourceKind),
        "labels": labels,
        "community_label": st.none() | strings,
        "metadata": metadata,
        "ingested_at": st.none() | moments,
        "modified_at": st.none() | moments,
        "last_accessed_at": st.none() | moments,
        "ttl": st.sampled_from([None, "P1D", "PT1S", "P999999999D"]),
    }
)
some = st.none() | st.lists(strings, max_size=3).map(tuple)
wheres = st.fixed_dictionaries(
    {"metadata": metadata | st.just({}), "labels": labels},
    optional={
        "statuses": st.none() | st.lists(st.sampled_from(FactStatus), max_size=4).map(tuple),
        "archived": st.none() | st.booleans(),
        "sources": some,
        "kinds": st.none() | st.lists(st.sampled_from(SourceKind), max_size=3).map(tuple),
        "communities": some,
        "ingested_after": moments,
        "ingested_before": moments,
        "modified_before": moments,
        "unused_since": moments,
        "expired_at": moments,
    },
)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with closing(MemoryStore()) as made:
        yield made


def filled(store: Store, fields: list[dict[str, Any]]) -> list[Fact]:
    made = [fact(f"text {n}", **one) for n, one in enumerate(fields)]
    made = [one.changed(fact_id=f"fact-{n}") for n, one in enumerate(made)]
    with store.begin(NAMESPACE) as transaction:
        every = transaction.facts.find(Where(statuses=tuple(FactStatus)))
        transaction.facts.remove(every)
        transaction.facts.add(made, rows(made))
    return made


def plain(value: Any) -> Any:
    """A value in which 1.0 is 1, and True is not."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return (type(value).__name__, value)


def before(moment: datetime | None, bound: datetime | None, nothing: bool) -> bool:
    """Whether a moment is before a bound; `nothing` is the answer for no moment at all."""
    return nothing if moment is None or bound is None else moment < bound


def is_meant(where: Where, one: Fact) -> bool:
    if where.statuses is None:
        stands = one.retrievable
    else:
        stands = one.status in where.statuses and (
            where.archived is None or (one.archived_at is not None) is where.archived
        )
    unused = where.unused_since
    return (
        stands
        and (where.sources is None or one.source_id in where.sources)
        and (where.kinds is None or one.kind in where.kinds)
        and (where.communities is None or one.community_label in where.communities)
        and {*where.labels} <= {*one.labels}
        and all(
            key in one.metadata and plain(one.metadata[key]) == plain(value)
            for key, value in where.metadata.items()
        )
        and (
            where.ingested_after is None
            or not before(one.ingested_at, where.ingested_after, nothing=True)
        )
        and (
            where.ingested_before is None
            or before(one.ingested_at, where.ingested_before, nothing=False)
        )
        and (
            where.modified_before is None
            or before(one.modified_at, where.modified_before, nothing=False)
        )
        and (unused is None or before(one.ingested_at, unused, nothing=True))
        and (unused is None or before(one.last_accessed_at, unused, nothing=True))
        and (where.expired_at is None or before(one.expires_at, where.expired_at, nothing=False))
    )


@given(fields=st.lists(records, max_size=6), where=wheres, of=st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_a_store_finds_what_is_meant(
    store: Store, fields: list[dict[str, Any]], where: dict[str, Any], of: int
) -> None:
    made = filled(store, fields)
    asked = [Where(**where), Where(**{**where, "metadata": {}, "labels": ()})]
    if made:
        # What one fact has is asked for as well, since strangers' values seldom meet.
        one = made[of % len(made)]
        asked.append(Where(statuses=tuple(FactStatus), metadata=one.metadata, labels=one.labels))
        asked.append(Where(statuses=(one.status,), sources=(one.source_id,), kinds=(one.kind,)))
    with store.begin(NAMESPACE, write=False) as transaction:
        found = [transaction.facts.find(one) for one in asked]
    assert found == [sorted(f.fact_id for f in made if is_meant(one, f)) for one in asked]
    if made:
        assert one.fact_id in found[2]
        assert one.fact_id in found[3]


@given(text=st.text(st.characters(codec="utf-8")), value=scalars)
@settings(max_examples=100, deadline=None)
def test_any_key_and_text_is_found_as_it_is(store: Store, text: str, value: Any) -> None:
    (made,) = filled(store, [{"metadata": {text: value, "text": text}, "labels": (text,)}])
    with store.begin(NAMESPACE, write=False) as transaction:
        for where in (
            Where(metadata={text: value}) if text != "text" else Where(),
            Where(metadata={"text": text}) if text != "text" else Where(),
            Where(labels=(text,)),
        ):
            assert transaction.facts.find(where) == [made.fact_id]
        assert transaction.facts.find(Where(metadata={text + "x": value})) == []
        assert transaction.facts.find(Where(labels=(text + "x",))) == []
