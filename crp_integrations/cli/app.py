"""The command's entry point: groups are registered here, errors become one sentence."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from crp_integrations import __version__
from crp_integrations.cli import (
    ask,
    assemble,
    audit,
    bench,
    bench_compaction,
    bench_gateway,
    bench_guard,
    bench_receipts,
    bench_rot,
    conformance,
    fabric,
    guard,
    ingest,
    memory,
    quickstart,
    receipt,
    serve,
    slo,
    tokens,
)
from crp_integrations.errors import CRPError

# Status of a command that Ctrl-C ended.
INTERRUPTED = 130

app = typer.Typer(
    name="crp",
    help="Put facts into a fabric, ask a model, and see what its answer rests on.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("quickstart")(quickstart.quickstart)
app.command("ingest")(ingest.ingest)
app.command("ask")(ask.ask)
app.command("preview")(ask.preview)
app.command("assemble")(assemble.assemble)
app.command("tokens")(tokens.tokens)
app.command("conformance")(conformance.conformance)
app.command("serve")(serve.serve)
app.add_typer(fabric.app, name="fabric")
app.add_typer(audit.app, name="audit")
app.add_typer(receipt.app, name="receipt")
app.add_typer(memory.app, name="memory")
app.add_typer(guard.app, name="guard")
app.add_typer(slo.app, name="slo")
bench.app.command("compaction")(bench_compaction.compaction)
bench.app.command("receipts")(bench_receipts.receipts)
bench.app.command("gateway")(bench_gateway.gateway)
bench.app.command("guard")(bench_guard.guard)
bench.app.command("rot")(bench_rot.rot)
app.add_typer(bench.app, name="bench")
app.add_typer(serve.app, name="keys")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"crp-integrations {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Context Relay Protocol for agent stacks."""


def main() -> None:
    """Run the command; an error of ours is one sentence on standard error and status 1."""
    # Without a handler, Python prints the warnings of libraries beside our sentence.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        app()
    except CRPError as error:
        typer.echo(f"crp: {error}", err=True)
        sys.exit(1)
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:
            typer.echo("crp: interrupted; what was not finished is not in the store", err=True)
        raise


if __name__ == "__main__":
    main()
