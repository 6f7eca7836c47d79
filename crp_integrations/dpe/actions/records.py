"""An action that is to be checked, and the report on it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from math import isfinite
from typing import Any, Final

from pydantic import JsonValue

from crp_integrations.dpe.judge.reply import readable
from crp_integrations.dpe.report_parts import JudgeExchange, Quotation
from crp_integrations.errors import printable
from crp_integrations.records import Part, Record

# Maximum characters of a value, a reason and a whole message to the model.
SHOWN_VALUE: Final = 80
SHOWN_REASON: Final = 200
SHOWN_ERROR: Final = 1_000
# Maximum number of arguments that a message names.
SHOWN_ARGUMENTS: Final = 5


class ArgumentStatus(StrEnum):
    """Whether an argument of a tool call rests on the evidence.

    FREE: a rule leaves the argument to the model, or its value is null. UNREAD: neither a rule nor
    a judge read it.
    """

    GROUNDED = "GROUNDED"
    CONTRADICTED = "CONTRADICTED"
    UNGROUNDED = "UNGROUNDED"
    UNREAD = "UNREAD"
    FREE = "FREE"


NOT_JSON: Final = "the arguments are no JSON object with each key once"
NO_TOOL: Final = "no tool of this name is defined"
WRONG: Final = (ArgumentStatus.CONTRADICTED, ArgumentStatus.UNGROUNDED)
RIGHT: Final = (ArgumentStatus.GROUNDED, ArgumentStatus.FREE)


class Argument(Part):
    """One value of a tool call's arguments.

    Attributes:
        path: JSON pointer of the value, such as `/lines/0/sku` (RFC 6901).
        value: the value; a list or object only if it is empty.
        quotations: words of the evidence; `fact_id` names the passage, such as `user#1`,
            `tool:get_order#2`, `system`, `fact#1`, `approval#1` or `definition`.
        source: name of the passage that has the value; empty for none.
    """

    path: str
    value: JsonValue
    status: ArgumentStatus
    reason: str = ""
    quotations: tuple[Quotation, ...] = ()
    source: str = ""


class ActionReport(Record):
    """Whether a tool call rests on the conversation, argument by argument.

    Attributes:
        arguments: every value of the arguments, in order.
        missing: what has to come before the call, or what it leaves out; empty for nothing.
        may_run: False if an argument is wrong or something is missing; None if not all was read.
        reason: why the call may not run as a whole, or why it was not read; empty for no reason.
        judge: name of the judge; empty for none.
        exchange: the judge's call and reply; None without one.
        first: call and reply of a first judge, if `judge` is the second one.
        left_out: names of passages that the judge was not shown.
    """

    SCHEMA = "action-report/1"

    tool: str
    call_id: str = ""
    arguments: tuple[Argument, ...] = ()
    missing: str = ""
    may_run: bool | None = None
    reason: str = ""
    judge: str = ""
    exchange: JudgeExchange | None = None
    first: JudgeExchange | None = None
    left_out: tuple[str, ...] = ()

    @property
    def wrong(self) -> tuple[Argument, ...]:
        """The arguments that are contradicted or stand nowhere."""
        return tuple(argument for argument in self.arguments if argument.status in WRONG)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON; `ActionReport.model_validate` reads it."""
        return self.model_dump(mode="json")

    def summary(self) -> str:
        """One line for a log or a reviewer: the verdict, and the arguments that are not right."""
        verdict = {True: "may run", False: "must not run", None: "was not read"}[self.may_run]
        parts = [
            f"{_shown(argument.path)} {argument.status}"
            for argument in self.arguments
            if argument.status not in RIGHT
        ]
        parts += [f"missing: {_shown(self.missing)}"] * bool(self.missing)
        return f"{printable(self.tool[:SHOWN_VALUE])} {verdict}" + "".join(f"; {p}" for p in parts)

    def error_text(self) -> str:
        """A message to the model that wants to act: what is wrong, and what to do about it."""
        parts = [f"{printable(self.tool[:SHOWN_VALUE])} did not run."]
        parts += [_problem(argument) for argument in self.wrong[:SHOWN_ARGUMENTS]]
        if self.missing:
            parts.append(f"Missing: {_shown(self.missing, SHOWN_REASON)}.")
        unread = [a.path for a in self.arguments if a.status is ArgumentStatus.UNREAD]
        if len(parts) == 1 and self.reason:
            parts.append(f"Reason: {_shown(self.reason, SHOWN_REASON)}.")
        elif len(parts) == 1 and unread:
            paths = ", ".join(_shown(path) for path in unread[:SHOWN_ARGUMENTS])
            parts.append(f"Not checked: {paths}.")
        parts.append(self._advice())
        return " ".join(parts)[:SHOWN_ERROR]

    def _advice(self) -> str:
        if self.wrong:
            return "Use values that the user or a tool gave, or ask the user."
        if self.missing or self.may_run is False:
            return "Do first what has to come before the call, or ask the user."
        advice = {NOT_JSON: "Write such an object.", NO_TOOL: "Call one that is."}
        return advice.get(self.reason, "Keep the values, which may be right, and ask the user.")


def _problem(argument: Argument) -> str:
    named = f"{_shown(argument.path)} is {_shown(argument.value)}"
    if argument.status is ArgumentStatus.UNGROUNDED:
        return f"{named}, which stands nowhere that counts."
    words = ", ".join(_shown(quotation.text) for quotation in argument.quotations[:2])
    return f"{named}, but the conversation says {words}."


def _shown(value: object, most: int = SHOWN_VALUE) -> str:
    """A value on one line, bounded; signs that cannot be printed are escaped."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return printable(json.dumps(text, ensure_ascii=False) if isinstance(value, str) else text)


@dataclass(frozen=True, slots=True)
class EvidencePassage:
    """One text of the conversation.

    Attributes:
        key: its name in the prompt, such as `u1`.
        kind: `system`, `user`, `assistant`, `tool`, `fact` or `approval`.
        name: its name in a report, such as `tool:get_order#2`.
        called_with: arguments of the call that gave a tool's result.
    """

    key: str
    kind: str
    name: str
    text: str
    tool: str = ""
    called_with: str = ""


@dataclass(frozen=True)
class ProposedAction:
    """A tool call that is about to be made, with the tool's definition and the evidence.

    Attributes:
        arguments: the JSON object; None if the model's text is none.
        written: the arguments as text.
        definition: `name`, `description` and `parameters` of the tool; None if no tool is so named.
    """

    tool: str
    arguments: Mapping[str, Any] | None
    written: str
    definition: Mapping[str, Any] | None
    passages: tuple[EvidencePassage, ...] = ()
    call_id: str = ""
    left_out: tuple[str, ...] = ()

    def without(self, names: Collection[str]) -> ProposedAction:
        """The action without the passages of these names."""
        if not names:
            return self
        rest = tuple(passage for passage in self.passages if passage.name not in names)
        return replace(self, passages=rest, left_out=(*self.left_out, *names))

    @cached_property
    def leaves(self) -> tuple[tuple[str, JsonValue], ...]:
        """JSON pointer and value of each leaf."""
        return tuple(
            (readable(path), readable(value) if isinstance(value, str) else value)
            for path, value in (leaves(self.arguments) if self.arguments else ())
        )


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, JsonValue]]:
    """JSON pointer and value of each scalar and each empty container, in order.

    >>> list(leaves({"to": ["a"], "cc": [], "x/y": {"n": 1}}))
    [('/to/0', 'a'), ('/cc', []), ('/x~1y/n', 1)]
    """
    waiting = [(path, value)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, Mapping) and value:
            pairs = [(key.replace("~", "~0").replace("/", "~1"), value[key]) for key in value]
        elif isinstance(value, list | tuple) and value:
            pairs = [(str(place), item) for place, item in enumerate(value)]
        else:
            yield path, value
            continue
        waiting += [(f"{path}/{key}", item) for key, item in reversed(pairs)]


def parse_arguments(text: str) -> dict[str, Any] | None:
    """The JSON object of a model's arguments; None for anything else.

    An object in which a key occurs twice is none, since readers differ in which value counts.
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=_fields,
            parse_float=_finite,
            parse_constant=_finite,
            strict=False,
        )
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key occurs twice")
    return fields


def _finite(figures: str) -> float:
    number = float(figures)
    if not isfinite(number):
        raise ValueError(figures)
    return number
