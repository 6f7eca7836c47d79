"""`crp check`: check answers against documents, claim by claim."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from crp_integrations.cli import options, terminal
from crp_integrations.cli.terminal import plain
from crp_integrations.dpe.report_html import Passages, quotes, remarks_of
from crp_integrations.errors import IngestError, RequestError
from crp_integrations.markup import counted
from crp_integrations.records import Part
from crp_integrations.vocabulary import ClaimStatus, RiskLevel

if TYPE_CHECKING:
    from crp_integrations.dpe.records import Claim, Report
    from crp_integrations.dpe.repair import Repair
    from crp_integrations.relay.settings import Settings

STANDARD_INPUT = "-"
# Environment variable with the file that GitHub shows below a run.
SUMMARY = "GITHUB_STEP_SUMMARY"
LEVELS = tuple(RiskLevel)
# Fields of a report's claim counts that are columns of the table of answers.
COUNTED = ("read", "supported", "wrong", "unread")


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """An answer with its report.

    Attributes:
        name: file, or file and line.
        file: file whose text is the answer; empty if the answer is only part of a file.
    """

    name: str
    file: str
    text: str
    passages: Passages
    report: Report


class LoggedAnswer(Part):
    """A line of a log; further fields are ignored."""

    answer: str
    context: str | list[str]
    question: str | None = None


def check(
    answer: Annotated[
        str, typer.Argument(help="File, folder or saved page of answers; - for standard input.")
    ] = "",
    context: Annotated[
        list[str] | None,
        typer.Option("--context", help="File, folder or saved page of evidence; repeatable."),
    ] = None,
    question: Annotated[str | None, typer.Option("--question", help="The question.")] = None,
    watch: Annotated[
        str,
        typer.Option("--watch", help="Log of JSON lines with answer, context and question."),
    ] = "",
    judge: options.Judge = None,
    judge_base: options.JudgeBase = None,
    fail_on: Annotated[
        RiskLevel | None,
        typer.Option("--fail-on", case_sensitive=False, help="Status 1 at this risk or above."),
    ] = None,
    github: Annotated[
        bool,
        typer.Option("--github", help="Print annotations and a summary for GitHub Actions."),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write an HTML page with the evidence for each claim."),
    ] = None,
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Print the judge's corrections as a unified diff instead."),
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Also apply the corrections to the files.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check an answer against documents, claim by claim.

    The output shows each claim with its status and its evidence. The exit status is 1 if the risk
    reaches --fail-on, 2 if something cannot be checked at all, else 0. No store is needed, and no
    model is called without --judge. --write changes texts and Markdown only.
    """
    if write and (not fix or watch or answer == STANDARD_INPUT):
        raise RequestError("--write changes files; give it with --fix and a file or a folder")
    if bool(answer) == bool(watch):
        raise RequestError("give either ANSWER with --context, or --watch with a log")
    if watch and (context or question is not None):
        raise RequestError("--watch takes context and question from the log; leave the options out")
    if answer and not context:
        raise RequestError("--context is missing; give the documents that the answer is based on")
    if judge == options.OWN:
        raise RequestError("--judge self needs the model that answered; give a model's name")
    from crp_integrations.loaders.files import encoding_of, read_bytes
    from crp_integrations.relay.settings import load

    settings = load()
    if fix and not (judge or settings.judge.model):
        raise RequestError("--fix needs a judge, whose corrections it prints; give --judge NAME")
    judging = {**options.judging(judge, judge_base, None, None), "settings": settings}
    if watch:
        done = _check_log(watch, judging, quiet=as_json)
    else:
        passages = _passages(context or (), settings)
        # All are read before the first call of the judge.
        answers = list(_answers(answer))
        if write and (others := [name for name, file, _ in answers if not file]):
            raise RequestError(f"{others[0]:.200} is no text or Markdown; leave --write out")
        for name, file, _ in answers if fix and not (write or as_json) else ():
            encoding = encoding_of(read_bytes(Path(file)))[0] if file else "utf-8"
            if encoding != "utf-8":
                raise RequestError(f"{name:.200} is {encoding}, and a diff is UTF-8; give --write")
        done = [
            _checked((name, file), text, passages, question, judging)
            for name, file, text in answers
        ]
    if html is not None:
        _write_page(done, html)
    if fix and not as_json:
        _print_repairs(done)
    elif as_json:
        typer.echo(json.dumps({"answers": [_fields(checked) for checked in done]}, indent=2))
    elif github:
        _print_for_github(done)
    else:
        _draw(done, whole=not watch)
    if write:
        for checked in done:
            if _reads_better(checked, question, judging):
                _write_repair(checked)
    least = len(LEVELS) if fail_on is None else LEVELS.index(fail_on)
    if any(LEVELS.index(checked.report.risk_level) >= least for checked in done):
        raise typer.Exit(1)


def _checked(
    place: tuple[str, str],
    text: str,
    passages: Passages,
    question: str | None,
    judging: Mapping[str, Any],
) -> CheckedAnswer:
    from crp_integrations import examine

    # In order, since the report refers to texts by number: context-1, context-2, ….
    report = examine(text, [passage for _, passage in passages.values()], question, **judging)
    return CheckedAnswer(*place, text, passages, report)


def _named(texts: Sequence[tuple[str, str]]) -> Passages:
    return {f"context-{number}": passage for number, passage in enumerate(texts, 1)}


def _passages(paths: Sequence[str], settings: Settings) -> Passages:
    """The passages of documents, split in the same way as on ingestion."""
    from crp_integrations.fabric.ingest.chunker import cut_blocks
    from crp_integrations.fabric.records import Document, shown
    from crp_integrations.loaders.documents import load_path
    from crp_integrations.relay.defaults import FACT_TOKENIZER_MODEL, tokenizers

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
    """Name, file and text of each answer; file is "" if the text is only part of a file."""
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
    from crp_integrations.loaders.files import decode, read_bytes

    data = sys.stdin.buffer.read() if path == STANDARD_INPUT else read_bytes(Path(path))
    lines = enumerate(decode(data, name=path).split("\n"), 1)
    rows = [(number, _logged(line, number, path)) for number, line in lines if line.strip()]
    done = []
    with terminal.progress_bar(quiet=quiet) as advance:
        for number, row in rows:
            texts = [row.context] if isinstance(row.context, str) else row.context
            passages = _named([("context", text) for text in texts])
            place = (f"{path}:{number}", "")
            done.append(_checked(place, row.answer, passages, row.question, judging))
            advance("answers", len(done), len(rows))
    return done


def _logged(line: str, number: int, path: str) -> LoggedAnswer:
    try:
        row = json.loads(line)
        known = {name: row[name] for name in LoggedAnswer.model_fields if name in row}
        return LoggedAnswer.model_validate(known)
    except (ValueError, TypeError, RecursionError) as error:
        wrong = "it is not a JSON object"
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            wrong = f"{first['loc'][0]}: {first['msg']}"
        raise RequestError(
            f"line {number} of {path!r:.200}: {wrong:.100}; wanted an object with answer and "
            "question (texts) and context (a text or a list of texts)"
        ) from None


def _fields(checked: CheckedAnswer) -> dict[str, Any]:
    """An answer's report, and the passages that it refers to."""
    report = checked.report.model_dump(mode="json")
    claims = checked.report.claims
    ids = {part.fact_id for claim in claims for part in claim.evidence}
    ids |= {part.fact_id for claim in claims for part in claim.quotations}
    named = {
        id_: {"source": name, "text": text}
        for id_, (name, text) in checked.passages.items()
        if id_ in ids
    }
    fields = {"name": checked.name, "passages": named, "report": report}
    if any(claim.flagged for claim in claims):
        fields["repair"] = _repair(checked).model_dump(mode="json")
    return fields


def _repair(checked: CheckedAnswer) -> Repair:
    """An answer's repair, without edits of the front matter, which describes the answer."""
    from crp_integrations.dpe.repair import CODE, Repair, Unrepaired, edited
    from crp_integrations.loaders.text import FENCE, split_front_matter

    repair = checked.report.repair()
    fenced = FENCE.match(checked.text)
    begin = fenced.end() if fenced else 0
    # Front matter that cannot be read is front matter nevertheless.
    with suppress(IngestError):
        _, begin = split_front_matter(checked.text, name=checked.name)
    edits = tuple(edit for edit in repair.edits if edit.start >= begin)
    stay = [Unrepaired(claim=edit.claim, reason=CODE) for edit in repair.edits if edit not in edits]
    unrepaired = (*stay, *repair.unrepaired)
    return Repair(text=edited(checked.text, edits), edits=edits, unrepaired=unrepaired)


def _texts(checked: CheckedAnswer) -> tuple[str, str, str]:
    """An answer before and after its repair, as its file has it, and the file's encoding."""
    from crp_integrations.dpe.repair import edited
    from crp_integrations.loaders.files import decode, encoding_of, read_bytes

    repair = _repair(checked)
    if not checked.file:
        return checked.text, repair.text, "utf-8"
    data = read_bytes(Path(checked.file))
    encoding, marked = encoding_of(data)
    if decode(data, name=checked.file) != checked.text:
        raise RequestError(f"{checked.file:.200} has changed since it was read; check it again")
    text = data.decode(encoding)
    places = [sign.start() for sign in re.finditer(r"\r\n|.", text, re.DOTALL)] + [len(text)]
    # The mark is a character of the file, but not of the answer.
    places = places[bool(marked) :]
    moved = []
    for edit in repair.edits:
        start, end = places[edit.start], places[edit.end]
        moved.append(edit.model_copy(update={"start": start, "end": end, "old": text[start:end]}))
    return text, edited(text, moved), encoding


def _print_repairs(done: Sequence[CheckedAnswer]) -> None:
    """Print a unified diff, and on standard error each claim that stays wrong."""
    for checked in done:
        name = plain(checked.name)
        before, after = (
            [line for line in re.split(r"(?<=\n)", text) if line] for text in _texts(checked)[:2]
        )
        for line in unified_diff(before, after, f"a/{name}", f"b/{name}"):
            # In a pipe the diff keeps every character, so that `patch` can apply it.
            typer.echo(plain(line, whole=True) if sys.stdout.isatty() else line, nl=False)
            if not line.endswith("\n"):
                typer.echo("\n\\ No newline at end of file")
        claims = {claim.claim_id: claim for claim in checked.report.claims}
        for row in _repair(checked).unrepaired:
            text = plain(claims[row.claim].text)
            typer.echo(f"{name}: stays wrong, {row.reason}: {text}", err=True)


def _reads_better(checked: CheckedAnswer, question: str | None, judging: Mapping[str, Any]) -> bool:
    """Whether a repaired text may be written: it is judged again, and fewer claims are wrong."""
    from crp_integrations.relay.repaired_answer import is_better

    repair, before = _repair(checked), checked.report
    if not repair.edits:
        return False
    place = checked.name, checked.file
    after = _checked(place, repair.text, checked.passages, question, judging).report
    note = "" if (better := is_better(after, before)) else "; not written: that is no better"
    levels = f"{after.risk_level} after repair, {before.risk_level} before"
    typer.echo(f"{plain(checked.name)}: {levels}, {after.claim_counts}{note}", err=True)
    return better


def _write_repair(checked: CheckedAnswer) -> None:
    """Write a repaired answer to its file; every other byte stays, also the form of line ends."""
    before, after, encoding = _texts(checked)
    if before == after:
        return
    path = Path(checked.file).resolve()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".crp-")
    with os.fdopen(handle, "wb") as file:
        file.write(after.encode(encoding))
    shutil.copymode(path, name)
    if path.read_bytes() != before.encode(encoding):
        Path(name).unlink()
        raise RequestError(f"{checked.file:.200} has changed since it was read; check it again")
    Path(name).replace(path)


def _write_page(done: Sequence[CheckedAnswer], path: Path) -> None:
    from crp_integrations.dpe.report_html import answer_html
    from crp_integrations.markup import escaped, page

    parts = []
    for checked in done:
        shown = answer_html(checked.text, checked.report, checked.passages)
        parts.append(f"<h3>{escaped(checked.name)}</h3>{shown}")
    path.write_text(page("Checked answers", "<hr>".join(parts)), encoding="utf-8")


def _draw(done: Sequence[CheckedAnswer], *, whole: bool) -> None:
    """Print every claim of each answer, and a table if there are several answers."""
    console = terminal.terminal()
    if whole:
        for checked in done:
            sources = len({name for name, _ in checked.passages.values()})
            counts = (
                f"{counted(len(checked.passages), 'passage')} of {counted(sources, 'document')}"
            )
            console.print(Text(f"{plain(checked.name)} against {counts}"), soft_wrap=True)
            console.print(terminal.verdict(checked.report, checked.passages))
    if whole and len(done) == 1:
        return
    title = f"{counted(len(done), 'answer')} checked"
    table = Table("answer", "risk", *COUNTED, "why", title=title, title_justify="left")
    for checked in done:
        level = checked.report.risk_level
        table.add_row(
            Text(plain(checked.name)),
            Text(level.value, style=terminal.RISK_STYLE[level]),
            *(str(getattr(checked.report.claim_counts, name)) for name in COUNTED),
            Text(plain(next(iter(checked.report.reasons), ""))),
        )
    levels = Counter(checked.report.risk_level for checked in done)
    console.print(table)
    console.print(", ".join(f"{levels[level]} {level}" for level in LEVELS if levels[level]))


def _print_for_github(done: Sequence[CheckedAnswer]) -> None:
    """Print an annotation for each flagged claim, and write a summary in Markdown."""
    lines = []
    for checked in done:
        lines += [f"### {_cell(checked.name)}: {checked.report.risk_level}", ""]
        lines += [f"{checked.report.claim_counts}, by {_cell(checked.report.checked_by)}", ""]
        lines += [f"- {_cell(reason)}" for reason in checked.report.reasons]
        lines += ["", "| status | claim | evidence |", "|---|---|---|"]
        for claim in checked.report.claims:
            quotations = quotes(claim, checked.passages, judged=checked.report.was_read)
            evidence = "; ".join(f"“{quote.text}” ({quote.name})" for quote in quotations)
            remarks = "; ".join(remarks_of(claim))
            details = "; ".join(filter(None, (evidence, remarks)))
            lines.append(f"| {claim.status} | {_cell(claim.text)} | {_cell(details)} |")
            if claim.flagged or claim.disputed or any(finding.doubts for finding in claim.findings):
                typer.echo(_annotation(checked, claim, evidence, remarks))
        lines.append("")
    if path := os.environ.get(SUMMARY):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    else:
        typer.echo("\n".join(lines))


def _annotation(checked: CheckedAnswer, claim: Claim, evidence: str, remarks: str) -> str:
    kind = "error" if claim.status is ClaimStatus.CONTRADICTED else "warning"
    place = ""
    if checked.file:
        line = checked.text.count("\n", 0, claim.start) + 1
        place = f"file={_escaped(checked.file, ':,')},line={line},"
    # `_line` removes invisible characters; a remark shows what they encode.
    message = f"{_line(claim.text)} The context: {evidence or 'nothing of it'}"
    message += f" ({remarks})" if remarks else ""
    return f"::{kind} {place}title={claim.status}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    """Text for a workflow command, with that syntax's special characters percent-encoded."""
    return text.translate({ord(c): f"%{ord(c):02X}" for c in f"%\r\n{more}"})


def _line(text: str) -> str:
    return " ".join(plain(text, whole=True).split())


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|").replace("<", "&lt;")
