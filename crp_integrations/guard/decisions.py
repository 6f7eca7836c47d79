"""What a guard answers, and the guards that need no engine."""

from __future__ import annotations

from typing import Literal, Protocol

from crp_integrations.errors import AccessDenied
from crp_integrations.guard.subjects import Subject
from crp_integrations.records import Part

Action = Literal["read", "write", "erase"]


class Decision(Part):
    """A guard's answer for one class of subject, action and labels.

    Attributes:
        allowed: whether the action may go on.
        guard: name of the guard that decided, shown in the report.
        reason: one plain sentence.
    """

    allowed: bool
    guard: str
    reason: str


class Guard(Protocol):
    """Decides; equal arguments always get an equal answer, so decisions can be memoised."""

    @property
    def name(self) -> str:
        """What reports call the guard."""
        ...

    def decide(self, subject: Subject, action: Action, labels: tuple[str, ...]) -> Decision:
        """Decide for things that carry exactly these labels (sorted)."""
        ...


class AllowAll:
    """The local default: whoever opens the store may do everything in it. It says so."""

    name = "allow-all"

    def decide(self, subject: Subject, action: Action, labels: tuple[str, ...]) -> Decision:
        """Allow any subject that names a tenant."""
        if not subject.tenant.strip():
            return Decision(allowed=False, guard=self.name, reason="the subject names no tenant")
        return Decision(allowed=True, guard=self.name, reason="the local guard allows everything")


def require(
    guard: Guard, subject: Subject, action: Action, labels: tuple[str, ...] = ()
) -> Decision:
    """Return an allowing decision.

    Raises:
        AccessDenied: the guard refuses, or the subject names no tenant.
    """
    if not subject.tenant.strip():
        raise AccessDenied(f"subject {subject.name!r} names no tenant, so {action} is denied")
    decision = guard.decide(subject, action, labels)
    if not decision.allowed:
        raise AccessDenied(
            f"guard {decision.guard!r} denies {action} to subject {subject.name!r}: "
            f"{decision.reason}"
        )
    return decision
