"""The measurement of packing runs, its peers are the real ones, and it says what it found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crp_integrations.engines.tokens import counter_for
from crp_integrations.envelope.reuse import etag
from tests.bench import packing as bench
from tests.bench.packing import main, table
from tests.bench.packing_material import NOW, loops, make

COUNTER = counter_for("gpt-4o")
SYSTEMS = {
    "ours", "literal", "langchain", "langchain_counted", "langchain_mmr",
    "llama_index", "llama_index_mmr",
}  # fmt: skip


def test_the_printed_loops_keep_the_budget_and_drop_near_duplicates() -> None:
    material = make(60, COUNTER)
    shown, tag = loops(material.facts, material.rows, token_budget=2000, now=NOW, counter=COUNTER)
    assert tag == etag(shown) and len(set(shown)) == len(shown) > 10
    place = {fact.fact_id: at for at, fact in enumerate(material.facts)}
    assert 1800 < sum(material.facts[place[one]].tokens for one in shown) <= 2000
    rows = material.rows[[place[one] for one in shown]]
    assert (rows @ rows.T)[np.triu_indices(len(shown), 1)].max() <= 0.95


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


def test_the_report_is_written_where_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "tests.bench.packing"
    monkeypatch.setattr(f"{module}.has_one_thread", lambda: True)
    monkeypatch.setattr(f"{module}.run", lambda sizes, **given: {"sizes": {}, "bars": []})
    main(["--facts", "0", "--json", str(tmp_path / "out.json"), "--quiet"])
    assert json.loads((tmp_path / "out.json").read_text()) == {"sizes": {}, "bars": []}
