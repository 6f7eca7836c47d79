"""The sessions of `python -m tests.bench.windows`: what is broken in each, and what its figures mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.distortions.text import Document, read
from tests.bench.measure import ONE_THREAD
from tests.bench.windows import Session, main, sessions

TITLED = [
    Document("made", name, name, f"{name} is a town in the hills. It has a school and two mills.")
    for name in ("Arden", "Belmont", "Corley", "Dunmore")
]


@pytest.fixture(scope="module")
def made() -> list[Session]:
    return sessions([*read(None, packages=()), *TITLED], 8)


def test_each_kind_is_broken_in_one_thing(made: list[Session]) -> None:
    whole = {one.key: one for one in made if one.kind == "coherent"}
    assert {"shuffled", "repeated", "contradicted", "restated"} <= {one.kind for one in made}
    for one in made:
        if one.kind in ("complete", "truncated"):
            continue
        coherent = whole[one.key]
        assert one.prior == coherent.prior
        if one.kind == "shuffled":
            assert one.answer != coherent.answer
        if one.kind == "repeated" and one.rule == "verbatim":
            assert one.answer.rsplit(". ", 1)[-1].rstrip(".") in " ".join(one.prior)
    pairs = {
        (one.key, one.kind): one.answer for one in made if one.kind in ("restated", "contradicted")
    }
    for (key, kind), answer in pairs.items():
        if kind == "contradicted":
            assert answer != pairs[key, "restated"]
            assert abs(len(answer) - len(pairs[key, "restated"])) < 12


def test_the_command_writes_an_auroc_for_each_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ONE_THREAD.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tests.bench.distortions.text.PACKAGES", ())
    out = tmp_path / "out.json"
    main(["--json", str(out), "--most", "6", "--lexical"])
    report = json.loads(out.read_text())
    assert {"coherence", "repetition", "flow"} <= set(report["results"])
    assert report["results"]["repetition"]["auroc"] > 0.8
    assert report["digest"] in capsys.readouterr().out
