"""What is given in a wrong form is refused by name; what is given again counts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from crp_integrations.errors import FactRejected, IngestError, RequestError
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Block, Fact, Where, source_id
from crp_integrations.vocabulary import FactStatus
from tests.fabric.lifecycle_fixtures import (
    ACME,
    document,
    everything,
    fabric,
    sentence,
    source_of,
    store,
    stored,
)

__all__ = ["store"]

A, S = FactStatus.ACTIVE, FactStatus.STALE


def test_a_text_in_the_place_of_labels_is_refused_and_the_fix_named() -> None:
    made = fabric()
    namespace = made.bind(ACME)
    before = everything(made)
    fix = r"labels is the text 'secret', wanted a list: labels=\['secret'\]"
    with pytest.raises(RequestError, match=fix):
        namespace.ingest([document("a", sentence(1))], labels="secret")
    with pytest.raises(FactRejected, match=fix):
        Fact(content=sentence(1), labels="secret")
    with pytest.raises(FactRejected, match=fix):
        Fact(content=sentence(1)).changed(labels="secret")
    assert everything(made) == before


@pytest.mark.parametrize("labels", [[5], ["a", None], 5, None, b"secret", {"a": 1, 2: 3}])
def test_labels_that_are_no_texts_are_refused_by_name(labels: Any) -> None:
    namespace = fabric().bind(ACME)
    with pytest.raises(RequestError, match=r'labels .*wanted .*labels=\["secret"\]'):
        namespace.ingest([document("a", sentence(1))], labels=labels)
    if labels is not None:
        with pytest.raises(FactRejected, match=r'labels .*wanted .*labels=\["secret"\]'):
            Fact(content=sentence(1), labels=labels)


@pytest.mark.requirement("009-2-8")
def test_other_metadata_of_the_same_text_reach_its_facts(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)

    def said(**metadata: Any) -> Any:
        return document("a", sentence(1), metadata=metadata)

    (id_,) = namespace.ingest([said(dept="hr")]).facts
    report = namespace.ingest([said(dept="finance")])
    assert report.facts == () and report.unchanged == ()
    assert namespace.find(Where(metadata={"dept": "hr"})) == []
    assert namespace.find(Where(metadata={"dept": "finance"})) == [id_]
    source = source_of(made, source_id("test:a"))
    assert source is not None and source.metadata == {"dept": "finance"}
    assert namespace.ingest([said(dept="finance")]).unchanged == ("test:a",)
    namespace.ingest([said()])
    assert namespace.facts([id_])[0].metadata == {}


@pytest.mark.requirement("009-2.2-4")
def test_a_document_that_is_ingested_again_makes_its_stale_facts_active(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    old = document("a", sentence(1), sentence(2))
    new = document("a", sentence(1), sentence(3))
    one, two = namespace.ingest([old, document("b", sentence(4))]).facts[:2]
    namespace.ingest([new])
    namespace.mark_stale([one])
    report = namespace.ingest([new, document("b", sentence(4))])
    assert (report.returned, report.unchanged) == ((one,), ("test:b",))
    # What the document no longer says stays STALE, and is no change.
    status = {fact.fact_id: fact.status for fact in namespace.facts([one, two])}
    assert status == {one: A, two: S}
    before = everything(made)
    assert namespace.ingest([new]).unchanged == ("test:a",)
    assert everything(made) == before


@pytest.mark.parametrize("verb", ["quarantine", "lift", "archive", "restore", "mark_stale"])
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([None], "fact id 1 is None of type NoneType, wanted text"),
        (["a", 5], "fact id 2 is 5 of type int"),
        ([["a"]], "of type list, wanted text"),
        (None, "given as NoneType, wanted a list"),
        ("an-id", "given as str, wanted a list"),
        ((one for one in ["a"]), "given as generator, wanted a list"),
    ],
)
def test_what_are_no_ids_is_refused_by_name(verb: str, ids: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        getattr(fabric().bind(ACME), verb)(ids)


@pytest.mark.parametrize(
    ("verb", "given", "error", "message"),
    [
        ("add", None, FactRejected, "facts is of type NoneType, wanted a list"),
        ("add", [5], FactRejected, "fact 1 is of type int, wanted"),
        ("add", Fact(content="x"), FactRejected, "put one into a list"),
        ("put", None, FactRejected, "facts is of type NoneType, wanted a list"),
        ("put", ["text"], FactRejected, "fact 1 is of type str, wanted a Fact"),
        ("ingest", None, IngestError, "documents is of type NoneType, wanted a list"),
        ("ingest", [5], IngestError, "document 1 is of type int, wanted a Document"),
        ("ingest", document("a", sentence(1)), IngestError, "of type Document, wanted a list"),
    ],
)
def test_what_is_no_list_of_facts_or_documents_is_refused_by_name(
    verb: str, given: Any, error: Any, message: str
) -> None:
    made: Fabric = fabric()
    with pytest.raises(error, match=message):
        getattr(made.bind(ACME), verb)(given)
    with pytest.raises(FactRejected, match="fact 1 is of type int"):
        made.bind(ACME).hold("s", [5])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "starts", [(500, 0), (0, 0), (0, 10)], ids=["backwards", "all at 0", "overlapping"]
)
def test_blocks_that_lie_over_each_other_are_refused(store: Store, starts: tuple[int, int]) -> None:
    blocks = [Block(text=sentence(n), start=at) for n, at in enumerate(starts)]
    made = fabric(store)
    with pytest.raises(IngestError, match=r"block 2 of test:a begins at .*give blocks in order"):
        made.bind(ACME).ingest([document("a", sentence(1), blocks=tuple(blocks))])
    assert stored(made) == []


@pytest.mark.parametrize("hashed", ["", "x", "sha256:", "sha256:" + "g" * 64, "ab" * 32])
def test_a_document_hash_that_is_none_is_refused_before_anything(store: Store, hashed: str) -> None:
    made = fabric(store)
    with pytest.raises(IngestError, match=r"test:a has the document_hash .*wanted sha256:"):
        made.bind(ACME).ingest([document("a", sentence(1), document_hash=hashed)])
    assert stored(made) == []


@pytest.mark.parametrize("labels", [[""], ["a", "  "]])
def test_a_blank_label_is_refused(labels: list[str]) -> None:
    with pytest.raises(RequestError, match="labels contains a blank one"):
        fabric().bind(ACME).ingest([document("a", sentence(1))], labels=labels)


def test_a_reason_that_is_no_text_quarantines_nothing(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    (id_,) = namespace.add([sentence(1)]).facts
    with pytest.raises(RequestError, match="reason is of type int, wanted a text"):
        namespace.quarantine([id_], 5)  # type: ignore[arg-type]
    assert [fact.status for fact in stored(made, id_)] == [A]


def test_a_fact_that_ends_before_it_begins_is_refused(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)
    swapped = Fact(content=sentence(2), valid_from=late, valid_to=early)
    before = everything(made)
    for way in (namespace.add, namespace.put):
        with pytest.raises(FactRejected, match=r"valid to 2026-01-01.*before.*from 2026-06-01"):
            way([Fact(content=sentence(1)), swapped])
    assert everything(made) == before
    (id_,) = namespace.add([Fact(content=sentence(1), valid_from=early, valid_to=early)]).facts
    with pytest.raises(FactRejected, match="swap the two or leave one out"):
        namespace.update(id_, valid_from=late)
    assert [fact.valid_from for fact in stored(made, id_)] == [early]


@pytest.mark.parametrize("odd", ["active", "", FactStatus.ACTIVE, ["a"], []], ids=repr)
def test_an_export_of_something_else_than_a_where_is_refused(odd: Any) -> None:
    with pytest.raises(RequestError, match=r"where is .*; give a Where, as in Where\(statuses"):
        fabric().bind(ACME).export(odd)
