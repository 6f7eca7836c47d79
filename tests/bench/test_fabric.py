"""The measurement of the fabric: its corpus, its vectors, and a small run with every field."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from crp_integrations.errors import ConfigError, EngineError
from tests.bench import fabric_corpus
from tests.bench.fabric import bars, run, table
from tests.bench.fabric_corpus import Corpus, Passage
from tests.bench.fabric_measures import documents_of, facts_of, recall

PROSE = (
    "Return the number of rows that a reader of the file will see, with the ones that were "
    "skipped left out of it."
)


def passages(count: int) -> list[Passage]:
    return [Passage("one", f"one/{n % 3}.py", n, f"{PROSE} Number {n}.") for n in range(count)]


# --- corpus ----------------------------------------------------------------------------


def test_docstrings_come_in_the_order_of_the_file() -> None:
    source = '"""Module."""\nclass A:\n    """Class."""\n    def f(self):\n        "Method."\n'
    assert fabric_corpus.docstrings(source) == ["Module.", "Class.", "Method."]
    assert fabric_corpus.docstrings("def broken(:") == []
    assert fabric_corpus.docstrings("x = '\\d'\n") == []


def test_only_prose_of_a_fitting_length_stays() -> None:
    long = " ".join([PROSE] * 6)
    words = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma"
    code = ">>> f(1, 2, 3)[0] == g(4, 5, 6)[1] and h(7, 8, 9)[2] != (10, 11, 12) or x in (3, 4)"
    text = f"Short one.\n\n{PROSE}\n\n{words}\n\n{code}\n\n{long}"
    found = list(fabric_corpus.paragraphs(text))
    assert found[0] == PROSE
    assert len(found) > 2
    assert all(piece.startswith("Return") for piece in found)
    assert all(len(piece.split()) <= fabric_corpus.MOST for piece in found)


def test_a_text_that_differs_in_case_and_spaces_comes_once() -> None:
    twice = [Passage("a", "a.py", 0, PROSE), Passage("b", "b.py", 0, PROSE.upper() + " ")]
    assert fabric_corpus.distinct(twice) == twice[:1]


def test_a_part_is_spread_evenly_and_too_many_are_refused() -> None:
    whole = Corpus(tuple(passages(10)), 10, {"one": "1.0"})
    assert [one.offset for one in whole.thinned(5).passages] == [0, 2, 4, 6, 8]
    with pytest.raises(ConfigError, match="10 distinct passages, 11 were asked for"):
        whole.thinned(11)


def test_the_package_nearest_to_a_share_is_found() -> None:
    many = [Passage("big", "b.py", n, str(n)) for n in range(97)]
    few = [Passage("small", "s.py", n, str(n)) for n in range(3)]
    assert Corpus((*many, *few), 100, {}).package_near(0.01) == "small"


def test_an_environment_gives_the_same_passages_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []
    for name in ("b.py", "a.md", "c.py"):
        path = tmp_path / name
        body = f"{PROSE} In {name} it is so."
        path.write_text(f'"""{body}"""\n' if name.endswith("py") else body, encoding="utf-8")
        files.append((name, path))
    (tmp_path / "bad.py").write_bytes(b"\xff\xfe")
    files += [("bad.py", tmp_path / "bad.py"), ("gone.py", tmp_path / "gone.py")]
    monkeypatch.setattr(fabric_corpus, "installed", lambda: iter([("pack", "1.0", sorted(files))]))
    first = fabric_corpus.read()
    assert [one.path for one in first.passages] == ["a.md", "b.py", "c.py"]
    assert first.versions == {"pack": "1.0"}
    assert fabric_corpus.read(3, tmp_path / "cache") == first
    monkeypatch.setattr(fabric_corpus, "of_package", lambda name, files: pytest.fail("read again"))
    assert fabric_corpus.read(3, tmp_path / "cache") == first


def test_this_environment_has_documentation() -> None:
    listed = {name: files for name, _, files in fabric_corpus.installed()}
    assert "numpy" in listed
    found = list(fabric_corpus.of_package("numpy", listed["numpy"][:40]))
    assert found == list(fabric_corpus.of_package("numpy", listed["numpy"][:40]))


# --- vectors ---------------------------------------------------------------------------


def test_vectors_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"text {n}" for n in range(600)]
    told: list[tuple[int, int]] = []
    first = fabric_corpus.vectors("hash", texts, tmp_path, progress=lambda *at: told.append(at))
    assert told[-1] == (600, 600)
    assert np.array_equal(first, fabric_corpus.HashEmbedder().embed_passages(texts))
    monkeypatch.setattr(fabric_corpus, "_embed", lambda batch: pytest.fail("embedded again"))
    assert np.array_equal(fabric_corpus.vectors("hash", texts[::-1], tmp_path), first[::-1])


def test_a_cache_of_other_rows_is_refused(tmp_path: Path) -> None:
    fabric_corpus.vectors("hash", ["a"], tmp_path)
    (path,) = tmp_path.glob("*.npz")
    np.savez(path, hashes=np.zeros((1, 32), np.uint8), rows=np.zeros((1, 3), np.float32))
    with pytest.raises(EngineError, match=r"\(1, 3\), wanted \(1, 256\)"):
        fabric_corpus.vectors("hash", ["a"], tmp_path)


def test_known_texts_are_looked_up_and_others_embedded() -> None:
    rows = np.eye(2, 256, dtype=np.float32)
    known = fabric_corpus.Known(fabric_corpus.HashEmbedder(), ["a", "b"], rows)
    found = known.embed_passages(["b", "c"])
    assert np.array_equal(found[0], rows[1])
    assert np.array_equal(found[1], fabric_corpus.HashEmbedder().embed_query("c"))


# --- measuring -------------------------------------------------------------------------


def test_recall_counts_what_is_as_near_as_the_last_one() -> None:
    exact = np.array([[0.9, 0.8, 0.8, 0.1]])
    place = {"a": 0, "b": 1, "c": 2, "d": 3}
    assert recall([[("a", 0.9), ("c", 0.8)]], exact, place, 2) == 1.0
    assert recall([[("a", 0.9), ("d", 0.1)]], exact, place, 2) == 0.5
    assert recall([[]], exact, place, 2) == 0.0


def test_every_passage_becomes_one_fact_and_one_block() -> None:
    given = passages(9)
    assert len({fact.fact_id for fact in facts_of(given)}) == 9
    documents = documents_of(given)
    assert [len(document.blocks) for document in documents] == [3, 3, 3]
    assert documents[0].blocks[1].start == documents[0].blocks[0].end + 2


def test_a_missed_demand_and_a_missing_peer_are_said() -> None:
    search = {
        "ours": {"query_ms": 1.0, "recall": 1.0},
        "langchain": {"query_ms": 90.0, "recall": 1.0},
    }
    found = {bar["name"]: bar for bar in bars({"10000": {"search": search}}, {})}
    assert found["query at 10000"]["met"] is False
    absent = bars({"100000": {}}, {})
    assert {bar["met"] for bar in absent} == {None}
    assert bars({}, {"ms_per_passage": 1.5})[0]["met"] is True


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    for library in ("langchain_core", "llama_index.core", "hnswlib", "leidenalg", "tantivy"):
        pytest.importorskip(library)

    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        # A few files are enough, and quicker to read.
        few = {"numpy": 30, "pydantic": 60}
        listed = [(n, v, f[: few[n]]) for n, v, f in fabric_corpus.installed() if n in few]
        patch.setattr(fabric_corpus, "installed", lambda: iter(listed))
        made = run([300], kind="hash", cache=folder)
    return json.loads(json.dumps(made))


@pytest.mark.requirement("CARD-4")
def test_a_small_run_has_every_field(report: dict[str, object]) -> None:
    sizes = report["sizes"]
    assert isinstance(sizes, dict)
    measured = sizes["300"]
    assert set(measured) == {
        "adding", "maintain_ms", "memory_mb", "files_bytes", "search", "filter", "words",
        "words_tantivy", "reclustering", "opening",
    }  # fmt: skip
    stores = measured["search"]
    assert set(stores) == {"ours", "hnswlib", "langchain", "llama_index"}
    for name, store in stores.items():
        assert store["query_ms"] > 0
        assert store["recall"] == 1.0 if name != "hnswlib" else store["recall"] > 0.8
    assert measured["filter"]["ours"]["recall"] == 1.0
    assert 0 < measured["filter"]["meant"] < 300
    assert measured["words"]["overlap_10"] > 0.9
    assert measured["words_tantivy"]["overlap_10"] > 0.8
    assert measured["opening"]["found"] == 50
    assert sorted(measured["opening"]["each_s"])[2] == measured["opening"]["open_s"]
    grown = measured["reclustering"]["after_growth"]
    assert grown["facts"] == 303
    assert grown["modularity"] == pytest.approx(grown["leidenalg"]["modularity"], abs=0.05)
    source = report["source"]
    assert isinstance(source, dict)
    assert sum(source["packages"].values()) == source["passages"] == 500


def test_the_run_is_shown_as_a_table(report: dict[str, object]) -> None:
    rows = list(table(report))
    assert {len(row) for row in rows} == {6}
    assert next(row[1] for row in rows if row[1].startswith("query")) == "query, crp-integrations"
