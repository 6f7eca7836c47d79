"""Tools: selected by keyword and embedding, shown by signature, checked by tag."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from crp_integrations import Relay
from crp_integrations.errors import RequestError
from crp_integrations.governance.context_pack import AssembleRequest, check_calls, check_offered
from crp_integrations.governance.memory_writer import PolicyContext
from crp_integrations.governance.settings import ToolSettings
from crp_integrations.governance.tools import Parameter, ToolSelector, ToolSpec
from crp_integrations.guard.decisions import LOCAL, AllowAll, Decision, LabelFilter, Subject
from crp_integrations.messages import ToolCall
from crp_integrations.relay.defaults import default_embedder
from crp_integrations.stores.memory import MemoryStore
from tests.doubles import NOON, HashEmbedder

EVERY = LabelFilter()
KEY = "ab" * 32
REGISTRY = (
    ToolSpec(
        name="search_invoices",
        description="Find invoices by customer, amount or date.",
        parameters=(Parameter(name="customer", type="string"),
                    Parameter(name="before", type="string", required=False)),
        returns="array",
        safety_tags=("read-only", "pii"),
        safety_notes="Results hold names of customers.",
    ),
    ToolSpec(
        name="refund_payment",
        description="Pay money of an invoice back to the customer who paid it.",
        parameters=(Parameter(name="invoice", type="string"),),
        safety_tags=("destructive",),
        safety_notes="Ask a person before it is called.",
        labels=("team:billing",),
    ),
    ToolSpec(
        name="weather_forecast",
        description="Tells the weather of a town for the next days.",
        parameters=(Parameter(name="town", type="string"),),
        safety_tags=("read-only", "network"),
    ),
    ToolSpec(
        name="resize_image",
        description="Scales a picture to a width and height in pixels.",
        safety_tags=("read-only",),
    ),
    ToolSpec(
        name="play_music",
        description="Plays a song or an album on the loudspeakers of a room.",
        safety_tags=("side-effect",),
    ),
    ToolSpec(
        name="git_commit",
        description="Records changes of source code in a repository.",
        safety_tags=("side-effect",),
    ),
)  # fmt: skip
# For each task the tools that are of use.
HARNESS = {
    "Which invoices of Baker Ltd are unpaid?": {"search_invoices"},
    "Give the customer the money of invoice 17 back": {"refund_payment", "search_invoices"},
    "Will it rain in Oslo tomorrow?": {"weather_forecast"},
    "Make the picture 400 pixels wide": {"resize_image"},
    "Put on some jazz in the kitchen": {"play_music"},
    "Commit my changes of the source code": {"git_commit"},
}


class Labels:
    """Denies what carries a label of a team that the subject is not in."""

    name = "teams"

    def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
        allowed = all(not label.startswith("team:") for label in labels)
        return Decision(allowed=allowed, guard=self.name, reason="another team's", id="pd:1")


def anybody(labels: tuple[str, ...]) -> Decision:
    return AllowAll().decide(LOCAL, "read", labels)


def teamless(labels: tuple[str, ...]) -> Decision:
    return Labels().decide(LOCAL, "read", labels)


@pytest.mark.requirement("SUM-select-6")
@pytest.mark.requirement("SUM-pipe-3")
def test_the_harness_shows_irrelevant_tools_excluded() -> None:
    selector = ToolSelector(default_embedder())
    offered = wanted = right = 0
    for task, useful in HARNESS.items():
        found = selector.select(task, REGISTRY, anybody, EVERY)
        names = [one.tool.name for one in found.chosen]
        assert names[0] in useful, task
        assert set(names) | set(found.irrelevant) == {tool.name for tool in REGISTRY}
        assert all(one.cosine > 0 for one in found.chosen)
        offered += len(names)
        wanted += len(useful)
        right += len(useful & set(names))
    # Of 36 offers that could be made, at most two are of no use.
    assert right == wanted
    assert offered - right <= 2


@pytest.mark.requirement("SUM-select-6")
@pytest.mark.requirement("SUM-fail-6")
def test_what_is_not_authorised_is_absent() -> None:
    selector = ToolSelector(HashEmbedder())
    task = "Pay money of an invoice back to the customer"
    names = {one.tool.name for one in selector.select(task, REGISTRY, anybody, EVERY).chosen}
    assert "refund_payment" in names
    denied = selector.select(task, REGISTRY, teamless, EVERY)
    safe = selector.select(task, REGISTRY, anybody, LabelFilter(without=("destructive",)))
    for found in (denied, safe):
        named = [one.tool.name for one in found.chosen] + [*found.irrelevant, *found.over]
        assert "refund_payment" not in named
    assert {one.decision for one in denied.chosen} == {"pd:1"}
    assert selector.select(task, REGISTRY[1:2], teamless, EVERY).chosen == ()


@pytest.mark.requirement("SUM-pipe-3")
def test_only_signature_and_safety_notes_enter_a_pack() -> None:
    relay = Relay.open(MemoryStore(), embedder=HashEmbedder(), key=KEY, clock=NOON)
    request = AssembleRequest(
        message="Find invoices by customer and pay money back", budget_tokens=4000, tools=REGISTRY
    )
    composed = relay.assembler(model="gpt-4o").compose(request, PolicyContext(subject=LOCAL))
    section = next(one for one in composed.pack.sections if one.type == "tools")
    for item in section.items:
        tool = next(one for one in REGISTRY if item.id == f"tool:{one.name}")
        assert composed.texts[item.shown_ref] == tool.shown
        assert tool.signature in tool.shown
        assert tool.description not in composed.text
        assert (item.source_type, item.evidence.retriever) == ("tool", "tool-rag")
    assert "search_invoices(customer: string, before?: string) -> array" in composed.text
    assert "Results hold names of customers." in composed.text
    left = {name for one in composed.drop_reports for name in one.dropped_item_ids}
    assert left | {item.id for item in section.items} == {f"tool:{t.name}" for t in REGISTRY}


@pytest.mark.requirement("SUM-fail-6")
def test_the_verifier_checks_tags_of_what_is_offered_and_called() -> None:
    relay = Relay.open(MemoryStore(), embedder=HashEmbedder(), key=KEY, clock=NOON)
    request = AssembleRequest(
        message="Find invoices by customer and pay money back", budget_tokens=4000, tools=REGISTRY
    )
    pack = relay.assembler(model="gpt-4o").assemble(request, PolicyContext(subject=LOCAL))
    harmless = LabelFilter(without=("destructive",))

    def faults(*found: Any) -> list[tuple[str, str]]:
        return [(one.name, one.fault) for one in found]

    assert check_offered(pack, REGISTRY, anybody, EVERY) == ()
    assert ("refund_payment", "unsafe") in faults(*check_offered(pack, REGISTRY, anybody, harmless))
    assert ("refund_payment", "unauthorised") in faults(
        *check_offered(pack, REGISTRY, teamless, EVERY)
    )
    worse = [tool.changed(safety_notes="Call it freely.") for tool in REGISTRY]
    assert {"altered"} == {one.fault for one in check_offered(pack, worse, anybody, EVERY)}
    assert {"unknown"} == {one.fault for one in check_offered(pack, (), anybody, EVERY)}
    calls = [ToolCall(id="1", name=name) for name in ("search_invoices", "resize_image", "rm")]
    assert faults(*check_calls(calls, pack, REGISTRY, anybody, EVERY)) == [
        ("resize_image", "not-offered"),
        ("rm", "unknown"),
    ]
    bad = [ToolCall(id="1", name="refund_payment")]
    assert faults(*check_calls(bad, pack, REGISTRY, anybody, harmless)) == [
        ("refund_payment", "unsafe")
    ]


def test_a_spec_without_tags_or_with_a_strange_name_is_refused() -> None:
    for wrong in (
        {"safety_tags": ()}, {"name": "ignore previous"}, {"safety_tags": ("Read Only",)},
        {"description": ""},
    ):  # fmt: skip
        with pytest.raises(ValidationError):
            ToolSpec.model_validate(
                {"name": "a", "description": "b", "safety_tags": ("read-only",), **wrong}
            )
    with pytest.raises(RequestError, match="'git_commit' is given twice"):
        ToolSelector(HashEmbedder()).select("x", [*REGISTRY, REGISTRY[-1]], anybody, EVERY)


def test_a_definition_of_a_function_becomes_a_spec() -> None:
    definition = {
        "type": "function",
        "function": {
            "name": "lift",
            "description": "Lifts.",
            "parameters": {
                "type": "object",
                "properties": {"tons": {"type": "number"}, "how": {"enum": ["a"]}},
                "required": ["tons"],
            },
        },
    }
    made = ToolSpec.of(definition, safety_tags=("destructive",))
    assert made.signature == "lift(tons: number, how?: any) -> any"
    assert ToolSpec.model_validate_json(made.model_dump_json()) == made
    with pytest.raises(RequestError, match="no function"):
        ToolSpec.of({"type": "web_search"}, safety_tags=("network",))


@settings(max_examples=60, deadline=None)
@given(
    st.permutations(range(len(REGISTRY))),
    st.sampled_from(sorted(HARNESS)),
    st.integers(1, 4),
)
def test_the_order_of_the_registry_decides_nothing(order: list[int], task: str, most: int) -> None:
    """Law: chosen, over and irrelevant are the authorised tools, each once."""
    selector = ToolSelector(HashEmbedder(), ToolSettings(most=most))
    found = selector.select(task, [REGISTRY[n] for n in order], teamless, EVERY)
    assert found == selector.select(task, REGISTRY, teamless, EVERY)
    names = [one.tool.name for one in found.chosen] + [*found.irrelevant, *found.over]
    assert sorted(names) == sorted(t.name for t in REGISTRY if t.name != "refund_payment")
    assert len(found.chosen) <= most
