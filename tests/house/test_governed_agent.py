"""The thin slice's data, and that its numbers fall when what they count gets worse."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import pytest

from crp_integrations import Relay
from crp_integrations.governance.tools import ToolSpec
from crp_integrations.vocabulary import EventType
from tests.requirements.rows import ROOT

SCRIPT = ROOT / "examples" / "governed_agent.py"


@pytest.fixture(scope="module")
def slice_() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("governed_agent", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["governed_agent"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["governed_agent"]


@pytest.mark.requirement("SUM-proto-3")
def test_the_mock_data_is_what_the_document_asks_for(slice_: ModuleType) -> None:
    read = slice_.read
    assert [len(read(name)) for name in ("knowledge", "playbooks", "notes", "tools")] == [
        20, 5, 10, 6,
    ]  # fmt: skip
    nodes = {
        row["id"] for name in ("knowledge", "playbooks", "notes", "nodes") for row in read(name)
    }
    assert len(nodes) == 50
    edges = read("edges")
    assert {row[end] for row in edges for end in ("from", "to")} == nodes
    assert all(ToolSpec.model_validate(row).safety_tags for row in read("tools"))
    questions = read("questions")
    assert len(questions) == 20
    for row in questions:
        assert {*row["relevant"]} <= nodes
        # What may be cited is relevant, and the board's minutes are neither.
        assert {*row["cites"]} <= {*row["relevant"]}
        assert "k20" not in row["relevant"]


class Kept:
    """A few questions' runs, with what the metrics read of them."""

    def __init__(self, slice_: ModuleType, folder: str) -> None:
        with Relay.open(folder, subject=slice_.OPERATOR, guard=slice_.GUARD) as relay:
            self.short = slice_.write_data(relay)
        self.relay = Relay.open(
            folder, subject=slice_.AGENT, guard=slice_.GUARD, packs=slice_.PACKS
        )
        self.governed, self.baseline, self.state, self.model, self.sandbox = slice_.built(
            self.relay
        )
        self.runs = [
            slice_.Run(row, self.governed, self.sandbox, self.state)
            for row in slice_.read("questions")[:3]
        ]


@pytest.fixture(scope="module")
def kept(slice_: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    made = Kept(slice_, str(tmp_path_factory.mktemp("slice")))
    with made.relay:
        yield made


@pytest.mark.requirement("SUM-proto-1")
@pytest.mark.requirement("SUM-proto-2")
def test_the_slice_plans_packs_trims_cites_and_shows_a_log_by_handle(
    slice_: ModuleType, kept: Kept
) -> None:
    retrievers = set()
    for run in kept.runs:
        before, after = run.material("retrieved"), run.material("shown")
        retrievers |= {one.evidence.retriever for one in before.pack.items}
        assert after.pack.token_actual <= slice_.BUDGET < before.pack.token_actual
        assert after.reports
        assert run.draft.cited
        assert {check.rule: check.passed for check in run.verdict.checks}["policy"]
    assert {"keyword", "vector", "graph", "tool-rag"} <= retrievers
    handle = kept.state.sandboxes[0]
    assert kept.model.prompts
    for prompt in kept.model.prompts:
        assert handle.ref in prompt
        assert slice_.LOG not in prompt
    assert kept.sandbox.get(handle.ref).text == slice_.LOG


def test_wrong_labels_lower_relevance_and_citations(slice_: ModuleType, kept: Kept) -> None:
    (run, *_) = kept.runs
    right = slice_.relevance(run, kept.short), slice_.citations(run, kept.short)[0]
    row = run.row
    try:
        run.row = {**row, "relevant": ["k13"], "cites": ["k13"]}
        assert slice_.relevance(run, kept.short) == 0.0 < right[0]
        assert slice_.citations(run, kept.short)[0] == 0 < right[1]
    finally:
        run.row = row


def test_a_drop_that_no_report_names_lowers_coverage(
    slice_: ModuleType, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run, *_) = kept.runs
    said, gone = slice_.removed(run)
    assert said == gone > 0
    honest = run.material

    def silent(which: str) -> object:
        return replace(honest(which), reports=())

    monkeypatch.setattr(run, "material", silent)
    assert slice_.removed(run) == (0, gone)


@pytest.mark.requirement("SUM-proto-7")
def test_every_hand_over_of_the_slice_is_in_the_verified_journal(
    slice_: ModuleType, kept: Kept
) -> None:
    kept.relay.verify()
    with kept.relay.fabric.begin(write=False) as transaction:
        events = list(transaction.journal.events())
    told = {e.data["record_hash"] for e in events if e.event_type is EventType.ROLE_HANDOVER}
    for run in kept.runs:
        assert {one.record_hash for one in slice_.traces(run.end)} <= told
        failed = {check.rule for check in run.verdict.checks if not check.passed}
        assert not failed & {"policy", "tools"}
    text = json.dumps([event.data for event in events])
    assert "Crane" not in text
