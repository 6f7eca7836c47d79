"""Subjects, resources and decisions, label filters, and the guard that asks a policy."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final, Literal, Protocol

from pydantic import Field

from crp_integrations.errors import AccessDenied, EngineError
from crp_integrations.guard.ports import Bundle, PolicyEngine
from crp_integrations.records import Part
from crp_integrations.seals import sha256_hex

LOCAL_TENANT = "local"


class Subject(Part):
    """A tenant's user, agent or process.

    Attributes:
        tenant: the tenant's name; an empty one is denied everywhere.
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
    def written(self) -> dict[str, str]:
        """The filter as evidence tells it; empty for none."""
        filters = (("require", self.require), ("without", self.without))
        return {name: " ".join(labels) for name, labels in filters if labels}


# Decisions that are kept: one for each class of subject, action and labels.
MOST_KEPT: Final = 4_096
# Lists of roles or labels whose writing is kept.
_WORDS: Final = 1_024
# How a label names a tenant.
TENANT: Final = "tenant:"
ANOTHERS: Final = "it is another tenant's"
UNLABELLED: Final = "it carries no label"
_SHORT: Final = 12
# An engine's own id of a decision: it goes into journal, receipt, logs and headers as it is.
_NUMBER: Final = re.compile(r"[\x21-\x7e]{1,128}")
_LOG = logging.getLogger("crp_integrations.guard")


class PolicyGuard:
    """Decides by a policy bundle; safe between threads.

    Spec: Summit §Storage Interfaces, §Key APIs

    Args:
        bundle: the policy; its hash is part of every decision's id.
        remember: whether the engine's answers are kept until the bundle changes. An engine whose
            policy may change under way, such as a server, is asked again by each pass of reads.
    """

    def __init__(
        self,
        engine: PolicyEngine,
        bundle: Bundle,
        *,
        remember: bool = True,
        most_kept: int = MOST_KEPT,
    ) -> None:
        self._engine = engine
        self._bundle = bundle
        self._remember = remember
        self._most = most_kept
        # Reading and setting one entry of a dict needs no lock, and a decision made twice is equal.
        self._known: dict[tuple[object, ...], Decision] = {}
        # What the engine said of a class, for others whose names the policy does not read.
        self._nameless = remember and not bundle.reads_names
        self._said_of: dict[tuple[object, ...], Mapping[str, Any]] = {}
        self._numbering = f"[{json.dumps(bundle.digest)}, "
        short = bundle.digest.removeprefix("sha256:")[:_SHORT]
        self._name = f"policy {bundle.name} {short}"

    @property
    def name(self) -> str:
        """`policy`, the bundle's name and the beginning of its hash, shown in the report."""
        return self._name

    def authorize(self, subject: Subject, action: Action, resource: Resource) -> PolicyDecisionRef:
        """Decide about a resource, for a store that keeps things of several tenants.

        Spec: Summit §Key APIs
        """
        decision = self._decided(subject, action, resource.tenant, resource.labels)
        return PolicyDecisionRef(id=decision.id, allowed=decision.allowed, reason=decision.reason)

    def decide(self, subject: Subject, action: Action, labels: tuple[str, ...]) -> Decision:
        """Decide for things of the subject's own tenant, or that are shared with it.

        A namespace holds no other things, so the tenant is the subject's.
        """
        return self._decided(subject, action, subject.tenant, labels)

    # --- within ------------------------------------------------------------------------

    def _decided(
        self, subject: Subject, action: Action, tenant: str, labels: tuple[str, ...]
    ) -> Decision:
        key = (subject.tenant, subject.name, subject.roles, action, tenant, labels)
        known = self._known.get(key)
        if known is not None:
            return known
        decision = self._asked(subject, action, tenant, labels)
        if decision.lasting:
            if len(self._known) >= self._most:
                self._known.clear()
            self._known[key] = decision
        return decision

    def _asked(
        self, subject: Subject, action: Action, tenant: str, labels: tuple[str, ...]
    ) -> Decision:
        own = TENANT + subject.tenant
        # The label of the own tenant forbids nothing, and as the only label it says nothing.
        classes = tuple(sorted({*labels} - {own}))
        number = self._numbering + _question_key(subject, action, tenant, classes)
        against = _against(subject, tenant, labels, classes)
        if against:
            return self._said(number, {"allow": False, "reason": against}, lasting=True)
        try:
            of = (subject.roles, action, subject.tenant, classes)
            answer = self._said_of.get(of) if self._nameless else None
            new = answer is None
            if answer is None:
                asking: dict[str, Any] = {"tenant": subject.tenant}
                # A policy of which no source reads the name does not get it.
                if not self._nameless:
                    asking["name"] = subject.name
                asking["roles"] = list(subject.roles)
                question = {
                    "subject": asking,
                    "action": action,
                    "resource": {"tenant": tenant, "labels": list(classes)},
                }
                answer = self._engine.decide(self._bundle, question)
            # Writing and erasing show no text, so nothing is redacted.
            shown = action == "read"
            decision = self._said(number, answer, lasting=self._remember, shown=shown)
            if new and self._nameless:
                if len(self._said_of) >= self._most:
                    self._said_of.clear()
                self._said_of[of] = answer
            return decision
        except EngineError as error:
            _LOG.error("%s denies %s: the policy engine failed: %s", self._name, action, error)
            reason = f"the policy engine failed: {error}"
            denied = self._said(number, {"allow": False, "reason": reason}, lasting=False)
            return denied.model_copy(update={"failed": True})

    def _said(
        self,
        number: str,
        value: Mapping[str, Any],
        *,
        lasting: bool,
        shown: bool = True,
    ) -> Decision:
        """The engine's answer as a decision."""
        allowed, reason = value.get("allow"), value.get("reason", "")
        redact, own = value.get("redact", []), value.get("decision_id", "")
        if (
            not isinstance(allowed, bool)
            or not _writable(reason)
            or not isinstance(redact, list)
            or (redact and not all(map(_writable, redact)))
            or not isinstance(own, str)
            or (own and _NUMBER.fullmatch(own) is None)
        ):
            raise EngineError(
                f"the policy {self._bundle.name} gave no decision; wanted an object with `allow` "
                "as a boolean, `reason` as a text, `redact` as a list of texts and, if any, "
                "`decision_id` as one word of ASCII",
                engine=self._engine.identity,
            )
        return Decision(
            allowed=allowed,
            guard=self._name,
            reason=reason or f"the policy says {'yes' if allowed else 'no'}",
            id=own or _number_decision(number, allowed),
            redact=tuple(sorted(set(redact))) if redact and allowed and shown else (),
            lasting=lasting,
        )


def _writable(text: object) -> bool:
    """Whether it is a text, and one that can be written: half of a surrogate pair cannot."""
    if not isinstance(text, str):
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _number_decision(number: str, allowed: bool) -> str:
    """An id that follows from policy, question and answer, so a replay gets the same one."""
    return "pd:" + sha256_hex(f"{number}, {'true' if allowed else 'false'}]")[:24]


def _question_key(subject: Subject, action: Action, tenant: str, classes: tuple[str, ...]) -> str:
    """A question as `json.dumps` writes it, in a third of its time: each decision has an id."""
    return (
        f'{{"subject": {{"tenant": {quoted(subject.tenant)}, "name": {quoted(subject.name)}, '
        f'"roles": {_list_words(subject.roles)}}}, "action": {quoted(action)}, '
        f'"resource": {{"tenant": {quoted(tenant)}, "labels": {_list_words(classes)}}}}}'
    )


@lru_cache(_WORDS)
def _list_words(words: tuple[str, ...]) -> str:
    """Roles and labels come back in most questions."""
    return f"[{', '.join(map(quoted, words))}]"


def _against(
    subject: Subject, tenant: str, labels: tuple[str, ...], classes: tuple[str, ...]
) -> str:
    """Why no policy can allow it; empty when one can."""
    if not subject.tenant.strip():
        return "the subject names no tenant"
    if tenant != subject.tenant:
        return ANOTHERS
    for label in classes:
        if label.startswith(TENANT):
            return ANOTHERS
    if not classes:
        return UNLABELLED
    for label in labels:
        if not label.strip():
            return UNLABELLED
    return ""
