"""`crp eval selection|rot|drift`: contexts for a user's own questions."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as Drawn
from rich.text import Text

from crp_integrations.cli import options
from crp_integrations.cli.slo import (
    BaselinePath,
    JsonPath,
    MetricsPath,
    read_record,
    save_record,
    write_metrics,
)
from crp_integrations.cli.store_access import looking
from crp_integrations.cli.terminal import many, terminal
from crp_integrations.errors import RequestError
from crp_integrations.evaluation import context_rot
from crp_integrations.evaluation.context_rot import find_questions, measure_rot
from crp_integrations.evaluation.selection import (
    BUDGETS,
    PRESETS,
    headings,
    measure_sets,
    plan_of,
    table,
)
from crp_integrations.evaluation.selection_data import find
from crp_integrations.observability.golden_drift import (
    PRECISION,
    RECALL,
    GoldenDrift,
    GoldenRun,
    ShownSource,
    compare_runs,
    read_golden,
    run_golden,
)
from crp_integrations.relay.build import clock

Json = Annotated[Path | None, typer.Option("--json", help="File for the report.")]
Cache = Annotated[
    Path | None, typer.Option("--cache", help="Folder that keeps vectors between runs.")
]


def selection(
    data: Annotated[Path, typer.Option("--data", help="A set's folder, or one that holds sets.")],
    json_path: Json = None,
    systems: Annotated[
        str, typer.Option("--systems", help="Names with commas between; all without.")
    ] = ",".join(PRESETS),
    sets: Annotated[
        str, typer.Option("--sets", help="Names with commas between; all without.")
    ] = "",
    budgets: Annotated[
        str, typer.Option("--budgets", help="Tokens with commas between.")
    ] = ",".join(map(str, BUDGETS)),
    queries: Annotated[
        int | None, typer.Option("--queries", min=1, help="At most so many questions of each set.")
    ] = None,
    cache: Cache = None,
) -> None:
    """Measure how much of the evidence for your questions stands in the context.

    A set is a folder with documents.jsonl.gz (doc_id, title, collection, text) and
    queries.jsonl.gz (query_id, query, collection, evidence: doc_id, start, end).
    """
    plan = plan_of(_names(systems), _numbers("--budgets", budgets, 1), queries)
    folders = find(data, _names(sets))
    cache = cache or Path(tempfile.gettempdir()) / "crp-eval-vectors"
    report = measure_sets(folders, plan, cache=cache, say=_say).report(plan)
    _write(json_path, report)
    drawn = Drawn(title="Share of the evidence in the context, per cent", title_justify="left")
    for name in headings(report):
        drawn.add_column(name, justify="left" if name == "system" else "right", overflow="fold")
    for row in table(report):
        drawn.add_row(*map(Text, row))
    terminal().print(drawn)


def rot(
    data: Annotated[
        Path, typer.Option("--data", help="Questions with passages, or a folder of them.")
    ],
    json_path: Json = None,
    questions: Annotated[
        int, typer.Option("--questions", min=1, help="At most so many for each point.")
    ] = context_rot.QUESTIONS,
    sizes: Annotated[
        str, typer.Option("--sizes", help="Passages of a store, with commas between.")
    ] = ",".join(map(str, context_rot.SIZES)),
    budgets: Annotated[
        str, typer.Option("--budgets", help="Tokens with commas between.")
    ] = ",".join(map(str, context_rot.BUDGETS)),
    budget: Annotated[
        int, typer.Option("--budget", min=1, help="Tokens of the context that a model answers on.")
    ] = context_rot.BUDGET,
    model: Annotated[
        str, typer.Option("--model", help="Answers by depth and length too; a LiteLLM name.")
    ] = "",
    cache: Cache = None,
) -> None:
    """Measure how contexts hold up as they grow, and a model's answers over them.

    A row of the data has query, answers (a list), title and passage. The passages of the other
    questions are the distractors.
    """
    report = measure_rot(
        find_questions(data)[0],
        questions=questions,
        sizes=_numbers("--sizes", sizes, 2),
        budgets=_numbers("--budgets", budgets, 1),
        budget=budget,
        model=model,
        cache=cache,
        say=_say,
    )
    _write(json_path, report)
    for name, points in report["results"].items():
        typer.echo(name)
        for point in points:
            typer.echo("  " + "  ".join(f"{key} {value}" for key, value in point.items()))


def drift(
    golden: Annotated[
        str, typer.Argument(help="Golden questions, one JSON a line: id, question, sources.")
    ],
    baseline: BaselinePath = "",
    json_path: JsonPath = "",
    metrics: MetricsPath = "",
    model: options.ModelName = None,
    budget_tokens: options.BudgetTokens = None,
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    residency: options.Residency = "",
    tenant: options.Tenant = "",
) -> None:
    """Run a golden set; with a baseline, status 1 when recall or precision fell too far."""
    questions = read_golden(Path(golden))
    before = read_record(baseline, GoldenRun) if baseline else None
    with looking(store, shared, residency, tenant) as relay:
        namespace = relay.region(residency or None)
        uris = {source.source_id: source.uri for source in namespace.sources()}

        def retrieve(question: str) -> Iterator[ShownSource]:
            envelope = relay.turn(question, model=model, budget_tokens=budget_tokens).preview()
            for fact in envelope.facts:
                yield ShownSource(source_id=fact.source_id, uri=uris.get(fact.source_id) or "")

        now = clock(relay.settings).now()
        run = run_golden(questions, retrieve, now=now, state_hash=namespace.state_hash())
    found = compare_runs(run, before) if before else None
    if metrics:
        _write_golden(metrics, run, before)
    if json_path:
        save_record(found or run, json_path)
    _draw_golden(run, before, found)
    if found and found.alerts:
        raise typer.Exit(1)


def _write_golden(path: str, run: GoldenRun, before: GoldenRun | None) -> None:
    from crp_integrations.observability.prometheus import LevelGauges

    levels, at = LevelGauges(), run.ran_at.timestamp()
    levels.golden(RECALL, run.recall, before.recall if before else None, at)
    levels.golden(PRECISION, run.precision, before.precision if before else None, at)
    write_metrics(levels, path)


def _draw_golden(run: GoldenRun, before: GoldenRun | None, found: GoldenDrift | None) -> None:
    drawn = Drawn(title=f"Golden set of {many(len(run.scores), 'question')}")
    for name in ("score", "now", "baseline", "state"):
        drawn.add_column(name)
    for name in (RECALL, PRECISION):
        then = f"{getattr(before, name):.3f}" if before else "–"
        fell = found is not None and name in found.alerts
        state = Text("fell", "bold red") if fell else Text("" if found is None else "holds")
        drawn.add_row(name, f"{getattr(run, name):.3f}", then, state)
    terminal().print(drawn)
    if found and found.worse:
        terminal().print(Text("worse: " + ", ".join(found.worse)), soft_wrap=True)


def _names(text: str) -> list[str]:
    return [name for one in text.split(",") if (name := one.strip())]


def _numbers(option: str, text: str, least: int) -> list[int]:
    names = _names(text)
    if not all(name.isdecimal() and int(name) >= least for name in names):
        raise RequestError(f"{option} is {text!r:.40}, wanted numbers from {least} with commas")
    return [int(name) for name in names]


def _write(path: Path | None, report: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _say(line: str) -> None:
    typer.echo(line, err=True)
