"""Tables for answers, previews and ingestions; texts are printed and never interpreted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import typer
from pydantic import BaseModel
from rich.console import Console, Group
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from crp_integrations.cli.store_access import printable_store
from crp_integrations.vocabulary import ClaimStatus, RiskLevel

if TYPE_CHECKING:
    from pathlib import Path

    from crp_integrations.dpe.judge.records import JudgeRun
    from crp_integrations.dpe.records import Claim, Report
    from crp_integrations.envelope.records import Envelope, EnvelopePreview
    from crp_integrations.fabric.records import IngestReport
    from crp_integrations.relay.records import Answer

_Record = TypeVar("_Record", bound=BaseModel)
EXCERPT = 96
# Characters of a sentence that is quoted whole.
SENTENCE = 240
# Where a claim's evidence decides, and is not only the nearest that there is.
DECIDED = (ClaimStatus.SUPPORTED, ClaimStatus.CONTRADICTED)
# So many of the files that were left out are named.
MOST_NAMES = 5
RISK_STYLE = {
    RiskLevel.LOW: "green",
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
    """Standard output, on which nothing is coloured for what it happens to look like."""
    return Console(highlight=False)


def print_record(found: _Record, draw: Callable[[_Record], None], *, as_json: bool) -> None:
    """Print a record as one JSON document, or draw it."""
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
    else:
        draw(found)


def draw_question(text: str) -> None:
    """The question as a rule across the screen."""
    console = terminal()
    console.print()
    console.rule(Text(text, style="bold"))


def draw_answer(given: Answer, *, headers: bool = False) -> None:
    """Answer, envelope and verdict per claim, in this order, and the headers where asked for."""
    terminal().print(
        _answer(given.text),
        _envelope(given.envelope),
        verdict(given.report, _facts(given.envelope)),
        *([_headers(given.headers)] if headers else []),
    )


def draw_verdict(answer: str, report: Report, envelope: Envelope) -> None:
    """An answer and the verdict on it, beside the facts that the model saw."""
    terminal().print(_answer(answer), verdict(report, _facts(envelope)))


def _answer(text: str) -> Panel:
    return Panel(Text(plain(text, whole=True)), title="Answer", title_align="left")


def _facts(envelope: Envelope) -> dict[str, tuple[str, str]]:
    return {fact.fact_id: (f"fact {fact.position}", fact.content) for fact in envelope.facts}


def counted(count: int, noun: str) -> str:
    """A count with its noun.

    >>> counted(1, "source"), counted(2, "fact")
    ('1 source', '2 facts')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def draw_preview(seen: EnvelopePreview) -> None:
    """A preview as a table."""
    table = Table(title="Preview", title_justify="left", show_header=False)
    table.add_row("Quality tier", seen.quality_tier.value)
    table.add_row("Facts", f"{seen.facts_included} of {seen.facts_available}")
    table.add_row("Tokens", f"{seen.estimated_tokens} of {seen.token_budget}")
    table.add_row("Saturation", f"{seen.saturation:.3f}")
    table.add_row("ETag", seen.etag)
    for cap in seen.caps:
        table.add_row(f"At most {cap.ceiling.value}", cap.reason)
    terminal().print(table)


def draw_ingestion(report: IngestReport, store: str, passed: Sequence[Path]) -> None:
    """What an ingestion added, in one line, and what it left out, by name."""
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
            f"{counted(len(passed), 'file')} passed over: of a type that is not read, or a link "
            "that leads out of its folder"
        )
        lines += _first_names(list(map(str, passed)))
    # No line is broken, so that a path can be copied whole.
    terminal().print(Text("\n".join(lines)), soft_wrap=True)


def _first_names(names: Sequence[str]) -> list[str]:
    """A line for each of the first of several files, and one for how many there are besides."""
    lines = [f"  {plain(' '.join(name.splitlines()), whole=True)}" for name in names[:MOST_NAMES]]
    more = len(names) - MOST_NAMES
    return [*lines, f"  and {more} more"] if more > 0 else lines


@contextmanager
def progress_bar(*, quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on a terminal's standard error, one line a step; nothing when quiet."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    # Where nobody watches, nothing is drawn: standard error holds errors only.
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
    lines = [
        counts,
        why,
        *(f"  at most {cap.ceiling.value}: {cap.reason}" for cap in envelope.caps),
    ]
    return envelope_table(rows, lines, (drop.reason.value for drop in envelope.dropped))


def envelope_table(
    rows: Iterable[tuple[str, str, str, str]], lines: list[str], dropped: Iterable[str]
) -> Group:
    """The facts of an envelope, each with number, score, tokens and text, and lines below."""
    table = Table(title="Envelope: what the model saw", title_justify="left")
    for name in ("#", "score", "tokens"):
        table.add_column(name, justify="right")
    table.add_column("fact", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    reasons = ", ".join(f"{n} for {reason}" for reason, n in sorted(Counter(dropped).items()))
    return Group(table, Text("\n".join([*lines, *([f"Dropped: {reasons}"] if reasons else [])])))


def verdict(report: Report, passages: Mapping[str, tuple[str, str]]) -> Group:
    """Each claim with its status and the words that it rests on, then the risk and why.

    Args:
        passages: name and text of each passage by the id that the report gives it.
    """
    claims = Table.grid(padding=(0, 2, 0, 0))
    claims.add_column(no_wrap=True)
    claims.add_column(overflow="fold")
    for claim in report.claims:
        claims.add_row(
            Text(claim.status.value, style=STATUS_STYLE[claim.status]),
            _claim(claim, passages, judged=report.was_read),
        )
    summary = Text.assemble(
        "Risk ",
        (report.risk_level.value, RISK_STYLE[report.risk_level]),
        f" ({report.risk_score:.3f}): {report.verification.value} by {plain(report.checked_by)}; "
        f"{report.checked_share:.0%} of what can be checked was checked",
    )
    lines = [f"  {plain(one, whole=True)}" for one in report.reasons]
    lines += [_judge(report, report.judge)] if report.judge is not None else []
    return Group(Text("Verdict per claim", style="italic"), claims, summary, *map(Text, lines))


def _judge(report: Report, run: JudgeRun) -> str:
    """Whether a judge was asked, what that took, and what it was not shown."""
    if run.skipped:
        return f"No judge was asked: {run.skipped}"
    took = f"{counted(len(run.calls), 'call')}, {counted(run.tokens, 'token')}"
    price = "" if run.cost_usd is None else f", ${run.cost_usd:.4f}"
    said = f"Judge {plain(run.model)}: {took}{price}"
    failed = [flag for flag in report.flags if flag.startswith("judge-failed=")]
    if failed:
        said += f"; {failed[0]}, so the word of the stages without it stands"
    if run.left_out:
        said += f"; it was not shown {counted(len(run.left_out), 'passage')}"
    return said


def _claim(claim: Claim, passages: Mapping[str, tuple[str, str]], *, judged: bool) -> Text:
    """A claim with the wrong words marked, and below it what it rests on."""
    text = Text(plain(claim.text, whole=True).replace("\n", " "))
    if claim.wrong is not None:
        text.stylize("bold red", claim.wrong[0] - claim.start, claim.wrong[1] - claim.start)
    own_words = " ".join(claim.text.split())
    for name, words in quoted(claim, passages, judged=judged):
        if words in own_words:
            text.append(f"\nword for word in {plain(name)}", style="dim")
            continue
        nearest = "" if claim.status in DECIDED else "nearest: "
        text.append(f"\n{nearest}“{plain(words, whole=True)}” ({plain(name)})", style="dim")
    if claim.error is not None:
        # A judge's word stands alone; what the stages before it found are hints.
        findings = () if judged else claim.findings
        expected = next((one.expected for one in findings if one.expected), None)
        said = ", ".join(dict.fromkeys(one.kind for one in findings)) or claim.error.value
        said += f": the context has {plain(expected)}" if expected else ""
        text.append(f"\n{said}", style="red")
    if claim.reason:
        text.append(f"\n{plain(claim.reason, whole=True)}")
    return text


def quoted(
    claim: Claim, passages: Mapping[str, tuple[str, str]], *, judged: bool
) -> list[tuple[str, str]]:
    """The evidence of a claim as names of passages and words of theirs."""
    if claim.status is ClaimStatus.NOT_CHECKABLE:
        return []
    found: list[tuple[str, str]] = []
    # The sentence, where it is short enough to be read at a glance; else the words that count.
    for one in () if judged else claim.evidence[:1]:
        name, text = passages.get(one.fact_id, (one.fact_id, ""))
        if 0 < one.end - one.start <= SENTENCE and text:
            found.append((name, " ".join(text[one.start : one.end].split())))
    if not found:
        found = [
            (passages.get(one.fact_id, (one.fact_id, ""))[0], " ".join(one.text.split()))
            for one in claim.quotations
        ]
    return found


def _headers(headers: dict[str, str]) -> Table:
    table = Table(title="Headers", title_justify="left", show_header=False)
    table.add_column("name", no_wrap=True)
    table.add_column("value", overflow="fold")
    for name, value in headers.items():
        table.add_row(Text(name), Text(value))
    return table


def plain(text: str, *, whole: bool = False) -> str:
    """Text without control characters, so that nothing in it can steer the terminal."""
    kept = "".join(c if c.isprintable() or c == "\n" else " " for c in text)
    if whole:
        return kept
    line = " ".join(kept.split())
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1] + "…"
