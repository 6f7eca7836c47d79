"""What an agent's run knows, and how much of it a model is shown.

A run knows much; a model is shown the fields that a policy lists, snippets whose personal data and
orders were looked at, and handles. Whatever no policy lists is not shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ConfigDict, Field, JsonValue, model_serializer, model_validator
from pydantic import SerializerFunctionWrapHandler as Handler

from crp_integrations.fabric.records import Moment
from crp_integrations.governance.artifacts.records import PATTERN
from crp_integrations.records import Part, Record

# Kinds of personal data that a policy takes out when it says nothing: all of them.
EVERY_KIND: Final = ("*",)
# Names as the document writes them; in Python they are words with underscores.
_WRITTEN: Final = {"selected_context": "selectedContext", "exposed_fields": "exposedFields"}
Fields = Mapping[str, Any]


class SessionMetadata(Part):
    """Whose run it is."""

    session_id: str = Field(min_length=1)
    tenant: str = Field(min_length=1)
    agent: str = ""
    created_at: Moment
    windows: int = Field(default=0, ge=0)
    loop_depth: int = Field(default=0, ge=0)


class ContextPackMetadata(Part):
    """An item of a pack as a run knows it: id, title and label, never its text."""

    id: str = Field(min_length=1)
    title: str = Field(default="", max_length=256)
    security_label: str = Field(min_length=1)


class SandboxRef(Part):
    """A bulky text in the object store.

    Attributes:
        ref: handle, as the model is shown it.
        kind: `log`, `search`, `data`, `prose`, or a tool's own word.
        extract: the little of it that the model is shown.
    """

    ref: str = Field(pattern=f"^{PATTERN}$")
    kind: str = Field(min_length=1)
    extract: str = ""


class AppliedPolicy(Part):
    """What a policy decided for this run.

    Attributes:
        id: of the decision, as it stands in the journal.
        exposes: fields that a model may be shown, such as `ticket` or `ticket.severity`; a field
            that is listed is shown with everything below it.
        redact: kinds of personal data that must be gone from what is shown, `*` for every kind;
            empty where raw personal data may be shown.
    """

    id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    allowed: bool
    exposes: tuple[str, ...] = ()
    redact: tuple[str, ...] = EVERY_KIND


class TokenCostEnvelope(Part):
    """What a run may use, and has used.

    Attributes:
        token_budget: of one model call's context.
        token_actual: of the context last shown.
    """

    token_budget: int = Field(default=0, ge=0)
    token_actual: int = Field(default=0, ge=0)
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    cost_usd: float | None = Field(default=None, ge=0.0)


class RuntimeState(Record):
    """What an agent's run knows about itself; it cannot hold an exposed field that no policy lists.

    Spec: Summit §Isolation Strategy

    Attributes:
        selected_context: items that were selected, without their texts.
        exposed_fields: what a model is shown of the run's own fields.
        sandboxes: bulky texts by handle.
        policies: a field is shown only when every one of them lists it; with none, none is.
    """

    SCHEMA = "runtime-state/1"
    model_config = ConfigDict(populate_by_name=True)

    session: SessionMetadata
    selected_context: tuple[ContextPackMetadata, ...] = Field(default=(), alias="selectedContext")
    exposed_fields: dict[str, JsonValue] = Field(default={}, alias="exposedFields")
    sandboxes: tuple[SandboxRef, ...] = ()
    policies: tuple[AppliedPolicy, ...] = ()
    metrics: TokenCostEnvelope = TokenCostEnvelope()

    @model_validator(mode="after")
    def _listed(self) -> RuntimeState:
        if pruned(self.exposed_fields, allow_list(self.policies)) != self.exposed_fields:
            raise ValueError("exposed_fields holds a field that is in no allow-list of a policy")
        return self

    @model_serializer(mode="wrap")
    def _write_schema(self, handler: Handler) -> dict[str, Any]:
        said = {_WRITTEN.get(name, name): value for name, value in handler(self).items()}
        return {"schema": self.SCHEMA, **said}


def allow_list(policies: Sequence[AppliedPolicy]) -> tuple[str, ...]:
    """The fields that every policy lists, ascending; none where one denies, or there is none.

    Spec: Summit §Isolation Strategy

    >>> both = [("ticket", "user.name"), ("ticket.severity", "user")]
    >>> allow_list([AppliedPolicy(id="d", name="p", allowed=True, exposes=e) for e in both])
    ('ticket.severity', 'user.name')
    """
    if not policies or not all(policy.allowed for policy in policies):
        return ()
    listed = set(policies[0].exposes)
    for policy in policies[1:]:
        others = set(policy.exposes)
        narrow = {path for path in listed if _covered(path, others)}
        listed = narrow | {path for path in others if _covered(path, listed)}
    return tuple(sorted(listed))


def to_redact(policies: Sequence[AppliedPolicy]) -> tuple[str, ...]:
    """Kinds of personal data that one of the policies wants gone, ascending; all without any."""
    if not policies:
        return EVERY_KIND
    return tuple(sorted({kind for policy in policies for kind in policy.redact}))


def pruned(fields: Fields, paths: Sequence[str]) -> dict[str, Any]:
    """The fields that are listed; in lists, those of every member.

    >>> pruned({"a": {"b": 1, "c": 2}, "d": [{"e": 3, "f": 4}]}, ["a.b", "d.e"])
    {'a': {'b': 1}, 'd': [{'e': 3}]}
    """
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        node = tree
        for part in path.split("."):
            node = node.setdefault(part, {})
        node[_WHOLE] = {}
    return _kept(fields, tree)


# A path ends here; no field has this name, since a path has no empty part.
_WHOLE: Final = ""


def _kept(fields: Fields, tree: Mapping[str, Any]) -> dict[str, Any]:
    kept = {}
    for name, value in fields.items():
        below = tree.get(name) if name else None
        if below is None:
            continue
        if _WHOLE in below:
            kept[name] = value
        elif isinstance(value, Mapping | list | tuple):
            kept[name] = _within(value, below)
    return kept


def _within(value: Any, tree: Mapping[str, Any]) -> Any:
    """A map's own fields; of a list the members that are maps or lists."""
    if isinstance(value, Mapping):
        return _kept(value, tree)
    return [_within(one, tree) for one in value if isinstance(one, Mapping | list | tuple)]


def _covered(path: str, listed: set[str]) -> bool:
    parts = path.split(".")
    return any(".".join(parts[:end]) in listed for end in range(1, len(parts) + 1))
