"""`crp slo`: service levels from sealed windows, and signed evidence bundles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from pydantic import ValidationError
from rich.text import Text

from crp_integrations import __version__
from crp_integrations.audit.exports import ExportSelection, write_ndjson
from crp_integrations.cli import options, terminal
from crp_integrations.cli.fabric import new_file, write_bytes
from crp_integrations.cli.options import opened_relay
from crp_integrations.cli.receipt import read_bytes
from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.markup import counted
from crp_integrations.observability import bundle as bundles
from crp_integrations.observability.evaluations import EvaluationLog, merge_evaluations
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

_RecordType = TypeVar("_RecordType", bound=Record)

BaselinePath = Annotated[
    str, typer.Option("--baseline", help="File of a baseline from an earlier run.")
]
MetricsPath = Annotated[
    str,
    typer.Option("--metrics", help="A .prom file for the node exporter; needs observability."),
]
Evaluations = Annotated[
    str, typer.Option("--evaluations", help="Log of evaluations, as JSON lines.")
]


@options.with_scope
def slo(
    baseline: BaselinePath = "",
    save_baseline: Annotated[
        str,
        typer.Option("--save-baseline", help="New file for the present latency as a baseline."),
    ] = "",
    evaluations: Evaluations = "",
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail also if a level could not be measured.")
    ] = False,
    bundle: Annotated[
        str,
        typer.Option(
            "--bundle", help="New file for a signed bundle of levels, traces, trail and log head."
        ),
    ] = "",
    reports: Annotated[
        list[Path] | None,
        typer.Option("--report", help="With --bundle: a file to include unchanged; repeatable."),
    ] = None,
    metrics: MetricsPath = "",
    scope: options.StoreScope = options.DEFAULT_SCOPE,
    as_json: options.AsJson = False,
) -> None:
    """Compute service levels from the sealed windows of a store.

    The status is 1 if a level is not met.
    """
    if reports and not bundle:
        raise RequestError("--report needs --bundle; give both")
    if evaluations and not Path(evaluations).exists():
        # Only a command that appends to a log may create it.
        raise ConfigError(f"there is no log of evaluations {evaluations!r:.200}")
    before = read_record(baseline, LatencyBaseline) if baseline else None
    log = merge_evaluations(EvaluationLog(Path(evaluations)).read()) if evaluations else {}
    with opened_relay(scope) as relay:
        namespace, now = relay.region(scope.residency or None), clock(relay.settings).now()
        with namespace.begin(write=False) as transaction:
            whole = WindowLedger.read(transaction)
            later = WindowLedger.read(transaction, after=before.last_seq) if before else whole
            events = list(transaction.journal.events()) if bundle else []
        measured = measure_levels(later, evaluations=log, baseline=before)
        if bundle:
            files = {f"reports/{path.name}": read_bytes(str(path)) for path in reports or ()}
            if len(files) < len(reports or ()):
                raise RequestError("two reports have the same name; rename one of them")
            if evaluations:
                files["evaluations.ndjson"] = read_bytes(evaluations)
            receipts = relay.receipts(residency=scope.residency or None)
            lines = (f"{line}\n" for line in write_ndjson(events, ExportSelection()))
            files["trail.ndjson"] = "".join(lines).encode()
            files["traces.ndjson"] = bundles.json_lines(whole.packs)
            files["slo.json"] = bundles.json_lines([measured])
            files["log-head.json"] = receipts.head().write()
            packed = bundles.pack_bundle(
                files,
                receipts.sign,
                created_at=now,
                version=__version__,
                state_hash=namespace.state_hash(),
            )
            write_bytes(packed, bundle)
        if save_baseline:
            captured = capture_baseline(whole, now)
            if captured is None:
                raise RequestError(
                    "no window of this store has a measured assembly; ask something first"
                )
            with new_file(save_baseline) as target:
                target.write(captured.model_dump_json(indent=2) + "\n")
    if metrics:
        _write_levels(metrics, measured, before)
    terminal.print_record(measured, _draw_levels, as_json=as_json)
    if measured.missed or measured.hard_failure or (strict and measured.unmeasured):
        raise typer.Exit(1)


def read_record(path: str, kind: type[_RecordType]) -> _RecordType:
    """The record in a file."""
    try:
        return kind.model_validate_json(read_bytes(path))
    except ValidationError:
        raise ConfigError(f"{path!r:.200} is not a {kind.SCHEMA} record") from None


def _write_levels(path: str, measured: ServiceLevelTable, before: LatencyBaseline | None) -> None:
    from crp_integrations.observability.prometheus import LevelGauges

    levels = LevelGauges()
    for level in measured.levels:
        levels.level(level.name, level.value, level.met)
    if before is not None:
        levels.latency(before.p95_us / 1_000_000)
    write_metrics(levels, path)


def write_metrics(levels: LevelGauges, path: str) -> None:
    """Write metrics to a file."""
    try:
        levels.write(Path(path))
    except OSError as error:
        raise ConfigError(f"{path!r:.200} cannot be written: {error.strerror}") from error


_MET = {None: ("not measured", "yellow"), True: ("met", "green"), False: ("missed", "bold red")}


def _draw_levels(measured: ServiceLevelTable) -> None:
    rows = []
    for level in measured.levels:
        value = "–" if level.value is None else f"{level.value:.3f}"
        rows.append(
            (level.name, value, f"{level.target:.2f}", Text(*_MET[level.met]), level.detail)
        )
    title = f"Service levels over {counted(measured.windows, 'window')}"
    terminal.print_table(title, ("level", "value", "target", "met", "on"), rows)
    if measured.hard_failure:
        text = Text("a pack exceeds its budget by more than a tenth", "bold red")
        terminal.terminal().print(text)
