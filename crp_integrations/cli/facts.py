"""`crp fabric` commands for single facts and sources, and the export."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from crp_integrations.cli import options, store_views
from crp_integrations.cli.store_access import kept, sources_named
from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.vocabulary import FactStatus

if TYPE_CHECKING:
    from crp_integrations.fabric.records import Source, Where

FactIds = Annotated[list[str], typer.Argument(help="Fact ids.", metavar="FACT_ID...")]


class Form(StrEnum):
    """How an export is written."""

    JSONL = "jsonl"
    GRAPHML = "graphml"


class Listed(StrEnum):
    """Which facts an export lists."""

    ACTIVE = "active"
    STALE = "stale"
    QUARANTINED = "quarantined"
    ARCHIVED = "archived"

    def where(self) -> Where:
        """The facts that are meant."""
        from crp_integrations.fabric.records import Where

        if self is Listed.ARCHIVED:
            return Where(statuses=(FactStatus.ACTIVE, FactStatus.STALE), archived=True)
        archived = None if self is Listed.QUARANTINED else False
        return Where(statuses=(FactStatus(self.value.upper()),), archived=archived)


def verb(change: str) -> Callable[..., None]:
    """The command of a namespace's verb that takes fact ids and nothing else."""

    def command(
        facts: FactIds,
        store: options.Store = options.DEFAULT_STORE,
        shared: options.Shared = "",
        residency: options.Residency = "",
        tenant: options.Tenant = "",
        as_json: options.AsJson = False,
    ) -> None:
        with kept(store, shared, residency, tenant) as namespace:
            report = getattr(namespace, change)(facts)
        store_views.changed(report, as_json=as_json)

    return command


def quarantine(
    facts: FactIds,
    reason: Annotated[
        str, typer.Option("--reason", help="One sentence for who reviews it; shown, never stored.")
    ] = "",
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    residency: options.Residency = "",
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Take facts out of retrieval until they were reviewed."""
    with kept(store, shared, residency, tenant) as namespace:
        report = namespace.quarantine(facts, reason)
    store_views.changed(report, as_json=as_json, reason=reason)


def forget(
    facts: Annotated[list[str] | None, typer.Argument(metavar="FACT_ID...")] = None,
    source: Annotated[
        str | None, typer.Option("--source", help="A source by id, URI or path: all of its facts.")
    ] = None,
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    residency: options.Residency = "",
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Delete facts, or a source; their bytes go after the retention period."""
    with kept(store, shared, residency, tenant) as namespace:
        chosen = None
        if source is not None:
            named = sources_named(namespace, source)
            if len(named) > 1:
                raise RequestError(
                    f"{source!r:.80} is {len(named)} sources, one a line; give one by its id"
                )
            chosen = named[0].source_id
        report = namespace.forget(facts=facts or (), source=chosen)
    store_views.changed(report, as_json=as_json)


def erase(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Sources by id, URI or the path they were ingested from.", metavar="SOURCE..."
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first.")] = False,
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    residency: options.Residency = "",
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Erase sources: no byte of them stays; status 1 when files could not be scrubbed yet."""
    with kept(store, shared, residency, tenant) as namespace:
        chosen = {one.source_id: one for name in sources for one in sources_named(namespace, name)}
        if not yes:
            _confirm(list(chosen.values()))
        # One graph for all of them: it is built after the last.
        last = list(chosen)[-1]
        reports = [namespace.erase(id_, graph=id_ == last) for id_ in chosen]
    store_views.erased(reports, as_json=as_json)
    if not all(report.scrubbed for report in reports):
        raise typer.Exit(1)


def export(
    out: Annotated[
        str, typer.Option("--out", help="A new file; standard output when left out.")
    ] = "",
    form: Annotated[
        Form, typer.Option("--format", help="Sources and facts, or the graph of facts.")
    ] = Form.JSONL,
    status: Annotated[
        Listed | None,
        typer.Option("--status", help="Only facts of this status; all that a search may find."),
    ] = None,
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    residency: options.Residency = "",
    tenant: options.Tenant = "",
) -> None:
    """Write sources and facts as JSON lines, or the graph of facts as GraphML."""
    if form is Form.GRAPHML and not out:
        raise RequestError("GraphML is written to a file; give --out")
    if form is Form.GRAPHML and status is not None:
        raise RequestError("the graph is that of all facts that a search may find; leave --status")
    with kept(store, shared, residency, tenant) as namespace, opened(out) as file:
        if form is Form.GRAPHML:
            # Ids, communities, sources and weights; no text.
            from crp_integrations.engines.fact_graphs import write_graphml

            write_graphml(namespace.graph(), out)
            return
        for record in namespace.export(None if status is None else status.where()):
            file.write(record.model_dump_json() + "\n")


def _confirm(sources: list[Source]) -> None:
    """Ask before an erasure, which nothing brings back."""
    if not sys.stdin.isatty():
        raise RequestError("an erasure cannot be undone; give --yes where nobody can be asked")
    store_views.about_to_erase(sources)
    typer.confirm("Erase for good?", abort=True, err=True)


@contextmanager
def opened(out: str) -> Iterator[TextIO]:
    """A new file, or standard output for an empty name; a file that is not finished is removed."""
    if not out:
        # None where whoever called closed it.
        if sys.stdout is None:
            raise ConfigError("standard output is closed; open it, or give --out")
        yield sys.stdout
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(Path(out).open("x", encoding="utf-8", newline="\n"))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"{out!r:.200} cannot be written: {reason}") from error
        unfinished = stack.enter_context(ExitStack())
        unfinished.callback(Path(out).unlink, missing_ok=True)
        try:
            yield file
            # A disk that is full is noticed here at the latest, and not while the file is closed.
            file.flush()
        except OSError as error:
            raise ConfigError(f"{out!r:.200} cannot be written: {error.strerror}") from error
        unfinished.pop_all()
