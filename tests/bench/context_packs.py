"""What screening, the graph and a whole context pack cost beside an ordinary assembly.

Real passages are put into a store on disk and asked about, each question embedded anew; what is
remembered of passages is warm but where it says first. Times are of the processor, in one thread
a library, medians over the questions, in milliseconds.

Packs are then made of a store that has more than enough, several passages a fact, at budgets of
8,000 tokens and more, and it is counted how full the knowledge of each pack is.

    python -m tests.bench.context_packs --facts 1000 --questions 30
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

from crp_integrations.governance.context_pack import AssembleRequest
from crp_integrations.governance.memory_writer import PolicyContext
from crp_integrations.guard.decisions import LOCAL
from crp_integrations.ports import Embedder
from crp_integrations.relay.relay import Relay
from crp_integrations.vocabulary import DropReason
from tests.bench.fabric_corpus import Kind, embedder_of
from tests.bench.made_up import passages, question
from tests.bench.measure import cpu_ms, has_one_thread, in_one_thread, loop_ms

MODULE = "tests.bench.context_packs"
WARM: Final = 3
BUDGET: Final = 8_000
# Of the packs that are made to be full: facts of so many passages, budgets in tokens.
FULL_FACTS: Final = 120
FULL_TOGETHER: Final = (6, 16)
FULL_BUDGETS: Final = (8_000, 12_000)
WITHIN: Final = 0.95


@dataclass(frozen=True, slots=True)
class PackResult:
    """What was measured; CPU milliseconds, medians over the questions.

    Attributes:
        assemble_ms: an ordinary turn's envelope.
        graph_ms: with two hops of the graph.
        screened_first_ms: with screening, texts never looked at before.
        screened_ms: the same questions again.
        pack_ms: a whole context pack: select, graph, screen, sections, evidence, journal.
        pack_share: of the ordinary assembly.
        full: packs that left facts out for want of room, of those made to be full.
        within: of these, whose knowledge is within 5 % of its budget and not above.
        least_fill, mean_fill: of the budget of their knowledge.
        loop_ms: the loop that hours are compared by, before and after.
    """

    facts: int
    questions: int
    assemble_ms: float
    graph_ms: float
    screened_first_ms: float
    screened_ms: float
    pack_ms: float
    pack_share: float
    full: int
    within: int
    least_fill: float
    mean_fill: float
    loop_ms: tuple[float, float]


def run(facts: int, questions: int, embedder: Kind = "minilm") -> PackResult:
    """Measure on so many facts and questions."""
    before = round(loop_ms(), 3)
    found = passages(facts)
    asked = [question(one) for one in found[:: max(1, facts // (questions + WARM))]]
    asked = asked[: questions + WARM]
    embeds = embedder_of(embedder)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "kb"

        def opened(**envelope: Any) -> Relay:
            return Relay.open(folder, embedder=embeds, envelope=envelope)

        with opened() as plain:
            plain.fabric.add([one.text for one in found])
            for query in asked:
                _assemble(plain, query)
            assemble = _median(asked, lambda query: _assemble(plain, query))
            assembler = plain.assembler(model="gpt-4o")
            context = PolicyContext(subject=LOCAL)

            def pack(query: str) -> object:
                request = AssembleRequest(message=query, budget_tokens=BUDGET)
                return assembler.compose(request, context)

            for query in asked:
                pack(query)
            packed = _median(asked, pack)
        with opened(graph={"hops": 2}) as walking:
            for query in asked:
                _assemble(walking, query)
            graph = _median(asked, lambda query: _assemble(walking, query))
        with opened(screening={"enabled": True}) as screening:
            first = _median(asked, lambda query: _assemble(screening, query))
            again = _median(asked, lambda query: _assemble(screening, query))
    fills = _fills(asked, embeds)
    return PackResult(
        facts=facts,
        questions=questions,
        assemble_ms=round(assemble, 2),
        graph_ms=round(graph, 2),
        screened_first_ms=round(first, 2),
        screened_ms=round(again, 2),
        pack_ms=round(packed, 2),
        pack_share=round(packed / assemble, 3),
        full=len(fills),
        within=sum(WITHIN <= fill <= 1.0 for fill in fills),
        least_fill=round(min(fills), 4),
        mean_fill=round(mean(fills), 4),
        loop_ms=(before, round(loop_ms(), 3)),
    )


def _fills(asked: Sequence[str], embeds: Embedder) -> list[float]:
    """Shares of the knowledge's budget that are used where facts were left out for want of room."""
    fills: list[float] = []
    for together in FULL_TOGETHER:
        some = [one.text for one in passages(FULL_FACTS * together)]
        facts = [" ".join(some[at : at + together]) for at in range(0, len(some), together)]
        with Relay.open(None, embedder=embeds) as relay:
            relay.fabric.add(facts)
            assembler, context = relay.assembler(model="gpt-4o"), PolicyContext(subject=LOCAL)
            for budget in FULL_BUDGETS:
                for query in asked:
                    request = AssembleRequest(message=query, budget_tokens=budget)
                    made = assembler.compose(request, context)
                    if any(one.reason is DropReason.BUDGET for one in made.envelope.dropped):
                        (of,) = (one for one in made.pack.sections if one.type == "knowledge")
                        fills.append(of.token_actual / of.token_budget)
    return fills


def _assemble(relay: Relay, query: str) -> object:
    return relay.turn(query, model="gpt-4o", budget_tokens=BUDGET).preview()


def _median(asked: Sequence[str], call: Callable[[str], object]) -> float:
    taken = [cpu_ms(lambda query=query: call(query)) for query in asked]  # type: ignore[misc]
    return median(taken[WARM:])


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=int, default=1000)
    parser.add_argument("--questions", type=int, default=30)
    given = parser.parse_args(arguments)
    if not has_one_thread():
        # Threads that wait for one another would count as time taken.
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    print(json.dumps(asdict(run(given.facts, given.questions)), indent=1))


if __name__ == "__main__":
    main()
