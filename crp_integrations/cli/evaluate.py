"""`crp eval …`: figures on a user's own data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from crp_integrations.cli import evaluate_context
from crp_integrations.cli.command_groups import PLAIN
from crp_integrations.dpe.judge.inquiry import JudgeTerms
from crp_integrations.dpe.judge.prompt import JudgePrompt
from crp_integrations.errors import RequestError
from crp_integrations.evaluation.answers import (
    OracleVerifier,
    ScoredAnswer,
    Screened,
    oracle,
    prompts,
    read_cases,
    recorded,
    replies,
    screened,
    verdict,
)
from crp_integrations.evaluation.figures import doubt_curve, figures
from crp_integrations.relay.judge import Judge
from crp_integrations.relay.settings import load

app = typer.Typer(help="Figures on your own data.", no_args_is_help=True, **PLAIN)
THREADS = 8


class Oracle(StrEnum):
    """What is made from the labels."""

    JUDGE = "judge"
    VERIFIER = "verifier"


_COLUMNS = (
    ("right", "right"),
    ("right_flagged", "flagged"),
    ("wrong", "wrong"),
    ("wrong_passed", "passed"),
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
    judge: Annotated[
        str, typer.Option("--judge", help="Model that judges, as LiteLLM names it.")
    ] = "",
    judge_base: Annotated[
        str, typer.Option("--judge-base", help="Address of the judge's provider.")
    ] = "",
    prompts_to: Annotated[
        Path | None, typer.Option("--prompts", help="Write the judge's prompts, without labels.")
    ] = None,
    replies_from: Annotated[
        Path | None, typer.Option("--replies", help="Replies to those prompts, by name.")
    ] = None,
    use_oracle: Annotated[
        Oracle | None,
        typer.Option("--oracle", help="A judge or verifier made from the labels: always right."),
    ] = None,
    errs: Annotated[
        float, typer.Option("--errs", min=0.0, max=1.0, help="Share that the oracle gets wrong.")
    ] = 0.0,
    most: Annotated[
        int | None, typer.Option("--most", min=1, help="Answers of each file, at most.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the sample.")] = 0,
    json_path: Annotated[Path | None, typer.Option("--json", help="File for the report.")] = None,
) -> None:
    """Score verdicts on labelled answers: right ones that are flagged, wrong ones that pass.

    Without a judge the screen alone is scored. A row of the data has id, question, passages,
    answer, hallucinated and spans; or id, evidence, claim and label.
    """
    ways = [bool(judge), replies_from is not None, use_oracle is not None]
    if sum(ways) > 1:
        raise RequestError("give one of --judge, --replies and --oracle")
    known = replies(replies_from) if replies_from is not None else {}
    cases = read_cases(data, most=most, seed=seed)
    if known:
        cases = [case for case in cases if case.name in known]
        if not cases:
            raise RequestError(f"{replies_from} has no reply to an answer of the data")
    screens = [screened(case) for case in cases]
    if prompts_to is not None:
        with prompts_to.open("w", encoding="utf-8") as file:
            for one in prompts(screens, _terms()):
                file.write(json.dumps(one, ensure_ascii=False) + "\n")
        typer.echo(f"{len(screens)} prompts are in {prompts_to}")
        return
    plain = [verdict(one) for one in screens]
    done = plain
    if judge:
        done = _judged(screens, judge, judge_base)
    elif known:
        done = [verdict(one, recorded(one, known[one.case.name])) for one in screens]
    elif use_oracle is Oracle.JUDGE:
        done = [verdict(one, oracle(one, errs, seed)) for one in screens]
    elif use_oracle is Oracle.VERIFIER:
        done = [verdict(screened(case, verifier=OracleVerifier(case))) for case in cases]
    failed = Counter(one.failed for one in done if one.failed)
    if failed:
        told = ", ".join(f"{name} {count}" for name, count in failed.most_common())
        typer.echo(f"the judge failed on {failed.total()} answers, left out: {told}", err=True)
        plain = [one for one, full in zip(plain, done, strict=True) if not full.failed]
        done = [one for one in done if not one.failed]
        if not done:
            raise RequestError("the judge failed on every answer; nothing can be scored")
    found: dict[str, Any] = {**figures(done), "failed": dict(failed)}
    if any(ways):
        found["when"] = doubt_curve(plain, done)
    if json_path is not None:
        json_path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    _show(found)


app.command("selection")(evaluate_context.selection)
app.command("rot")(evaluate_context.rot)
app.command("drift")(evaluate_context.drift)


def _terms() -> JudgeTerms:
    """How a judge of the settings is asked: their prompt, rubric and language."""
    chosen = load().judge
    return JudgeTerms("judge", JudgePrompt(chosen.prompt, chosen.rubric, chosen.language))


def _judged(screens: Sequence[Screened], name: str, base: str) -> list[ScoredAnswer]:
    reach: dict[str, Any] = {"api_base": base} if base else {}
    judge = Judge(name, settings=load().judge, **reach)

    def one(of: Screened) -> ScoredAnswer:
        return verdict(of, judge.reply, judge.terms())

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, screens))


def _show(found: dict[str, Any]) -> None:
    typer.echo(f"{'':26}" + "".join(f"{title:>10}" for _, title in _COLUMNS))
    typer.echo(_row("all", found["all"]))
    for table in ("domain", "style", "kind"):
        if found[table]:
            typer.echo(f"\nby {table}")
            for name, row in found[table].items():
                typer.echo(_row(name, row))
    auroc = found["all"]["auroc"]
    if auroc is not None:
        typer.echo(f"\nAUROC of the risk score {auroc:.3f}; judge calls {found['all']['calls']}")
    for row in found.get("when", ()):
        typer.echo(
            f"judge_when {row['when']:<11} calls saved {_cell(row['calls_saved'])}, right flagged "
            f"{_cell(row['right_flagged'])}, wrong passed {_cell(row['wrong_passed'])}"
        )


def _row(name: str, row: dict[str, Any]) -> str:
    return f"{name:26.26}" + "".join(f"{_cell(row[key]):>10}" for key, _ in _COLUMNS)


def _cell(value: float | int | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.1%}"
