"""`crp eval collect`: a review of logged answers, which labels them for `crp eval answers`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from crp_integrations.cli.terminal import STATUS_STYLE, plain, terminal
from crp_integrations.errors import RequestError
from crp_integrations.evaluation.collected_answers import (
    CollectedAnswer,
    collected_answers,
    labelled_row,
    private_file,
)
from crp_integrations.evaluation.data_sets import rows
from crp_integrations.markup import counted
from crp_integrations.vocabulary import RiskLevel

ACCEPT, RIGHT, WRONG, SKIP, QUIT = "accept", "right", "wrong", "skip", "quit"
_CHOICES: Final = {word[0]: word for word in (ACCEPT, RIGHT, WRONG, SKIP, QUIT)}


def collect(
    log: Annotated[Path, typer.Argument(help="File that answer_log wrote.")],
    labels: Annotated[
        Path, typer.Option("--to", help="File for the labelled answers; appended to.")
    ],
) -> None:
    """Label logged answers, one by one: accept the verdict, correct it, or skip the answer.

    Answers that the labelled file already contains are not shown again.
    """
    done = {str(row.get("id")) for _, row in rows(labels)} if labels.exists() else set()
    logged = collected_answers(log, partial(typer.echo, err=True))
    waiting = [answer for answer in logged if answer.id not in done]
    written = 0
    with os.fdopen(private_file(labels), "a", encoding="utf-8") as file:
        for row in _review(waiting):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
            written += 1
    typer.echo(f"{counted(written, 'labelled answer')} added to {labels}")


def _review(waiting: list[CollectedAnswer]) -> Iterator[dict[str, Any]]:
    for number, answer in enumerate(waiting, 1):
        _show(answer, f"{number} of {len(waiting)}")
        choice = _ask(may_accept=answer.report.risk_level is not RiskLevel.UNKNOWN)
        if choice == QUIT:
            return
        if choice == ACCEPT:
            yield labelled_row(answer, wrong=answer.report.flagged)
        elif choice == RIGHT:
            yield labelled_row(answer, wrong=False)
        elif choice == WRONG:
            yield _wrong_row(answer)


def _ask(*, may_accept: bool) -> str:
    """One of the choices; an answer that nobody read has no verdict to accept."""
    words = [word for word in _CHOICES.values() if may_accept or word != ACCEPT]
    while True:
        reply = typer.prompt(" / ".join(f"[{word[0]}]{word[1:]}" for word in words)).strip()
        choice = _CHOICES.get(reply.lower()[:1], "")
        if choice in words:
            return choice
        typer.echo(f"{reply!r:.40} is none of {', '.join(words)}")


def _wrong_row(answer: CollectedAnswer) -> dict[str, Any]:
    while True:
        words = typer.prompt(
            "wrong words, copied from the answer (empty: unknown)", default="", show_default=False
        )
        try:
            return labelled_row(answer, wrong=True, stretches=[words] if words else [])
        except RequestError as error:
            typer.echo(str(error))


def _show(answer: CollectedAnswer, place: str) -> None:
    console = terminal()
    report = answer.report
    console.rule(f"{place} · {report.risk_level}")
    console.print(plain(answer.question, whole=True), style="bold", markup=False)
    for number, passage in enumerate(answer.passages, 1):
        console.print(f"[{number}] {plain(passage, whole=True)}", style="dim", markup=False)
    console.print(plain(answer.answer, whole=True), markup=False)
    for claim in report.claims:
        reason = f": {claim.reason}" if claim.reason else ""
        console.print(
            f"  {claim.status} · {plain(claim.text + reason, whole=True)}",
            style=STATUS_STYLE[claim.status], markup=False,
        )  # fmt: skip
