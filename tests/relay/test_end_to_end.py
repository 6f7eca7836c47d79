"""From what agents remember to what their answers are worth: one run through every part.

What a user of the envelope meets at its edges: hostile requests, and rooms that must be kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from crp_integrations import Message, Relay
from crp_integrations.envelope.records import EarlierWindow
from crp_integrations.errors import RequestError
from crp_integrations.governance.context_pack import AssembleRequest
from crp_integrations.governance.memory_items import MemoryItem, Scope
from crp_integrations.governance.memory_writer import (
    Emitter,
    MemoryWriter,
    PolicyContext,
    make_sink,
)
from crp_integrations.governance.settings import STEPS
from crp_integrations.governance.tools import ToolSpec
from crp_integrations.governance.window_trace import WindowTrace
from crp_integrations.messages import ModelCall
from crp_integrations.observability.evaluations import Evaluation
from crp_integrations.vocabulary import EventType, QualityTier
from tests.doubles import CountingIds, FixedClock, ScriptedModel
from tests.relay.conftest import FACTS, Opener
from tests.relay.need_questions import event_data, made, said
from tests.relay.test_compaction import HISTORY, MODEL, log

REMEMBERED = (
    "Crane 3 on the northern quay stopped on 3 May 2026 since its load of 18 tons was above."
)
QUESTION = "Why did crane 3 on the northern quay stop in May 2026?"


class Seen:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.traces: list[WindowTrace] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self.steps.append(name)
        yield

    def calling(self, call: ModelCall) -> Any:
        self.steps.append("call")
        return nullcontext(lambda reply: None)

    def sealed(self, trace: WindowTrace) -> None:
        self.traces.append(trace)


def emitted(relay: Relay) -> list[MemoryItem]:
    """Memories of three types from an agent in plain Python."""
    subject = relay.fabric.subject
    kept: list[MemoryItem] = []
    write = make_sink(MemoryWriter(relay.fabric), PolicyContext(subject=subject))

    def sink(one: MemoryItem) -> None:
        write(one)
        kept.append(one)

    emit = Emitter(
        Scope(tenant=subject.tenant), (f"tenant:{subject.tenant}",), "session://s1",
        FixedClock(), CountingIds(), sink,
    )  # fmt: skip
    emit.episodic(REMEMBERED, "tool-output")
    emit.procedural("When a crane stops, weigh its load and read the log of its own motor first.")
    emit.semantic("The northern quay has seven cranes, and each of them lifts at most 16 tons.")
    return kept


@pytest.mark.requirement("SUM-arch-1")
def test_data_flow_from_emitters_to_the_evaluation(open_relay: Opener) -> None:
    seen, model = Seen(), ScriptedModel(REMEMBERED)
    relay = made(
        open_relay,
        model,
        tracer=seen,
        context_limits={MODEL: 8_000},
        compaction={"enabled": True, "offload": True, "offload_tokens": 100, "limit_share": 0.3},
    )
    # Emitters write to the event log, the vectors and the words at once.
    memories = emitted(relay)
    fabric = relay.fabric
    assert [hit.fact_id for hit in fabric.search_text("crane 3 load", 1)] == [memories[0].fact_id]
    assert len(fabric.vectors([one.fact_id for one in memories])) == 3
    # Assembly, compaction, isolation, the call.
    answer = relay.ask(QUESTION, model=MODEL, history=HISTORY, max_tokens=500)
    (call,) = model.calls
    assert memories[0].fact_id in {fact.fact_id for fact in answer.envelope.facts}
    account = answer.compaction
    assert account is not None and account.reports and account.artifacts
    kept = relay.sandbox().get(account.artifacts[0].ref)
    assert kept.text in {log(n) for n in range(1, 7)} and kept.text not in said(call)
    # Metrics and trace of what was shown, then the evaluation, each bound to the journal.
    (trace,) = seen.traces
    assert trace.pack is not None and trace.evaluated is not None
    assert [item.id for item in trace.pack.items] == [f.fact_id for f in answer.envelope.facts]
    evaluation = Evaluation.of(trace)
    assert evaluation.measured is not None and evaluation.window_id == answer.window_id
    assert answer.report.grounding_pct == 1.0
    assert evaluation.ledger_hmac == trace.pack.ledger_hmac != ""
    order = [one for one in seen.steps if one in ("compact", "envelope", "call", "close")]
    assert order == ["compact", "envelope", "call", "close"]
    # And in the journal, in its order.
    with fabric.begin(write=False) as transaction:
        types = [event.event_type for event in transaction.journal.events()]
    wanted = [
        EventType.FACT_INGESTED, EventType.ARTIFACT_ACCESS, EventType.FACT_RETRIEVED,
        EventType.CONTEXT_COMPACTED, EventType.CONTEXT_DROPPED, EventType.DISPATCH_COMPLETED,
        EventType.DPE_COMPLETED,
    ]  # fmt: skip
    places = [types.index(kind) for kind in wanted]
    assert places == sorted(places)
    (began,) = event_data(relay, answer.session_id, EventType.DISPATCH_STARTED)
    assert set(STEPS) <= set(began)


TOOLS = tuple(
    ToolSpec(
        name=f"crane_log_{n}",
        description="Reads why a crane on the quay stopped.",
        safety_tags=("read-only",),
    )
    for n in range(3)
)
ASKED: dict[str, Any] = {
    "message": QUESTION, "budget_tokens": 8_000, "task": "Answer in one sentence.",
    "policies": ("Name no person.",), "tools": TOOLS,
}  # fmt: skip


@pytest.mark.requirement("SUM-princ-1")
@pytest.mark.parametrize(
    ("part", "settings"),
    [
        ("memory", {"packs": {"memory_share": 0.6}}),
        ("knowledge", {"packs": {"top_k": 3, "depth": 1}}),
        ("tools", {"packs": {"tools": {"most": 1}}}),
        ("policy", {"packs": {"shares": {"policy": 0.075, "knowledge": 0.6}}}),
        ("formatting", {"envelope": {"ordering": "reversed"}}),
    ],
)
def test_each_part_has_settings_and_metrics_of_its_own(
    part: str, settings: dict[str, Any], open_relay: Opener
) -> None:
    def composed(**chosen: Any) -> tuple[Any, str]:
        relay = made(open_relay, ScriptedModel(FACTS[0]), **chosen)
        emitted(relay)
        context = PolicyContext(subject=relay.fabric.subject)
        found = relay.assembler(model=MODEL).compose(AssembleRequest(**ASKED), context)
        with relay.fabric.begin(write=False) as transaction:
            (told,) = [
                event.data
                for event in transaction.journal.events()
                if event.event_type is EventType.CONTEXT_PACKED
            ]
        sections = {one.type: one for one in found.pack.sections}
        # Each section's metrics are its own: budget, tokens, items and their scores.
        for one in sections.values():
            assert one.token_actual <= one.token_budget and one.items
        assert told["item_counts"] == [len(one.items) for one in found.pack.sections]
        return sections, found.text

    (plain, text), (changed, other) = composed(), composed(**settings)
    assert {"user", "task", "tools", "knowledge", "memory", "policy"} <= set(plain)
    # What a part's setting changes is that part; the instructions stay word for word.
    assert plain["task"].items == changed["task"].items and ASKED["task"] in other
    assert text != other or changed != plain
    if part == "formatting":
        assert {i.id for s in plain.values() for i in s.items} == {
            i.id for s in changed.values() for i in s.items
        }
    elif part in ("memory", "policy"):
        assert changed[part].token_budget != plain[part].token_budget
    elif part == "tools":
        assert (len(plain[part].items), len(changed[part].items)) == (3, 1)
    else:
        assert 0 < len(changed[part].items) < len(plain[part].items)


EDGE_QUESTION = "When was the Meridian reactor commissioned?"
LONE = "a \ud800 lone surrogate"
# What else holds a text: hashes, journal and models take no such thing.
HOSTILE: list[tuple[str, Any]] = [
    ("sub_queries", ["Meridian reactor", LONE]),
    ("sub_queries", ["Meridian reactor", " "]),
    ("sub_queries", [""]),
    ("system_prompt", LONE),
    ("history", [Message.model_construct(role="user", content=LONE)]),
    ("tools", [{"type": "function", "function": {"name": LONE}}]),
    ("tools", [{"type": "function", "function": {"name": "f", "call": object()}}]),
    (
        "prior",
        [
            EarlierWindow(
                window_number=1, etag="e", facts_seen=(), summary=LONE, quality_tier=QualityTier.D
            )
        ],
    ),
]


@pytest.mark.parametrize(("field", "value"), HOSTILE)
def test_what_cannot_be_sent_or_sealed_is_refused_by_name(
    relay: Relay, field: str, value: Any
) -> None:
    asking: Any = {field: value}
    for door in (relay.ask, relay.preview):
        with pytest.raises(RequestError, match=f"^{field}.* is not usable") as caught:
            door(EDGE_QUESTION, **asking)
        assert "lone surrogate" not in str(caught.value)
    # Nothing of it was a window.
    assert relay.verify().windows == 0
