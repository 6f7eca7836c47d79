"""The public names with their signatures, and the commands with their options.

`python -m tests.house.api` prints them as `api.json` holds them; `--write` makes the file again.
Where a class lives does not matter: an annotation is told by its last names.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer.main

from crp_integrations import Relay

# Its fields are the keywords of `Relay.open`, whose docstring names it: the one name from below.
from crp_integrations.relay.build import RelayParts

STORED = Path(__file__).with_name("api.json")
DOORS = (
    "crp_integrations",
    "crp_integrations.errors",
    "crp_integrations.gateway",
    "crp_integrations.langchain",
    "crp_integrations.litellm",
    "crp_integrations.llama_index",
)
# What nobody makes himself: a relay opens, and hands out its fabric.
UNMADE = {"Relay", "Namespace"}
NO_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
MODULES = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")


def surface() -> dict[str, Any]:
    """Every public name of every door, and every command."""
    found: dict[str, Any] = {}
    for door in DOORS:
        module = importlib.import_module(door)
        for name in public(module):
            found[f"{door}.{name}"] = described(getattr(module, name))
    found |= {f"crp {name}": options for name, options in commands()}
    with Relay.open() as relay:
        found["Relay.fabric"] = described(type(relay.fabric))
        found["Relay.settings"] = settings(relay.settings)
    found["Relay.open"] = signature(RelayParts)
    return dict(sorted(found.items()))


def public(module: Any) -> list[str]:
    """The names that a module lists, or that it defines where it lists none."""
    own = getattr(module, "__all__", None)
    if own is not None:
        return sorted(own)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    )


def described(value: Any) -> Any:
    """A function's signature; a class with its fields and its own methods."""
    if inspect.isclass(value):
        return _class(value)
    return signature(value) if callable(value) else type(value).__name__


def signature(function: Any) -> str:
    """A signature without modules and addresses, with the names that an `Unpack` takes."""
    try:
        told = inspect.signature(function)
    except (ValueError, TypeError):
        return "(?)"
    text = plain(str(told))
    for one in told.parameters.values():
        if one.kind is one.VAR_KEYWORD and "Unpack[" in str(one.annotation):
            name = str(one.annotation).partition("[")[2].rstrip("]")
            taken = getattr(function, "__globals__", {}).get(name)
            text += f" with {name}: {', '.join(sorted(getattr(taken, '__annotations__', ())))}"
    return text


def plain(text: str) -> str:
    """Without modules, addresses and quotation marks."""
    return NO_ADDRESS.sub("", MODULES.sub("", text).replace("'", ""))


def _class(value: type) -> dict[str, Any]:
    if issubclass(value, str) and hasattr(value, "__members__"):
        return {name: str(member.value) for name, member in value.__members__.items()}
    fields = getattr(value, "model_fields", None) or {}
    found: dict[str, Any] = {}
    if not fields and value.__name__ not in UNMADE and not issubclass(value, Exception):
        found["()"] = signature(value)
    for kind in reversed(value.__mro__):
        if not kind.__module__.startswith("crp_integrations"):
            continue
        own = vars(kind)
        for name, annotation in own.get("__annotations__", {}).items():
            if not name.startswith("_") and name != "model_config":
                found[name] = plain(str(annotation))
        for name, member in own.items():
            if not name.startswith("_") and name not in found and name != "model_config":
                found[name] = _member(member)
    if issubclass(value, Exception) and "__init__" in vars(value):
        found["()"] = signature(value.__init__)
    return found


def _member(member: Any) -> str:
    if isinstance(member, staticmethod | classmethod):
        return signature(member.__func__)
    return signature(member) if inspect.isroutine(member) else "value"


def settings(model: Any) -> dict[str, Any]:
    """Names and defaults of a tree of settings."""
    found: dict[str, Any] = {}
    for name in sorted(type(model).model_fields):
        value = getattr(model, name)
        found[name] = settings(value) if hasattr(value, "model_fields") else str(value)
    return found


def commands() -> list[tuple[str, list[str]]]:
    """Each command with its options and arguments."""
    from crp_integrations.cli.app import app

    found: list[tuple[str, list[str]]] = []

    # Typer brings its own click in newer versions, so nothing is asked for its class.
    def walk(command: Any, name: str) -> None:
        taken = [" ".join(sorted([*one.opts, *one.secondary_opts])) for one in command.params]
        found.append((name, sorted(taken)))
        if hasattr(command, "list_commands"):
            with command.context_class(command) as context:
                for inner in command.list_commands(context):
                    walk(command.resolve_command(context, [inner])[1], f"{name} {inner}".strip())

    walk(typer.main.get_command(app), "")
    return found


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One line for each name that went, came or is another."""
    found = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            found += [f"{name}.{line}" for line in differences(old, new)]
        elif new is None:
            found.append(f"{name} is gone")
        else:
            found.append(f"{name} is {new}" if old is None else f"{name} is {new}, was {old}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="store what is public now")
    told = parser.parse_args(arguments)
    text = json.dumps(surface(), indent=1, ensure_ascii=False) + "\n"
    if told.write:
        STORED.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
