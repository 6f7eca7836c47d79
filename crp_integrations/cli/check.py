"""`crp check` and `crp models`: answers against documents, and verifiers that can be fetched."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from crp_integrations.cli import options, terminal
from crp_integrations.cli.terminal import counted, plain, quoted
from crp_integrations.errors import RequestError
from crp_integrations.vocabulary import ClaimStatus, RiskLevel

if TYPE_CHECKING:
    from crp_integrations.dpe.records import Claim, Report

STANDARD_INPUT = "-"
# The file that GitHub shows below a run, by the variable that names it.
SUMMARY = "GITHUB_STEP_SUMMARY"
LEVELS = tuple(RiskLevel)
# Name and text of each passage by the id that a report gives it.
Passages = Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """An answer with its report.

    Attributes:
        name: file, or file and line.
        file: the file that the answer is the text of, empty where it has no lines of its own.
    """

    name: str
    file: str
    text: str
    passages: Passages
    report: Report


def check(
    answer: Annotated[
        str,
        typer.Argument(
            help="File, folder or saved page of answers; - reads standard input.",
            metavar="ANSWER",
            show_default=False,
        ),
    ] = "",
    context: Annotated[
        list[str] | None,
        typer.Option(
            "--context",
            help="File, folder or saved page that the answer must agree with; repeatable.",
        ),
    ] = None,
    question: Annotated[
        str | None, typer.Option("--question", help="What was asked, where it is known.")
    ] = None,
    watch: Annotated[
        str,
        typer.Option(
            "--watch",
            help="Log with one JSON object a line: answer, context (a text or a list), question.",
        ),
    ] = "",
    judge: Annotated[
        str | None,
        typer.Option("--judge", help="Model that reads each answer once, as LiteLLM names it."),
    ] = None,
    judge_base: options.JudgeBase = None,
    fail_on: Annotated[
        RiskLevel | None,
        typer.Option(
            "--fail-on", case_sensitive=False, help="Status 1 from this risk on; else always 0."
        ),
    ] = None,
    github: Annotated[
        bool,
        typer.Option("--github", help="Annotations and a summary, as GitHub Actions shows them."),
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check an answer against documents: each claim with its status and what it rests on.

    The status is 0, 1 from the risk of --fail-on on, and 2 where something cannot be checked at
    all. No store is needed, and no model is called without --judge.
    """
    if bool(answer) == bool(watch):
        raise RequestError("give ANSWER with --context, or --watch with a log; one of the two")
    if watch and (context or question is not None):
        raise RequestError("--watch takes context and question from the log; leave the options out")
    if answer and not context:
        raise RequestError("--context is missing; give the documents that the answer rests on")
    if judge == options.OWN:
        raise RequestError("--judge self needs the model that answered; give a model's name")
    judging = options.judging(judge, judge_base, None, None)
    if watch:
        done = _check_log(watch, judging, quiet=as_json)
    else:
        passages = _passages(context or ())
        done = [
            _checked(name, file, text, passages, question, judging)
            for name, file, text in _answers(answer)
        ]
    if as_json:
        typer.echo(json.dumps({"answers": [_fields(one) for one in done]}, indent=2))
    elif github:
        _print_for_github(done)
    else:
        _draw(done, whole=not watch)
    failed = [
        one
        for one in done
        if fail_on is not None and LEVELS.index(one.report.risk_level) >= LEVELS.index(fail_on)
    ]
    if failed:
        raise typer.Exit(1)


def _checked(
    name: str,
    file: str,
    text: str,
    passages: Passages,
    question: str | None,
    judging: Mapping[str, Any],
) -> CheckedAnswer:
    from crp_integrations import examine

    # By their order, which is how a report names texts: context-1, context-2, ….
    report = examine(text, [one for _, one in passages.values()], question, **judging)
    return CheckedAnswer(name, file, text, passages, report)


def _named(texts: Sequence[tuple[str, str]]) -> Passages:
    return {f"context-{number}": one for number, one in enumerate(texts, 1)}


def _passages(paths: Sequence[str]) -> Passages:
    """The passages of documents, cut as an ingestion cuts them."""
    from crp_integrations.fabric.ingest.chunker import cut_blocks
    from crp_integrations.fabric.records import Document, shown
    from crp_integrations.loaders.documents import load_path
    from crp_integrations.relay.build import FACT_TOKENIZER_MODEL
    from crp_integrations.relay.defaults import tokenizers
    from crp_integrations.relay.settings import load

    settings = load()
    counter = tokenizers(settings)(FACT_TOKENIZER_MODEL)
    here = f"{Path.cwd()}{os.sep}"
    texts = []
    for path in paths:
        for document in load_path(path):
            blocks = document.blocks if isinstance(document, Document) else document.blocks()
            name = shown(document.uri).removeprefix(here)
            chunks = cut_blocks(blocks, counter=counter, settings=settings.fabric.chunking)
            texts += [(name, chunk.content) for chunk in chunks]
    if not texts:
        raise RequestError(f"there is no text in {', '.join(paths):.200}; nothing was checked")
    return _named(texts)


def _answers(path: str) -> Iterator[tuple[str, str, str]]:
    """Name, file and text of each answer; no file where its lines are not the text's."""
    from crp_integrations.fabric.records import Document
    from crp_integrations.loaders.documents import load_path
    from crp_integrations.loaders.files import SUFFIXES, decode, find_files, read_bytes

    if path == STANDARD_INPUT:
        yield "standard input", "", decode(sys.stdin.buffer.read(), name="standard input")
        return
    for file in find_files(path).files:
        if SUFFIXES.get(file.suffix.lower()) in ("markdown", "text"):
            yield str(file), str(file), decode(read_bytes(file), name=str(file))
            continue
        for number, document in enumerate(load_path(file), 1):
            blocks = document.blocks if isinstance(document, Document) else document.blocks()
            name = str(file) if number == 1 else f"{file}:{number}"
            yield name, "", "\n\n".join(block.text for block in blocks)


def _check_log(path: str, judging: Mapping[str, Any], *, quiet: bool) -> list[CheckedAnswer]:
    """Check every line of a log, under a progress bar."""
    rows = list(_log_rows(path))
    if not rows:
        raise RequestError(f"there is no answer in {path!r:.200}, so nothing was checked")
    done = []
    with terminal.progress_bar(quiet=quiet) as advance:
        for number, (name, text, texts, question) in enumerate(rows, 1):
            passages = _named([("context", one) for one in texts])
            done.append(_checked(name, "", text, passages, question, judging))
            advance("answers", number, len(rows))
    return done


def _log_rows(path: str) -> Iterator[tuple[str, str, list[str], str | None]]:
    from crp_integrations.loaders.files import decode, read_bytes

    data = sys.stdin.buffer.read() if path == STANDARD_INPUT else read_bytes(Path(path))
    for number, line in enumerate(decode(data, name=path).split("\n"), 1):
        if not line.strip():
            continue
        place = f"line {number} of {path!r:.200}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{place} is no JSON object: {error!s:.80}") from None
        if not isinstance(row, dict):
            raise RequestError(f"{place} is no JSON object; wanted answer, context and question")
        context = row.get("context")
        texts = [context] if isinstance(context, str) else context
        answer, question = row.get("answer"), row.get("question")
        if not isinstance(answer, str):
            raise RequestError(f"{place} has no text as answer")
        if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
            raise RequestError(f"{place} has no context; wanted a text or a list of texts")
        if question is not None and not isinstance(question, str):
            raise RequestError(f"{place} has a question that is no text")
        yield f"{path}:{number}", answer, texts, question


def _quoted(one: CheckedAnswer, claim: Claim) -> list[tuple[str, str]]:
    return quoted(claim, one.passages, judged=one.report.was_read)


def _fields(one: CheckedAnswer) -> dict[str, Any]:
    """An answer's report, and the passages that it names."""
    report = one.report.model_dump(mode="json")
    claims = one.report.claims
    ids = {part.fact_id for claim in claims for part in claim.evidence}
    ids |= {part.fact_id for claim in claims for part in claim.quotations}
    named = {
        id_: {"source": name, "text": text}
        for id_, (name, text) in one.passages.items()
        if id_ in ids
    }
    return {"name": one.name, "passages": named, "report": report}


def _draw(done: Sequence[CheckedAnswer], *, whole: bool) -> None:
    """Every claim of each answer, and a table where there are several."""
    console = terminal.terminal()
    if whole:
        for one in done:
            sources = len({name for name, _ in one.passages.values()})
            beside = f"{counted(len(one.passages), 'passage')} of {counted(sources, 'document')}"
            console.print(Text(f"{plain(one.name)} against {beside}"), soft_wrap=True)
            console.print(terminal.verdict(one.report, one.passages))
    if whole and len(done) == 1:
        return
    table = Table(title=f"{counted(len(done), 'answer')} checked", title_justify="left")
    table.add_column("answer", overflow="fold")
    table.add_column("risk")
    for name in ("claims", "wrong", "unsupported", "not checked"):
        table.add_column(name, justify="right")
    table.add_column("why", overflow="fold")
    for one in done:
        count = Counter(claim.status for claim in one.report.claims)
        level = one.report.risk_level
        table.add_row(
            Text(plain(one.name)),
            Text(level.value, style=terminal.RISK_STYLE[level]),
            str(len(one.report.claims)),
            str(count[ClaimStatus.CONTRADICTED]),
            str(count[ClaimStatus.UNSUPPORTED]),
            str(count[ClaimStatus.NOT_CHECKED]),
            Text(plain(next(iter(one.report.reasons), ""))),
        )
    levels = Counter(one.report.risk_level for one in done)
    console.print(table)
    console.print(", ".join(f"{levels[level]} {level}" for level in LEVELS if levels[level]))


def _print_for_github(done: Sequence[CheckedAnswer]) -> None:
    """Print an annotation for each flagged claim, and write a summary in Markdown."""
    lines = []
    for one in done:
        lines += [f"### {_cell(one.name)}: {one.report.risk_level}", ""]
        lines += [f"- {_cell(reason)}" for reason in one.report.reasons]
        lines += ["", "| status | claim | evidence |", "|---|---|---|"]
        for claim in one.report.claims:
            evidence = "; ".join(f"“{text}” ({name})" for name, text in _quoted(one, claim))
            lines.append(f"| {claim.status} | {_cell(claim.text)} | {_cell(evidence)} |")
            if claim.flagged:
                typer.echo(_annotation(one, claim, evidence))
        lines.append("")
    path = os.environ.get(SUMMARY)
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    else:
        typer.echo("\n".join(lines))


def _annotation(one: CheckedAnswer, claim: Claim, evidence: str) -> str:
    kind = "error" if claim.status is ClaimStatus.CONTRADICTED else "warning"
    place = ""
    if one.file:
        line = one.text.count("\n", 0, claim.start) + 1
        place = f"file={_escaped(one.file, ':,')},line={line},"
    said = f"{' '.join(claim.text.split())} The context: {evidence or 'nothing of it'}"
    return f"::{kind} {place}title={claim.status}::{_escaped(said)}"


def _escaped(text: str, more: str = "") -> str:
    """Text within a workflow command, whose own marks are written as their numbers."""
    return "".join(f"%{ord(c):02X}" if c in "%\r\n" + more else c for c in text)


def _cell(text: str) -> str:
    return " ".join(plain(text, whole=True).split()).replace("|", "\\|").replace("<", "&lt;")


def models(
    name: Annotated[str, typer.Argument(help="Short name of the one to fetch.")] = "",
    revision: Annotated[
        str, typer.Option(help="Commit of the hub; with --take-what-comes a branch.")
    ] = "",
    sha256: Annotated[str, typer.Option(help="Hash of the files, with `sha256:`.")] = "",
    take_what_comes: Annotated[
        bool, typer.Option("--take-what-comes", help="Use files that nobody compared.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """List the published verifiers, or fetch one into CRP_MODELS.

    The list has what their authors say of them; none was run here. CRP_MODELS_MIRROR names a folder
    or server in the place of the hub.
    """
    from crp_integrations.engines.verifiers.model_catalogue import (
        PUBLISHED,
        RECORD,
        fetch,
        models_folder,
    )

    if name:
        record = fetch(name, revision, sha256, unpinned=take_what_comes)
        if as_json:
            typer.echo(json.dumps({"folder": str(models_folder() / name), **record}, indent=2))
            return
        typer.echo(f"{models_folder() / name}: {record['sha256']}")
        if not record["pinned"]:
            typer.echo("The files were not compared with a hash, and every report says so.")
        return
    rows = [
        {
            "name": name,
            "megabytes": model.megabytes,
            "licence": model.licence,
            "fetched": (models_folder() / name / RECORD).exists(),
            "repository": model.repository,
            "accuracy": model.accuracy,
        }
        for name, model in PUBLISHED.items()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        here = "fetched" if row["fetched"] else "-"
        typer.echo(
            f"{row['name']:14} {row['megabytes']:>6} MB  {row['licence']:11} {here:8} "
            f"{row['repository']}  {row['accuracy']}"
        )
