"""The lexical measurement: queries of real words, and engines that answer the same ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import fabric_corpus, lexical
from tests.bench.fabric_corpus import Corpus, Passage

TEXTS = [
    f"Engine number {n} burns methane in chamber {n % 7}, and the operator of plant {n % 5} "
    f"records pressure, valve positions and temperature every {n % 11 + 2} minutes."
    for n in range(120)
]


def test_queries_are_telling_words_of_one_text_each() -> None:
    asked = lexical.queries(TEXTS, count=40)
    assert asked == lexical.queries(TEXTS, count=40)
    for terms in asked:
        assert 3 <= len(terms) <= 6
        assert "and" not in terms
        assert any(
            set(terms) <= set(text.lower().replace(",", "").rstrip(".").split()) for text in TEXTS
        )


def test_overlap_is_a_share_of_the_other_engines_best() -> None:
    one, other = [("a", 2.0), ("b", 1.0)], [("b", 9.0), ("c", 8.0)]
    assert lexical.overlap([one], [other], 2) == 0.5
    assert lexical.overlap([[]], [[]], 2) == 1.0


def test_every_engine_answers_and_what_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    passages = tuple(Passage("p", "p.py", n, text) for n, text in enumerate(TEXTS))
    monkeypatch.setattr(fabric_corpus, "read", lambda *given: Corpus(passages, 120, {"p": "1"}))
    monkeypatch.setattr(lexical, "has_one_thread", lambda: True)
    monkeypatch.setattr(lexical, "memory_of", lambda *given: 1.0)

    def absent(kind: str, *given: object) -> object:
        if kind == "bm25s":
            raise ModuleNotFoundError("No module named 'bm25s'")
        return made(kind, *given)  # type: ignore[arg-type]

    made = lexical.made
    monkeypatch.setattr(lexical, "made", absent)
    lexical.main(["--facts", "120", "--json", str(tmp_path / "out.json")])
    report = json.loads((tmp_path / "out.json").read_text())["sizes"]["120"]
    assert set(report) == {"store", "fts5", "bm25s"}
    assert report["bm25s"] == {"missing": "No module named 'bm25s'"}
    for kind in ("store", "fts5"):
        assert report[kind]["query_ms"] > 0
    # Raw FTS5 has no rule for equal scores, of which these texts have many.
    assert report["store"]["overlap_50"] == 1.0
    shown = capsys.readouterr().out
    assert "our store (FTS5)" in shown
    assert "No module named" in shown
