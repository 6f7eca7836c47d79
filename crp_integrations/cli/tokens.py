"""`crp tokens`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from crp_integrations import count_tokens
from crp_integrations.cli import options
from crp_integrations.errors import RequestError
from crp_integrations.relay.records import TokenCount

STANDARD_INPUT = "-"


def tokens(
    file: Annotated[str, typer.Argument(help="A text or a JSON list of messages; - reads input.")],
    model: Annotated[str, typer.Option("--model", help="Provider string as LiteLLM takes it.")],
    plain: Annotated[
        bool, typer.Option("--text", help="Count the file as it is, even a list of messages.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Count the tokens of a file as a model does, and say how sure the count is.

    A JSON list of messages, or an object with `messages` and `tools` as OpenAI takes them, is
    counted with the format that the model's family puts around them.
    """
    text = _read(file)
    messages, tools = (None, []) if plain else _conversation(text)
    if messages is None:
        count = count_tokens(text, model)
    else:
        count = count_tokens(messages, model, tools=tools)
    if as_json:
        typer.echo(count.model_dump_json(indent=2))
        return
    typer.echo(f"{count.n} tokens ({count.exactness.value}: {count.source})")
    if messages is not None:
        typer.echo(_around(count, len(messages), len(tools)))


def _around(count: TokenCount, messages: int, tools: int) -> str:
    noun = "message" if messages == 1 else "messages"
    beside = f" and for {tools} {'tool' if tools == 1 else 'tools'}" if tools else ""
    return f"{count.overhead} of them around {messages} {noun}{beside}"


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no usable path"
        raise RequestError(f"{file!r:.80} cannot be read: {reason}") from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{file!r:.80} is no UTF-8 text: byte {error.start} does not decode"
        ) from error


def _conversation(text: str) -> tuple[list[Any] | None, list[Any]]:
    """Messages and tools of a file; None for the messages when it is anything else."""
    if text.lstrip()[:1] not in ("[", "{"):
        return None, []
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return None, []
    tools: Any = []
    if isinstance(given, Mapping):
        tools = given.get("tools") or []
        given = given.get("messages")
    said = isinstance(given, list) and given and isinstance(tools, list)
    if not said or not all(isinstance(one, Mapping) and "role" in one for one in given):
        return None, []
    return given, tools
