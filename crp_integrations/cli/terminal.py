"""Tables for answers, previews and ingestions; texts are printed without control characters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from pydantic import BaseModel
from rich.console import Console, Group
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from crp_integrations.cli.options import printable_store
from crp_integrations.dpe.report_html import (
    DECIDED,
    Passages,
    edits_of,
    findings_of,
    judge_of,
    quotes,
    remarks_of,
    repair_of,
)
from crp_integrations.markup import counted
from crp_integrations.vocabulary import ClaimStatus, RiskLevel

if TYPE_CHECKING:
    from pathlib import Path

    from crp_integrations.dpe.records import Claim, Report
    from crp_integrations.envelope.records import Envelope, EnvelopePreview
    from crp_integrations.fabric.records import IngestReport
    from crp_integrations.relay.records import Answer

_Record = TypeVar("_Record", bound=BaseModel)
EXCERPT = 96  # maximum characters of an excerpt
# Width of a budget bar, and minimum terminal width for evidence next to claims.
BAR, WIDE = 40, 140
# Maximum number of skipped files to list.
MAX_NAMES = 5
RISK_STYLE = {
    RiskLevel.LOW: "green",
    RiskLevel.UNKNOWN: "yellow",
    RiskLevel.MEDIUM: "yellow",
    RiskLevel.HIGH: "red",
    RiskLevel.CRITICAL: "bold red",
}
STATUS_STYLE = {
    ClaimStatus.SUPPORTED: "green",
    ClaimStatus.CONTRADICTED: "bold red",
    ClaimStatus.UNSUPPORTED: "red",
    ClaimStatus.NOT_CHECKABLE: "dim",
    ClaimStatus.NOT_CHECKED: "yellow",
}


def terminal() -> Console:
    """Standard output, without automatic highlighting."""
    return Console(highlight=False)


def print_table(title: str, columns: Sequence[str | Column], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; string cells are printed as they are, without markup."""
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    terminal().print(table)


def print_record(record: _Record, draw: Callable[[_Record], None], *, as_json: bool) -> None:
    """Print a record as one JSON document or as a table."""
    if as_json:
        typer.echo(record.model_dump_json(indent=2))
    else:
        draw(record)


def draw_question(text: str) -> None:
    """Print the question as a heading across the screen."""
    console = terminal()
    console.print()
    console.rule(Text(text, style="bold"))


def draw_answer(answer: Answer, *, headers: bool = False) -> None:
    """Print answer, envelope and verdict per claim, and the headers if requested."""
    terminal().print(
        _answer(answer.text),
        _envelope(answer.envelope),
        verdict(answer.report, _facts(answer.envelope)),
        *([_headers(answer.headers)] if headers else []),
    )


def draw_verdict(answer: str, report: Report, envelope: Envelope) -> None:
    """Print an answer and the verdict on it, with evidence from the envelope."""
    terminal().print(_answer(answer), verdict(report, _facts(envelope)))


def _answer(text: str) -> Panel:
    return Panel(Text(plain(text, whole=True)), title="Answer", title_align="left")


def _facts(envelope: Envelope) -> dict[str, tuple[str, str]]:
    return {fact.fact_id: (f"fact {fact.position}", fact.content) for fact in envelope.facts}


def draw_preview(seen: EnvelopePreview) -> None:
    """Print a preview as a table."""
    table = Table(title="Preview", title_justify="left", show_header=False)
    table.add_row("Quality tier", seen.quality_tier.value)
    table.add_row("Facts", f"{seen.facts_included} of {seen.facts_available}")
    table.add_row("Tokens", f"{seen.estimated_tokens} of {seen.token_budget}")
    table.add_row("Budget", budget_bar(seen.estimated_tokens, seen.token_budget))
    table.add_row("Saturation", f"{seen.saturation:.3f}")
    table.add_row("ETag", seen.etag)
    for cap in seen.caps:
        table.add_row(f"At most {cap.ceiling.value}", cap.reason)
    for name in seen.awaits:
        table.add_row("May differ after", name)
    for fact in seen.facts:
        table.add_row(f"Fact {fact.position}", Text(plain(fact.content)))
    terminal().print(table)


def budget_bar(tokens: int, budget: int) -> Text:
    """The used part of a budget as a bar."""
    used = min(BAR, round(BAR * tokens / budget)) if budget else 0
    free = max(0, budget - tokens)
    return Text.assemble(("█" * used, "blue"), ("░" * (BAR - used), "dim"), f" {free} free")


def draw_ingestion(report: IngestReport, store: str, passed: Sequence[Path]) -> None:
    """Print what an ingestion added, and the names of the files that it skipped."""
    facts, sources = counted(len(report.facts), "fact"), counted(len(report.sources), "source")
    parts = [f"{facts} from {sources} added to {printable_store(store)}"]
    if report.stale:
        parts.append(f"{counted(len(report.stale), 'fact')} gone stale")
    if report.returned:
        parts.append(f"{counted(len(report.returned), 'fact')} active again")
    if report.unchanged:
        parts.append(f"{counted(len(report.unchanged), 'source')} unchanged")
    lines = ["; ".join(parts)]
    if report.skipped:
        from crp_integrations.fabric.records import shown

        lines.append(
            f"{counted(len(report.skipped), 'document')} skipped: too little text for a fact"
        )
        lines += _first_names([shown(uri) for uri in report.skipped])
    if passed:
        lines.append(
            f"{counted(len(passed), 'file')} passed over: an unsupported type, or a link that "
            "leads out of its folder"
        )
        lines += _first_names(list(map(str, passed)))
    # Lines are not wrapped, so that a path can be copied whole.
    terminal().print(Text("\n".join(lines)), soft_wrap=True)


def _first_names(names: Sequence[str]) -> list[str]:
    """One line for each of the first files, and one with the number of further files."""
    lines = [f"  {plain(' '.join(name.splitlines()), whole=True)}" for name in names[:MAX_NAMES]]
    more = len(names) - MAX_NAMES
    return [*lines, f"  and {more} more"] if more > 0 else lines


@contextmanager
def progress_bar(*, quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on standard error, one line per step; nothing if quiet or not a terminal."""
    step = TextColumn("{task.description}")
    columns = (step, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    # If standard error is not a terminal, it is only for errors.
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        tasks = {}

        def advance(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bar.add_task(step, total=total)
            bar.update(tasks[step], completed=done, total=total)

        yield advance


def _envelope(envelope: Envelope) -> Group:
    rows = [
        (
            f"{fact.position} part" if fact.spans else str(fact.position),
            f"{fact.composite_score:.3f}",
            str(fact.token_count),
            plain(fact.content),
        )
        for fact in envelope.facts
    ]
    counter = f"{envelope.token_exactness.value}, {envelope.tokenizer.split('+')[0]}"
    counts = (
        f"{envelope.total_facts_included} of {envelope.total_facts_available} facts, "
        f"{envelope.token_count} of {envelope.token_budget} tokens ({counter}), "
        f"{envelope.saturation_label.value}"
    )
    why = (
        f"Tier {envelope.quality_tier.value}: score {envelope.envelope_score:.3f} = "
        f"coverage {envelope.coverage_score:.3f}, saturation {envelope.saturation:.3f}, "
        f"relevance {envelope.relevance_mean:.3f}"
    )
    caps = (f"  at most {cap.ceiling.value}: {cap.reason}" for cap in envelope.caps)
    lines = [counts, why, *caps]
    return envelope_table(rows, lines, (drop.reason.value for drop in envelope.dropped))


def envelope_table(
    rows: Iterable[tuple[str, str, str, str]], lines: list[str], dropped: Iterable[str]
) -> Group:
    """A table of an envelope's facts (number, score, tokens, text) with lines below it."""
    table = Table(title="Envelope: what the model saw", title_justify="left")
    for name in ("#", "score", "tokens"):
        table.add_column(name, justify="right")
    table.add_column("fact", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    reasons = ", ".join(f"{n} for {reason}" for reason, n in sorted(Counter(dropped).items()))
    return Group(table, Text("\n".join([*lines, *([f"Dropped: {reasons}"] if reasons else [])])))


def verdict(report: Report, passages: Passages) -> Group:
    """Each claim with its status and evidence, then the risk and its reasons.

    The evidence is next to the claim on a wide terminal, else below it.
    """
    wide = terminal().width >= WIDE
    claims = Table.grid(padding=(0, 2, 0, 0), expand=wide)
    claims.add_column(no_wrap=True)
    for _ in range(1 + wide):
        claims.add_column(overflow="fold", ratio=1)
    edits = edits_of(report)
    for claim in report.claims:
        text, evidence = _claim(claim, passages, repair_of(claim, edits), judged=report.was_read)
        cells = (text, evidence) if wide else (Text("\n").join(filter(None, (text, evidence))),)
        status = Text(claim.status.value, style=STATUS_STYLE[claim.status])
        claims.add_row(status, *cells)
    summary = Text.assemble(
        "Risk ",
        (report.risk_level.value, RISK_STYLE[report.risk_level]),
        "" if report.risk_score is None else f" ({report.risk_score:.3f})",
        f" by {plain(report.checked_by)}; {report.claim_counts}",
    )
    lines = [f"  {plain(reason, whole=True)}" for reason in report.reasons]
    lines += [plain(judge_of(report), whole=True)] if report.judge is not None else []
    return Group(Text("Verdict per claim", style="italic"), claims, summary, *map(Text, lines))


def _claim(
    claim: Claim, passages: Passages, edits: list[tuple[int, int, str]], *, judged: bool
) -> tuple[Text, Text]:
    """A claim with its wrong words marked or its repair; its evidence, findings and remarks."""
    text = Text(plain(claim.text, whole=True).replace("\n", " "))
    if claim.wrong is not None:
        text.stylize("bold red", claim.wrong[0] - claim.start, claim.wrong[1] - claim.start)
    for start, end, new in edits:
        # The signs of `wdiff`, since colours are missing in a pipe.
        old = Text("[-", "red") + text[start:end] + Text("-]", "red") if start < end else Text()
        line = plain(new, whole=True)
        text = text[:start] + old + Text(f"{{+{line}+}}" if new else "", "green") + text[end:]
    own_words = " ".join(claim.text.split())
    nearest = "" if claim.status in DECIDED else "nearest: "
    shown = []
    for quote in quotes(claim, passages, judged=judged):
        if quote.text in own_words:
            shown.append(Text(f"word for word in {plain(quote.name)}", style="dim"))
            continue
        words = [
            (plain(part, whole=True).replace("\n", " "), "not dim bold" if marked else "")
            for part, marked in quote.parts
        ]
        shown.append(Text.assemble(f"{nearest}“", *words, f"” ({plain(quote.name)})", style="dim"))
    wrong, expected = findings_of(claim, judged=judged)
    if wrong:
        message = f"{wrong}: the context has {plain(expected)}" if expected else wrong
        shown.append(Text(message, style="red"))
    if claim.reason:
        shown.append(Text(plain(claim.reason, whole=True)))
    shown += [Text(plain(remark, whole=True), style="yellow") for remark in remarks_of(claim)]
    return text, Text("\n").join(shown)


def _headers(headers: dict[str, str]) -> Table:
    table = Table(title="Headers", title_justify="left", show_header=False)
    table.add_column("name", no_wrap=True)
    table.add_column("value", overflow="fold")
    for name, value in headers.items():
        table.add_row(Text(name), Text(value))
    return table


def plain(text: str, *, whole: bool = False) -> str:
    """Text without control characters, so that it cannot control the terminal."""
    printable = "".join(c if c.isprintable() or c == "\n" else " " for c in text)
    if whole:
        return printable
    line = " ".join(printable.split())
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1] + "…"
