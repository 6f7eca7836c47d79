"""A governed agent: five roles over memories, a graph and tools, and what it is worth in numbers.

Run it as it stands: `python examples/governed_agent.py`. It needs no key: the extractive model
answers with sentences of the context. The data, and the labels that the numbers are computed
against, lie beside it in `governed_agent_data/`; it ends with status 1 when a number is missed.
"""

import json
import math
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from crp_integrations import Relay
from crp_integrations.engines.extractive import ExtractiveModel
from crp_integrations.engines.guards import guard_of
from crp_integrations.engines.tokens import counter_for
from crp_integrations.envelope.settings import GraphExpansionSettings
from crp_integrations.fabric.records import Edge, Fact
from crp_integrations.governance.artifacts import Sandbox
from crp_integrations.governance.compaction.compactor import AutoCompactor
from crp_integrations.governance.memory_items import item
from crp_integrations.governance.memory_writer import MemoryWriter, PolicyContext
from crp_integrations.governance.roles.records import (
    AnswerDraft,
    DraftVerdict,
    GoalPlan,
    Material,
    Roles,
)
from crp_integrations.governance.roles.standard_roles import (
    AssemblingRetriever,
    DecomposingPlanner,
    ModelSynthesizer,
    PackCompactor,
    RotSentinel,
)
from crp_integrations.governance.roles.verifier import PackVerifier, shown_texts
from crp_integrations.governance.runtime_state import (
    AppliedPolicy,
    Exposure,
    RuntimeState,
    SandboxRef,
    SessionMetadata,
)
from crp_integrations.governance.settings import CompactionSettings, PackSettings
from crp_integrations.governance.tools import ToolSpec
from crp_integrations.guard.decisions import Subject
from crp_integrations.guard.settings import GuardSettings
from crp_integrations.langchain.roles import governed_graph, material_of, traces
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.vocabulary import EventType

DATA = Path(__file__).parent / "governed_agent_data"
TENANT, MODEL = "northfield", "gpt-4o"
OPERATOR = Subject(tenant=TENANT, name="operator", roles=("operator",))
AGENT = Subject(tenant=TENANT, name="shift-agent", roles=("writer",))
# The policy that ships: roles are granted classes of labels, what is personal is redacted.
GUARD = guard_of(GuardSettings(policy=True))
# Tokens of a pack as it is retrieved, and of the context that the model is shown.
WIDE, BUDGET = 1_600, 320
# One hop of the graph, of little weight: on a shift a neighbour is seldom the answer.
PACKS = PackSettings(graph=GraphExpansionSettings(hops=1, weight=0.1))
# Ways to trim a pack, the most relevant one first: what is dropped, and what of a text stays.
WAYS = [(0.8, 0.25), (0.7, 0.25), (0.7, 0.0), (0.6, 0.25), (0.6, 0.0)]
WAYS += [(0.5, 0.25), (0.5, 0.0), (0.4, 0.0), (0.3, 0.0), (0.2, 0.0)]
TASK = "Answer the shift's question."
REMINDER = "Say nothing that the numbered texts do not say."
# What the run knows; the model is shown what the policy lists.
KNOWN = {"shift": {"pier": 3, "day": "2026-05-10", "badge": "NF-2291"}, "password": "hunter2"}
SHOWN = AppliedPolicy(
    id="pd:shift-fields", name="shift fields", allowed=True, exposes=("shift.pier", "shift.day")
)
LOG = "".join(
    f"2026-05-09T{minute // 60:02d}:{minute % 60:02d} crane=7 load={9 + minute % 7} reach=28 ok\n"
    for minute in range(360)
)


def read(name: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").open(encoding="utf-8")]


def write_data(relay: Relay) -> dict[str, str]:
    """Chunks and things as facts, playbooks and notes as memories, joined; short id by fact id."""
    short: dict[str, str] = {}
    facts = []
    for row in [*read("knowledge"), *read("nodes")]:
        fact_id = f"{row['id']}.northfield"
        short[fact_id] = row["id"]
        facts.append(
            Fact(
                content=row["text"],
                fact_id=fact_id,
                source_id=row.get("source", "graph://terminal")
                .replace("://", "-")
                .replace("/", "-"),
                labels=tuple(row["labels"]),
            )
        )
    relay.fabric.put(facts)
    writer, context = MemoryWriter(relay.fabric), PolicyContext(subject=OPERATOR)
    for kind, rows in (("procedural", read("playbooks")), ("episodic", read("notes"))):
        for row in rows:
            now = datetime(2026, 5, 10, 8, tzinfo=UTC)
            one = item(
                {
                    "id": str(uuid5(NAMESPACE_URL, row["source"])),
                    "type": kind,
                    "scope": {"tenant": TENANT},
                    "created_at": now,
                    "updated_at": now,
                    "confidence": 0.9,
                    "provenance": {"source_uri": row["source"]},
                    "security_label": row["labels"],
                    "content": row["text"],
                }
            )
            short[writer.write(one, context).fact_id] = row["id"]
    full = {name: fact_id for fact_id, name in short.items()}
    relay.fabric.link(
        Edge(source_fact=full[row["from"]], target_fact=full[row["to"]], kind=row["kind"])
        for row in read("edges")
    )
    return short


class AsRetrieved:
    """The baseline: no compaction."""

    def compact(self, plan: GoalPlan, material: Material) -> Material:
        """The pack as it is."""
        return material


class Listening:
    """The extractive model, and every prompt that it was sent."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self._model = ExtractiveModel(counter_for, most_quotes=2)

    def call(self, call: ModelCall) -> Reply:
        """Answer a call."""
        self.prompts.append("\n".join(message.content for message in call.messages))
        return self._model.call(call)


def tool_log(sandbox: Sandbox) -> SandboxRef:
    """A tool's bulky log, kept out of the prompt: a handle and a sanitised extract."""
    ref = sandbox.put(LOG, kind="log", sources=["tool-call-1"], labels=["class:internal"]).ref
    exposure = Exposure(AGENT, sandbox.guard, sandbox.redactor)
    (first,) = exposure.snippets([(ref, LOG.splitlines()[0], ("class:internal",))]).snippets
    return SandboxRef(ref=ref, kind="log", extract=first.text)


class Run:
    """One question's way through the graph, and what the labels say of it."""

    def __init__(self, row: dict, graph: Any, sandbox: Sandbox, state: RuntimeState) -> None:
        began = time.process_time()
        self.end = graph.invoke({"question": row["question"], "runtime": state.model_dump()})
        self.seconds = time.process_time() - began
        self.row, self.sandbox = row, sandbox
        self.verdict = DraftVerdict.model_validate(self.end["verdict"])
        self.draft = AnswerDraft.model_validate(self.end["draft"])

    def material(self, which: str) -> Material:
        """What was retrieved, or shown, read back from the sandbox."""
        return material_of(self.sandbox, self.end[which])


def relevance(run: Run, short: dict[str, str]) -> float:
    """Share of the tokens of knowledge and memory that are of items rated relevant."""
    material, count = run.material("shown"), counter_for(MODEL).count
    texts, rated = shown_texts(material), set(run.row["relevant"])
    sections = [s for s in material.pack.sections if s.type in ("knowledge", "memory")]
    tokens = {one.id: count(texts[one.id]) for s in sections for one in s.items}
    good = sum(n for id_, n in tokens.items() if short.get(id_) in rated)
    return good / sum(tokens.values())


def citations(run: Run, short: dict[str, str]) -> tuple[int, int]:
    """Citations whose item may rightly be cited, and all of them."""
    named = [id_ for one in run.draft.cited for id_ in one.item_ids]
    return sum(short.get(id_) in run.row["cites"] for id_ in named), len(named)


def removed(run: Run) -> tuple[int, int]:
    """Tokens that compaction removed and a drop report names, and all that it removed."""
    before, after = run.material("retrieved"), run.material("shown")
    texts, left, count = shown_texts(before), shown_texts(after), counter_for(MODEL).count
    names = [name for report in after.reports for name in report.dropped_item_ids]
    whole, parts = {name for name in names if "#" not in name}, Counter[str]()
    for name in (name for name in names if "#" in name):
        id_, _, span = name.partition("#")
        start, end = map(int, span.split("-"))
        parts[id_] += count(texts[id_][start:end])
    gone = {id_: count(text) - count(left.get(id_, "")) for id_, text in texts.items()}
    gone = {id_: tokens for id_, tokens in gone.items() if tokens > 0}
    said = {id_: n if id_ in whole else min(n, parts[id_]) for id_, n in gone.items()}
    return sum(said.values()), sum(gone.values())


def trimming(drop_below: float, prune_to: float) -> CompactionSettings:
    """To the budget, not below it: a pack is made for one call and does not grow."""
    return CompactionSettings(
        trigger_share=1.0, target_share=1.0, drop_below=drop_below, prune_to=prune_to
    )


def p95(seconds: list[float]) -> float:
    return sorted(seconds)[math.ceil(0.95 * len(seconds)) - 1]


def measured(runs: list[Run], plain: list[Run], short: dict[str, str]) -> dict[str, float]:
    """The numbers of the slice, each from what the runs left behind."""
    cited = [citations(run, short) for run in runs]
    dropped = [removed(run) for run in runs]
    packs = [run.material("shown").pack for run in runs]
    failed = [check.rule for run in runs for check in run.verdict.checks if not check.passed]
    return {
        "context relevance": sum(relevance(run, short) for run in runs) / len(runs),
        "citation accuracy": sum(n for n, _ in cited) / sum(n for _, n in cited),
        "drop-report coverage": sum(n for n, _ in dropped) / sum(n for _, n in dropped),
        "p95 over baseline": p95([r.seconds for r in runs]) / p95([r.seconds for r in plain]),
        "budget deviation, mean": sum(abs(p.token_actual / BUDGET - 1) for p in packs) / len(packs),
        "budget unused, worst": max(1 - p.token_actual / BUDGET for p in packs),
        "packs above budget": float(sum(p.token_actual > BUDGET for p in packs)),
        "policy violations": float(sum(rule in ("policy", "tools") for rule in failed)),
        "answered": sum(bool(run.end["answer"]) for run in runs) / len(runs),
    }


# What the slice must reach: at least, or at most.
AT_LEAST = {"context relevance": 0.85, "citation accuracy": 0.90, "drop-report coverage": 0.95}
AT_MOST = {
    "p95 over baseline": 1.5,
    "budget deviation, mean": 0.05,
    "packs above budget": 0.0,
    "policy violations": 0.0,
}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        with Relay.open(folder, subject=OPERATOR, guard=GUARD) as relay:
            short = write_data(relay)
        with Relay.open(folder, subject=AGENT, guard=GUARD, packs=PACKS) as relay:
            return report(relay, short)


def built(relay: Relay) -> tuple[Any, Any, RuntimeState, Listening, Sandbox]:
    """The governed graph, the same without compaction, a run's state, the model, the sandbox."""
    sandbox = relay.sandbox(session_id="shift-1")
    model, tools = Listening(), tuple(ToolSpec.model_validate(row) for row in read("tools"))
    context = PolicyContext(subject=AGENT, session_id="shift-1")
    compactors = tuple(
        AutoCompactor(counter_for(MODEL), trimming(drop, keep)) for drop, keep in WAYS
    )
    roles = Roles(
        planner=DecomposingPlanner(),
        retriever=AssemblingRetriever(
            relay.assembler(model=MODEL), context, WIDE, tools, TASK, (REMINDER,)
        ),
        compactor=PackCompactor(compactors, BUDGET, relay.fabric.clock),
        synthesizer=ModelSynthesizer(model, "extractive"),
        verifier=PackVerifier(AGENT, GUARD, tools),
        sentinel=RotSentinel(),
    )
    governed = governed_graph(roles, sandbox)
    baseline = governed_graph(roles.but(compactor=AsRetrieved()), sandbox)

    exposure = Exposure(AGENT, GUARD, sandbox.redactor)
    now = relay.fabric.clock.now()
    state = RuntimeState(
        session=SessionMetadata(session_id="shift-1", tenant=TENANT, created_at=now),
        exposed_fields=exposure.fields(KNOWN, [SHOWN]),
        sandboxes=(tool_log(sandbox),),
        policies=(SHOWN,),
    )
    return governed, baseline, state, model, sandbox


def report(relay: Relay, short: dict[str, str]) -> int:
    """Ask every question, print the numbers, and say which are missed."""
    governed, baseline, state, model, sandbox = built(relay)
    rows = read("questions")
    Run(rows[0], governed, sandbox, state), Run(rows[0], baseline, sandbox, state)
    runs, plain = [], []
    for row in rows:
        plain.append(Run(row, baseline, sandbox, state))
        runs.append(Run(row, governed, sandbox, state))
        answer = runs[-1].end["answer"] or runs[-1].end["stopped"]
        print(f"{row['id']} {row['question']}\n    {' '.join(answer.split())[:150]}")

    found = measured(runs, plain, short)
    for name, value in found.items():
        print(f"{name:26}{value:8.3f}")
    missed = [name for name, least in AT_LEAST.items() if found[name] < least]
    missed += [name for name, most in AT_MOST.items() if found[name] > most]

    # Nothing of what is withheld was sent, and every hand-over is in the journal.
    sent = "\n".join(model.prompts)
    secrets = ("Zephyr", "hunter2", "NF-2291", "maria.jensen@", "5550199", LOG[-50:])
    missed += [f"{secret!r} was sent to the model" for secret in secrets if secret in sent]
    if not all(state.sandboxes[0].ref in prompt for prompt in model.prompts):
        missed.append("a prompt without the tool log's handle")
    print("hand-overs of the last question:")
    for one in traces(runs[-1].end):
        print(f"  {one.giver.value} -> {one.taker.value}: {one.record}, {len(one.items)} items")
    relay.verify()
    with relay.fabric.begin(write=False) as transaction:
        events = list(transaction.journal.events())
    told = {e.data["record_hash"] for e in events if e.event_type is EventType.ROLE_HANDOVER}
    handed = {one.record_hash for run in [*runs, *plain] for one in traces(run.end)}
    missed += [] if handed <= told else ["a hand-over is not in the journal"]
    print(f"journal: {len(events)} events, chained and verified")
    for name in missed:
        print(f"MISSED: {name}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
