"""What a model is shown of a run: listed fields, sanitised snippets, handles with extracts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import Field

from crp_integrations.envelope.prompt import render
from crp_integrations.errors import AccessDenied, RequestError
from crp_integrations.fabric.records import access_labels
from crp_integrations.governance.state import (
    AppliedPolicy,
    RuntimeState,
    SandboxRef,
    allow_list,
    pruned,
    to_redact,
)
from crp_integrations.guard.decisions import Decision, Guard, Subject, require
from crp_integrations.guard.injection.detection import detect, detect_many
from crp_integrations.guard.injection.records import InjectionSettings
from crp_integrations.guard.ports import Redactor
from crp_integrations.records import Part
from crp_integrations.seals import canonical

# From here on a number may be somebody's: of a phone, a card, an insurance.
_LONG_NUMBER: Final = 1_000_000


class Snippet(Part):
    """A text that a model may be shown.

    Attributes:
        decision_id: of the decision that allowed it; empty where the guard numbers none.
        redacted: whether personal data was taken out of it.
    """

    id: str = Field(min_length=1)
    text: str
    security_label: str = ""
    decision_id: str = ""
    redacted: bool = False


class Withheld(Part):
    """A text that a model is not shown, by its id."""

    id: str
    reason: Literal["denied", "injection"]
    decision_id: str = ""


class Shown(Part):
    """What came of some texts."""

    snippets: tuple[Snippet, ...]
    withheld: tuple[Withheld, ...] = ()


@dataclass(frozen=True, slots=True)
class Exposure:
    """Decides what one subject's model is shown. Below a guard that allows everything nothing is
    withheld but orders to the model.

    Spec: Summit §Isolation Strategy

    Attributes:
        redactor: takes personal data out; without one, texts that need it are withheld.
    """

    subject: Subject
    guard: Guard
    redactor: Redactor | None = None
    injection: InjectionSettings | None = None

    def fields(
        self, values: Mapping[str, Any], policies: Sequence[AppliedPolicy]
    ) -> dict[str, Any]:
        """The fields that a model is shown: those that every policy lists, without personal data.

        A text that gives orders to the model, or that nothing here can clean, is None.

        Spec: Summit §Isolation Strategy

        Args:
            values: everything that the run knows, JSON-like.
        """
        kinds = to_redact(policies)
        found = pruned(values, allow_list(policies))
        shown = self._cleaned(found, kinds)
        return shown if isinstance(shown, dict) else {}

    def snippets(self, texts: Sequence[tuple[str, str, tuple[str, ...]]]) -> Shown:
        """Sanitised texts in their order, and those that are withheld.

        Spec: Summit §Isolation Strategy

        Args:
            texts: id, text and labels of each.

        Raises:
            RequestError: one of them is no such three, or its labels are one text.
        """
        _refuse_odd(texts)
        reports = detect_many([text for _, text, _ in texts], self.injection)
        snippets, withheld = [], []
        for (id_, text, labels), report in zip(texts, reports, strict=True):
            if report.injected:
                withheld.append(Withheld(id=id_, reason="injection"))
                continue
            try:
                decision = require(self.guard, self.subject, "read", tuple(sorted(set(labels))))
                clean = self._without(text, decision)
            except AccessDenied:
                withheld.append(Withheld(id=id_, reason="denied"))
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
        return Shown(snippets=tuple(snippets), withheld=tuple(withheld))

    def _without(self, text: str, decision: Decision) -> str:
        if not decision.redact:
            return text
        if self.redactor is None:
            raise AccessDenied("personal data must be taken out, and nothing here does that")
        return self.redactor.redacted(text, decision.redact)

    def _word(self, text: str, kinds: tuple[str, ...]) -> str | None:
        """A field's text; nothing where it gives orders, or cannot be cleaned."""
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
            return [self._cleaned(one, kinds) for one in value]
        if kinds and isinstance(value, int | float) and abs(value) >= _LONG_NUMBER:
            # Phones, cards and insurance numbers are often kept as numbers.
            text = str(value)
            clean = self._word(text, kinds)
            return value if clean == text else clean
        return value

    def _named(self, fields: Mapping[str, Any], kinds: tuple[str, ...]) -> dict[str, Any]:
        """Cleaned fields under cleaned names: data may stand in the names of a map as well."""
        shown: dict[str, Any] = {}
        for name, value in fields.items():
            # What a program calls its fields needs no look.
            clean = name if name.isidentifier() else self._word(name, kinds)
            if clean is None:
                continue
            free, number = clean, 2
            while clean != name and (free in shown or free in fields):
                free, number = f"{clean} {number}", number + 1
            shown[free] = self._cleaned(value, kinds)
        return shown


def payload(state: RuntimeState, snippets: Sequence[Snippet] = ()) -> str:
    """All that a model is shown of a run: exposed fields, handles, snippets by number.

    Nothing else of the state is in it: no id of the session, no title, no label, no decision.

    Spec: Summit §Backlog Isolate 13

    Args:
        snippets: from `Exposure.snippets`, numbered from 1 in their order.
    """
    parts = []
    if state.exposed_fields:
        parts.append(f"State: {canonical(state.exposed_fields).decode()}")
    parts += [_handle(one) for one in state.sandboxes]
    if snippets:
        parts.append(render([snippet.text for snippet in snippets]))
    return "\n\n".join(parts)


def _handle(one: SandboxRef) -> str:
    return f"[{one.ref}] {one.kind}, kept outside of this prompt" + (
        f"; from it: {one.extract}" if one.extract else ""
    )


def _refuse_odd(texts: Sequence[Any]) -> None:
    """Refuse what is no list of texts with ids and labels.

    Raises:
        RequestError: names its place, and shows no text.
    """
    if isinstance(texts, (str, Mapping)) or not isinstance(texts, Sequence):
        raise RequestError(f"texts is of type {type(texts).__name__}, wanted a list")
    for number, one in enumerate(texts):
        if (
            not isinstance(one, (tuple, list))
            or len(one) != 3
            or not all(isinstance(part, str) for part in one[:2])
        ):
            raise RequestError(f"text {number} is no id, text and labels: ('f1', text, (label,))")
        # The letters of a text would be its labels, and what guards it would not be asked for.
        access_labels(one[2], RequestError)
