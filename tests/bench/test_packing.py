"""The measurement of packing runs, its peers are the real ones, and it says what it found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crp_integrations.engines.tokens import counter_for
from crp_integrations.envelope.etag import etag
from tests.bench import packing as bench
from tests.bench.packing import main, table
from tests.bench.packing_material import NOW, loops, make

COUNTER = counter_for("gpt-4o")
SYSTEMS = {
    "ours", "density", "knapsack", "literal", "langchain", "langchain_counted", "langchain_mmr",
    "llama_index", "llama_index_mmr",
}  # fmt: skip


def test_material_is_the_same_each_time_and_looks_like_embeddings() -> None:
    first, second = make(120, COUNTER), make(120, COUNTER)
    assert first.facts == second.facts and np.array_equal(first.rows, second.rows)
    cosines = (first.rows @ first.rows.T)[np.triu_indices(120, 1)]
    assert 0.0 < np.median(cosines) < 0.3 and cosines.max() > 0.95
    assert [fact.fact_id for fact in first.facts] == sorted(fact.fact_id for fact in first.facts)
    assert [fact.tokens for fact in first.facts] == COUNTER.count_many(
        [f"[10] {fact.content}\n\n" for fact in first.facts]
    )
    found = first.candidates()
    # Of every three twins one differs by a number.
    assert (len(found.duplicates), len(found.conflicts)) == (6, 4)


def test_the_printed_loops_keep_the_budget_and_drop_near_duplicates() -> None:
    material = make(60, COUNTER)
    shown, tag = loops(material.facts, material.rows, token_budget=2000, now=NOW, counter=COUNTER)
    assert tag == etag(shown) and len(set(shown)) == len(shown) > 10
    place = {fact.fact_id: at for at, fact in enumerate(material.facts)}
    assert 1800 < sum(material.facts[place[one]].tokens for one in shown) <= 2000
    rows = material.rows[[place[one] for one in shown]]
    assert (rows @ rows.T)[np.triu_indices(len(shown), 1)].max() <= 0.95


def test_langchain_drops_what_is_redundant_and_trims() -> None:
    pytest.importorskip("langchain_core")
    from tests.bench.peers.langchain_packing import LangChainChain, LangChainMMR

    rows = np.array([[1, 0], [0.999, 0.045], [0, 1], [0.6, 0.8]], dtype=np.float32)
    chain = LangChainChain(["a", "b", "c", "d"], rows, 0.95)
    # The second of a pair goes; the order is the best at both ends.
    assert sorted(chain.run(lambda text: 1, 10)) in (["a", "c", "d"], ["b", "c", "d"])
    assert len(chain.run(lambda text: 4, 10)) == 2
    assert LangChainMMR(rows[0], rows).run(2)[0] == 0


def test_llama_index_trims_and_picks() -> None:
    pytest.importorskip("llama_index.core")
    from tests.bench.peers.llama_index_packing import (
        LlamaIndexMMR,
        LlamaIndexPostprocessors,
    )

    steps = LlamaIndexPostprocessors(["a", "b", "c"], [0.9, 0.8, 0.7])
    assert sorted(steps.run(lambda text: 5, 10)) == ["a", "b"]
    rows = np.array([[1, 0], [0, 1]], dtype=np.float32)
    assert LlamaIndexMMR(rows[0], rows).run(1) == [0]


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    pytest.importorskip("langchain_core")
    pytest.importorskip("llama_index.core")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "RUNS", 3)
        made: dict[str, Any] = json.loads(json.dumps(bench.run([48], facts=200)))
    return made


def test_a_small_run_has_every_field(report: dict[str, Any]) -> None:
    measured = report["sizes"]["48"]
    assert set(measured["systems"]) == SYSTEMS
    assert all(system["ms"] > 0 for system in measured["systems"].values())
    assert 0 < measured["packed"] < 48
    stored = report["stored"]
    assert stored["stages_ms"] > 0 and stored["words_ms"] > 0 and stored["packed"] > 0
    assert {row[0] for row in table(report)} == {"48"}


def test_a_warm_pack_counts_the_rendered_text_alone(report: dict[str, Any]) -> None:
    assert report["sizes"]["48"]["texts_counted"] == 1
    (bar,) = [bar for bar in report["bars"] if bar["name"] == "48 candidates, counted before"]
    assert bar["met"]


def test_a_missed_demand_is_said() -> None:
    def system(name: str, ms: float) -> dict[str, Any]:
        return {"name": name, "ms": ms, "again_ms": ms}

    taken = {"ours": 2.0, "langchain": 29.0, "literal": 80.0}
    systems = {name: system(name, ms) for name, ms in taken.items()}
    sizes = {"500": {"systems": systems, "texts_counted": 2}}
    stored = {"facts": 5, "stages_ms": 1.0, "words_ms": 1.0, "float32_query_ms": 3.0}
    met = {bar["name"]: bar["met"] for bar in bench.bars({"sizes": sizes, "stored": stored})}
    assert list(met.values()) == [False, True, False, False]


def test_the_report_is_written_where_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "tests.bench.packing"
    monkeypatch.setattr(f"{module}.has_one_thread", lambda: True)
    monkeypatch.setattr(f"{module}.run", lambda sizes, **given: {"sizes": {}, "bars": []})
    main(["--facts", "0", "--json", str(tmp_path / "out.json"), "--quiet"])
    assert json.loads((tmp_path / "out.json").read_text()) == {"sizes": {}, "bars": []}
