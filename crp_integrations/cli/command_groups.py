"""Groups whose commands are imported when they are called, so that `crp --help` needs none."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

from crp_integrations.errors import RequestError

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


def group(said: dict[str, tuple[str, str]], **settings: Any) -> typer.Typer:
    """A group of commands that are elsewhere."""
    places = {name: place for name, (place, _) in said.items()}
    made = type("Rooms", (LazyGroup,), {"places": places})
    app = typer.Typer(cls=made, context_settings=dict(WIDE), **PLAIN, **settings)
    for name, (_, paragraph) in said.items():
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
