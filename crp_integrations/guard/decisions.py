"""Subjects, resources and decisions, the guards that need no engine, and label filters."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal, Protocol

from pydantic import Field

from crp_integrations.errors import AccessDenied
from crp_integrations.records import Part

LOCAL_TENANT = "local"


class Subject(Part):
    """A tenant's user, agent or process.

    Attributes:
        tenant: the tenant's name; an empty one is denied everywhere.
        name: the user, agent or process within the tenant.
        roles: roles that a guard may look at.
    """

    tenant: str
    name: str = "local"
    roles: tuple[str, ...] = ()


LOCAL = Subject(tenant=LOCAL_TENANT)


Action = Literal["read", "write", "erase"]
# What a namespace as a whole carries, for what is done to all of it: compaction, a new embedder.
NAMESPACE: Final = ("crp:namespace",)


class Resource(Part):
    """A class of things that a policy decides about alike.

    Attributes:
        tenant: whose they are.
        labels: what each of them carries, sorted; things without a label are denied.
    """

    tenant: str
    labels: tuple[str, ...] = ()


class PolicyDecisionRef(Part):
    """A guard's decision by its id, as it stands in packs, receipts and the journal."""

    id: str = Field(min_length=1)
    allowed: bool
    reason: str = ""


class Decision(Part):
    """A guard's answer for one class of subject, action and labels.

    Attributes:
        allowed: whether the action may go on.
        guard: name of the guard that decided, shown in the report.
        reason: one plain sentence.
        id: names the decision in evidence, receipt and journal; empty for a guard without a policy.
        redact: kinds of personal data that must be gone from a text before the subject sees it,
            `*` for every kind; empty for none.
        failed: nobody could decide, so it is denied; readers are told so by an error.
        lasting: an equal question will get an equal answer. One that hangs on an exception's
            expiry, or on an engine that failed, is asked for anew by each pass of reads.
    """

    allowed: bool
    guard: str
    reason: str
    id: str = ""
    redact: tuple[str, ...] = ()
    lasting: bool = True
    failed: bool = False


class Guard(Protocol):
    """Decides. What a decision calls lasting is memoised by whoever asked."""

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
    """Return an allowing decision."""
    if not subject.tenant.strip():
        raise AccessDenied(f"subject {subject.name!r} names no tenant, so {action} is denied")
    decision = guard.decide(subject, action, labels)
    if not decision.allowed:
        numbered = f" (decision {decision.id})" if decision.id else ""
        raise AccessDenied(
            f"guard {decision.guard!r} denies {action} to subject {subject.name!r}: "
            f"{decision.reason}{numbered}"
        )
    return decision


class LabelFilter(Part):
    """Labels that an item must have, and labels that it may not have.

    It narrows what the guard allows and never widens it.

    Spec: Summit §Storage Interfaces

    Attributes:
        require: all of these.
        without: none of these.
    """

    require: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def passes(self, labels: Collection[str]) -> bool:
        """Whether an item with these labels may be selected.

        >>> LabelFilter(without=("export:restricted",)).passes(["tenant:a", "export:restricted"])
        False
        """
        return all(label in labels for label in self.require) and not any(
            label in labels for label in self.without
        )

    def __bool__(self) -> bool:
        """Whether anything is filtered."""
        return bool(self.require or self.without)

    @property
    def told(self) -> dict[str, str]:
        """The filter as evidence tells it; empty for none."""
        said = (("require", self.require), ("without", self.without))
        return {name: " ".join(labels) for name, labels in said if labels}
