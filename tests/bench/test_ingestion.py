"""The measurements of ingestion run, and count what they say they count."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.engines.tokens import counter_for
from tests.bench import decomposition, ingestion
from tests.doubles import HashEmbedder


def paragraphs_of(count: int) -> list[str]:
    return [
        f"Paragraph {n} of the handbook says that value{n} is {n} units, measured at noon."
        for n in range(count)
    ]


def test_a_killed_ingestion_is_resumed_and_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingestion, "real_paragraphs", lambda: iter(paragraphs_of(300)))
    report = ingestion.measure(0.2, killed_after=128)
    assert report["rounds_of_the_same_paragraphs"] == 8
    assert report["killed_after_texts"] == 128
    # The number in front makes every repetition another text.
    assert report["embedded"] == report["passages"] - 128
    assert report["resumed_share"] == round(128 / report["passages"], 4)
    assert report["rss_growth_mib"] >= 0
    assert report["ms_per_passage"] > 0


def test_files_are_ingested_beside_langchains_store_by_turns() -> None:
    report = ingestion.compare(paragraphs_of(9), None, rounds=2)
    assert report["documents"] == 8
    assert len(report["cpu_langchain_to_ours"]["pairs"]) == 2
    assert report["cpu_s"].keys() == {"langchain", "ours", "unchanged", "static"}


def test_evidence_is_found_wherever_it_is_said(tmp_path: Path) -> None:
    first, second = (
        "The city of Rome fell in the year 476 after a long siege.",
        "The city of Paris stands on the river Seine in the north of France.",
    )
    folder = tmp_path / "retrieval" / "small"
    folder.mkdir(parents=True)
    documents = [
        {"doc_id": "a", "title": "a", "collection": "c", "text": f"{first} {second}"},
        {"doc_id": "b", "title": "b", "collection": "c", "text": second},
    ]
    queries = [
        {
            "query": "When did Rome fall?",
            "collection": "c",
            "evidence": [{"doc_id": "a", "start": 0, "end": len(first)}],
            "meta": {"hops": [["a", "476"], ["b", "Berlin"]]},
        }
    ]
    for name, rows in (("documents", documents), ("queries", queries)):
        with gzip.open(folder / f"{name}.jsonl.gz", "wt", encoding="utf-8") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)
    report = decomposition.measure(folder, ["never", "always"], [200], HashEmbedder())
    assert report["never"]["200"] == {"recall": 1.0, "full": 1.0, "hops": 0.5}
    assert (report["never"]["facts"], report["always"]["facts"]) == (2, 3)


def test_what_is_covered_is_counted_once() -> None:
    class Packed:
        def __init__(self, *contents: str) -> None:
            self.facts = [type("Fact", (), {"content": content}) for content in contents]

    text = "aaaa bbbb cccc aaaa"
    packed: Any = Packed("aaaa bbbb", "bbbb cccc", "aaaa", "zzzz")
    assert decomposition.covered(packed, text, 0, len(text)) == len(text) - 1
    assert decomposition.covered(packed, text, 5, 9) == 4
    assert decomposition.covered(Packed("zz"), text, 0, 4) == 0  # type: ignore[arg-type]
    assert counter_for(decomposition.MODEL).count("one") == 1
