"""Word search: what changed is found, what is gone is gone, the guard decides as ever.

Word search for whom texts are redacted: what was taken out is found by nobody who may not see it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.fabric.search.vector_index import Hit
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.guard.decisions import Subject
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.sqlite.store import SqliteStore
from tests.doubles import erase_all
from tests.fabric.lifecycle_fixtures import ACME, PARAGRAPHS, Labelled, fabric, sentence, store
from tests.governance.redacting_guards import LABEL, OFFICER, READER, Blackening, seen_by
from tests.postgres import postgres_address  # noqa: F401 - a fixture

__all__ = ["store"]


def found(made: Fabric, query: str, k: int = 50, where: Where | None = None) -> list[str]:
    return [hit.fact_id for hit in made.bind(ACME).search_text(query, k, where)]


@pytest.mark.requirement("009-2.2-9", "009-2.2-10", "009-3.3-1", "009-3.3-2", "009-8.3-2")
def test_new_facts_come_and_gone_ones_go_at_once(store: Store) -> None:
    made = fabric(store)
    namespace = made.bind(ACME)
    ids = namespace.add([sentence(number) for number in range(12)]).facts
    assert set(found(made, "passage")) == set(ids)
    new = namespace.add([sentence("new")]).facts[0]
    assert found(made, "new") == [new]
    namespace.forget(facts=[ids[0]])
    namespace.quarantine([ids[1]])
    namespace.archive([ids[2]])
    namespace.update(ids[3], content="Other words stand here now, ten of them or a few more.")
    assert set(found(made, "passage")) == {new, *ids[4:]}
    assert ids[3] in found(made, "other words")
    namespace.lift([ids[1]])
    namespace.restore([ids[2]])
    assert set(found(made, "passage")) == {new, ids[1], ids[2], *ids[4:]}
    erase_all(namespace)
    assert found(made, "passage") == []


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Новый завод открыт в мае этого года.", "НОВЫЙ"),
        ("Зелёная ёлка стоит на площади города.", "зеленая ёлка"),
        ("Η Ελλάδα έχει πολλά νησιά στο Αιγαίο.", "Ελλάδα"),
        ("このペンはがいこくのものです。", "このペンはがいこくのものです"),
        ("Die lange Straße führt nach Łódź.", "straße"),
        ("La réunion est naïve et brève.", "reunion NAIVE"),
    ],
)
def test_a_word_of_any_script_is_found_as_it_is_written(
    store: Store, text: str, query: str, form: Literal["NFC", "NFD"]
) -> None:
    made = fabric(store)
    id, _ = made.bind(ACME).add([f"{text} {sentence(2)}", sentence(1)]).facts
    assert found(made, normalize(form, query)) == [id]


def test_another_fabric_over_the_same_store_is_seen(store: Store) -> None:
    made, other = fabric(store), fabric(store)
    made.bind(ACME).add([sentence(1)])
    assert len(found(made, "passage")) == 1
    added = other.bind(ACME).add([sentence(2)]).facts[0]
    assert added in found(made, "passage")


def test_the_guard_and_the_filter_decide_as_ever(store: Store) -> None:
    made = fabric(store)
    secret = [Fact(content=sentence(n), labels=("secret",)) for n in range(6)]
    public = [Fact(content=sentence(n), metadata={"n": n}) for n in range(6, 12)]
    kept = made.bind(Subject(tenant="acme", roles=("secret",)), Labelled())
    ids = kept.add([*secret, *public]).facts
    reader = made.bind(ACME, Labelled())
    hits = [hit.fact_id for hit in reader.search_text("passage", 4)]
    assert len(hits) == 4
    assert set(hits) <= set(ids[6:])
    meant = reader.search_text("passage", 9, Where(metadata={"n": 7}))
    assert [hit.fact_id for hit in meant] == [ids[7]]


MAIL, PHONE = "joan.miller@waterboard.example", "49301234567"
OPEN = "The pump station is open on workdays and has two spare keys beside the door."
KEPT = f"Whoever finds the pump station open writes to {MAIL} about its spare keys."
CALLED = f"The valve of the northern basin is looked after by the shift under {PHONE} at night."
NAMED = "Joan Miller wrote the handbook of the water works, and everybody may read it."
GUESSES = [
    MAIL, "joan", "miller", "waterboard", "waterboard.example", "joan.miller", PHONE, "phone",
    f'"{MAIL}"', "JOAN", "millers",
]  # fmt: skip


def fact(text: str, *labels: str) -> Fact:
    return Fact(content=text, labels=labels or (LABEL,))


FACTS = [fact(OPEN, "class:public"), fact(KEPT), fact(CALLED), fact(NAMED, "class:public")]


@contextmanager
def filled(store: Store, facts: Sequence[Fact], **settings: object) -> Iterator[Fabric]:
    chosen = FabricSettings(chunking=PARAGRAPHS, **settings)  # type: ignore[arg-type]
    made = fabric(store, redactor=Blackening(), settings=chosen)
    seen_by(made, OFFICER).add(list(facts))
    yield made


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fabric]:
    store: Store
    if request.param == "memory":
        store = MemoryStore()
    elif request.param == "sqlite":
        store = SqliteStore(tmp_path / "kb")
    else:
        store = PostgresStore(request.getfixturevalue("postgres_address"))
    with filled(store, FACTS) as found:
        yield found
    store.close()


def texts(made: Fabric, query: str, k: int = 10, where: Where | None = None) -> list[str]:
    reading = seen_by(made)
    hits = reading.search_text(query, k, where)
    return [one.content for one in reading.facts([hit.fact_id for hit in hits])]


@pytest.mark.requirement("SUM-privacy-3")
def test_a_guess_at_what_was_taken_out_finds_no_redacted_text(made: Fabric) -> None:
    for guess in GUESSES:
        found = texts(made, guess)
        assert {NAMED} >= {text for text in found if "[redacted" not in text}, guess
        assert [text for text in found if "[redacted" in text] == [], guess
        found_whole = seen_by(made, OFFICER).search_text(guess, 10)
        assert bool(found_whole) == (guess != "phone"), guess


@pytest.mark.requirement("SUM-privacy-3")
def test_a_guess_beside_a_word_that_is_shown_changes_nothing(made: Fabric) -> None:
    """Neither whether the text comes, nor its place, nor its score."""
    reader = seen_by(made)
    for guess in GUESSES:
        named = {hit.fact_id for hit in reader.search_text(guess, 10)}
        for words in ("pump station", "valve", "spare keys writes"):
            right = reader.search_text(f"{words} {guess}", 10)
            wrong = reader.search_text(f"{words} zugzwang", 10)
            assert [hit for hit in right if hit.fact_id not in named] == [
                hit for hit in wrong if hit.fact_id not in named
            ], guess
        with_filter = reader.search_text(f"pump {guess}", 10, Where(labels=(LABEL,)))
        assert [hit.fact_id for hit in with_filter] != [], guess


def test_what_is_shown_is_found_as_before(made: Fabric) -> None:
    assert texts(made, "valve basin") == [CALLED.replace(PHONE, "[redacted phone]")]
    assert set(texts(made, "pump station")) == {OPEN, KEPT.replace(MAIL, "[redacted email]")}
    assert texts(made, "pump station", 1) == [OPEN]
    assert texts(made, "pump", 10, Where(labels=("class:public",))) == [OPEN]
    assert texts(made, "joan miller") == [NAMED]
    officer = seen_by(made, OFFICER)
    assert len(officer.search_text("joan", 10)) == 2


def test_hidden_words_push_no_text_among_the_best() -> None:
    """Of more texts than are looked at, a hidden word brings none to the front."""
    many = [
        fact(f"Pump {number} stands in hall {number} and was oiled by its own fitter last spring.")
        for number in range(40)
    ]
    secret = fact(
        f"A pump of the old mill, of which nobody has thought for very many years: {MAIL}."
    )
    store = MemoryStore()
    with filled(store, [*many, secret], redacted_hits=8) as made:
        reader = seen_by(made)
        plain = [hit.fact_id for hit in reader.search_text("pump zugzwang", 40)]
        assert 0 < len(plain) <= 8
        assert [hit.fact_id for hit in reader.search_text(f"pump {PHONE}", 40)] == plain
        for guess in ("joan", "waterboard"):
            assert [hit.fact_id for hit in reader.search_text(f"pump {guess}", 40)] == plain


def test_no_more_texts_are_redacted_than_the_setting_says() -> None:
    many = [fact(f"Pump {n} stands in hall {n} and is oiled by the fitters.") for n in range(60)]
    with filled(MemoryStore(), many, redacted_hits=12) as made:
        redactor = made.redactor
        assert isinstance(redactor, Blackening)
        for query in ("pump", "pump hall fitters", "pump hall fitters oiled stands by the and is"):
            redactor.texts.clear()
            assert seen_by(made).search_text(query, 50)
            assert len(set(redactor.texts)) <= 12


def test_the_words_of_the_marks_and_across_them_are_none_of_the_text() -> None:
    rows = [
        fact(f"Passage {n} says to write to {name}@x.example about-keys for the second hall.")
        for n, name in enumerate(["email", "redacted"])
    ]
    with filled(MemoryStore(), rows) as made:
        for query in ("email", "redacted", "to-about"):
            assert seen_by(made).search_text(query, 10) == []
        assert len(seen_by(made).search_text("about-keys", 10)) == 2
        assert len(seen_by(made).search_text("keys-about", 10)) == 0


WORDS = st.lists(st.sampled_from("pump hall key door night shift basin".split()), min_size=1)


@given(
    visible=st.lists(WORDS, min_size=1, max_size=6),
    secrets=st.tuples(st.sampled_from("abc"), st.sampled_from("abc")),
    query=st.lists(st.sampled_from(["pump", "hall", "key", "aaa", "bbb", "ccc"]), max_size=4),
)
def test_two_fabrics_that_show_the_same_answer_alike(
    visible: list[list[str]], secrets: tuple[str, str], query: list[str]
) -> None:
    """What is found depends on the texts that are shown and on nothing that is hidden."""
    told: list[list[Hit]] = []
    for secret in secrets:
        rows = [
            Fact(
                content=f"{' '.join(words)} passage {number} is of those that tests are made with "
                f"{secret * 3}@x{secret * 3}.example",
                fact_id=f"f{number}",
                labels=(LABEL,),
            )
            for number, words in enumerate(visible)
        ]
        made = fabric(MemoryStore(), redactor=Blackening())
        seen_by(made, OFFICER).put(rows)
        told.append(seen_by(made, READER).search_text(" ".join(query), 10))
    assert told[0] == told[1]
