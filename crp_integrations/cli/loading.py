"""Commands and groups that are imported when they are called, so that `crp --help` needs none."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

# As everywhere in this room: no completion, help as plain text, exceptions as they are.
PLAIN: Final[dict[str, Any]] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}


class Rooms(TyperGroup):
    """A group that names its commands, and imports the one that is called.

    Attributes:
        places: where each is, as `module:attribute` of this room; a function or a group.
    """

    places: dict[str, str] = {}

    # Typer brings its own click in newer versions and takes the distribution's in older ones.
    def resolve_command(self, ctx: Any, args: Any) -> Any:
        """Find the command of the first word and import it."""
        name, found, rest = super().resolve_command(ctx, args)
        if name is not None and found is not None:
            found = loaded(self.places[name], name)
        return name, found, rest


def group(said: dict[str, tuple[str, str]], **settings: Any) -> typer.Typer:
    """A group of commands that are elsewhere.

    Args:
        said: by name the place of each, and the first paragraph of its help for the list.
        settings: as `typer.Typer` takes them.
    """
    places = {name: place for name, (place, _) in said.items()}
    app = typer.Typer(cls=type("Rooms", (Rooms,), {"places": places}), **PLAIN, **settings)
    for name, (_, paragraph) in said.items():
        app.command(name, help=paragraph)(_elsewhere)
    return app


def loaded(place: str, name: str) -> Any:
    """Import a command.

    Args:
        place: `module:attribute` of this room.
        name: under which it is called.
    """
    module, _, attribute = place.partition(":")
    found = getattr(import_module(f"crp_integrations.cli.{module}"), attribute)
    around = typer.Typer(**PLAIN)
    # With a callback it is a group, also around one command.
    around.callback()(_elsewhere)
    if isinstance(found, typer.Typer):
        around.add_typer(found, name=name)
    else:
        around.command(name)(found)
    made = typer.main.get_command(around)
    assert isinstance(made, TyperGroup)
    return made.commands[name]


def _elsewhere() -> None:
    """Stands for a command until it is imported."""
