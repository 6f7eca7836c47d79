"""Tables and lines for the results of `crp fabric` and `crp audit`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from crp_integrations.audit.records import Event, WindowSeal
from crp_integrations.cli.terminal import plain, terminal
from crp_integrations.markup import counted

if TYPE_CHECKING:
    from crp_integrations.audit.trail import AuditTrail
    from crp_integrations.fabric.embedder_migration import ReembedReport
    from crp_integrations.fabric.inspection import NamespaceExamination, NamespaceStats
    from crp_integrations.fabric.lifecycle import ChangeReport, ErasureReport, MaintenanceReport
    from crp_integrations.fabric.records import Fact, Source
    from crp_integrations.fabric.similarity_graph import ClusterReport

# Fields of a fact to review in the JSON output.
REVIEWED = {"fact_id", "source_id", "content"}
# Maximum number of sources listed before an erasure.
_NAMED = 10
_UNITS = ("B", "KiB", "MiB", "GiB")


def draw_stats(stats: NamespaceStats) -> None:
    """Print the statistics of a namespace as a table."""
    table = Table(title=f"Fabric in {stats.store}", title_justify="left", show_header=False)
    # Fold long values, since a truncated hash is useless.
    for name in ("what", "how much"):
        table.add_column(name, overflow="fold")
    table.add_row("Namespace", Text(plain(stats.namespace, whole=True)))
    table.add_row("Facts", _counts(stats.facts))
    table.add_row("Sources", _counts(stats.sources))
    table.add_row("Communities", str(stats.communities))
    table.add_row("Embedder", stats.embedder or "none yet")
    table.add_row("Dimensions", str(stats.dimensions or "none yet"))
    table.add_row("Search", stats.search)
    table.add_row("State hash", stats.state_hash)
    table.add_row("Generation", str(stats.generation))
    table.add_row("Epoch", str(stats.epoch))
    table.add_row("Journal", f"{stats.events} events")
    table.add_row("Changes logged", str(stats.changes))
    for name, size in stats.files.items():
        table.add_row(name, _size(size))
    terminal().print(table)


def draw_examination(examination: NamespaceExamination) -> None:
    """Print one paragraph per problem, or that nothing is wrong."""
    counts = f"{counted(examination.facts, 'fact')}, {counted(examination.sources, 'source')}"
    looked = f"{counts} and {counted(examination.events, 'event')} looked at"
    if not examination.findings:
        terminal().print(Text(f"{looked}; nothing is wrong"))
        return
    wrong = len(examination.findings)
    lines = [f"{looked}; {counted(wrong, 'thing')} {'is' if wrong == 1 else 'are'} wrong"]
    for finding in examination.findings:
        lines += [f"{finding.check}: {finding.problem}", f"  {finding.remedy}"]
    terminal().print(Text("\n".join(lines)), soft_wrap=True)


def draw_change(report: ChangeReport, *, as_json: bool, reason: str = "") -> None:
    """Print in one line what a change did, with the operator's reason."""
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
        return
    facts, sources = len(report.facts), len(report.sources)
    why = f": {plain(reason, whole=True)}" if reason else ""
    line = f"{counted(facts, 'fact')} of {counted(sources, 'source')} {report.verb}{why}"
    terminal().print(Text(line), soft_wrap=True)


def list_for_review(facts: Sequence[Fact], *, as_json: bool) -> None:
    """Print facts to review, one per line, and how to quarantine one."""
    if as_json:
        rows = [fact.model_dump(mode="json", include=REVIEWED) for fact in facts]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    lines = [
        f"{plain(fact.fact_id, whole=True)}  {plain(fact.source_id)}  {plain(fact.content)}"
        for fact in facts
    ]
    lines.append(
        "Quarantine one with crp fabric mark quarantined FACT_ID."
        if facts
        else "No fact has enough findings against it."
    )
    terminal().print(Text("\n".join(lines)), soft_wrap=True)


def draw_erasures(reports: Sequence[ErasureReport], *, as_json: bool) -> None:
    """Print what erasures removed, and the journal events that record them."""
    if as_json:
        typer.echo(json.dumps([report.model_dump(mode="json") for report in reports], indent=2))
        return
    lines = []
    for report in reports:
        if report.event_seq:
            lines.append(
                f"source {report.source_id} erased: {counted(len(report.facts), 'fact')}; "
                f"event {report.event_seq} of the journal, {report.event_hmac}"
            )
        else:
            lines.append(f"source {report.source_id} was erased already")
        if not report.scrubbed:
            lines.append("  another process uses the files; run crp fabric maintain when it ended")
    terminal().print(Text("\n".join(lines)), soft_wrap=True)


def list_sources(sources: Sequence[Source]) -> None:
    """Print the sources that would be erased on standard error."""
    from crp_integrations.fabric.records import shown

    for source in sources[:_NAMED]:
        name = plain(shown(source.uri) or source.source_id, whole=True)
        typer.echo(f"{name}: {counted(source.fact_count, 'fact')}", err=True)
    if len(sources) > _NAMED:
        typer.echo(f"and {len(sources) - _NAMED} more sources", err=True)


def draw_maintenance(report: MaintenanceReport) -> None:
    """Print in one line what maintenance did."""
    done = [
        f"{counted(count, 'fact')} {word}"
        for count, word in (
            (report.stale, "gone stale"),
            (report.purged, "removed for good"),
            (report.archived, "archived"),
        )
        if count
    ]
    done += [
        words
        for happened, words in (
            (report.forgotten, f"{counted(report.forgotten, 'session')} forgotten"),
            (report.reclustered, "communities found anew"),
            (report.graph_rebuilt, "index built"),
            (report.changes_trimmed, "log of changes cut"),
            (report.prepared_cleared, "prepared vectors that no ingestion waits for removed"),
            (report.scrubbed is True, "files scrubbed"),
            (report.scrubbed is False, "files still to be scrubbed: another process reads them"),
        )
        if happened
    ]
    terminal().print(Text("; ".join(done) or "nothing was due"), soft_wrap=True)


def draw_clusters(report: ClusterReport) -> None:
    """Print the new communities in one line."""
    groups = "1 community" if report.communities == 1 else f"{report.communities} communities"
    line = (
        f"{groups} among {counted(report.facts, 'fact')}, {report.unclustered} in none; "
        f"{counted(report.edges, 'edge')}, modularity {report.modularity:.3f}; "
        f"{counted(report.relabelled, 'label')} changed"
    )
    terminal().print(Text(line), soft_wrap=True)


def draw_reembedding(report: ReembedReport) -> None:
    """Print in one line which embedder the vectors are from now."""
    if report.before == report.embedder:
        line = f"the vectors are of {report.embedder} already"
    else:
        line = (
            f"{counted(report.facts, 'fact')} moved from {report.before} to {report.embedder}; "
            f"{counted(report.embedded, 'text')} embedded now"
        )
    terminal().print(Text(line), soft_wrap=True)


def draw_compaction(before: int, after: int, *, as_json: bool) -> None:
    """Print the size of the files before and after."""
    if as_json:
        typer.echo(json.dumps({"bytes_before": before, "bytes_after": after}, indent=2))
    else:
        terminal().print(Text(f"{_size(before)} before, {_size(after)} after"))


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"


def _size(count: int) -> str:
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


# Number of digits that identify a hash within a session.
DIGITS = 12
_LONGEST = 60
# Fields that every event has, or that the table of windows already shows.
_ELSEWHERE = frozenset(
    {"session_id", "window_hmac", "window_number", "outcome", "parent_hmac", "response_hash"}
) | {"report_hash", "risk_level"}


def trail_fields(trail: AuditTrail) -> dict[str, Any]:
    """The fields of a trail for JSON output."""
    names = ("state", "events", "windows", "sessions", "left_out", "tip")
    return {name: getattr(trail, name) for name in names}


def draw_trail(trail: AuditTrail) -> None:
    """Print what was checked, and the tip, for the operator to record elsewhere."""
    counts = (
        f"{counted(trail.events, 'event')}, {counted(trail.windows, 'window')} and "
        f"{counted(trail.sessions, 'session')} checked: {trail.state}"
    )
    lines = [counts, f"tip {trail.tip or 'none'}"]
    if trail.left_out:
        lines.insert(1, f"{counted(trail.left_out, 'event')} left out, with only the HMAC")
    terminal().print(Text("\n".join(lines)), soft_wrap=True)


# `crp_sess_` and at most 32 letters and digits.
SESSION_WIDTH = 41


def draw_sessions(seals: Iterable[WindowSeal]) -> None:
    """Print the sessions, one per line."""
    # Not truncated, so that it can be passed to `crp audit show`.
    whole = Column("Session", no_wrap=True, min_width=SESSION_WIDTH)
    table = Table(whole, "Windows", "First", "Last", title="Sessions", title_justify="left")
    for span in _spans(seals):
        table.add_row(*(Text(plain(str(cell))) for cell in span.values()))
    terminal().print(table if table.row_count else Text("no session was sealed in this store"))


def print_sessions(seals: Iterable[WindowSeal]) -> None:
    """Print one JSON document: a list with an object for each session."""
    typer.echo(json.dumps(list(_spans(seals)), indent=2))


def print_session(session_id: str, seals: Sequence[WindowSeal], events: Sequence[Event]) -> None:
    """Print a session's windows and events as one JSON document."""
    document = {
        "session_id": session_id,
        "windows": [seal.model_dump(mode="json") for seal in seals],
        "events": [event.model_dump(mode="json") for event in events],
    }
    typer.echo(json.dumps(document, indent=2))


def _spans(seals: Iterable[WindowSeal]) -> Iterator[dict[str, str | int]]:
    """For each session: the number of sealed windows and the times of the first and last."""
    for session_id, group in groupby(seals, key=lambda seal: seal.session_id):
        times = [seal.timestamp for seal in group]
        yield {
            "session_id": session_id,
            "windows": len(times),
            "first": min(times),
            "last": max(times),
        }


def draw_session(session_id: str, seals: Sequence[WindowSeal], events: Sequence[Event]) -> None:
    """Print a session's windows and events as two tables."""
    # Imported here, since it loads cryptography and numpy, which would slow down `--help`.
    from crp_integrations.audit.window_seals import parents_of

    numbers = {seal.hmac: seal.window_number for seal in seals}
    windows = Table(
        "No.", "Window", "Time", "Outcome", "Risk", "Follows", "HMAC", title="Windows",
        title_justify="left",
    )  # fmt: skip
    for seal in seals:
        follows = [str(numbers.get(hmac, "?")) for hmac in parents_of(seal)]
        cells = (
            str(seal.window_number),
            seal.window_id,
            seal.timestamp,
            seal.outcome,
            seal.risk_level,
            ", ".join(follows),
            _shortened(seal.hmac),
        )
        windows.add_row(*(Text(plain(cell)) for cell in cells))
    event_table = Table("Seq", "Event", "Window", "Says", title="Events", title_justify="left")
    for event in events:
        row = (str(event.seq), event.event_type.value, event.window_id, _event_summary(event))
        event_table.add_row(*(Text(plain(cell, whole=True)) for cell in row))
    terminal().print(Text(plain(session_id)), windows, event_table)


def _event_summary(event: Event) -> str:
    parts = []
    for name, value in event.data.items():
        if name in _ELSEWHERE or value in ("", []):
            continue
        if isinstance(value, list) and len(value) > 1:
            parts.append(f"{name}: {len(value)}")
        else:
            shown = value[0] if isinstance(value, list) else value
            text = shown if isinstance(shown, str) else json.dumps(shown)
            parts.append(f"{name}: {_shortened(text)}")
    return ", ".join(parts)


def _shortened(text: str) -> str:
    """The first digits of a hash; other text cut to a maximum length."""
    hashed = text.removeprefix("sha256:")
    return hashed[:DIGITS] if hashed != text else text[:_LONGEST]
