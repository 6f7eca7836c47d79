"""The cases of `python -m tests.bench.distortions`: what each label claims is checked by other means here."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from random import Random

import pytest

import tests.bench.distortions as room
from tests.bench.distortions.__main__ import digest, main, make
from tests.bench.distortions.amounts import date, magnitude, number, unit
from tests.bench.distortions.names import entity, role
from tests.bench.distortions.sense import condition, negation
from tests.bench.distortions.text import (
    CLEAN,
    DISTORTED,
    Document,
    Maker,
    Pool,
    Sentence,
    read,
)
from tests.bench.measure import ONE_THREAD

POOL = Pool(("Henry Lockwood", "Alice Merton"))
MADE = [
    (number, "The harbour has 240 berths for small boats in the summer."),
    (number, "She wrote three novels about the war and its end."),
    (date, "The bridge was opened to the public on 4 March 1987."),
    (date, "The mill closed in 1931 after a flood in the valley."),
    (unit, "The trail runs for 18 kilometres along the old canal."),
    (magnitude, "About 35 percent of the members live in the city itself."),
    (negation, "The tower is a listed building in the north of the town."),
    (negation, "The method does not return a copy of the array."),
    (entity, "The band was formed in Sweden by two brothers and a friend."),
    (condition, "The fee is returned to the member unless the course has already begun."),
    (role, "Ferris defeated Langley in the final of the open tournament."),
]


def a_sentence(text: str) -> Sentence:
    return Sentence("", text, ("It is a quiet place.", text, "Nobody complains."))


@pytest.mark.parametrize(("maker", "text"), MADE)
def test_an_edit_changes_the_sentence_where_it_says(maker: Maker, text: str) -> None:
    for seed in range(5):
        edit = maker(a_sentence(text), Random(seed), POOL)
        assert edit is not None
        assert edit.claim != text
        new = edit.claim[edit.start : edit.end]
        if maker is not condition:
            assert edit.claim[: edit.start] + edit.expected + edit.claim[edit.end :] == text
            assert new not in text or maker in (negation, role)
        else:
            assert edit.expected in text and edit.expected not in edit.claim


# Of ours, what knows nothing of texts.
PLAIN = (
    "tests.bench.distortions",
    "crp_integrations.evaluation.data_sets",
    "crp_integrations.errors",
)


def test_the_generator_imports_nothing_of_the_engine() -> None:
    folder = Path(room.__file__).parent
    makers = [path for path in folder.glob("*.py") if path.stem != "__main__"]
    assert len(makers) >= 5
    for path in makers:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            ours = [name for name in names if name.startswith("crp_integrations")]
            assert all(name.startswith(PLAIN) for name in ours), path


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return read(None, packages=())


def test_parts_share_no_document_and_cases_are_the_same_each_time(
    documents: list[Document],
) -> None:
    tune, held = make(documents, "tune"), make(documents, "held")
    assert tune and held
    assert not {case.document for case in tune} & {case.document for case in held}
    assert digest(make(list(documents), "tune")) == digest(tune) != digest(held)
    assert {case.kind for case in tune} <= {*DISTORTED, *CLEAN}
    for case in tune:
        assert 0 <= case.start <= case.end <= len(case.claim)
        if case.kind == "verbatim" and case.rule == "one":
            assert case.claim in " ".join(case.facts)
        if case.kind == "NUMBER_CHANGED":
            assert case.claim not in " ".join(case.facts)


def test_the_command_runs_without_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ONE_THREAD.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tests.bench.distortions.text.PACKAGES", ())
    out, cases = tmp_path / "out.json", tmp_path / "cases.jsonl"
    main(["--json", str(out), "--cases", str(cases), "--most", "5", "--lexical"])
    report = json.loads(out.read_text())
    assert report["generator"] == "distortions@1" and len(report["digest"]) == 16
    assert report["results"]["verbatim"]["found"] <= 0.2
    assert report["results"]["CONTEXT_STRIPPED"]["cases"] == 5
    assert len(cases.read_text().splitlines()) == sum(
        row["cases"] for name, row in report["results"].items() if "+" not in name
    )
    assert report["digest"] in capsys.readouterr().out
