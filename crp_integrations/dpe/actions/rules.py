"""Rules that a user gives for arguments, and what they decide without a judge.

`exact`: the value stands in the user's words, an approval, a fact, or the result of a tool that did
not fail, in any form (`values`). `exact:user` wants the user's words or an approval,
`exact:system` the system text, `exact:TOOL` a result of that tool. `enum`: the value is one of the
schema's. `free`: the model may choose. A path is `amount`, `payee.iban` or `items[].sku`; a rule
also covers what is below its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import JsonValue

from crp_integrations.dpe.actions.records import (
    Argument,
    ArgumentStatus,
    EvidencePassage,
    ProposedAction,
    leaves,
    parse_arguments,
)
from crp_integrations.dpe.actions.values import LEAST_CODE, place_of
from crp_integrations.dpe.report_parts import Quotation
from crp_integrations.errors import ConfigError
from crp_integrations.language.folded_text import Folded

EXACT, ENUM, FREE = "exact", "enum", "free"
USER, SYSTEM_TEXT = "user", "system"
# Kinds of passages in which a value may stand under `exact`.
STATING: Final = ("user", "approval", "fact", "tool")

# Maximum steps from a schema to what it refers to.
DEEPEST_REFERENCE: Final = 8

ToolRules = Mapping[str, Mapping[str, str]]
Parts = tuple[str, ...]


def check_rules(rules: object, tools: Sequence[Mapping[str, Any]] | None = None) -> None:
    """Check the rules for tools; with the tools' definitions also their names and paths.

    Args:
        rules: tool names, each with a mapping of paths to rules.
        tools: `name`, `description` and `parameters` of each tool; None if they are not known yet.

    Raises:
        ConfigError: a rule, a tool or a path is not known.
    """
    if not isinstance(rules, Mapping):
        raise ConfigError(f"rules is {type(rules).__name__}; give {{tool: {{path: rule}}}}")
    known = None if tools is None else {str(tool["name"]): tool for tool in tools}
    for tool, paths in rules.items():
        if known is not None and tool not in known:
            raise ConfigError(f"rules name the tool {tool!r:.60}; known are {_listed(known)}")
        if not isinstance(paths, Mapping):
            raise ConfigError(
                f"rules of {tool!r:.60} are {type(paths).__name__}; give {{path: rule}}"
            )
        for path, rule in paths.items():
            if not isinstance(path, str) or not parts_of(path):
                raise ConfigError(f"rules of {tool!r:.60} have the path {path!r:.60}; name one")
            _check_rule(f"{tool}.{path}", rule, known)
            if known is not None:
                schema = schema_at(known[tool].get("parameters"), parts_of(path))
                if schema is None:
                    raise ConfigError(
                        f"rules of {tool!r:.60} name the path {path!r:.60}, which its schema lacks"
                    )
                if rule == ENUM and not isinstance(schema.get("enum"), list):
                    raise ConfigError(
                        f"the rule of {tool}.{path:.60} is 'enum', and its schema has no enum"
                    )


def _check_rule(place: str, rule: object, known: Mapping[str, Any] | None) -> None:
    name, colon, source = rule.partition(":") if isinstance(rule, str) else ("", "", "")
    right = rule in (EXACT, ENUM, FREE) or (name == EXACT and bool(colon) and bool(source))
    if not right:
        raise ConfigError(
            f"the rule of {place:.60} is {rule!r:.60}, wanted exact, exact:user, exact:system, "
            "exact:TOOL, enum or free"
        )
    if source and known is not None and source not in (USER, SYSTEM_TEXT, *known):
        raise ConfigError(
            f"the rule of {place:.60} is {rule!r:.60}; known tools are {_listed(known)}"
        )


def _listed(names: Mapping[str, Any]) -> str:
    return f"{', '.join(sorted(names)):.300}" or "none"


def parts_of(path: str) -> Parts:
    """The parts of a rule's path; `[]` stands for every item of a list.

    >>> parts_of("items[].sku")
    ('items', '[]', 'sku')
    """
    return tuple(part for part in path.replace("[", ".[").split(".") if part)


def schema_at(schema: object, parts: Parts) -> Mapping[str, Any] | None:
    """The schema of a path; empty where it cannot be known, None if the path does not exist."""
    root = schema
    schema = _resolved(schema, root)
    for part in parts:
        if not isinstance(schema, Mapping):
            return {}
        if part[0] == "[":
            schema = schema.get("items", {})
        elif isinstance(schema.get("properties"), Mapping):
            if part not in schema["properties"]:
                return None
            schema = schema["properties"][part]
        elif schema.get("type") in (None, "object"):
            return {}
        else:
            return None
        schema = _resolved(schema, root)
    return schema if isinstance(schema, Mapping) else {}


def _resolved(schema: object, root: object) -> object:
    """A schema without references, and without the null of an optional value."""
    for _ in range(DEEPEST_REFERENCE):
        if not isinstance(schema, Mapping):
            break
        forms = schema.get("anyOf", schema.get("oneOf"))
        if isinstance(name := schema.get("$ref"), str):
            schema = root
            for part in _pointer_parts(name):
                schema = schema.get(part) if isinstance(schema, Mapping) else None
        elif isinstance(forms, list):
            real = [form for form in forms if form != {"type": "null"}]
            schema = real[0] if len(real) == 1 else {}
        elif isinstance(kinds := schema.get("type"), list):
            rest = [kind for kind in kinds if kind != "null"]
            return {**schema, "type": rest[0] if len(rest) == 1 else None}
        elif "const" in schema:
            return {"enum": [schema["const"]], **schema}
        else:
            break
    return schema


def rule_of(path: str, rules: Mapping[str, str]) -> str:
    """The rule for the JSON pointer of a leaf: that of the longest path; empty for none."""
    pointer = _pointer_parts(path)
    fitting = [
        (len(parts), rule)
        for written, rule in rules.items()
        if _covers(parts := parts_of(written), pointer)
    ]
    return max(fitting)[1] if fitting else ""


def _pointer_parts(path: str) -> Parts:
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:])


def _covers(parts: Parts, pointer: Parts) -> bool:
    return len(parts) <= len(pointer) and all(
        own == other or (own == "[]" and other.isdecimal()) or own == f"[{other}]"
        for own, other in zip(parts, pointer, strict=False)
    )


def decide(action: ProposedAction, rules: Mapping[str, str]) -> Iterator[Argument]:
    """Each argument with the status that its rule gives; UNREAD without a rule."""
    for path, value in action.leaves:
        yield _decided(action, path, value, rule_of(path, rules))


def _decided(action: ProposedAction, path: str, value: JsonValue, rule: str) -> Argument:
    status, reason = ArgumentStatus.UNREAD, ""
    if rule == FREE:
        status = ArgumentStatus.FREE
    elif rule and value is None:
        status, reason = ArgumentStatus.FREE, "null states nothing"
    elif rule == ENUM:
        among = _schema(action, path).get("enum")
        right = isinstance(among, list) and _is_among(value, among)
        status = ArgumentStatus.GROUNDED if right else ArgumentStatus.UNGROUNDED
        reason = "" if right else "the value is none of the schema's"
    elif rule and not _is_exact(value):
        reason = "only a text or a number can stand somewhere exactly"
    elif rule:
        return _sought(action, path, value, rule.partition(":")[2])
    return Argument(path=path, value=value, status=status, reason=reason)


def _is_exact(value: JsonValue) -> bool:
    if isinstance(value, str):
        return any(map(str.isalnum, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_among(value: JsonValue, among: list[Any]) -> bool:
    """Whether a value is one of a list; true is not 1."""
    return any(type(value) is type(item) and value == item for item in among)


def _schema(action: ProposedAction, path: str) -> Mapping[str, Any]:
    parts = tuple("[]" if part.isdecimal() else part for part in _pointer_parts(path))
    definition = action.definition or {}
    return schema_at(definition.get("parameters"), parts) or {}


def _sought(action: ProposedAction, path: str, value: JsonValue, source: str) -> Argument:
    minor = _schema(action, path).get("type") == "integer"
    elsewhere = ""
    for passage in action.passages:
        place = place_of(value, passage.text, minor=minor)
        if place is None or _is_echo(passage, value):
            continue
        if not _may_state(passage, source):
            elsewhere = elsewhere or passage.name
            continue
        return Argument(
            path=path,
            value=value,
            status=ArgumentStatus.GROUNDED,
            quotations=(quotation_at(passage, *place),),
            source=passage.name,
        )
    reason = f"it stands in {elsewhere}, which does not count here" if elsewhere else ""
    status = ArgumentStatus.UNGROUNDED
    return Argument(path=path, value=value, status=status, reason=reason, source=elsewhere)


def _may_state(passage: EvidencePassage, source: str) -> bool:
    if not source:
        return passage.kind in STATING
    if source == USER:
        return passage.kind in ("user", "approval")
    if source == SYSTEM_TEXT:
        return passage.kind == "system"
    return passage.tool == source


def _is_echo(passage: EvidencePassage, value: JsonValue) -> bool:
    """Whether a tool was called with the value, so that its result only repeats the model."""
    sent = parse_arguments(passage.called_with) if passage.called_with else None
    if sent is None:
        return False
    values = [str(own) for _, own in leaves(sent)]
    keys = [part for path, _ in leaves(sent) for part in _pointer_parts(path)]
    names = [key for key in keys if not key.isdecimal()]
    if any(place_of(value, text, minor=True) for text in (*values, *names)):
        return True
    # A long value may be cut over the arguments, or stand within one of their words.
    own = _run_on(str(value))
    return len(own) >= LEAST_CODE and any(own in _run_on("".join(t)) for t in (values, keys))


def _run_on(text: str) -> str:
    return "".join(filter(str.isalnum, Folded(text).text))


def quotation_at(passage: EvidencePassage, start: int, end: int) -> Quotation:
    """The words of a passage between two offsets."""
    return Quotation(
        fact_id=passage.name, passage=0, start=start, end=end, text=passage.text[start:end]
    )
