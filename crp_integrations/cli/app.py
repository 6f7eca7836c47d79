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
    "quickstart": ("ingest:quickstart", "Answer one question, and see a changed figure caught."),
    "check": ("check:check", "Check an answer against documents, claim by claim."),
    "ingest": ("ingest:ingest", "Put files and folders into the store, all or none."),
    "ask": ("ask:ask", "Ask a question: answer, context, verdict per claim."),
    "fabric": ("fabric:app", "Look after what is stored."),
    "receipt": ("receipt:app", "Show, check, replay and share receipts of answers."),
    "audit": ("audit:app", "Check, export and show the trail of what was asked."),
    "eval": ("evaluate:app", "Measure answers, selection, context rot and drift on your data."),
    "memory": ("memory:app", "Check memory items in files or in a store."),
    "guard": ("guard:guard", "Run the tests of an access policy, or ask what it decides."),
    "slo": ("slo:slo", "Compute the service levels of what was sealed."),
    "conformance": ("audit:conformance", "Print the weights and thresholds in force."),
    "serve": ("serve:serve", "Serve the protocol over HTTP in front of your models."),
    "keys": ("serve:keys", "List the gateway's keys, make or revoke one."),
}

app = group(
    COMMANDS,
    name="crp",
    help="Check answers against their sources, claim by claim, and keep the facts they rest on.",
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

    Of `check`, whose status 1 says that an answer failed, the status of an error is 2.

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
        sys.exit(_error_status())


def _run() -> None:
    """Run the command and write all of its output."""
    try:
        app()
    except CRPError as error:
        typer.echo(f"crp: {error}", err=True)
        sys.exit(_error_status())
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:
            typer.echo("crp: interrupted; what was not finished is not in the store", err=True)
        raise
    finally:
        # Python would write what is held back at its very end, and there a failure is a traceback.
        if sys.stdout is not None:
            sys.stdout.flush()


def _error_status() -> int:
    return 2 if sys.argv[1:2] == ["check"] else 1


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
