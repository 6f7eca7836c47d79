"""`crp eval …`: measurements on a user's own data."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.table import Column
from rich.text import Text

from crp_integrations.cli import options
from crp_integrations.cli.collect import collect
from crp_integrations.cli.options import opened_relay
from crp_integrations.cli.slo import BaselinePath, MetricsPath, read_record, write_metrics
from crp_integrations.cli.terminal import print_table, terminal
from crp_integrations.dpe.judge.inquiry import JudgeReply, JudgeTerms
from crp_integrations.dpe.judge.messages import JudgePrompt
from crp_integrations.errors import RequestError
from crp_integrations.evaluation import context_rot
from crp_integrations.evaluation.actions import prompts as action_prompts
from crp_integrations.evaluation.actions import read_actions, read_replies, read_rules
from crp_integrations.evaluation.actions import score as score_actions
from crp_integrations.evaluation.answers import (
    OracleVerifier,
    ScoredAnswer,
    Screened,
    oracle,
    prompts,
    read_cases,
    screened,
    verdict,
)
from crp_integrations.evaluation.context_rot import find_questions, measure_rot
from crp_integrations.evaluation.data_sets import find
from crp_integrations.evaluation.figures import doubt_curve, figures, repair_figures, repaired_row
from crp_integrations.evaluation.recorded_replies import recorded, replies
from crp_integrations.evaluation.selection import (
    AUTO,
    BUDGETS,
    HEADLINE,
    SYSTEMS,
    headings,
    measure_sets,
    percent,
    plan_of,
    table,
)
from crp_integrations.markup import counted
from crp_integrations.observability.evaluations import (
    PRECISION,
    RECALL,
    GoldenDrift,
    GoldenRun,
    ShownSource,
    compare_runs,
    read_golden,
    run_golden,
)
from crp_integrations.relay.defaults import chosen_embedder, clock
from crp_integrations.relay.judge import Judge
from crp_integrations.relay.settings import load

Cache = Annotated[
    Path | None, typer.Option("--cache", help="Folder for vectors that later runs reuse.")
]

JudgeName = Annotated[str, typer.Option("--judge", help="LiteLLM name of the model that judges.")]
PromptsFile = Annotated[
    Path | None, typer.Option("--prompts", help="Only write the judge's prompts to this file.")
]
RepliesFile = Annotated[
    Path | None,
    typer.Option("--replies", help="Replies to those prompts, by name: texts or objects."),
]


def selection(
    data: Annotated[Path, typer.Option("--data", help="Folder of a set, or of several sets.")],
    systems: Annotated[
        str, typer.Option("--systems", help="Comma-separated names. Default: all.")
    ] = ",".join(SYSTEMS),
    sets: Annotated[str, typer.Option("--sets", help="Comma-separated names. Default: all.")] = "",
    budgets: Annotated[
        str, typer.Option("--budgets", help="Comma-separated numbers of tokens.")
    ] = ",".join(map(str, BUDGETS)),
    queries: Annotated[
        int | None, typer.Option("--queries", min=1, help="Maximum questions per set.")
    ] = None,
    cache: Cache = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure how much of the evidence for your questions is in the context.

    A set is a folder with documents.jsonl.gz (doc_id, title, collection, text) and
    queries.jsonl.gz (query_id, query, collection, evidence: doc_id, start, end).
    """
    plan = plan_of(_parse_names(systems), _parse_numbers("--budgets", budgets, 1), queries)
    folders = find(data, _parse_names(sets))
    cache = cache or Path(tempfile.gettempdir()) / "crp-eval-vectors"
    embedder = chosen_embedder(None, load())
    measured = measure_sets(folders, plan, cache=cache, embedder=embedder, say=_print_progress)
    report = measured.report(plan)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
        return
    for title, names, rows in (
        ("Share of the evidence in the context, per cent", headings(report), table(report)),
        (
            "Tokens sent and evidence, means of the sets",
            ("system", "budget", "tokens", "evidence"),
            _tokens_sent(report),
        ),
    ):
        columns = [
            Column(name, justify="left" if name == "system" else "right", overflow="fold")
            for name in names
        ]
        print_table(title, columns, rows)


def _tokens_sent(report: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """One row per budget: mean tokens sent and mean evidence in per cent over the sets."""
    for system, sets in report["results"].items():
        for budget in (*report["settings"]["budgets"], AUTO):
            if all(f"tokens@{budget}" in values for values in sets.values()):
                tokens, evidence = (
                    fmean([values[f"{metric}@{budget}"] for values in sets.values()])
                    for metric in ("tokens", HEADLINE)
                )
                yield system, f"{budget}", f"{tokens:.0f}", percent(evidence)


def rot(
    data: Annotated[
        Path, typer.Option("--data", help="File of questions with passages, or a folder of them.")
    ],
    questions: Annotated[
        int, typer.Option("--questions", min=1, help="Maximum questions per data point.")
    ] = context_rot.QUESTIONS,
    sizes: Annotated[
        str, typer.Option("--sizes", help="Comma-separated numbers of passages in the store.")
    ] = ",".join(map(str, context_rot.SIZES)),
    budgets: Annotated[
        str, typer.Option("--budgets", help="Comma-separated numbers of tokens.")
    ] = ",".join(map(str, context_rot.BUDGETS)),
    budget: Annotated[
        int, typer.Option("--budget", min=1, help="Tokens of the context for the model's answers.")
    ] = context_rot.BUDGET,
    model: Annotated[
        str, typer.Option("--model", help="Also measure answers of this LiteLLM model.")
    ] = "",
    cache: Cache = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure how the quality of contexts, and of a model's answers, changes as they grow.

    A row of the data has query, answers (a list), title and passage. The passages of the other
    questions are the distractors.
    """
    report = measure_rot(
        find_questions(data)[0],
        questions=questions,
        sizes=_parse_numbers("--sizes", sizes, 2),
        budgets=_parse_numbers("--budgets", budgets, 1),
        budget=budget,
        model=model,
        cache=cache,
        say=_print_progress,
    )
    if as_json:
        typer.echo(json.dumps(report, indent=2))
        return
    for name, points in report["results"].items():
        typer.echo(name)
        for point in points:
            typer.echo("  " + "  ".join(f"{key} {value}" for key, value in point.items()))


@options.with_scope
def drift(
    golden: Annotated[
        str, typer.Argument(help="Golden questions as JSON lines: id, question, sources.")
    ],
    baseline: BaselinePath = "",
    metrics: MetricsPath = "",
    model: options.ModelName = None,
    budget_tokens: options.BudgetTokens = None,
    scope: options.StoreScope = options.DEFAULT_SCOPE,
    as_json: options.AsJson = False,
) -> None:
    """Run a golden set; with a baseline, status 1 if recall or precision fell too far."""
    questions = read_golden(Path(golden))
    before = read_record(baseline, GoldenRun) if baseline else None
    with opened_relay(scope) as relay:
        namespace = relay.region(scope.residency or None)
        uris = {source.source_id: source.uri for source in namespace.sources()}

        def retrieve(question: str) -> Iterator[ShownSource]:
            envelope = relay.turn(
                question, model=model, budget_tokens=options.read_budget(budget_tokens)
            ).retrieve()
            for fact in envelope.facts:
                yield ShownSource(source_id=fact.source_id, uri=uris.get(fact.source_id) or "")

        now = clock(relay.settings).now()
        run = run_golden(questions, retrieve, now=now, state_hash=namespace.state_hash())
    comparison = compare_runs(run, before) if before else None
    if metrics:
        _write_golden_metrics(metrics, run, before)
    if as_json:
        typer.echo((comparison or run).model_dump_json(indent=2))
    else:
        _draw_golden_run(run, before, comparison)
    if comparison and comparison.alerts:
        raise typer.Exit(1)


def _write_golden_metrics(path: str, run: GoldenRun, before: GoldenRun | None) -> None:
    from crp_integrations.observability.prometheus import LevelGauges

    levels, at = LevelGauges(), run.ran_at.timestamp()
    levels.golden(RECALL, run.recall, before.recall if before else None, at)
    levels.golden(PRECISION, run.precision, before.precision if before else None, at)
    write_metrics(levels, path)


def _draw_golden_run(run: GoldenRun, before: GoldenRun | None, drift: GoldenDrift | None) -> None:
    rows = []
    for name in (RECALL, PRECISION):
        then = f"{getattr(before, name):.3f}" if before else "–"
        fell = drift is not None and name in drift.alerts
        state = Text("fell", "bold red") if fell else Text("" if drift is None else "holds")
        rows.append((name, f"{getattr(run, name):.3f}", then, state))
    title = f"Golden set of {counted(len(run.scores), 'question')}"
    print_table(title, ("score", "now", "baseline", "state"), rows)
    if drift and drift.worse:
        terminal().print(Text("worse: " + ", ".join(drift.worse)), soft_wrap=True)


def _parse_names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _parse_numbers(option: str, text: str, least: int) -> list[int]:
    names = _parse_names(text)
    if not all(name.isdecimal() and int(name) >= least for name in names):
        raise RequestError(f"{option} is {text!r:.40}, wanted comma-separated numbers >= {least}")
    return [int(name) for name in names]


def _print_progress(line: str) -> None:
    typer.echo(line, err=True)


app = options.group("Measure answers, selection, context rot and drift on your data.")
# Number of simultaneous judge calls.
THREADS = 8


class OracleKind(StrEnum):
    """What the labels stand in for: a judge or a verifier."""

    JUDGE = "judge"
    VERIFIER = "verifier"


_COLUMNS = (
    ("right", "right"),
    ("right_flagged", "flagged"),
    ("right_unknown", "unknown"),
    ("wrong", "wrong"),
    ("wrong_passed", "passed"),
    ("wrong_unknown", "unknown"),
    ("wrong_high", "HIGH"),
    ("stretch_met", "met"),
    ("stretch_overlap", "overlap"),
    ("one_call", "one call"),
)


@app.command("answers")
def answers(
    data: Annotated[
        list[Path], typer.Option("--data", help="Labelled answers, JSON lines; repeatable.")
    ],
    judge: JudgeName = "",
    judge_base: Annotated[
        str, typer.Option("--judge-base", help="Address of the judge's provider.")
    ] = "",
    prompts_to: PromptsFile = None,
    replies_from: RepliesFile = None,
    repaired_to: Annotated[
        Path | None, typer.Option("--repaired", help="Write the repaired answers to this file.")
    ] = None,
    use_oracle: Annotated[
        OracleKind | None,
        typer.Option("--oracle", help="Use a perfect judge or verifier, made from the labels."),
    ] = None,
    errs: Annotated[
        float, typer.Option("--errs", min=0.0, max=1.0, help="Share of the oracle's errors.")
    ] = 0.0,
    most: Annotated[
        int | None, typer.Option("--most", min=1, help="Maximum number of answers per file.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Random seed of the sample.")] = 0,
    as_json: options.AsJson = False,
) -> None:
    """Score verdicts on labelled answers: right ones that are flagged, wrong ones that pass.

    Without a judge only the exact comparison is scored, and most answers are UNKNOWN: these are
    not flagged and have a separate column. A row of the data has id, question, passages, answer,
    hallucinated and spans; or id, evidence, claim and label.
    """
    ways = [bool(judge), replies_from is not None, use_oracle is not None]
    if sum(ways) > 1:
        raise RequestError("give one of --judge, --replies and --oracle")
    known = replies(replies_from) if replies_from is not None else {}
    cases = read_cases(data, most=most, seed=seed)
    if known:
        cases = [case for case in cases if case.name in known]
        if not cases:
            raise RequestError(f"{replies_from} contains no reply to any answer of the data")
    screens = [screened(case) for case in cases]
    if prompts_to is not None:
        with prompts_to.open("w", encoding="utf-8") as file:
            for prompt in prompts(screens, _judge_terms()):
                file.write(json.dumps(prompt, ensure_ascii=False) + "\n")
        typer.echo(f"{len(screens)} prompts are in {prompts_to}")
        return
    plain = [verdict(screen) for screen in screens]
    done = plain
    if judge:
        done = _judge_answers(screens, judge, judge_base)
    elif known:
        done = [verdict(screen, recorded(screen, known[screen.case.name])) for screen in screens]
    elif use_oracle is OracleKind.JUDGE:
        done = [verdict(screen, oracle(screen, errs, seed)) for screen in screens]
    elif use_oracle is OracleKind.VERIFIER:
        done = [verdict(screened(case, verifier=OracleVerifier(case))) for case in cases]
    failed = Counter(judged.failed for judged in done if judged.failed)
    if failed:
        failure_counts = ", ".join(f"{name} {count}" for name, count in failed.most_common())
        typer.echo(
            f"the judge failed on {failed.total()} answers, left out: {failure_counts}", err=True
        )
        plain = [judged for judged, full in zip(plain, done, strict=True) if not full.failed]
        done = [judged for judged in done if not judged.failed]
        if not done:
            raise RequestError("the judge failed on every answer; nothing can be scored")
    scores: dict[str, Any] = {**figures(done), "failed": dict(failed)}
    if any(ways):
        scores["when"] = doubt_curve(plain, done)
        scores["repair"] = repair_figures(done)
    if repaired_to is not None:
        lines = [json.dumps(repaired_row(row), ensure_ascii=False) + "\n" for row in done]
        repaired_to.write_text("".join(lines), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(scores, indent=2))
    else:
        _print_figures(scores)


@app.command("actions")
def actions(
    data: Annotated[Path, typer.Option("--data", help="Labelled tool calls, JSON lines.")],
    judge: JudgeName = "",
    prompts_to: PromptsFile = None,
    replies_from: RepliesFile = None,
    rules_from: Annotated[
        Path | None, typer.Option("--rules", help="JSON file of rules: tool, path, rule.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Score the checks of labelled tool calls: right ones that are paused, wrong ones that run.

    A row has id, tools, messages, and calls with name, arguments, label (right or wrong) and path.
    """
    rules = None if rules_from is None else read_rules(rules_from)
    asking = Judge(judge, settings=load().judge) if judge else None
    cases = read_actions(data, terms=asking.terms() if asking else _judge_terms(), rules=rules)
    if prompts_to is not None:
        with prompts_to.open("w", encoding="utf-8") as file:
            for prompt in action_prompts(cases):
                file.write(json.dumps(prompt, ensure_ascii=False) + "\n")
        typer.echo(f"{len(cases)} prompts are in {prompts_to}")
        return
    known: dict[str, JudgeReply] = {}
    if replies_from is not None:
        known = read_replies(replies_from)
        cases = [case for case in cases if case.name in known]
    elif asking is not None:
        calls = {case.name: call for case in cases if (call := case.check.call) is not None}
        with ThreadPoolExecutor(THREADS) as pool:
            known = dict(zip(calls, pool.map(asking.reply, calls.values()), strict=True))
    scores = score_actions(cases, known)
    if as_json:
        typer.echo(json.dumps(scores, indent=2))
        return
    names = ("right", "right_stopped", "right_unread", "wrong", "wrong_stopped", "wrong_unread")
    rows = [("all", scores["all"]), *sorted(scores["kind"].items())]
    columns = ("calls", *names, "named")
    print_table(
        "Labelled tool calls",
        ["kind", *(name.replace("_", " ") for name in columns)],
        [(kind, *(str(row.get(name, 0)) for name in columns)) for kind, row in rows],
    )
    ruled = scores["rules"]
    typer.echo(
        f"rules flag {ruled['right_flagged']} of {ruled['right']} right arguments and "
        f"{ruled['wrong_flagged']} of {ruled['wrong']} wrong ones"
    )


app.command("selection")(selection)
app.command("rot")(rot)
app.command("drift")(drift)
app.command("collect")(collect)


def _judge_terms() -> JudgeTerms:
    """The judge's prompt, rubric and language from the settings."""
    chosen = load().judge
    return JudgeTerms("judge", JudgePrompt(chosen.prompt, chosen.rubric, chosen.language))


def _judge_answers(screens: Sequence[Screened], name: str, base: str) -> list[ScoredAnswer]:
    reach: dict[str, Any] = {"api_base": base} if base else {}
    judge = Judge(name, settings=load().judge, **reach)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda screen: verdict(screen, judge.reply, judge.terms()), screens))


def _print_figures(scores: dict[str, Any]) -> None:
    typer.echo(f"{'':26}" + "".join(f"{title:>10}" for _, title in _COLUMNS))
    typer.echo(_row("all", scores["all"]))
    for grouping in ("domain", "style", "kind"):
        if scores[grouping]:
            typer.echo(f"\nby {grouping}")
            for name, row in scores[grouping].items():
                typer.echo(_row(name, row))
    auroc = scores["all"]["auroc"]
    if auroc is not None:
        for name, what in (("typed_findings", "typed findings"), ("high", "answers at HIGH")):
            precision = scores["all"][name]
            if precision["count"]:
                shares = f"{precision['right']:.1%} right (at least {precision['at_least']:.1%})"
                typer.echo(f"{precision['count']} {what}, {shares}")
        typer.echo(f"\nAUROC of the risk score {auroc:.3f}; judge calls {scores['all']['calls']}")
    for row in scores.get("when", ()):
        typer.echo(
            f"judge_when {row['when']:<11} calls saved {_cell(row['calls_saved'])}, right flagged "
            f"{_cell(row['right_flagged'])}, wrong passed {_cell(row['wrong_passed'])}"
        )
    if repair := scores.get("repair"):
        left = ", ".join(f"{count} for {reason}" for reason, count in repair["left"].items())
        typer.echo(
            f"repair: wrong answers {repair['full']} whole, {repair['part']} in part, "
            f"{repair['none']} not; claims left: {left or 'none'}; right answers altered: "
            f"{repair['right_altered']}; edits of other claims: {repair['outside']}"
        )
        if repair["changed"] is not None:
            typer.echo(
                f"characters per wrong stretch: {repair['changed']} changed, "
                f"{repair['marked']} marked"
            )


def _row(name: str, row: dict[str, Any]) -> str:
    return f"{name:26.26}" + "".join(f"{_cell(row[key]):>10}" for key, _ in _COLUMNS)


def _cell(value: float | int | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.1%}"
