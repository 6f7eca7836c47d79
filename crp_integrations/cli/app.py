"""The entry point of `crp`: the list of commands, imported when they are called, and errors."""

from __future__ import annotations

import io
import logging
import os
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from crp_integrations import __version__
from crp_integrations.errors import CRPError, RequestError

# As everywhere in this room: no completion, help as plain text, exceptions as they are.
PLAIN: Final[dict[str, Any]] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}
# Help is as wide as the terminal; without this it ends at 80 columns.
WIDE: Final = {"max_content_width": 10_000}


class LazyGroup(TyperGroup):
    """A group that names its commands, and imports the one that is called.

    Attributes:
        places: where each is, as `module:attribute` of this room; a function or a group.
    """

    places: dict[str, str] = {}

    # Typer brings its own click in newer versions and takes the distribution's in older ones.
    def resolve_command(self, ctx: Any, args: Any) -> Any:
        """Find the command of the first word and import it."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None:
            command = load_command(self.places[name], name)
        return name, command, rest


def group(commands: dict[str, tuple[str, str]], **settings: Any) -> typer.Typer:
    """A group of commands that are elsewhere."""
    places = {name: place for name, (place, _) in commands.items()}
    made = type("Rooms", (LazyGroup,), {"places": places})
    app = typer.Typer(cls=made, context_settings=dict(WIDE), **PLAIN, **settings)
    for name, (_, paragraph) in commands.items():
        app.command(name, help=paragraph, short_help=paragraph)(_placeholder)
    return app


def load_command(place: str, name: str) -> Any:
    """Import a command."""
    module, _, attribute = place.partition(":")
    target = getattr(import_module(f"crp_integrations.cli.{module}"), attribute)
    around = typer.Typer(**PLAIN)
    # The callback makes it a group even around a single command.
    around.callback()(_placeholder)
    if isinstance(target, typer.Typer):
        around.add_typer(target, name=name)
    else:
        around.command(name)(target)
    made = typer.main.get_command(around)
    assert isinstance(made, TyperGroup)
    command = made.commands[name]
    _refuse_empty_options(command)
    return command


def _refuse_empty_options(command: Any) -> None:
    """Have a command, or each one of a group, refuse an option that is given as an empty text.

    A variable of a script that was not set is the usual cause. Taken as left out, `--key ""` would
    verify by any key, `--policy ""` ask without a policy, and `--tenant ""` act on another's facts.
    """
    for subcommand in getattr(command, "commands", {}).values():
        _refuse_empty_options(subcommand)
        # Set in full, so that a list of commands wraps the text and does not cut it off.
        subcommand.short_help = " ".join((subcommand.help or "").split("\n\n")[0].split())
    for parameter in command.params:
        if parameter.param_type_name == "option" or parameter.default == "":
            parameter.process_value = partial(_refuse_empty, parameter, parameter.process_value)


def _refuse_empty(parameter: Any, process: Any, context: Any, value: Any) -> Any:
    # Checked as it was typed, since an empty path becomes the current folder.
    empty = value == "" or (isinstance(value, (list, tuple)) and "" in value)
    source = context.get_parameter_source(parameter.name)
    # An option that is left out may stand as an empty text, which is its default.
    if empty and source is not None and source.name == "COMMANDLINE":
        raise RequestError(f"{parameter.opts[0]} is empty; give it a value, or leave it out")
    return process(context, value)


def _placeholder() -> None:
    """Stands for a command until it is imported."""


# Status of a command that Ctrl-C ended.
INTERRUPTED = 130
# How an output handles letters that it has not: by an error, or by one for all but odd names.
_FALLIBLE = ("strict", "surrogateescape")
UNWRITABLE = "the output cannot be written, and what the command did before stays done"

# Where each command is, and the first paragraph of its help, which a test compares.
COMMANDS = {
    "quickstart": ("ask:quickstart", "Answer one question, and see a changed figure caught."),
    "check": ("check:check", "Check an answer against documents, claim by claim."),
    "ingest": ("ask:ingest", "Put files and folders into the store, all or none."),
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
