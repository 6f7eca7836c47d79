"""Shared namespaces: every tenant reads them, nobody but the operator changes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.errors import AccessDenied, ConfigError
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.guard.decisions import Decision, Subject
from crp_integrations.seals import sha256
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import FactStatus
from tests.doubles import NOON, FixedClock, HashEmbedder, WordCounter

ACME, OTHER = Subject(tenant="acme"), Subject(tenant="other")
LAW = "The regulation in article nine asks every provider to keep logs for six months."
RULE = "Logs of high-risk systems are kept for at least six months after the decision."
OWN = "Our logs are kept for ninety days in the cellar of the old building."
STORES = ("memory", "sqlite")


class NamedEmbedder(HashEmbedder):
    def __init__(self, identity: str) -> None:
        self.identity = identity


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb")


def fabric(store: Store, *shared: str, **parts: Any) -> Fabric:
    chosen: dict[str, Any] = {
        "embedder": HashEmbedder(),
        "counter": WordCounter(),
        "clock": FixedClock(),
        "keyring": FixedKeyRing(b"k" * 32),
        "settings": FabricSettings(shared=shared or ("law",)),
    }
    return Fabric(store, **{**chosen, **parts})


def found(namespace: Namespace, query: str, k: int = 50) -> list[str]:
    return [hit.fact_id for hit in namespace.nearest(namespace.embedder.embed_query(query), k)]


def counting(texts: list[str]) -> list[int]:
    return [len(text) for text in texts]


@pytest.mark.requirement("009-9.2-1")
def test_every_tenant_reads_a_shared_namespace_by_every_path(store: Store) -> None:
    made = fabric(store)
    (law,) = made.bind_shared("law").add([LAW]).facts
    for subject in (ACME, OTHER):
        namespace = made.bind(subject)
        (own,) = namespace.add([f"{OWN} So says {subject.tenant}."]).facts
        assert found(namespace, LAW)[0] == law
        assert set(found(namespace, "logs")) == {law, own}
        assert {hit.fact_id for hit in namespace.search_text("logs", 9)} == {law, own}
        assert [fact.content for fact in namespace.facts([law, own, law])][0::2] == [LAW, LAW]
        rows = namespace.vectors([own, law])
        assert np.array_equal(rows[1], namespace.embedder.embed_passages([LAW])[0])
        assert namespace.token_counts("chars", [law], counting) == {law: len(LAW)}
        assert namespace.find(Where()) == sorted([law, own])
        assert {source.fact_count for source in namespace.sources()} == {1}
        assert namespace.size() == 2


@pytest.mark.requirement("009-9.2-2")
def test_a_tenants_writes_stay_in_the_tenants_own_namespace(store: Store) -> None:
    made = fabric(store)
    operator = made.bind_shared("law")
    (law,) = operator.add([LAW]).facts
    before = operator.state_hash(), operator.facts([law])
    acme = made.bind(ACME)
    acme.add([OWN])
    acme.add([LAW])
    assert (operator.state_hash(), operator.facts([law])) == before
    assert operator.size() == 1
    # The tenant's copy is the tenant's, under the same id, and it is the one that is read.
    assert [fact.namespace for fact in acme.facts([law])] == ["acme"]
    assert [fact.namespace for fact in made.bind(OTHER).facts([law])] == ["shared:law"]


@pytest.mark.requirement("009-9.2-2", "009-9.1-5")
@pytest.mark.parametrize(
    "tenant",
    ["shared:law", "shared:", "SHARED:law", " shared:law", "\uff53hared\uff1alaw", "shared:\x00"],
)
def test_no_tenant_is_named_like_a_shared_namespace(tenant: str) -> None:
    with pytest.raises(AccessDenied, match="begins with 'shared:'"):
        fabric(MemoryStore()).bind(Subject(tenant=tenant))


@pytest.mark.requirement("009-9.2-2")
@pytest.mark.parametrize(
    "change",
    [
        lambda space, id_: space.update(id_, content=OWN),
        lambda space, id_: space.mark_stale([id_]),
        lambda space, id_: space.forget(facts=[id_]),
        lambda space, id_: space.archive([id_]),
        lambda space, id_: space.restore([id_]),
        lambda space, id_: space.quarantine([id_], "it misleads"),
        lambda space, id_: space.lift([id_]),
        lambda space, id_: space.erase(space.facts([id_])[0].source_id),
    ],
    ids=["update", "mark_stale", "forget", "archive", "restore", "quarantine", "lift", "erase"],
)
def test_a_tenant_cannot_change_a_shared_fact(
    store: Store, change: Callable[[Namespace, str], object]
) -> None:
    made = fabric(store)
    operator = made.bind_shared("law")
    (law,) = operator.add([LAW]).facts
    before = operator.state_hash()
    with pytest.raises(AccessDenied, match=r"'law'.*only the operator"):
        change(made.bind(ACME), law)
    assert operator.state_hash() == before
    assert [fact.status for fact in operator.facts([law])] == [FactStatus.ACTIVE]


@pytest.mark.requirement("009-9.2-3", "009-6.1-1")
def test_the_combined_hash_is_the_hash_of_the_sorted_hashes(store: Store) -> None:
    made = fabric(store, "law", "norms")
    law, norms = made.bind_shared("law"), made.bind_shared("norms")
    law.add([LAW])
    norms.add([RULE])
    alone = fabric(store, settings=FabricSettings()).bind(ACME)
    alone.add([OWN])
    parts = [alone.state_hash(), law.state_hash(), norms.state_hash()]
    assert len(set(parts)) == 3
    assert made.bind(ACME).state_hash() == sha256("|".join(sorted(parts)))


@pytest.mark.requirement("009-9.2-3", "009-9.1-4")
def test_each_hash_follows_its_own_namespace(store: Store) -> None:
    made = fabric(store)
    acme, other, operator = made.bind(ACME), made.bind(OTHER), made.bind_shared("law")

    def now() -> list[tuple[str, int]]:
        return [(space.state_hash(), space.generation()) for space in (acme, other, operator)]

    start = now()
    acme.add([OWN])
    after_own = now()
    assert [old != new for old, new in zip(start, after_own, strict=True)] == [True, False, False]
    operator.add([LAW])
    after_shared = now()
    assert all(old[0] != new[0] for old, new in zip(after_own, after_shared, strict=True))
    assert all(old[1] < new[1] for old, new in zip(after_own, after_shared, strict=True))


def test_a_tenant_sees_nothing_of_how_others_use_a_shared_fact(store: Store) -> None:
    made = fabric(store)
    operator, acme = made.bind_shared("law"), made.bind(ACME)
    (law,) = operator.add([LAW]).facts
    later = NOON.replace(year=2027)
    made.bind(OTHER).note_shared_use([law], later)
    (fact,) = acme.facts([law])
    assert (fact.access_count, fact.last_accessed_at) == (0, None)
    (seen,) = operator.facts([law])
    assert (seen.access_count, seen.last_accessed_at) == (1, later)
    # Nor does a filter tell: for a tenant the fact is unused since any moment after NOON.
    unused = Where(unused_since=later)
    assert operator.find(unused) == []
    assert acme.find(unused) == [law]
    assert acme.find(Where(unused_since=NOON)) == []


def test_own_use_counts_for_the_own_copy_alone(store: Store) -> None:
    made = fabric(store)
    operator, acme = made.bind_shared("law"), made.bind(ACME)
    (law,) = operator.add([LAW]).facts
    acme.add([LAW])
    acme.note_shared_use([law], NOON)
    assert [fact.access_count for fact in operator.facts([law])] == [0]


@pytest.mark.parametrize("status", [FactStatus.QUARANTINED, FactStatus.DELETED])
def test_what_a_tenant_withdrew_does_not_come_back_from_a_shared_namespace(
    store: Store, status: FactStatus
) -> None:
    made = fabric(store)
    (law,) = made.bind_shared("law").add([LAW, RULE]).facts[:1]
    acme = made.bind(ACME)
    acme.add([LAW])
    with acme.begin(write=True) as transaction:
        transaction.facts.set_status([law], status, NOON)
    assert law not in found(acme, LAW, 1)
    assert law not in found(acme, LAW)
    assert law not in {hit.fact_id for hit in acme.search_text("regulation logs", 9)}
    assert acme.facts([law]) == []
    assert law not in acme.find(Where())
    assert acme.token_counts("chars", [law], counting) == {}
    assert law in found(made.bind(OTHER), LAW)


def test_the_operator_alone_sees_what_is_withdrawn_in_a_shared_namespace(store: Store) -> None:
    made = fabric(store)
    operator, acme = made.bind_shared("law"), made.bind(ACME)
    (law,) = operator.add([LAW]).facts
    with operator.begin(write=True) as transaction:
        transaction.facts.set_status([law], FactStatus.QUARANTINED, NOON)
    assert acme.find(Where(statuses=(FactStatus.QUARANTINED,))) == []
    assert acme.facts([law]) == []
    assert found(acme, LAW) == []


@pytest.mark.requirement("009-9.2-2")
@pytest.mark.parametrize(
    "write",
    [
        lambda space, fact: space.put([fact]),
        lambda space, fact: space.add([fact]),
        lambda space, fact: space.hold("crp_sess_7f3a9bc2d4e1f083", [fact]),
        lambda space, fact: [
            space.add([LAW]),
            space.update(fact.fact_id, content=fact.content),
        ],
        lambda space, fact: [space.add([LAW]), space.put([fact])],
    ],
    ids=["put", "add", "hold", "update of a copy", "put over a copy"],
)
def test_the_id_of_a_shared_fact_says_one_text_to_all(
    store: Store, write: Callable[[Namespace, Fact], object]
) -> None:
    made = fabric(store)
    (law,) = made.bind_shared("law").add([LAW]).facts
    acme = made.bind(ACME)
    with pytest.raises(AccessDenied, match=rf"{law} is of shared namespace 'law'"):
        write(acme, Fact(fact_id=law, content=OWN))
    assert [fact.content for fact in acme.facts([law])] == [LAW]
    assert acme.view("crp_sess_7f3a9bc2d4e1f083").held() == []


def test_what_is_withheld_from_a_subject_is_not_shadowed_by_it_either(store: Store) -> None:
    made = fabric(store)
    labelled = Fact(content=LAW, labels=("x",))
    (law,) = made.bind_shared("law", Roles()).add([labelled]).facts
    with pytest.raises(AccessDenied, match="only the operator") as caught:
        made.bind(ACME, Roles()).put([Fact(fact_id=law, content=OWN)])
    assert LAW not in str(caught.value)


def test_the_same_text_is_a_copy_and_a_deleted_id_is_free(store: Store) -> None:
    made = fabric(store)
    operator, acme, other = made.bind_shared("law"), made.bind(ACME), made.bind(OTHER)
    (law,) = operator.add([LAW]).facts
    assert acme.put([Fact(fact_id=law, content=LAW)]).facts == (law,)
    assert acme.hold("crp_sess_7f3a9bc2d4e1f083", [LAW]).unchanged == (law,)
    assert other.hold("crp_sess_7f3a9bc2d4e1f083", [LAW]).unchanged == (law,)
    operator.forget(facts=[law])
    other.put([Fact(fact_id=law, content=OWN)])
    assert [fact.content for fact in other.facts([law])] == [OWN]


def test_who_had_an_id_before_the_operator_goes_on_with_it(store: Store) -> None:
    made = fabric(store)
    operator, acme = made.bind_shared("law"), made.bind(ACME)
    acme.put([Fact(fact_id="an-id", content=OWN)])
    operator.put([Fact(fact_id="an-id", content=LAW)])
    acme.put([Fact(fact_id="an-id", content=RULE)])
    acme.update("an-id", content=f"{RULE} So it is.")
    assert [fact.content for fact in acme.facts(["an-id"])] == [f"{RULE} So it is."]
    assert [fact.content for fact in made.bind(OTHER).facts(["an-id"])] == [LAW]


def test_a_copy_that_was_put_aside_does_not_hide_the_shared_fact(store: Store) -> None:
    made = fabric(store)
    operator, acme = made.bind_shared("law"), made.bind(ACME)
    (law,) = operator.add([LAW]).facts
    acme.add([LAW])
    acme.archive([law])
    assert found(acme, LAW) == [law]
    assert [fact.namespace for fact in acme.facts([law])] == ["shared:law"]
    assert [hit.fact_id for hit in acme.search_text("regulation", 5)] == [law]
    acme.note_shared_use([law], NOON)
    assert [fact.access_count for fact in operator.facts([law])] == [1]
    acme.restore([law])
    assert [fact.namespace for fact in acme.facts([law])] == ["acme"]


class Roles:
    """Lets a subject see what carries no label but its roles."""

    name = "roles"

    def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
        allowed = action == "write" or set(labels) <= set(subject.roles)
        return Decision(allowed=allowed, guard=self.name, reason="by its labels")


def test_the_guard_decides_on_shared_facts_too(store: Store) -> None:
    made = fabric(store)
    (secret,) = made.bind_shared("law", Roles()).add([Fact(content=LAW, labels=("x",))]).facts
    blind = made.bind(ACME, Roles())
    assert blind.facts([secret]) == []
    assert found(blind, LAW) == []
    assert blind.search_text("regulation", 5) == []
    assert blind.find(Where()) == []
    assert blind.size() == 0
    seeing = made.bind(Subject(tenant="acme", roles=("x",)), Roles())
    assert found(seeing, LAW) == [secret]


def test_a_shared_namespace_of_another_embedder_is_named_when_a_tenant_is_bound(
    store: Store,
) -> None:
    fabric(store, embedder=NamedEmbedder("older@1")).bind_shared("law").add([LAW])
    with pytest.raises(ConfigError, match=r"'shared:law'.*'older@1'.*'hash-embedder/256'"):
        fabric(store).bind(ACME)


def test_a_name_that_is_not_configured_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"'lax' is not one of \['law', 'norms'\]"):
        fabric(MemoryStore(), "norms", "law").bind_shared("lax")
    for wrong in (("law", "law"), ("",), (" ",)):
        with pytest.raises(ValueError, match="each given once"):
            FabricSettings(shared=wrong)


WORDS = st.lists(
    st.lists(
        st.sampled_from("logs rules months years cellar law vote".split()), min_size=1, max_size=4
    ),
    min_size=1,
    max_size=12,
    unique_by=tuple,
)


@settings(max_examples=25, deadline=None)
@given(WORDS, st.lists(st.integers(0, 2), min_size=12, max_size=12), st.integers(1, 6))
def test_nearest_over_several_namespaces_is_nearest_over_one(
    said: list[list[str]], where: list[int], k: int
) -> None:
    texts = [
        f"In more than ten words somebody here once said of it: {' '.join(words)}."
        for words in said
    ]
    one = fabric(MemoryStore(), settings=FabricSettings()).bind(ACME)
    one.add(texts)
    made = fabric(MemoryStore(), "a", "b")
    spaces = [made.bind(ACME), made.bind_shared("a"), made.bind_shared("b")]
    for text, place in zip(texts, where, strict=False):
        spaces[place].add([text])
    vector = one.embedder.embed_query("law of logs")
    assert spaces[0].nearest(vector, k) == one.nearest(vector, k)
    # And every hit of one corpus is a hit of the several, whatever the scores.
    assert {hit.fact_id for hit in spaces[0].search_text("law logs", 99)} == {
        hit.fact_id for hit in one.search_text("law logs", 99)
    }


def test_lexical_hits_of_several_corpora_go_by_rank() -> None:
    made = fabric(MemoryStore())
    made.bind_shared("law").add([LAW, RULE])
    acme = made.bind(ACME)
    acme.add([OWN])
    hits = acme.search_text("logs months", 3)
    assert [hit.score for hit in hits] == [1.0, 1.0, 0.5]
    assert acme.facts([hits[0].fact_id])[0].content == OWN
    assert len(acme.search_text("logs months", 2)) == 2
    assert acme.search_text("logs", 0) == []
