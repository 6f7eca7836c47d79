"""The measurement of the fabric: its corpus, its vectors, and a small run with every field."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.bench import fabric_corpus
from tests.bench.fabric import run, table
from tests.bench.fabric_corpus import Passage

PROSE = (
    "Return the number of rows that a reader of the file will see, with the ones that were "
    "skipped left out of it."
)


def passages(count: int) -> list[Passage]:
    return [Passage("one", f"one/{n % 3}.py", n, f"{PROSE} Number {n}.") for n in range(count)]


# --- corpus ----------------------------------------------------------------------------


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


# --- vectors ---------------------------------------------------------------------------


def test_vectors_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"text {n}" for n in range(600)]
    told: list[tuple[int, int]] = []
    first = fabric_corpus.vectors("hash", texts, tmp_path, progress=lambda *at: told.append(at))
    assert told[-1] == (600, 600)
    assert np.array_equal(first, fabric_corpus.HashEmbedder().embed_passages(texts))
    monkeypatch.setattr(fabric_corpus, "_embed", lambda batch: pytest.fail("embedded again"))
    assert np.array_equal(fabric_corpus.vectors("hash", texts[::-1], tmp_path), first[::-1])


# --- measuring -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    for library in ("langchain_core", "llama_index.core", "hnswlib", "leidenalg"):
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
        "reclustering", "opening",
    }  # fmt: skip
    stores = measured["search"]
    assert set(stores) == {"ours", "hnswlib", "langchain", "llama_index"}
    for name, store in stores.items():
        assert store["query_ms"] > 0
        assert store["recall"] == 1.0 if name != "hnswlib" else store["recall"] > 0.8
    assert measured["filter"]["ours"]["recall"] == 1.0
    assert 0 < measured["filter"]["meant"] < 300
    assert measured["words"]["overlap_10"] > 0.9
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
