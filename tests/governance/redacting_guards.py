"""A guard that has personal data taken out for whoever is no officer, and what takes it out."""

from __future__ import annotations

import re

from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.guard.decisions import Decision, Subject

LABEL = "pii:low"
READER = Subject(tenant="acme", name="anna")
OFFICER = Subject(tenant="acme", name="otto", roles=("officer",))
_KINDS = {
    "email": re.compile(r"[\w.]+@[\w.]+\w"),
    "phone": re.compile(r"\+?\d{7,}"),
}


class HidingGuard:
    """Everything may be read; what is labelled `pii:low` without addresses and numbers."""

    name = "hiding"

    def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
        hides = action == "read" and LABEL in labels and "officer" not in subject.roles
        return Decision(
            allowed=True,
            guard=self.name,
            reason="a test",
            redact=tuple(_KINDS) if hides else (),
        )


class Blackening:
    """Takes addresses and numbers out; counts the texts that it was given."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def redacted(self, text: str, kinds: tuple[str, ...]) -> str:
        self.texts.append(text)
        for kind in kinds:
            text = _KINDS[kind].sub(f"[redacted {kind}]", text)
        return text


def seen_by(made: Fabric, subject: Subject = READER) -> Namespace:
    """The tenant's namespace behind the guard that hides."""
    return made.bind(subject, HidingGuard())
