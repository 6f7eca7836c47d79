"""`crp fabric …`: statistics, maintenance, changes to facts and sources, export and migration."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from crp_integrations.cli import options, serve, store_views, terminal
from crp_integrations.cli.options import (
    opened_namespace,
    printable_store,
    reembedding,
    sources_named,
)
from crp_integrations.cli.terminal import plain
from crp_integrations.errors import ConfigError, RequestError, StoreError
from crp_integrations.markup import counted
from crp_integrations.vocabulary import FactStatus

if TYPE_CHECKING:
    from crp_integrations.audit.records import Event, JournalFacet
    from crp_integrations.fabric.namespace import Namespace
    from crp_integrations.fabric.records import Source, Where


class FactExportFormat(StrEnum):
    """Format of an export."""

    JSONL = "jsonl"
    GRAPHML = "graphml"
    ARCHIVE = "archive"


class ExportStatus(StrEnum):
    """Which facts an export contains."""

    ACTIVE = "active"
    STALE = "stale"
    QUARANTINED = "quarantined"
    ARCHIVED = "archived"

    def where(self) -> Where:
        """The filter for these facts."""
        from crp_integrations.fabric.records import Where

        if self is ExportStatus.ARCHIVED:
            return Where(statuses=(FactStatus.ACTIVE, FactStatus.STALE), archived=True)
        archived = None if self is ExportStatus.QUARANTINED else False
        return Where(statuses=(FactStatus(self.value.upper()),), archived=archived)


class FactMark(StrEnum):
    """A mark that the command sets on facts."""

    QUARANTINED = "quarantined"
    LIFTED = "lifted"
    STALE = "stale"
    ARCHIVED = "archived"
    RESTORED = "restored"
    FORGOTTEN = "forgotten"


# Methods of a namespace that take only ids.
_VERBS = {
    FactMark.LIFTED: "lift",
    FactMark.STALE: "mark_stale",
    FactMark.ARCHIVED: "archive",
    FactMark.RESTORED: "restore",
}


@options.with_scope
def mark(
    status: Annotated[FactMark, typer.Argument(help="New status of the facts.")],
    facts: Annotated[
        list[str] | None, typer.Argument(help="Fact ids.", metavar="FACT_ID...")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", help="With forgotten: a whole source, by id, URI or path."),
    ] = None,
    reason: Annotated[
        str,
        typer.Option("--reason", help="With quarantined: a sentence to print; it is not stored."),
    ] = "",
    scope: options.StoreScope = options.DEFAULT_SCOPE,
    as_json: options.AsJson = False,
) -> None:
    """Mark facts as quarantined, lifted, stale, archived, restored or forgotten.

    No search finds quarantined or archived facts until they are lifted or restored. Stale facts
    are found, marked as old. Forgotten facts are deleted after the retention period.
    """
    if reason and status is not FactMark.QUARANTINED:
        raise RequestError("--reason is only for quarantined; leave it out")
    if source is not None and status is not FactMark.FORGOTTEN:
        raise RequestError("--source is only for forgotten; give the ids of facts")
    ids = facts or []
    if not ids and status is not FactMark.FORGOTTEN:
        raise RequestError("no fact is named; give FACT_ID")
    with opened_namespace(scope) as namespace:
        if status is FactMark.QUARANTINED:
            report = namespace.quarantine(ids, reason)
        elif status in _VERBS:
            report = getattr(namespace, _VERBS[status])(ids)
        else:
            named = [] if source is None else sources_named(namespace, source)
            if (count := len(named)) > 1:
                raise RequestError(
                    f"{source!r:.80} is {count} sources, one per line; give one by its id"
                )
            report = namespace.forget(facts=ids, source=named[0].source_id if named else None)
    store_views.draw_change(report, as_json=as_json, reason=reason)


@options.with_scope
def erase(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Sources by id, URI or the path they were ingested from.", metavar="SOURCE..."
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="Erase the whole tenant; needs --proof.")
    ] = False,
    proof: Annotated[
        str,
        typer.Option(
            "--proof",
            help="With --everything: new file for its trail; FILE.partial until it is erased.",
        ),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    scope: options.StoreScope = options.DEFAULT_SCOPE,
    as_json: options.AsJson = False,
) -> None:
    """Erase sources completely; status 1 if files could not be scrubbed yet."""
    if everything == bool(sources) or everything != bool(proof):
        raise RequestError("give SOURCE..., or --everything with --proof FILE")
    with opened_namespace(scope) as namespace:
        if not sources:
            # Or a second erasure would overwrite the proof of the first.
            options.refuse_unknown(namespace, namespace.subject.tenant, scope.residency)
            _erase_tenant(namespace, proof, yes=yes, as_json=as_json)
            return
        chosen = {
            source.source_id: source
            for name in sources
            for source in sources_named(namespace, name)
        }
        if not yes:
            _confirm(list(chosen.values()))
        # Build the graph only once, after the last erasure.
        last = list(chosen)[-1]
        reports = [namespace.erase(id_, graph=id_ == last) for id_ in chosen]
    store_views.draw_erasures(reports, as_json=as_json)
    if not all(report.scrubbed for report in reports):
        raise typer.Exit(1)


def _erase_tenant(namespace: Namespace, proof: str, *, yes: bool, as_json: bool) -> None:
    """Erase a tenant; PROOF.partial with its trail is synced first, and gets its name at the end.

    From then on nothing removes it, whatever fails.
    """
    from crp_integrations.audit.exports import write_ndjson
    from crp_integrations.stores.files import sync_folder

    if Path(proof).exists():
        raise ConfigError(f"{proof!r:.200} exists already; give a new file for the proof")
    unfinished = Path(f"{proof}.partial")
    tenant = namespace.subject.tenant
    if not yes:
        _confirm(f"tenant {plain(tenant, whole=True)}: everything, including its trail")

    def keep(events: Iterable[Event]) -> None:
        with suppress(OSError):
            unfinished.unlink()
        with new_file(str(unfinished)) as file:
            file.writelines(f"{line}\n" for line in write_ndjson(events))
            file.flush()
            os.fsync(file.fileno())
            sync_folder(unfinished.parent)

    facts = namespace.erase_everything(keep)
    try:
        unfinished.rename(proof)
        sync_folder(unfinished.parent)
    except OSError as error:
        raise ConfigError(
            f"the tenant is erased, and its proof is {str(unfinished)!r:.200}, which cannot be "
            f"renamed: {error.strerror}"
        ) from error
    if as_json:
        typer.echo(json.dumps({"tenant": tenant, "facts": facts, "proof": proof}))
        return
    typer.echo(
        f"{plain(tenant, whole=True)} is erased: {counted(facts, 'fact')}, sessions and trail. "
        f"Check the proof with: crp audit verify --file {plain(proof, whole=True)} --tenant NAME"
    )


@options.with_scope
def export(
    out: options.Out = "",
    form: Annotated[
        FactExportFormat,
        typer.Option(
            "--format", help="JSON lines, the graph of facts, or an archive to import elsewhere."
        ),
    ] = FactExportFormat.JSONL,
    status: Annotated[
        ExportStatus | None,
        typer.Option("--status", help="Only facts of this status. Default: all searchable facts."),
    ] = None,
    scope: options.StoreScope = options.DEFAULT_SCOPE,
) -> None:
    """Write facts as JSON lines or GraphML, or a whole tenant as an archive."""
    if form is not FactExportFormat.JSONL and not out:
        raise RequestError(f"{form} is written to a file; give --out")
    if form is not FactExportFormat.JSONL and status is not None:
        raise RequestError(f"{form} contains all facts; leave --status out")
    if form is FactExportFormat.ARCHIVE:
        _export_archive(scope, out)
        return
    with opened_namespace(scope) as namespace, new_file(out) as file:
        if form is FactExportFormat.GRAPHML:
            # Ids, communities, sources and weights; no text.
            from crp_integrations.engines.graphs import write_graphml

            write_graphml(namespace.graph(), out)
            return
        for record in namespace.export(None if status is None else status.where()):
            file.write(record.model_dump_json() + "\n")


def _export_archive(scope: options.StoreScope, out: str) -> None:
    """Write a tenant or shared namespace with everything in it, vectors and trail included."""
    from crp_integrations.stores.archive import export_namespace

    if scope.residency:
        raise RequestError("an archive takes no --residency; give the region's folder as --store")
    name = options.namespace_of(scope.tenant, scope.shared)
    with (
        closing(options.open_store(options.existing_store(scope.store))) as store,
        _opened(out, "xb") as file,
    ):
        Path(out).chmod(0o600)
        moved = export_namespace(store, name, file, Path(out).absolute().parent)
        file.flush()
        os.fsync(file.fileno())
    options.echo_moved(name, moved)


def import_archive(
    file: Annotated[str, typer.Argument(help="File of crp fabric export --format archive.")],
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Put an exported tenant into a store that does not have it, all or nothing."""
    from crp_integrations.audit.journal import matches_key
    from crp_integrations.audit.window_seals import journal_key
    from crp_integrations.relay.build import keyring_of
    from crp_integrations.relay.settings import load
    from crp_integrations.stores.archive import import_namespace

    folder = None if "://" in store else Path(store)

    def check(name: str, journal: JournalFacet) -> None:
        settings = load(folder)
        there = settings.key or (folder is not None and (folder / "keys").is_file())
        # Without this, a new store would get a new key.
        if there and matches_key(journal, journal_key(keyring_of(settings, folder), name)):
            return
        raise ConfigError(
            f"the trail of {name!r:.80} is sealed with another key than that of "
            f"{printable_store(store)!r:.80}; give the key of the store it comes from as CRP_KEY, "
            "or put its file keys into the folder; nothing was imported"
        )

    name = options.namespace_of(tenant, shared)
    with closing(options.open_store(store)) as target:
        moved = import_namespace(Path(file), target, name, check)
    if as_json:
        typer.echo(json.dumps(asdict(moved), indent=2))
    else:
        options.echo_moved(moved.namespace, moved)


def _confirm(what: str | list[Source]) -> None:
    """Ask for confirmation, since an erasure cannot be undone."""
    if not sys.stdin.isatty():
        raise RequestError("an erasure cannot be undone; without a terminal, confirm it with --yes")
    if isinstance(what, str):
        typer.echo(what, err=True)
    else:
        store_views.list_sources(what)
    typer.confirm("Erase for good?", abort=True, err=True)


@contextmanager
def new_file(out: str) -> Iterator[TextIO]:
    """A new file, or standard output for an empty name; an unfinished file is removed."""
    if not out:
        # None if the calling process closed it.
        if sys.stdout is None:
            raise ConfigError("standard output is closed; open it, or give --out")
        yield sys.stdout
        return
    with _opened(out, "x", encoding="utf-8", newline="\n") as file:
        yield file


def write_bytes(data: bytes, out: str) -> None:
    """Write a new file; an unfinished file is removed."""
    with _opened(out, "xb") as file:
        file.write(data)


@contextmanager
def _opened(out: str, mode: str, **how: Any) -> Iterator[Any]:
    with ExitStack() as stack:
        try:
            file = stack.enter_context(Path(out).open(mode, **how))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"{out!r:.200} cannot be written: {reason}") from error
        unfinished = stack.enter_context(ExitStack())
        unfinished.callback(Path(out).unlink, missing_ok=True)
        try:
            yield file
            # Report a full disk here rather than when the file is closed.
            file.flush()
        except OSError as error:
            raise ConfigError(f"{out!r:.200} cannot be written: {error.strerror}") from error
        unfinished.pop_all()


def migrate(
    source: Annotated[str, typer.Option("--from", help="Folder or postgresql:// address.")],
    target: Annotated[str, typer.Option("--to", help="Folder or postgresql:// address.")],
    tenant: Annotated[str, typer.Option("--tenant", help="Only this tenant. Default: all.")] = "",
    as_json: options.AsJson = False,
) -> None:
    """Copy the namespaces of a store to another store and compare the state hashes."""
    from crp_integrations.stores.address import holds_store
    from crp_integrations.stores.transfer import move, moved_already

    if not holds_store(source):
        raise RequestError(
            f"there is no store at {printable_store(source)!r:.80}; nothing was copied"
        )
    with ExitStack() as opened:
        old, new = (
            opened.enter_context(closing(options.open_store(address)))
            for address in (source, target)
        )
        if old.name == new.name:
            raise RequestError(f"{old.name} is given as both stores; nothing was copied")
        # Checked before copying; namespaces that an interrupted run copied are accepted.
        names = [name for name in old.namespaces() if tenant in ("", name)]
        if not names:
            raise RequestError(f"tenant {tenant!r:.60} has nothing in {old.name}")
        taken = {*names} & {*new.namespaces()}
        done = {name: moved_already(old, new, name) for name in names if name in taken}
        refused = [name for name, same in done.items() if same is None]
        if refused:
            raise StoreError(
                f"{new.name} has {counted(len(refused), 'namespace')} of these names already, such "
                f"as {refused[0]!r:.80}, with different content; nothing was copied"
            )
        copied = []
        for name in names:
            there = done.get(name)
            moved = there or move(old, new, name, lambda table, rows: None)
            if as_json:
                copied.append({**asdict(moved), "there_already": bool(there)})
                continue
            options.echo_moved(name, moved, ", there already" if there else "")
    if as_json:
        typer.echo(json.dumps(copied, indent=2))
        return
    keys = Path(source) / "keys"
    if "://" not in source and keys.is_file():
        typer.echo(
            f"The master key stays in {keys}. To open the copy, give it as CRP_KEY for a database, "
            "or copy it to the file keys of a folder."
        )


app = options.group("Inspect and maintain the stored facts and sources.")
app.command("init")(serve.init)
app.command("mark")(mark)
app.command("erase")(erase)
app.command("export")(export)
app.command("import")(import_archive)
app.command("migrate")(migrate)


@app.command("stats")
@options.with_scope
def stats(
    distorted: Annotated[
        bool,
        typer.Option("--distorted", help="Instead, list facts that answers repeatedly distort."),
    ] = False,
    least: Annotated[
        int | None,
        typer.Option("--least", min=1, help="With --distorted: minimum findings for each fact."),
    ] = None,
    scope: options.StoreScope = options.DEFAULT_SCOPE,
    as_json: options.AsJson = False,
) -> None:
    """Show counts, hashes and sizes of a store, or list facts to review."""
    if least is not None and not distorted:
        raise RequestError("--least needs --distorted; give both")
    with opened_namespace(scope) as namespace:
        if distorted:
            due = namespace.facts(namespace.due_for_review(least))
            store_views.list_for_review(due, as_json=as_json)
            return
        statistics = namespace.stats()
    terminal.print_record(statistics, store_views.draw_stats, as_json=as_json)


@app.command("doctor")
@options.with_scope
def doctor(
    scope: options.StoreScope = options.DEFAULT_SCOPE,
    as_json: options.AsJson = False,
) -> None:
    """Read and check everything that is stored; status 1 if something is wrong."""
    with opened_namespace(scope) as namespace:
        examination = namespace.doctor()
    terminal.print_record(examination, store_views.draw_examination, as_json=as_json)
    if examination.findings:
        raise typer.Exit(1)


@app.command("maintain")
@options.with_scope
def maintain(
    recluster: Annotated[
        bool, typer.Option("--recluster", help="Only recompute the communities, due or not.")
    ] = False,
    compact: Annotated[
        bool,
        typer.Option("--compact", help="Only rewrite the files to free unused space."),
    ] = False,
    reembed: Annotated[
        bool,
        typer.Option("--reembed", help="Only recompute all vectors; safe to interrupt."),
    ] = False,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="With --reembed: onnx:FOLDER or litellm:MODEL. Default: that of the settings.",
        ),
    ] = "",
    scope: options.StoreScope = options.DEFAULT_SCOPE,
    as_json: options.AsJson = False,
) -> None:
    """Do all maintenance that is due: ttl, retention, archiving, communities, index."""
    if sum((recluster, compact, reembed)) > 1:
        raise RequestError("give one of --recluster, --compact and --reembed")
    if model and not reembed:
        raise RequestError("--model needs --reembed; give both")
    if reembed and scope.residency:
        raise RequestError("--reembed takes no --residency; give the region's folder as --store")
    with ExitStack() as stack:
        advance = stack.enter_context(terminal.progress_bar(quiet=as_json))
        if reembed:
            move = stack.enter_context(reembedding(scope.store, scope.shared, model, scope.tenant))
            terminal.print_record(move(advance), store_views.draw_reembedding, as_json=as_json)
            return
        namespace = stack.enter_context(opened_namespace(scope))
        if recluster:
            clusters = namespace.recluster()
            terminal.print_record(clusters, store_views.draw_clusters, as_json=as_json)
        elif compact:
            before = sum(namespace.stats().files.values())
            namespace.compact()
            after = sum(namespace.stats().files.values())
            store_views.draw_compaction(before, after, as_json=as_json)
        else:
            report = namespace.maintain(advance)
            terminal.print_record(report, store_views.draw_maintenance, as_json=as_json)
