"""The command's entry point: groups are registered here, errors become one sentence."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from crp_integrations import __version__
from crp_integrations.cli.loading import group
from crp_integrations.errors import CRPError

# Status of a command that Ctrl-C ended.
INTERRUPTED = 130

# Where each command is, and the first paragraph of its help, which a test compares.
COMMANDS = {
    "quickstart": (
        "quickstart:quickstart",
        "Ingest pages of the package's documentation and ask three questions, without any key.",
    ),
    "ingest": (
        "ingest:ingest",
        "Put files and folders into the store: all of them, or none when one cannot be read.",
    ),
    "ask": (
        "ask:ask",
        "Ask a question: the answer, what the model saw, the verdict per claim, the headers.",
    ),
    "preview": (
        "ask:preview",
        "Show what the context for a question would be, without asking a model.",
    ),
    "assemble": (
        "assemble:assemble",
        "Print a context with a marker for each document (CFS-021); no model is called.",
    ),
    "tokens": (
        "tokens:tokens",
        "Count the tokens of a file as a model does, and say how sure the count is.",
    ),
    "conformance": (
        "conformance:conformance",
        "Print the weights, amplifiers and thresholds in force, and what was verified.",
    ),
    "serve": (
        "serve:serve",
        "Serve the protocol over HTTP in front of an OpenAI-compatible server, or of LiteLLM.",
    ),
    "fabric": (
        "fabric:app",
        "Look after what is stored.",
    ),
    "audit": (
        "audit:app",
        "Check, export and show the trail of what was asked.",
    ),
    "receipt": (
        "receipt:app",
        "Show, check, replay and share the receipt of an answer.",
    ),
    "memory": (
        "memory:app",
        "Memory items.",
    ),
    "guard": (
        "guard:app",
        "Who may read what.",
    ),
    "slo": (
        "slo:app",
        "Service levels of what was sealed, drift of a golden set, evidence.",
    ),
    "bench": (
        "benches:app",
        "Measure this machine.",
    ),
    "keys": (
        "serve:app",
        "Make, list and revoke the gateway's keys.",
    ),
}

app = group(
    COMMANDS,
    name="crp",
    help="Put facts into a fabric, ask a model, and see what its answer rests on.",
    no_args_is_help=True,
)


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
