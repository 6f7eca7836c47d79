"""`crp slo …`: service levels from what was sealed, and evidence."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from pydantic import ValidationError
from rich.table import Table as Drawn
from rich.text import Text

from crp_integrations import Relay, __version__
from crp_integrations.audit.exports import ExportSelection, write_ndjson
from crp_integrations.cli import options
from crp_integrations.cli.fabric import new_file
from crp_integrations.cli.receipt_files import read_bytes, read_public_keys
from crp_integrations.cli.store_access import opened_relay
from crp_integrations.cli.terminal import counted, terminal
from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.observability import bundle as bundles
from crp_integrations.observability.evaluations import (
    Evaluation,
    EvaluationLog,
    Feedback,
    merge_evaluations,
)
from crp_integrations.observability.service_levels import (
    LatencyBaseline,
    ServiceLevelTable,
    WindowLedger,
    capture_baseline,
    measure_levels,
)
from crp_integrations.records import Record
from crp_integrations.relay.defaults import clock

if TYPE_CHECKING:
    from crp_integrations.observability.prometheus import LevelGauges

app = typer.Typer(
    help="Service levels of what was sealed, and evidence.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_RecordType = TypeVar("_RecordType", bound=Record)

JsonPath = Annotated[str, typer.Option("--json", help="Where to write the report, a new file.")]
BaselinePath = Annotated[
    str, typer.Option("--baseline", help="A baseline that was captured before.")
]
MetricsPath = Annotated[
    str,
    typer.Option("--metrics", help="A .prom file for the node exporter; needs observability."),
]
Tenant = Annotated[
    str, typer.Option("--tenant", help="A gateway's tenant, for the operator; else the local one.")
]
Evaluations = Annotated[
    str, typer.Option("--evaluations", help="A log of evaluations, one JSON a line.")
]


def _window_ledger(relay: Relay, residency: str, after: int = 0) -> WindowLedger:
    with relay.region(residency or None).begin(write=False) as transaction:
        return WindowLedger.read(transaction, after=after)


@app.command("check")
@options.with_scope
def check(
    baseline: BaselinePath = "",
    evaluations: Evaluations = "",
    strict: Annotated[
        bool, typer.Option("--strict", help="A level that could not be measured fails as well.")
    ] = False,
    json_path: JsonPath = "",
    metrics: MetricsPath = "",
    scope: options.StoreScope = options.DEFAULT_SCOPE,
) -> None:
    """The table of service levels; status 1 when one is not met."""
    before = read_record(baseline, LatencyBaseline) if baseline else None
    with opened_relay(scope) as relay:
        found = _level_table(relay, scope.residency, before, evaluations)
    if metrics:
        _write_levels(metrics, found, before)
    if json_path:
        save_record(found, json_path)
    _draw_levels(found)
    if found.missed or found.hard_failure or (strict and found.unmeasured):
        raise typer.Exit(1)


def _level_table(
    relay: Relay, residency: str, before: LatencyBaseline | None, evaluations: str
) -> ServiceLevelTable:
    after = before.last_seq if before else 0
    if evaluations and not Path(evaluations).exists():
        # A log that nobody began yet is one only for who adds to it.
        raise ConfigError(f"there is no log of evaluations {evaluations!r:.200}")
    log = merge_evaluations(EvaluationLog(Path(evaluations)).read()) if evaluations else {}
    return measure_levels(_window_ledger(relay, residency, after), evaluations=log, baseline=before)


@app.command("baseline")
@options.with_scope
def baseline(
    out: Annotated[str, typer.Option("--out", "-o", help="Where to write it, a new file.")] = "",
    scope: options.StoreScope = options.DEFAULT_SCOPE,
) -> None:
    """Capture the latency up to now; a later check compares what comes after with it."""
    with opened_relay(scope) as relay:
        now = clock(relay.settings).now()
        found = capture_baseline(_window_ledger(relay, scope.residency), now)
    if found is None:
        raise RequestError("no window of this store has a measured assembly; ask something first")
    save_record(found, out)


@app.command("review")
@options.with_scope
def review(
    window: Annotated[str, typer.Argument(help="Id of the window.")],
    evaluations: Evaluations,
    correct: Annotated[
        bool | None, typer.Option("--correct/--wrong", help="Whether the pack was the right one.")
    ] = None,
    answered: Annotated[
        bool | None, typer.Option("--answered/--not-answered", help="Whether the answer is right.")
    ] = None,
    completed: Annotated[
        bool | None,
        typer.Option("--completed/--abandoned", help="Whether the user's task was done with it."),
    ] = None,
    csat: Annotated[
        int | None, typer.Option("--csat", min=1, max=5, help="The user's satisfaction.")
    ] = None,
    scope: options.StoreScope = options.DEFAULT_SCOPE,
) -> None:
    """Add a person's word on a window to a log of evaluations."""
    said = Feedback(pack_correct=correct, task_correct=answered, completed=completed, csat=csat)
    if said == Feedback():
        raise RequestError("nothing was said; give --correct, --answered, --completed or --csat")
    with opened_relay(scope) as relay:
        packs = {pack.window_id: pack for pack in _window_ledger(relay, scope.residency).packs}
    pack = packs.get(window)
    if pack is None:
        raise RequestError(f"no window {window!r:.60} with a pack was sealed in this store")
    log = EvaluationLog(Path(evaluations))
    # A file that holds something else is left as it is.
    merge_evaluations(log.read())
    log.add(
        Evaluation(
            window_id=window,
            session_id=pack.session_id,
            ledger_hmac=pack.ledger_hmac,
            latency_us=pack.assembly_us,
            feedback=said,
        )
    )


@app.command("bundle")
@options.with_scope
def bundle(
    reports: Annotated[
        list[Path] | None, typer.Argument(help="Reports of harnesses to put in, as they are.")
    ] = None,
    out: Annotated[
        str, typer.Option("--out", "-o", help="Where to write the bundle, a new file.")
    ] = "evidence.tar.gz",
    baseline: BaselinePath = "",
    evaluations: Evaluations = "",
    scope: options.StoreScope = options.DEFAULT_SCOPE,
) -> None:
    """Put traces, service levels, trail, log head and given reports into a signed bundle."""
    before = read_record(baseline, LatencyBaseline) if baseline else None
    files = {f"reports/{path.name}": read_bytes(str(path)) for path in reports or ()}
    if len(files) < len(reports or ()):
        raise RequestError("two reports have one name; rename one of them")
    if evaluations:
        files["evaluations.ndjson"] = read_bytes(evaluations)
    with opened_relay(scope) as relay:
        namespace = relay.region(scope.residency or None)
        with namespace.begin(write=False) as transaction:
            events = list(transaction.journal.events())
        files["trail.ndjson"] = "".join(
            f"{one}\n" for one in write_ndjson(events, ExportSelection())
        ).encode()
        files["traces.ndjson"] = bundles.json_lines(_window_ledger(relay, scope.residency).packs)
        files["slo.json"] = bundles.json_lines(
            [_level_table(relay, scope.residency, before, evaluations)]
        )
        files["log-head.json"] = relay.receipts(residency=scope.residency or None).head().write()
        made = bundles.pack_bundle(
            files,
            relay.receipts(residency=scope.residency or None).sign,
            created_at=clock(relay.settings).now(),
            version=__version__,
            state_hash=namespace.state_hash(),
        )
    _write_new_file(made, out)
    terminal().print(f"{counted(len(files), 'file')} in {out}", soft_wrap=True)


@app.command("verify")
def verify(
    file: Annotated[str, typer.Argument(help="A bundle.")],
    key: Annotated[str, typer.Option("--key", help="Public key, as crp receipt key writes it.")],
) -> None:
    """Check a bundle's signature and the hash of each of its files; status 1 when one differs."""
    manifest, files = bundles.unpack_bundle(read_bytes(file), read_public_keys(key))
    names = ", ".join(sorted(files))
    terminal().print(f"verifies: {counted(len(manifest.files), 'file')}: {names}", soft_wrap=True)


def read_record(path: str, kind: type[_RecordType]) -> _RecordType:
    """A record of a file."""
    try:
        return kind.model_validate_json(read_bytes(path))
    except ValidationError:
        raise ConfigError(f"{path!r:.200} is no {kind.SCHEMA}") from None


def _write_new_file(data: bytes, path: str) -> None:
    """Write a new file; one that is not finished is removed."""
    try:
        with Path(path).open("xb") as target, ExitStack() as unfinished:
            unfinished.callback(Path(path).unlink, missing_ok=True)
            target.write(data)
            # A disk that is full is noticed here at the latest, and not while the file is closed.
            target.flush()
            unfinished.pop_all()
    except OSError as error:
        raise ConfigError(f"{path!r:.200} cannot be written: {error.strerror}") from error


def save_record(record: Record, path: str) -> None:
    """Write a record as JSON into a new file."""
    with new_file(path) as target:
        target.write(record.model_dump_json(indent=2) + "\n")


def _write_levels(path: str, found: ServiceLevelTable, before: LatencyBaseline | None) -> None:
    from crp_integrations.observability.prometheus import LevelGauges

    levels = LevelGauges()
    for level in found.levels:
        levels.level(level.name, level.value, level.met)
    if before is not None:
        levels.latency(before.p95_us / 1_000_000)
    write_metrics(levels, path)


def write_metrics(levels: LevelGauges, path: str) -> None:
    """Write a file of metrics."""
    try:
        levels.write(Path(path))
    except OSError as error:
        raise ConfigError(f"{path!r:.200} cannot be written: {error.strerror}") from error


def _draw_levels(found: ServiceLevelTable) -> None:
    drawn = Drawn(title=f"Service levels over {counted(found.windows, 'window')}")
    for name in ("level", "value", "target", "met", "on"):
        drawn.add_column(name)
    for level in found.levels:
        value = "–" if level.value is None else f"{level.value:.3f}"
        drawn.add_row(
            level.name, value, f"{level.target:.2f}", _met_text(level.met), Text(level.said)
        )
    terminal().print(drawn)
    if found.hard_failure:
        terminal().print(Text("a pack is above its budget by more than a tenth", "bold red"))


def _met_text(met: bool | None) -> Text:
    if met is None:
        return Text("not measured", "yellow")
    return Text("met", "green") if met else Text("missed", "bold red")
