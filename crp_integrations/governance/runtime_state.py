"""The state of an agent's run, and the part of it that a model is shown.

A model is shown the fields that every policy lists, snippets without personal data or injections,
and handles. A field that a policy does not list is not shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field, JsonValue, model_serializer, model_validator
from pydantic import SerializerFunctionWrapHandler as Handler

from crp_integrations.envelope.prompt import render
from crp_integrations.errors import AccessDenied, RequestError
from crp_integrations.fabric.records import Moment, access_labels
from crp_integrations.governance.artifacts.storage import PATTERN
from crp_integrations.guard.decisions import Decision, Guard, Subject, require
from crp_integrations.guard.injection.detection import detect, detect_many
from crp_integrations.guard.injection.records import InjectionSettings
from crp_integrations.guard.ports import Redactor
from crp_integrations.records import Part, Record
from crp_integrations.seals import canonical

# Kinds of personal data that a policy removes by default: all of them.
EVERY_KIND: Final = ("*",)
# Field names as the specification writes them; in Python they have underscores.
_WRITTEN: Final = {"selected_context": "selectedContext", "exposed_fields": "exposedFields"}
Fields = Mapping[str, Any]


class SessionMetadata(Part):
    """The owner and identity of a run."""

    session_id: str = Field(min_length=1)
    tenant: str = Field(min_length=1)
    agent: str = ""
    created_at: Moment
    windows: int = Field(default=0, ge=0)
    loop_depth: int = Field(default=0, ge=0)


class ContextPackMetadata(Part):
    """An item of a pack in a run's state: id, title and label, never its text."""

    id: str = Field(min_length=1)
    title: str = Field(default="", max_length=256)
    security_label: str = Field(min_length=1)


class SandboxRef(Part):
    """A large text in the object store.

    Attributes:
        ref: handle, as the model sees it.
        kind: `log`, `search`, `data`, `prose`, or a tool's own word.
        extract: the short part of it that the model is shown.
    """

    ref: str = Field(pattern=f"^{PATTERN}$")
    kind: str = Field(min_length=1)
    extract: str = ""


class AppliedPolicy(Part):
    """The decision of a policy for this run.

    Attributes:
        id: id of the decision, as in the journal.
        exposes: fields that a model may be shown, such as `ticket` or `ticket.severity`; a listed
            field is shown with everything below it.
        redact: kinds of personal data that are removed from what is shown, `*` for every kind;
            empty if raw personal data may be shown.
    """

    id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    allowed: bool
    exposes: tuple[str, ...] = ()
    redact: tuple[str, ...] = EVERY_KIND


class TokenCostEnvelope(Part):
    """The budget of a run, and what it has used.

    Attributes:
        token_budget: maximum tokens of one model call's context.
        token_actual: tokens of the context that was last shown.
    """

    token_budget: int = Field(default=0, ge=0)
    token_actual: int = Field(default=0, ge=0)
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    cost_usd: float | None = Field(default=None, ge=0.0)


class RuntimeState(Record):
    """The state of an agent's run; it refuses an exposed field that a policy does not list.

    Spec: Summit §Isolation Strategy

    Attributes:
        selected_context: items that were selected, without their texts.
        exposed_fields: the run's own fields that a model is shown.
        sandboxes: references to large texts.
        policies: a field is shown only if every policy lists it; without policies, none is shown.
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
        if prune_fields(self.exposed_fields, allow_list(self.policies)) != self.exposed_fields:
            raise ValueError("exposed_fields has a field that is not listed by every policy")
        return self

    @model_serializer(mode="wrap")
    def _write_schema(self, handler: Handler) -> dict[str, Any]:
        fields = {_WRITTEN.get(name, name): value for name, value in handler(self).items()}
        return {"schema": self.SCHEMA, **fields}


def allow_list(policies: Sequence[AppliedPolicy]) -> tuple[str, ...]:
    """The fields that every policy lists, ascending; empty if one denies or there are none.

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
        narrow = {path for path in listed if _is_covered(path, others)}
        listed = narrow | {path for path in others if _is_covered(path, listed)}
    return tuple(sorted(listed))


def redacted_kinds(policies: Sequence[AppliedPolicy]) -> tuple[str, ...]:
    """Kinds of personal data that any policy removes, ascending; all kinds without policies."""
    if not policies:
        return EVERY_KIND
    return tuple(sorted({kind for policy in policies for kind in policy.redact}))


def prune_fields(fields: Fields, paths: Sequence[str]) -> dict[str, Any]:
    """The listed fields only; in lists, the listed fields of every member.

    >>> prune_fields({"a": {"b": 1, "c": 2}, "d": [{"e": 3, "f": 4}]}, ["a.b", "d.e"])
    {'a': {'b': 1}, 'd': [{'e': 3}]}
    """
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        node = tree
        for part in path.split("."):
            node = node.setdefault(part, {})
        node[_PATH_END] = {}
    return _keep_listed(fields, tree)


# Marks the end of a path; no field has this name, since a path has no empty part.
_PATH_END: Final = ""


def _keep_listed(fields: Fields, tree: Mapping[str, Any]) -> dict[str, Any]:
    listed = {}
    for name, value in fields.items():
        below = tree.get(name) if name else None
        if below is None:
            continue
        if _PATH_END in below:
            listed[name] = value
        elif isinstance(value, Mapping | list | tuple):
            listed[name] = _keep_inside(value, below)
    return listed


def _keep_inside(value: Any, tree: Mapping[str, Any]) -> Any:
    """The listed fields of a mapping; of a list, those of its members that have fields."""
    if isinstance(value, Mapping):
        return _keep_listed(value, tree)
    return [
        _keep_inside(member, tree) for member in value if isinstance(member, Mapping | list | tuple)
    ]


def _is_covered(path: str, listed: set[str]) -> bool:
    parts = path.split(".")
    return any(".".join(parts[:end]) in listed for end in range(1, len(parts) + 1))


# Numbers from here on may identify a person: of a phone, a card, an insurance.
_LONG_NUMBER: Final = 1_000_000


class Snippet(Part):
    """A text that a model may be shown.

    Attributes:
        decision_id: id of the decision that allowed it; empty if decisions have no ids.
        redacted: whether personal data was removed from it.
    """

    id: str = Field(min_length=1)
    text: str
    security_label: str = ""
    decision_id: str = ""
    redacted: bool = False


class WithheldText(Part):
    """A text that a model is not shown, by its id."""

    id: str
    reason: Literal["denied", "injection"]
    decision_id: str = ""


class ExposedTexts(Part):
    """The snippets that may be shown, and the texts that are withheld."""

    snippets: tuple[Snippet, ...]
    withheld: tuple[WithheldText, ...] = ()


@dataclass(frozen=True, slots=True)
class Exposure:
    """Decides what one subject's model is shown. With a guard that allows everything, only texts
    with injections are withheld.

    Spec: Summit §Isolation Strategy

    Attributes:
        redactor: removes personal data; without one, texts that need it are withheld.
    """

    subject: Subject
    guard: Guard
    redactor: Redactor | None = None
    injection: InjectionSettings | None = None

    def fields(
        self, values: Mapping[str, Any], policies: Sequence[AppliedPolicy]
    ) -> dict[str, Any]:
        """The fields that a model is shown: those that every policy lists, without personal data.

        A text with an injection, or one that cannot be redacted here, becomes None.

        Spec: Summit §Isolation Strategy
        """
        kinds = redacted_kinds(policies)
        pruned = prune_fields(values, allow_list(policies))
        shown = self._cleaned(pruned, kinds)
        return shown if isinstance(shown, dict) else {}

    def snippets(self, texts: Sequence[tuple[str, str, tuple[str, ...]]]) -> ExposedTexts:
        """Redacted texts in their order, and those that are withheld.

        Spec: Summit §Isolation Strategy

        Args:
            texts: id, text and labels of each.

        Raises:
            RequestError: an entry is not such a triple, or its labels are a single string.
        """
        _check_texts(texts)
        reports = detect_many([text for _, text, _ in texts], self.injection)
        snippets, withheld = [], []
        for (id_, text, labels), report in zip(texts, reports, strict=True):
            if report.injected:
                withheld.append(WithheldText(id=id_, reason="injection"))
                continue
            try:
                decision = require(self.guard, self.subject, "read", tuple(sorted(set(labels))))
                clean = self._without(text, decision)
            except AccessDenied:
                withheld.append(WithheldText(id=id_, reason="denied"))
                continue
            snippets.append(
                Snippet(
                    id=id_,
                    text=clean,
                    security_label=" ".join(labels),
                    decision_id=decision.id,
                    redacted=clean != text,
                )
            )
        return ExposedTexts(snippets=tuple(snippets), withheld=tuple(withheld))

    def _without(self, text: str, decision: Decision) -> str:
        if not decision.redact:
            return text
        if self.redactor is None:
            raise AccessDenied("personal data must be taken out, but there is no redactor")
        return self.redactor.redacted(text, decision.redact)

    def _word(self, text: str, kinds: tuple[str, ...]) -> str | None:
        """A field's redacted text; None if it has an injection or cannot be redacted."""
        if detect(text, self.injection).injected:
            return None
        if not kinds:
            return text
        return None if self.redactor is None else self.redactor.redacted(text, kinds)

    def _cleaned(self, value: Any, kinds: tuple[str, ...]) -> Any:
        if isinstance(value, str):
            return self._word(value, kinds)
        if isinstance(value, Mapping):
            return self._named(value, kinds)
        if isinstance(value, list | tuple):
            return [self._cleaned(member, kinds) for member in value]
        if kinds and isinstance(value, int | float) and abs(value) >= _LONG_NUMBER:
            # Phones, cards and insurance numbers are often kept as numbers.
            text = str(value)
            clean = self._word(text, kinds)
            return value if clean == text else clean
        return value

    def _named(self, fields: Mapping[str, Any], kinds: tuple[str, ...]) -> dict[str, Any]:
        """Redacted fields under redacted names, since a mapping's names may have personal data."""
        shown: dict[str, Any] = {}
        for name, value in fields.items():
            # An identifier is a name in a program and needs no check.
            clean = name if name.isidentifier() else self._word(name, kinds)
            if clean is None:
                continue
            free, number = clean, 2
            while clean != name and (free in shown or free in fields):
                free, number = f"{clean} {number}", number + 1
            shown[free] = self._cleaned(value, kinds)
        return shown


def payload(state: RuntimeState, snippets: Sequence[Snippet] = ()) -> str:
    """Everything that a model is shown of a run: exposed fields, handles, snippets by number.

    It contains nothing else of the state: no session id, no title, no label, no decision.

    Spec: Summit §Backlog Isolate 13

    Args:
        snippets: from `Exposure.snippets`, numbered from 1 in their order.
    """
    parts = []
    if state.exposed_fields:
        parts.append(f"State: {canonical(state.exposed_fields).decode()}")
    parts += [_describe_handle(handle) for handle in state.sandboxes]
    if snippets:
        parts.append(render([snippet.text for snippet in snippets]))
    return "\n\n".join(parts)


def _describe_handle(handle: SandboxRef) -> str:
    return f"[{handle.ref}] {handle.kind}, kept outside of this prompt" + (
        f"; from it: {handle.extract}" if handle.extract else ""
    )


def _check_texts(texts: Sequence[Any]) -> None:
    """Refuse anything other than a sequence of triples of id, text and labels."""
    if isinstance(texts, (str, Mapping)) or not isinstance(texts, Sequence):
        raise RequestError(f"texts is of type {type(texts).__name__}, wanted a list")
    for number, entry in enumerate(texts):
        if (
            not isinstance(entry, (tuple, list))
            or len(entry) != 3
            or not all(isinstance(part, str) for part in entry[:2])
        ):
            raise RequestError(f"text {number} is not id, text and labels: ('f1', text, (label,))")
        # A string would count as one label per letter, and the real label would not be checked.
        access_labels(entry[2], RequestError)
