"""`crp audit …` and `crp conformance`: verify, export and show a store's audit trail."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crp_integrations import __version__
from crp_integrations.audit import exports
from crp_integrations.audit.records import Event, Stub
from crp_integrations.audit.trail import AuditTrail, verify_events
from crp_integrations.audit.window_seals import journal_key, session_key
from crp_integrations.cli import options, store_views
from crp_integrations.cli.fabric import new_file
from crp_integrations.cli.options import existing_store, opened_relay, printable_store, subject_of
from crp_integrations.errors import ChainBroken, ConfigError, RequestError
from crp_integrations.fabric.region import stored_name
from crp_integrations.guard.decisions import LOCAL
from crp_integrations.markup import counted
from crp_integrations.ports import KeyRing
from crp_integrations.relay.build import keyring_of
from crp_integrations.relay.defaults import Conformance
from crp_integrations.relay.defaults import conformance as report
from crp_integrations.relay.settings import load
from crp_integrations.stores.address import holds_store
from crp_integrations.stores.keys import FileKeyRing
from crp_integrations.vocabulary import ChainIntegrity, EventType

app = options.group("Check, export and show the audit trail.")


class TrailExportFormat(StrEnum):
    """Format of a trail export."""

    NDJSON = "ndjson"
    OCSF = "ocsf"


@app.command("verify")
@options.with_scope
def verify(
    file: Annotated[
        str, typer.Option("--file", help="Check this NDJSON export instead of the store.")
    ] = "",
    keys: Annotated[
        str, typer.Option("--keys", help="With --file: use this key file, not the store's.")
    ] = "",
    bundle: Annotated[
        str,
        typer.Option("--bundle", help="Check this bundle of crp slo instead; needs --key."),
    ] = "",
    key: Annotated[
        str, typer.Option("--key", help="With --bundle: the public key that must have signed it.")
    ] = "",
    scope: options.StoreScope = options.DEFAULT_SCOPE,
    as_json: options.AsJson = False,
) -> None:
    """Check every seal and every event; status 1 and the position if one does not verify."""
    if keys and not file:
        raise RequestError("--keys needs --file; a store is checked with its own keys")
    if bool(bundle) != bool(key) or (bundle and file):
        raise RequestError("--bundle and --key go together and without --file")
    if bundle:
        _verify_bundle(bundle, key, as_json=as_json)
        return
    subject_of(scope.tenant, scope.shared)
    try:
        if file:
            name = stored_name(scope.shared) if scope.shared else scope.tenant
            trail = _verified_export(file, _keys(keys, scope.store), name)
        else:
            with opened_relay(scope) as relay:
                trail = relay.verify()
    except ChainBroken as error:
        if not as_json:
            raise
        fields = {"state": ChainIntegrity.BROKEN, "index": error.index, "problem": str(error)}
        typer.echo(json.dumps(fields, indent=2))
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(store_views.trail_fields(trail), indent=2))
    else:
        store_views.draw_trail(trail)


def _verify_bundle(bundle: str, key: str, *, as_json: bool) -> None:
    """Check a bundle's signature and the hash of each of its files."""
    from crp_integrations.cli.receipt import read_bytes, read_public_keys
    from crp_integrations.observability.bundle import unpack_bundle

    manifest, files = unpack_bundle(read_bytes(bundle), read_public_keys(key))
    if as_json:
        typer.echo(manifest.model_dump_json(indent=2))
    else:
        typer.echo(f"verifies: {counted(len(manifest.files), 'file')}: {', '.join(sorted(files))}")


@app.command("export")
@options.with_scope
def export(
    form: Annotated[
        TrailExportFormat,
        typer.Option("--format", help="Verifiable JSON lines, or OCSF class 6003."),
    ] = TrailExportFormat.NDJSON,
    out: options.Out = "",
    # Unlike in `ask`, CRP_SESSION is not read: it must not silently limit an export.
    session: Annotated[str, typer.Option("--session", help="Only events of this session.")] = "",
    window: Annotated[str, typer.Option("--window", help="Only events of this window.")] = "",
    since: Annotated[str, typer.Option("--since", help="Only from this ISO 8601 time on.")] = "",
    until: Annotated[str, typer.Option("--until", help="Only before this ISO 8601 time.")] = "",
    types: Annotated[
        list[EventType] | None,
        typer.Option("--type", help="Only events of this type; repeatable."),
    ] = None,
    scope: options.StoreScope = options.DEFAULT_SCOPE,
) -> None:
    """Write events as JSON lines; NDJSON keeps the HMAC of each event that is left out."""
    chosen = exports.ExportSelection(
        session_id=session,
        window_id=window,
        since=exports.parse_moment(since) if since else None,
        until=exports.parse_moment(until) if until else None,
        types=frozenset(types or ()),
    )
    with (
        opened_relay(scope) as relay,
        new_file(out) as target,
        relay.fabric.begin(write=False) as transaction,
    ):
        events = transaction.journal.events()
        if session or window:
            events = _selected_events(events, chosen)
        lines = (
            exports.write_ndjson(events, chosen)
            if form is TrailExportFormat.NDJSON
            else exports.write_ocsf(events, chosen, version=__version__)
        )
        for line in lines:
            target.write(line + "\n")


@app.command("show")
@options.with_scope
def show(
    session: Annotated[str, typer.Argument(help="Session id. Default: list all sessions.")] = "",
    scope: options.StoreScope = options.DEFAULT_SCOPE,
    as_json: options.AsJson = False,
) -> None:
    """Show a session's windows and events, or list the sessions."""
    with (
        opened_relay(scope) as relay,
        relay.fabric.begin(write=False) as transaction,
    ):
        if not session:
            every = transaction.journal.all_seals()
            (store_views.print_sessions if as_json else store_views.draw_sessions)(every)
            return
        seals = transaction.journal.seals(session)
        if not seals:
            raise RequestError(f"this store has no sealed window of session {session!r:.80}")
        chosen = exports.ExportSelection(session_id=session)
        events = [event for event in transaction.journal.events() if chosen.takes(event)]
    (store_views.print_session if as_json else store_views.draw_session)(session, seals, events)


def _selected_events(events: Iterable[Event], chosen: exports.ExportSelection) -> Iterator[Event]:
    """The events unchanged; raises at the end if none is of the chosen session or window."""
    named = exports.ExportSelection(session_id=chosen.session_id, window_id=chosen.window_id)
    seen = False
    for event in events:
        seen = seen or named.takes(event)
        yield event
    if not seen:
        of = [("session", chosen.session_id), ("window", chosen.window_id)]
        wanted = " and ".join(f"{what} {name!r:.60}" for what, name in of if name)
        raise RequestError(f"this trail has no event of {wanted}")


def _keys(path: str, store: str) -> KeyRing:
    """The keys of a file if given, else those of the settings or the store."""
    if path:
        if not Path(path).is_file():
            raise ConfigError(f"there is no key file {path!r:.200}")
        return FileKeyRing(path)
    there = holds_store(store)
    settings = load(Path(store) if there else None)
    if not (there or settings.key):
        raise RequestError(
            "checking an export needs its store's key, and there is no store at "
            f"{printable_store(store)!r}; give --store or --keys, or the key as CRP_KEY"
        )
    return keyring_of(settings, None if settings.key else Path(existing_store(store)))


def _verified_export(file: str, keyring: KeyRing, name: str) -> AuditTrail:
    """Verify an NDJSON export."""
    first: list[int] = []

    def noted(events: Iterable[Event | Stub]) -> Iterator[Event | Stub]:
        for index, event in enumerate(events):
            if not first and isinstance(event, Event):
                first.append(index)
            yield event

    try:
        with Path(file).open(encoding="utf-8", newline="\n") as lines:
            return verify_events(
                noted(exports.read_ndjson(lines)),
                journal_key=journal_key(keyring, name or LOCAL.tenant),
                session_key=lambda session_id: session_key(keyring, session_id),
            )
    except ChainBroken as error:
        if [error.index] != first:
            raise
        # With wrong keys every event fails, so the error is at the first one.
        raise ChainBroken(
            f"{error}; other possible causes: the keys of another store, or a trail that is not of "
            f"tenant {name or LOCAL.tenant!r} (--tenant)",
            index=error.index,
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not valid text"
        raise ConfigError(f"{file!r:.200} cannot be read: {reason}") from error


def conformance(
    store: Annotated[
        str | None, typer.Option("--store", help="Folder of a store, to read its crp.toml.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the weights and thresholds in force."""
    conformance_report = report(load(None if store is None else Path(store)))
    if as_json:
        typer.echo(conformance_report.model_dump_json(indent=2))
        return
    typer.echo("\n".join(_lines(conformance_report)))


def _lines(report: Conformance) -> Iterator[str]:
    yield from _table("Weight", report.weights)
    yield from _table("Level from", report.levels)
    yield from _table("Amplifier", report.amplifiers)
    yield from _table("Loop depth", report.loop_depth)
    yield from _table("Omission from importance", report.omissions)
    yield from _table(
        "Threshold", {"omission, cosine": report.omission_cosine, **report.embedder_thresholds}
    )
    yield f"Preset {report.preset}, settings {report.settings_digest}."
    yield f"Embedder {report.embedder}; verifier {report.verifier}."
    yield f"Catalogue {report.catalogue}, evaluated by {report.policy}."
    checked = (
        "was compared with its published hashes" if report.code_verified else "was not checked"
    )
    yield f"The engine's code {checked}; every shipped weight has its card's hash."


def _table(head: str, rows: Mapping[str, float]) -> Iterator[str]:
    yield from (f"| {head} | |", "|---|---|")
    yield from (f"| {name} | {value:g} |" for name, value in rows.items())
    yield ""
