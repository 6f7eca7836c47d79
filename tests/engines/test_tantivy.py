"""The word index in memory finds what the stores' own search finds, whatever it is asked."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.errors import EngineError, MissingExtra
from crp_integrations.fabric.records import Fact
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vectors import unit_rows

pytest.importorskip("tantivy")

from crp_integrations.engines import search_engines as module
from crp_integrations.engines.search_engines import TantivyLexical

ENGINE = TantivyLexical()
TEXTS = {
    "a": "The reactor was shut down for inspection in March.",
    "b": "Re-ranking candidates improves the reactor dashboards.",
    "c": "Cafés serve coffee; inspections of cafés are yearly.",
    "d": "Nothing to see here.",
}
WORDS = [
    "reactor",
    "inspection",
    "inspections",
    "café",
    "cafe\u0301",
    "re-ranking",
    "ranking",
    "naïve",
]
# FTS5 knows the characters of Unicode 6.1; what it takes later ones for is its own affair.
KNOWN = st.one_of(
    st.characters(max_codepoint=0x36F), st.sampled_from("жЖßλ中文字あア한글अ😀\u200b\u2028")
)
ANY_TEXT = st.text(KNOWN, max_size=40)
CORPUS = st.lists(
    st.one_of(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), ANY_TEXT),
    min_size=1,
    max_size=8,
)


def ids(found: list[tuple[str, float]]) -> list[str]:
    return [id_ for id_, _ in found]


def test_stems_phrases_and_accents() -> None:
    index = ENGINE.build(TEXTS.items())
    assert set(ids(index.search(["inspection"], 9))) == {"a", "c"}
    assert ids(index.search(["CAFE"], 9)) == ["c"]
    assert ids(index.search(["re-ranking"], 9)) == ["b"]
    assert index.search(["ranking-re"], 9) == []
    assert index.search(["absent", "..", ""], 9) == []
    assert index.search(["reactor"], 0) == []


def test_a_later_state_leaves_the_earlier_one_as_it_is() -> None:
    first = ENGINE.build(TEXTS.items())
    second = first.changed(["a", "b", "unknown"], [("e", "A second reactor"), ("b", "New text")])
    third = second.changed(["e"], [])
    assert set(ids(first.search(["reactor"], 9))) == {"a", "b"}
    assert ids(second.search(["reactor"], 9)) == ["e"]
    assert ids(second.search(["new"], 9)) == ["b"]
    assert third.search(["reactor"], 9) == []


def test_of_equal_scores_the_first_ids_stay() -> None:
    texts = [(f"{number:03d}", "the same words again") for number in range(40)]
    index = ENGINE.build(reversed(texts))
    assert ids(index.search(["words"], 7)) == [id_ for id_, _ in texts[:7]]


@settings(max_examples=60, deadline=None)
@given(texts=CORPUS, terms=st.lists(st.one_of(st.sampled_from(WORDS), ANY_TEXT), max_size=5))
def test_it_finds_the_facts_that_the_store_finds(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], terms: list[str]
) -> None:
    facts = [Fact(content=text or " ", source_location=str(n)) for n, text in enumerate(texts)]
    store = SqliteStore(tmp_path_factory.mktemp("store"))
    try:
        with store.begin("n") as transaction:
            rows = unit_rows(np.ones((len(facts), 2), dtype=np.float32))
            transaction.facts.add(facts, rows)
            wanted = transaction.facts.search_text(terms, 50)
    finally:
        store.close()
    found = ENGINE.build((fact.fact_id, fact.content) for fact in facts).search(terms, 50)
    assert set(ids(found)) == set(ids(wanted))
    assert all(math.isfinite(score) and score > 0.0 for _, score in found)
    assert found == sorted(found, key=lambda hit: (-hit[1], hit[0]))


@settings(max_examples=60, deadline=None)
@given(terms=st.lists(st.text(), max_size=6), k=st.integers(-1, 5))
def test_any_text_is_safe_as_a_term(terms: list[str], k: int) -> None:
    found = INDEX.search(terms, k)
    assert len(found) <= max(0, k)
    assert {id_ for id_, _ in found} <= set(TEXTS)


INDEX = ENGINE.build(TEXTS.items())


def test_searches_go_on_while_it_changes() -> None:
    index = ENGINE.build((str(n), f"word {n} and reactor") for n in range(200))
    seen: list[int] = []

    def search() -> None:
        for _ in range(50):
            seen.append(len(index.search(["reactor"], 300)))

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    later = index
    for number in range(20):
        later = later.changed([str(number)], [(f"new {number}", "reactor again")])
    for thread in threads:
        thread.join()
    assert set(seen) == {200}
    assert len(later.search(["reactor"], 300)) == 200


def test_nothing_is_written_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    index = ENGINE.build(TEXTS.items()).changed(["a"], [("e", "more")])
    assert index.search(["more"], 3)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_of_the_library_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    index = ENGINE.build(TEXTS.items())

    def fails(*arguments: object, **options: object) -> None:
        raise ValueError("secret text")

    monkeypatch.setattr(module, "stems_of", lambda text: ("x",))
    monkeypatch.setattr(index, "_searcher", type("S", (), {"search": fails})())
    with pytest.raises(EngineError, match="a search for 1 terms failed") as raised:
        index.search(["x"], 3)
    assert "secret" not in str(raised.value)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tantivy", None)
    with pytest.raises(MissingExtra, match=r"crp-integrations\[lexical\]"):
        TantivyLexical()
