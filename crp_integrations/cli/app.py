"""The entry point of `crp`: the list of commands, imported on demand, and error handling."""

from __future__ import annotations

import io
import logging
import os
import re
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from crp_integrations import __version__
from crp_integrations.errors import CRPError, RequestError

# For all commands: no shell completion, plain-text help, unformatted exceptions.
PLAIN: Final[dict[str, Any]] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}
# Help uses the full width of the terminal; the default maximum is 80 columns.
WIDE: Final = {"max_content_width": 10_000}


class LazyGroup(TyperGroup):
    """A group that lists its commands by name and imports only the one that is called.

    Attributes:
        places: location of each command or group, as `module:attribute` of this subpackage.
    """

    places: dict[str, str] = {}

    # `Any`: newer versions of Typer contain their own click, older ones import the package.
    def resolve_command(self, ctx: Any, args: Any) -> Any:
        """Find the command that the first argument names and import it."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None:
            command = load_command(self.places[name], name)
        return name, command, rest


def group(commands: dict[str, tuple[str, str]], **settings: Any) -> typer.Typer:
    """A group of commands that are imported on demand."""
    places = {name: place for name, (place, _) in commands.items()}
    made = type("CommandGroup", (LazyGroup,), {"places": places})
    app = typer.Typer(cls=made, context_settings=dict(WIDE), **PLAIN, **settings)
    for name, (_, paragraph) in commands.items():
        app.command(name, help=paragraph, short_help=paragraph)(_placeholder)
    return app


def load_command(place: str, name: str) -> Any:
    """Import a command."""
    module, _, attribute = place.partition(":")
    target = getattr(import_module(f"crp_integrations.cli.{module}"), attribute)
    around = typer.Typer(**PLAIN)
    # With a callback, Typer makes a group even of a single command.
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
    """Make a command, or each command of a group, refuse empty option values.

    An unset variable in a script is the usual cause. If they counted as left out, `--key ""` would
    accept any key, `--policy ""` would ask without a policy, and `--tenant ""` would act on the
    facts of another tenant.
    """
    for subcommand in getattr(command, "commands", {}).values():
        _refuse_empty_options(subcommand)
        # Set in full, so that the list of commands wraps the text instead of truncating it.
        subcommand.short_help = " ".join((subcommand.help or "").split("\n\n")[0].split())
    for parameter in command.params:
        if parameter.param_type_name == "option" or parameter.default == "":
            parameter.process_value = partial(_refuse_empty, parameter, parameter.process_value)


def _refuse_empty(parameter: Any, process: Any, context: Any, value: Any) -> Any:
    # Checked before conversion, since an empty path would become the current folder.
    empty = value == "" or (isinstance(value, (list, tuple)) and "" in value)
    source = context.get_parameter_source(parameter.name)
    # The default of an option may be "", so only values from the command line are refused.
    if empty and source is not None and source.name == "COMMANDLINE":
        raise RequestError(f"{parameter.opts[0]} is empty; give it a value, or leave it out")
    return process(context, value)


def _placeholder() -> None:
    """Placeholder for a command until it is imported."""


# Status of a command that Ctrl-C ended.
INTERRUPTED = 130
# Error modes of an output stream that fail on characters which its encoding does not have.
_FALLIBLE = ("strict", "surrogateescape")
UNWRITABLE = "the output cannot be written; what the command did before is not undone"

# Location and first help paragraph of each command; a test compares it with the docstring.
COMMANDS = {
    "quickstart": ("ask:quickstart", "Answer one question, then detect a changed figure in it."),
    "check": ("check:check", "Check an answer against documents, claim by claim."),
    "ingest": ("ask:ingest", "Put files and folders into the store, all or none."),
    "ask": ("ask:ask", "Ask a question: answer, context, verdict per claim."),
    "fabric": ("fabric:app", "Inspect and maintain the stored facts and sources."),
    "receipt": ("receipt:app", "Show, check, replay and share receipts of answers."),
    "audit": ("audit:app", "Check, export and show the audit trail."),
    "eval": ("evaluate:app", "Measure answers, selection, context rot and drift on your data."),
    "memory": ("memory:app", "Check memory items in files or in a store."),
    "guard": ("guard:guard", "Run the tests of an access policy, or show what it decides."),
    "slo": ("slo:slo", "Compute service levels from the sealed windows of a store."),
    "conformance": ("audit:conformance", "Print the weights and thresholds in force."),
    "serve": ("serve:serve", "Serve the protocol over HTTP in front of your models."),
    "keys": ("serve:keys", "List, create or revoke API keys of the gateway."),
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
    """Run the command; a `CRPError` prints one sentence on standard error and exits with status 1.

    For `check`, the status of an error is 2, since 1 means that an answer failed. Failure to write
    the output, for example to a full disk, is an error too; a closed pipe prints no message, since
    its reader has read enough.
    """
    # Without a handler, Python would print warnings of libraries next to the error sentence.
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
        # An error names an argument of Python, and the shell has an option for it.
        sentence = _JUDGE_ARGUMENT.sub(_option, str(error))
        typer.echo(f"crp: {sentence}", err=True)
        sys.exit(_error_status())
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:
            typer.echo("crp: interrupted; what was not finished is not in the store", err=True)
        raise
    finally:
        # Flush now: a failure while Python exits would print a traceback.
        if sys.stdout is not None:
            sys.stdout.flush()


# An argument for the judge in an error's text, with its value: `judge_when`, `judge='NAME'`.
_JUDGE_ARGUMENT: Final = re.compile(r"\b(judge_(?:when|failure)|judge(?==))(?:='?([^\s',;]+)'?)?")


def _option(argument: re.Match[str]) -> str:
    name, value = argument.groups()
    return " ".join(filter(None, ("--" + name.replace("_", "-"), value)))


def _error_status() -> int:
    return 2 if sys.argv[1:2] == ["check"] else 1


def _set_output_encoding() -> None:
    """Make sure that every text of a fact can be printed, whatever the machine's encoding.

    Files and pipes get UTF-8 unless the user chose an encoding. A terminal or a chosen encoding
    stays; characters that it lacks are printed as escapes.
    """
    out = sys.stdout
    if not isinstance(out, io.TextIOWrapper) or out.errors not in _FALLIBLE:
        return
    chosen = out.isatty() or "PYTHONIOENCODING" in os.environ
    out.reconfigure(encoding=out.encoding if chosen else "utf-8", errors="backslashreplace")


def _discard_output() -> None:
    """Discard buffered standard output, which Python would try to write again at exit."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
