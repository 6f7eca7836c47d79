"""The entry point of `crp`: the list of commands, and errors as one sentence."""

from __future__ import annotations

import io
import logging
import os
import sys
from contextlib import suppress
from typing import Annotated

import typer

from crp_integrations import __version__
from crp_integrations.cli.command_groups import group
from crp_integrations.errors import CRPError

# Status of a command that Ctrl-C ended.
INTERRUPTED = 130
# How an output handles letters that it has not: by an error, or by one for all but odd names.
_FALLIBLE = ("strict", "surrogateescape")
UNWRITABLE = "the output cannot be written, and what the command did before stays done"

# Where each command is, and the first paragraph of its help, which a test compares.
COMMANDS = {
    "quickstart": (
        "ingest:quickstart",
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
        "ask:assemble",
        "Print a context with a marker for each document (CFS-021); no model is called.",
    ),
    "tokens": (
        "ask:tokens",
        "Count the tokens of a file as a model does, and say how sure the count is.",
    ),
    "conformance": (
        "audit:conformance",
        "Print the weights, amplifiers and thresholds in force, and what was verified.",
    ),
    "serve": (
        "serve:serve",
        "Serve the protocol over HTTP in front of an OpenAI-compatible server, or of LiteLLM.",
    ),
    "models": (
        "models:app",
        "List and fetch published verifiers.",
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
        "Service levels of what was sealed, and evidence.",
    ),
    "eval": (
        "evaluate:app",
        "Figures on your own data.",
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
    """Run the command; an error of ours is one sentence on standard error and status 1.

    An output that cannot be written, to a full disk say, is such an error; of a pipe that was
    closed nothing is said, since who closed it has read enough.
    """
    # Without a handler, Python prints the warnings of libraries beside our sentence.
    logging.getLogger().addHandler(logging.NullHandler())
    _set_output_encoding()
    try:
        _run()
    except OSError as error:
        _discard_output()
        if not isinstance(error, BrokenPipeError):
            what = f"{error.filename!r:.200} cannot be used" if error.filename else UNWRITABLE
            with suppress(OSError):
                typer.echo(f"crp: {what}: {error.strerror or error}", err=True)
        sys.exit(1)


def _run() -> None:
    """Run the command and write all that it says."""
    try:
        app()
    except CRPError as error:
        typer.echo(f"crp: {error}", err=True)
        sys.exit(1)
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:
            typer.echo("crp: interrupted; what was not finished is not in the store", err=True)
        raise
    finally:
        # Python would write what is held back at its very end, and there a failure is a traceback.
        if sys.stdout is not None:
            sys.stdout.flush()


def _set_output_encoding() -> None:
    """See to it that every text of a fact can be written, whatever this machine writes by itself.

    A file or a pipe gets UTF-8, unless the user chose otherwise; on a screen, and then, what there
    is no letter for is written as its number.
    """
    out = sys.stdout
    if not isinstance(out, io.TextIOWrapper) or out.errors not in _FALLIBLE:
        return
    chosen = out.isatty() or "PYTHONIOENCODING" in os.environ
    out.reconfigure(encoding=out.encoding if chosen else "utf-8", errors="backslashreplace")


def _discard_output() -> None:
    """Throw away what standard output holds back, which Python would try to write once more."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
