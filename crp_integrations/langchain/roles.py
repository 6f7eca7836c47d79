"""Five roles as a LangGraph graph, with a policy gate and a trace at every hand-over.

    planner → retriever → compactor → sentinel → synthesizer → verifier → sentinel → caller

The graph's state, which a checkpointer may keep, holds ids, hashes, counts, the question and the
answer. What was selected lies as an artifact in the run's sandbox, so that every role that reads it
asks the guard, and erasing a source reaches it.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer

from crp_integrations.errors import AccessDenied, CompactionRefused
from crp_integrations.governance.artifacts.sandbox import Sandbox
from crp_integrations.governance.compaction.records import CompactPack
from crp_integrations.governance.context_pack import ContextItem, ContextPack, DropReport
from crp_integrations.governance.roles.records import (
    AnswerDraft,
    DraftVerdict,
    GoalPlan,
    Handover,
    HandoverGate,
    Material,
    Roles,
    SentinelReport,
    is_given,
    labels_of,
)
from crp_integrations.governance.roles.verifier import shown_texts
from crp_integrations.governance.runtime_state import (
    ContextPackMetadata,
    ExposedTexts,
    Exposure,
    RuntimeState,
    Snippet,
)
from crp_integrations.records import Record
from crp_integrations.seals import canonical
from crp_integrations.vocabulary.safety import AgentRole

_KIND: Final = "run-material"
_ROLES: Final = {role.value: role for role in AgentRole}


class GovernedState(TypedDict, total=False):
    """What the graph carries; records are written as JSON.

    Attributes:
        runtime: the `RuntimeState`; give one with the question.
        retrieved, shown: handles of what was selected, and of what is left of it.
        withheld: ids and reasons of what the model was not shown.
        answer: empty where there is none; `stopped` then says why.
    """

    question: str
    runtime: dict[str, Any]
    run: str
    plan: dict[str, Any]
    retrieved: str
    shown: str
    withheld: list[dict[str, Any]]
    draft: dict[str, Any]
    verdict: dict[str, Any]
    watches: Annotated[list[dict[str, Any]], operator.add]
    handovers: Annotated[list[dict[str, Any]], operator.add]
    answer: str
    stopped: str


Node = Callable[["_Step"], dict[str, Any]]


def governed_graph(
    roles: Roles, sandbox: Sandbox, *, checkpointer: Checkpointer = None
) -> CompiledStateGraph[GovernedState, None, GovernedState, GovernedState]:
    """The graph of a run; invoke it with a question and a `RuntimeState` as JSON.

    Every hand-over asks the sandbox's guard for the role that takes, and is told to the journal
    that the sandbox tells. A refusal, a blocking signal or a failed check ends the run without an
    answer.

    Spec: Summit §Backlog Isolate 15

    Args:
        roles: who plays them.
        sandbox: of the subject that the run is for (`relay.sandbox(session_id=…)`).
        checkpointer: keeps the graph's state; it sees no text but question and answer.
    """
    graph = StateGraph(GovernedState)
    nodes: dict[str, Node] = {
        "planner": _plan,
        "retriever": _retrieve,
        "compactor": _compact,
        "sentinel": _watch,
        "synthesizer": _write,
        "verifier": _verify,
        "review": _review,
    }
    for name, node in nodes.items():
        graph.add_node(name, partial(_run_node, node, roles, sandbox))
    graph.add_edge(START, "planner")
    for here, there in zip(nodes, [*list(nodes)[1:], END], strict=True):
        graph.add_conditional_edges(here, partial(_next, there), [there, END])
    return graph.compile(checkpointer=checkpointer)


def traces(state: Mapping[str, Any]) -> list[Handover]:
    """The hand-overs of a run, in their order."""
    return [Handover.model_validate(one) for one in state.get("handovers", ())]


def material_of(sandbox: Sandbox, ref: str) -> Material:
    """The material behind a handle of a run's state; the guard is asked."""
    said = json.loads(sandbox.get(ref).text)
    compact = said["compact"]
    return Material(
        pack=ContextPack.model_validate(said["pack"]),
        texts=said["texts"],
        stale=frozenset(said["stale"]),
        reports=tuple(DropReport.model_validate(one) for one in said["reports"]),
        compact=None if compact is None else CompactPack.model_validate(compact),
    )


def _next(there: str, state: GovernedState) -> str:
    return END if state.get("stopped") else there


def _run_node(node: Node, roles: Roles, sandbox: Sandbox, state: GovernedState) -> dict[str, Any]:
    """A node's changes, with the hand-overs that it made, allowed or not."""
    step = _Step(state, roles, sandbox, _handover_gate(state, sandbox))
    before = len(step.handing.done)
    try:
        changes = node(step)
    except (AccessDenied, CompactionRefused) as error:
        changes = {"stopped": f"{type(error).__name__}: {error}", "answer": ""}
    made = [_as_json(one) for one in step.handing.done[before:]]
    return {**changes, "run": step.handing.run, "handovers": made}


def _handover_gate(state: GovernedState, sandbox: Sandbox) -> HandoverGate:
    return HandoverGate(
        run=state.get("run") or sandbox.ids.new("run_"),
        subject=sandbox.subject,
        guard=sandbox.guard,
        clock=sandbox.clock,
        tell=sandbox.tell,
        session_id=sandbox.session_id,
        done=traces(state),
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """One node's work."""

    state: GovernedState
    roles: Roles
    sandbox: Sandbox
    handing: HandoverGate

    @property
    def runtime(self) -> RuntimeState:
        return RuntimeState.model_validate(self.state["runtime"])

    @property
    def plan(self) -> GoalPlan:
        return GoalPlan.model_validate(self.state["plan"])

    def hand(self, giver: str, taker: str, record: Record, pack: ContextPack | None = None) -> None:
        """Through the gate."""
        items: tuple[ContextItem, ...] = () if pack is None else pack.items
        tokens = 0 if pack is None else pack.token_actual
        self.handing.pass_on(_ROLES[giver], _ROLES[taker], record, items=items, tokens=tokens)

    def keep(self, material: Material) -> str:
        """Material as an artifact; its handle."""
        said = {
            "pack": _as_json(material.pack),
            "texts": dict(material.texts),
            "stale": sorted(material.stale),
            "reports": [_as_json(one) for one in material.reports],
            "compact": None if material.compact is None else _as_json(material.compact),
        }
        stored = [item for item in material.pack.items if not is_given(item)]
        sandbox, classes = self.sandbox, {labels_of(item) for item in stored}
        # What the guard wants gone went when the texts were read.
        gone = [sandbox.guard.decide(sandbox.subject, "read", labels).redact for labels in classes]
        kept = sandbox.put(
            canonical(said).decode(),
            kind=_KIND,
            sources=[item.id for item in stored],
            labels=sorted({label for labels in classes for label in labels}),
            redacted=[kind for kinds in gone for kind in kinds],
        )
        return kept.ref

    def material(self, name: str) -> Material:
        """What `retrieved` or `shown` is the handle of."""
        return material_of(self.sandbox, self.state[name])  # type: ignore[literal-required]

    def exposed(self, material: Material) -> ExposedTexts:
        """What the synthesizer's model is shown, and what not."""
        texts = shown_texts(material)
        # One that acts with the synthesizer's role.
        exposure = Exposure(
            self.handing.acting(AgentRole.SYNTHESIZER), self.sandbox.guard, self.sandbox.redactor
        )
        items = material.pack.items
        shown = exposure.snippets(
            [(item.id, texts[item.id], labels_of(item)) for item in items if not is_given(item)]
        )
        clean = {snippet.id: snippet for snippet in shown.snippets}
        clean |= {
            item.id: Snippet(id=item.id, text=texts[item.id]) for item in items if is_given(item)
        }
        order = [clean[item.id] for item in items if item.id in clean]
        return ExposedTexts(snippets=tuple(order), withheld=shown.withheld)


def _plan(step: _Step) -> dict[str, Any]:
    step.hand("caller", "planner", step.runtime)
    plan = step.roles.planner.plan(step.state["question"], step.runtime)
    step.hand("planner", "retriever", plan)
    return {"plan": _as_json(plan), "answer": "", "stopped": ""}


def _retrieve(step: _Step) -> dict[str, Any]:
    found = step.roles.retriever.retrieve(step.plan, step.runtime)
    step.hand("retriever", "compactor", found.pack, found.pack)
    return {"retrieved": step.keep(found)}


def _compact(step: _Step) -> dict[str, Any]:
    left = step.roles.compactor.compact(step.plan, step.material("retrieved"))
    step.hand("compactor", "sentinel", left.pack, left.pack)
    return {"shown": step.keep(left)}


def _watch(step: _Step) -> dict[str, Any]:
    shown = step.material("shown")
    watch = step.roles.sentinel.watch(shown, None, None)
    if not watch.blocks:
        step.hand("sentinel", "synthesizer", shown.pack, shown.pack)
    return _watch_changes(watch)


def _write(step: _Step) -> dict[str, Any]:
    shown = step.material("shown")
    exposed = step.exposed(shown)
    told = {snippet.id for snippet in exposed.snippets}
    selected = tuple(
        ContextPackMetadata(
            id=item.id, title=_title(shown, item.id), security_label=item.security_label
        )
        for item in shown.pack.items
        if item.id in told
    )
    runtime = step.runtime
    metrics = {"token_budget": shown.pack.token_budget, "token_actual": shown.pack.token_actual}
    runtime = runtime.changed(
        selected_context=selected, metrics=runtime.metrics.model_copy(update=metrics)
    )
    draft = step.roles.synthesizer.write(step.plan, runtime, exposed.snippets)
    used = {
        "prompt_tokens": runtime.metrics.prompt_tokens + draft.usage.prompt_tokens,
        "completion_tokens": runtime.metrics.completion_tokens + draft.usage.completion_tokens,
    }
    runtime = runtime.changed(metrics=runtime.metrics.model_copy(update=used))
    step.hand("synthesizer", "verifier", draft, shown.pack)
    return {
        "runtime": _as_json(runtime),
        "draft": _as_json(draft),
        "withheld": [one.model_dump(mode="json") for one in exposed.withheld],
    }


def _verify(step: _Step) -> dict[str, Any]:
    before = step.material("retrieved")
    shown = step.material("shown")
    draft = AnswerDraft.model_validate(step.state["draft"])
    verdict = step.roles.verifier.verify(before, shown, step.exposed(shown).snippets, draft)
    step.hand("verifier", "sentinel", verdict, shown.pack)
    return {"verdict": _as_json(verdict)}


def _review(step: _Step) -> dict[str, Any]:
    shown = step.material("shown")
    draft = AnswerDraft.model_validate(step.state["draft"])
    verdict = DraftVerdict.model_validate(step.state["verdict"])
    watch = step.roles.sentinel.watch(shown, draft, verdict)
    changes = _watch_changes(watch)
    failed = [check.rule for check in verdict.checks if not check.passed]
    if failed:
        changes["stopped"] = f"the verifier withholds the answer: {', '.join(failed)}"
    if not changes.get("stopped"):
        step.hand("sentinel", "caller", draft)
        changes["answer"] = draft.text
    return changes


def _watch_changes(watch: SentinelReport) -> dict[str, Any]:
    blocking = [one.signal.value for one in watch.noticed if one.blocks]
    stopped = {"stopped": f"the sentinel stops the run: {', '.join(blocking)}"} if blocking else {}
    return {"watches": [_as_json(watch)], **stopped}


def _title(material: Material, item_id: str) -> str:
    """Where an item comes from, which is all the title that a fact has."""
    refs = (ref for ref in material.pack.provenance_refs if ref.item_id == item_id)
    return next((ref.source for ref in refs), "")[:256]


def _as_json(record: Record) -> dict[str, Any]:
    return record.model_dump(mode="json")
