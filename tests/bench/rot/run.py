"""Runs the scenarios on a file of questions and puts the report together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from crp_integrations.engines.models import Models
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.engines.tokens import counter_for
from crp_integrations.errors import RequestError
from crp_integrations.ports import Embedder, Model
from tests.bench import compaction
from tests.bench.injection.cases import cases
from tests.bench.measure import versions
from tests.bench.rot import scenarios
from tests.bench.rot.answered import answered
from tests.bench.rot.data import read
from tests.bench.rot.isolation import tenants
from tests.bench.rot.scenarios import Bench, Point
from tests.bench.rot.systems import SYSTEMS
from tests.bench.selection.ours import MODEL
from tests.bench.selection.vectors import Kept

SIZES: Final = (10, 100, 1_000)
QUESTIONS: Final = 100
BUDGET: Final = 2_048
BUDGETS: Final = (256, 1_024, 4_096, 16_384)
SCREENED: Final = {"envelope": {"screening": {"enabled": True}}}
TIMEOUT_S: Final = 60.0
LIBRARIES: Final = ("crp-integrations", "langchain-core", "llama-index-core", "numpy", "tiktoken")
NAMES: Final = ("distractors", "growing", "order", "noise", "compaction", "prefix", "tenants")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run.

    Attributes:
        scenarios: names out of `NAMES`; `answered` runs wherever a model is named.
        questions: at most so many for each point.
        sizes: numbers of passages of the distractor scenario.
        budgets: tokens of its contexts.
        budget: tokens of the contexts of the other scenarios.
        model: as LiteLLM names it; empty asks no model.
    """

    scenarios: Sequence[str] = NAMES
    systems: Sequence[str] = SYSTEMS
    questions: int = QUESTIONS
    sizes: Sequence[int] = SIZES
    budgets: Sequence[int] = BUDGETS
    budget: int = BUDGET
    model: str = ""

    def check(self) -> None:
        """Refuse names that there are not.

        Raises:
            RequestError: names the first one, and those that there are.
        """
        for kind, given, known in (
            ("scenario", self.scenarios, NAMES),
            ("system", self.systems, SYSTEMS),
        ):
            if wrong := [name for name in given if name not in known]:
                raise RequestError(f"{kind} {wrong[0]!r:.40} is not one of {', '.join(known)}")


def run(
    path: Path,
    plan: Plan,
    *,
    cache: Path | None = None,
    embedder: Embedder | None = None,
    models: Model | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Measure.

    Args:
        path: the file of questions, see `data.py`.
        cache: folder that keeps vectors between runs.
        embedder: None for the one that ships.
        models: answers the calls of a plan that names a model; None for LiteLLM.
        say: told what is being done.

    Raises:
        RequestError: the file is not of the form, or a name of the plan is not known.
        ModelError: a call of the model failed.
    """
    plan.check()
    asked = read(path)
    counter = counter_for(MODEL)
    kept = Kept(embedder or OnnxEmbedder(), cache)
    bench = Bench(
        asked,
        kept,
        counter,
        plan.systems,
        plan.questions,
        plan.sizes,
        plan.budgets,
        plan.budget,
    )
    attacks = [case.text for case in cases() if case.held]
    made: dict[str, Callable[[], list[Point]]] = {
        "distractors": lambda: scenarios.distractors(bench),
        "growing": lambda: scenarios.growing(bench),
        "order": lambda: scenarios.order(bench),
        "noise": lambda: scenarios.noise(bench, attacks, SCREENED),
        "compaction": lambda: _compacted(path, plan.questions),
        "prefix": lambda: scenarios.prefix(bench),
        "tenants": lambda: tenants(bench),
    }
    results: dict[str, list[Point]] = {}
    try:
        for name in plan.scenarios:
            say(name)
            results[name] = made[name]()
            kept.save()
        if plan.model:
            say("answered")
            results["answered"] = answered(bench, models or Models(timeout_s=TIMEOUT_S), plan.model)
    finally:
        kept.save()
    return {
        "results": results,
        "settings": {
            "questions": path.name.split(".")[0],
            "passages": len(asked),
            "at_most": plan.questions,
            "tokenizer": counter.identity,
            "embedder": kept.identity,
            "model": plan.model,
            "budget": plan.budget,
            "missing": bench.missing,
        },
        "versions": versions(*LIBRARIES),
    }


def _compacted(path: Path, questions: int) -> list[Point]:
    """Answers that stand in a passage still when half of its tokens are kept."""
    found = list(compaction.answers(path))
    chosen = found[:: max(1, len(found) // questions)][:questions]
    ways = compaction.measure(chosen, counter_for(MODEL))
    return [
        {"system": name, "questions": len(chosen), "kept": value["kept"]}
        for name, value in ways.items()
    ]
