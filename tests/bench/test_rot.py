"""The context-rot harness: a small run of every scenario, and that its figures can tell."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.engines.tokens import counter_for
from crp_integrations.errors import RequestError
from crp_integrations.evaluation.context_metrics import MeasuredContext
from crp_integrations.evaluation.context_rot import (
    CRP,
    RotPlan,
    RotQuestion,
    collections,
    find_questions,
    read_questions,
)
from crp_integrations.messages import ModelCall, Reply
from tests.bench import rot
from tests.bench.fabric_corpus import HashEmbedder
from tests.bench.rot import NAMES, Plan, main, run
from tests.bench.rot_report import page, plots
from tests.bench.selection_peers import units

COUNT = 12
DOCS = Path(__file__).parents[2] / "docs"
THINGS = "harbour quarry orchard tannery brewery foundry mill chapel bakery granary dairy forge"
SMALL = Plan(questions=6, sizes=[4, 12], budgets=[128, 512], budget=200, model="forgetful")


def asked(number: int) -> dict[str, Any]:
    thing = THINGS.split()[number]
    return {
        "query": f"who built the {thing}",
        "answers": [f"Ada Quill the {number}th"],
        "title": f"the roof of the {THINGS.split()[number - 1]}",
        "passage": f"The {thing} stands by the river. It was built by Ada Quill the {number}th "
        f"after the flood. Its {thing} roof was mended in 19{number:02}.",
    }


def write(path: Path, rows: list[Any]) -> Path:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rot")
    return write(folder / "questions.jsonl.gz", [asked(number) for number in range(COUNT)])


class Forgetful:
    """A model that reads only the head of its context, as far as so many characters."""

    def __init__(self, reads: int) -> None:
        self.reads = reads
        self.calls: list[ModelCall] = []

    def call(self, call: ModelCall) -> Reply:
        self.calls.append(call)
        (message,) = call.messages
        context, _, query = message.content.partition("Question: ")
        thing = query.split()[-1]
        found = re.search(rf"The {thing} .*?(Ada Quill the \d+th)", context[: self.reads])
        return Reply(text=found[1] if found else "I do not know.")


@pytest.fixture(scope="module")
def report(file: Path) -> dict[str, Any]:
    return run(file, SMALL, embedder=HashEmbedder(), models=Forgetful(600))


def points(report: dict[str, Any], scenario: str, **at: Any) -> list[dict[str, Any]]:
    return [p for p in report["results"][scenario] if all(p.get(k) == v for k, v in at.items())]


@pytest.mark.requirement("SUM-eval-3")
def test_every_scenario_is_run_for_every_system(report: dict[str, Any]) -> None:
    assert list(report["results"]) == [*NAMES, "answered"]
    systems = {CRP, "langchain", "llama_index"}
    for scenario in ("distractors", "growing", "order", "noise", "prefix"):
        assert systems <= {point["system"] for point in report["results"][scenario]}
    for point in report["results"]["distractors"]:
        assert 0 <= point["gold"] <= point["answer"] <= 1 and point["tokens"] <= point["budget"]
    # More room never loses what a smaller one held, for what is packed in rank order.
    for system in ("langchain", "llama_index"):
        small, large = points(report, "distractors", system=system, passages=12)
        assert small["gold"] <= large["gold"]
    # Context grows by what is stored and by what there is room for.
    grown = {(point["passages"], point["budget"]) for point in report["results"]["distractors"]}
    assert grown == {(passages, room) for passages in (4, 12) for room in (128, 512)}
    sizes = [point["k"] for point in points(report, "growing", system="langchain")]
    assert sizes == [2, 4, 8]
    assert report["settings"]["missing"] == {}


def test_no_canary_reaches_another_tenant(report: dict[str, Any]) -> None:
    (point,) = points(report, "tenants")
    assert (point["own"], point["leaked"]) == (1.0, 0.0)


@pytest.mark.requirement("SUM-select-8")
def test_injected_passages_are_screened_where_that_is_set(report: dict[str, Any]) -> None:
    (screened,) = points(report, "noise", system=rot.SCREENED)
    (plain,) = points(report, "noise", system=CRP)
    assert plain["clean"] < 0.5
    assert screened["clean"] > 0.9
    assert screened["gold"] >= plain["gold"]


def test_a_prefix_is_reused_where_the_layout_keeps_it(report: dict[str, Any]) -> None:
    (stable,) = points(report, "prefix", system=rot.STABLE)
    (plain,) = points(report, "prefix", system=CRP)
    assert stable["reused"] > plain["reused"]


@pytest.mark.requirement("SUM-eval-3")
def test_a_model_that_reads_the_head_alone_shows_it(report: dict[str, Any]) -> None:
    placed = {p["depth"]: p["right"] for p in points(report, "answered", system="placed")}
    assert (placed[0.0], placed[1.0]) == (1.0, 0.0)
    (ours,) = points(report, "answered", system=CRP)
    assert ours["right"] > placed[0.5]


def test_the_order_of_the_store_is_nothing_to_us(report: dict[str, Any]) -> None:
    (ours,) = points(report, "order", system=CRP)
    assert ours["same"] == 1.0


@pytest.mark.requirement("SUM-pipe-11")
def test_a_system_that_prefers_a_position_is_seen(file: Path) -> None:
    class FirstHalf:
        """Searches nothing: takes what was stored first."""

        def __init__(self, collection: Any, axis: Any, embedder: Any, counter: Any) -> None:
            self.units = units(collection.texts, axis, counter)[: COUNT // 2]

        def pack(self, question: str, budget: int, k: int | None = None) -> MeasuredContext:
            tokens = sum(unit.tokens for unit in self.units)
            return MeasuredContext(
                tuple(self.units), tuple(unit.unit_id for unit in self.units), tokens
            )

        def close(self) -> None: ...

    plan = RotPlan(
        read_questions(file), HashEmbedder(), counter_for("gpt-4o"), COUNT, [COUNT], [512], 512,
        ["first"], {"first": FirstHalf},
    )  # fmt: skip
    (point,) = rot.order(plan)
    assert point["first"] == 1.0
    assert point["last"] == 0.0
    assert point["same"] < 1.0


def test_the_report_is_one_file_with_its_curves(report: dict[str, Any]) -> None:
    drawn = plots(report["results"])
    assert drawn == plots(report["results"])
    assert len(drawn) == len(SMALL.budgets) + 3
    written = page(report, drawn)
    assert written.count("<svg") == len(drawn)
    assert "<script" not in written
    fetched = re.findall(r"(?:src|href)=[\"']?([^\"'\s>]+)", written)
    assert [one for one in fetched if not one.startswith("#")] == []
    hostile = {**report, "settings": {"questions": "<img src=x onerror=alert(1)>"}}
    assert "<img" not in page(hostile, {})


def test_the_command_writes_what_is_asked_for(file: Path, tmp_path: Path) -> None:
    given = ["--data", str(file.parent), "--scenarios", "growing", "--systems", "langchain"]
    given += ["--questions", "2", "--json", str(tmp_path / "a.json")]
    given += ["--html", str(tmp_path / "a.html"), "--plots", str(tmp_path / "plots")]
    assert main(given) == 0
    assert list(json.loads((tmp_path / "a.json").read_text())["results"]) == ["growing"]
    assert "<svg" in (tmp_path / "a.html").read_text()
    assert len(list((tmp_path / "plots").iterdir())) == 2


def test_the_distractors_of_a_question_do_not_answer_it() -> None:
    same = RotQuestion(
        "who built the mill", ("Ada Quill the 1th",), "", "Ada Quill the 1th built it all."
    )
    group = [RotQuestion(**{**asked(n), "answers": tuple(asked(n)["answers"])}) for n in range(3)]
    (made,) = collections([*group, same], 4, 4)
    assert {question.query for question in made.questions} == {
        group[0].query,
        group[2].query,
    }


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, "line 1 is not an object with query, answers"),
        ([], "line 1 is not a JSON object"),
        ({**asked(1), "answers": "one"}, "line 1 is not"),
        ({**asked(1), "answers": [3]}, "line 1"),
        ({**asked(1), "answers": ["nobody"]}, "has no question whose passage contains an answer"),
    ],
    ids=["empty", "list", "text", "number", "elsewhere"],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, row: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        read_questions(write(tmp_path / "a.jsonl.gz", [row]))


def test_no_file_and_no_name_are_refused(tmp_path: Path, file: Path) -> None:
    with pytest.raises(RequestError, match="wanted a file of query"):
        find_questions(tmp_path)
    with pytest.raises(RequestError, match="scenario 'rotting' is not one of distractors"):
        run(file, Plan(scenarios=["rotting"]))
    with pytest.raises(RequestError, match="cannot be read"):
        read_questions(tmp_path / "none.jsonl.gz")
    assert main(["--data", str(tmp_path)]) == 1


@pytest.mark.requirement("SUM-evalobs-19")
def test_the_stored_baseline_is_what_the_page_tells() -> None:
    stored = json.loads((DOCS / "baselines" / "rot.json").read_text(encoding="utf-8"))
    assert list(stored["results"]) == list(NAMES)
    page_text = (DOCS / "evidence" / "context-rot.md").read_text(encoding="utf-8")
    by_size: dict[tuple[str, int], list[str]] = {}
    for point in points(stored, "distractors"):
        row = by_size.setdefault((point["system"], point["passages"]), [])
        row.append(f"{100 * point['answer']:.0f}")
    assert len(by_size) == 9
    for (system, passages), row in by_size.items():
        assert f"| {system} | {passages:,} | {' | '.join(row)} |" in page_text
    for point in points(stored, "noise"):
        assert f"| {point['system']} | {100 * point['clean']:.0f} |" in page_text
