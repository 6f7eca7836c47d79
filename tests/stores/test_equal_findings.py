"""Both stores mean the same facts by the same conditions; hypothesis looks for a difference."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
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
def stores() -> Iterator[list[Store]]:
    with tempfile.TemporaryDirectory() as folder:
        made: list[Store] = [MemoryStore(), SqliteStore(folder)]
        yield made
        for store in made:
            store.close()


def filled(stores: list[Store], fields: list[dict[str, Any]]) -> list[Fact]:
    made = [fact(f"text {n}", **one) for n, one in enumerate(fields)]
    made = [one.changed(fact_id=f"fact-{n}") for n, one in enumerate(made)]
    for store in stores:
        with store.begin(NAMESPACE) as transaction:
            every = transaction.facts.find(Where(statuses=tuple(FactStatus)))
            transaction.facts.remove(every)
            transaction.facts.add(made, rows(made))
    return made


@given(fields=st.lists(records, max_size=6), where=wheres, of=st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_both_stores_find_the_same(
    stores: list[Store], fields: list[dict[str, Any]], where: dict[str, Any], of: int
) -> None:
    made = filled(stores, fields)
    asked = [Where(**where), Where(**{**where, "metadata": {}, "labels": ()})]
    if made:
        # What one fact has is asked for as well, since strangers' values seldom meet.
        one = made[of % len(made)]
        asked.append(Where(statuses=tuple(FactStatus), metadata=one.metadata, labels=one.labels))
        asked.append(Where(statuses=(one.status,), sources=(one.source_id,), kinds=(one.kind,)))
    found = []
    for store in stores:
        with store.begin(NAMESPACE, write=False) as transaction:
            found.append([transaction.facts.find(one) for one in asked])
    assert found[0] == found[1]
    if made:
        assert one.fact_id in found[0][2]
        assert one.fact_id in found[0][3]


@given(text=st.text(st.characters(codec="utf-8")), value=scalars)
@settings(max_examples=100, deadline=None)
def test_any_key_and_text_is_found_as_it_is(stores: list[Store], text: str, value: Any) -> None:
    (made,) = filled(stores, [{"metadata": {text: value, "text": text}, "labels": (text,)}])
    for store in stores:
        with store.begin(NAMESPACE, write=False) as transaction:
            for where in (
                Where(metadata={text: value}) if text != "text" else Where(),
                Where(metadata={"text": text}) if text != "text" else Where(),
                Where(labels=(text,)),
            ):
                assert transaction.facts.find(where) == [made.fact_id]
            assert transaction.facts.find(Where(metadata={text + "x": value})) == []
            assert transaction.facts.find(Where(labels=(text + "x",))) == []
