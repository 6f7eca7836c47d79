"""Subjects, resources and decisions, label filters, and the guard that evaluates a policy."""

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
        tenant: name of the tenant; an empty one is denied everywhere.
    """

    tenant: str
    name: str = "local"
    roles: tuple[str, ...] = ()


LOCAL = Subject(tenant=LOCAL_TENANT)


Action = Literal["read", "write", "erase"]
# Labels of a namespace as a whole, for operations on all of it: compaction, a new embedder.
NAMESPACE: Final = ("crp:namespace",)


class Resource(Part):
    """A class of things that get the same decision from a policy.

    Attributes:
        labels: labels of each of them, sorted; things without a label are denied.
    """

    tenant: str
    labels: tuple[str, ...] = ()


class PolicyDecisionRef(Part):
    """A guard's decision by its id, as recorded in packs, receipts and the journal."""

    id: str = Field(min_length=1)
    allowed: bool
    reason: str = ""


class Decision(Part):
    """A guard's answer for one class of subject, action and labels.

    Attributes:
        guard: name of the guard that decided, shown in the report.
        reason: one plain sentence.
        id: id of the decision in evidence, receipt and journal; empty for a guard without policy.
        redact: kinds of personal data that must be removed from a text before the subject sees it,
            `*` for every kind; empty for none.
        failed: no decision was possible, so access is denied; readers get an error.
        lasting: whether an equal question will get an equal answer. A decision that depends on an
            exception's expiry, or on a failed engine, is asked for again by each pass of reads.
    """

    allowed: bool
    guard: str
    reason: str
    id: str = ""
    redact: tuple[str, ...] = ()
    lasting: bool = True
    failed: bool = False


class Guard(Protocol):
    """Decides about access. A caller may cache decisions that are lasting."""

    @property
    def name(self) -> str:
        """Name of the guard in reports."""
        ...

    def decide(self, subject: Subject, action: Action, labels: tuple[str, ...]) -> Decision:
        """Decide for things that have exactly these labels (sorted)."""
        ...


class AllowAll:
    """The local default: anyone who opens the store may do everything in it. Reports name it."""

    name = "allow-all"

    def decide(self, subject: Subject, action: Action, labels: tuple[str, ...]) -> Decision:
        """Allow any subject that names a tenant."""
        if not subject.tenant.strip():
            return Decision(allowed=False, guard=self.name, reason="the subject names no tenant")
        return Decision(allowed=True, guard=self.name, reason="the local guard allows everything")


def require(
    guard: Guard, subject: Subject, action: Action, labels: tuple[str, ...] = ()
) -> Decision:
    """Return the decision if it allows the action, else raise."""
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
    """Labels that an item must have, and labels that it must not have.

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
        """The filter as it is recorded in evidence; empty for none."""
        filters = (("require", self.require), ("without", self.without))
        return {name: " ".join(labels) for name, labels in filters if labels}


# Maximum number of cached decisions: one for each class of subject, action and labels.
MAX_KEPT: Final = 4_096
# Maximum number of lists of roles or labels whose JSON text is cached.
_MAX_LISTS: Final = 1_024
# Prefix of a label that names a tenant.
TENANT: Final = "tenant:"
ANOTHERS: Final = "it is another tenant's"
UNLABELLED: Final = "it carries no label"
_HASH_DIGITS: Final = 12
# An engine's own decision id: it is written unchanged to journal, receipt, logs and headers.
_DECISION_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")
_LOG = logging.getLogger("crp_integrations.guard")


class PolicyGuard:
    """Decides by a policy bundle; thread-safe.

    Spec: Summit §Storage Interfaces, §Key APIs

    Args:
        bundle: the policy; its hash is part of every decision's id.
        remember: whether the engine's answers are cached until the bundle changes. An engine
            whose policy may change meanwhile, such as a server, is asked by each pass of reads.
    """

    def __init__(
        self,
        engine: PolicyEngine,
        bundle: Bundle,
        *,
        remember: bool = True,
        most_kept: int = MAX_KEPT,
    ) -> None:
        self._engine = engine
        self._bundle = bundle
        self._remember = remember
        self._max_kept = most_kept
        # Getting or setting one dict entry needs no lock; a decision made twice is equal.
        self._known: dict[tuple[object, ...], Decision] = {}
        # The engine's answers by class, for subjects whose names the policy does not read.
        self._nameless = remember and not bundle.reads_names
        self._answers: dict[tuple[object, ...], Mapping[str, Any]] = {}
        self._numbering = f"[{json.dumps(bundle.digest)}, "
        short = bundle.digest.removeprefix("sha256:")[:_HASH_DIGITS]
        self._name = f"policy {bundle.name} {short}"

    @property
    def name(self) -> str:
        """`policy`, the bundle's name and the start of its hash, as shown in reports."""
        return self._name

    def authorize(self, subject: Subject, action: Action, resource: Resource) -> PolicyDecisionRef:
        """Decide about a resource, for a store that keeps things of several tenants.

        Spec: Summit §Key APIs
        """
        decision = self._decided(subject, action, resource.tenant, resource.labels)
        return PolicyDecisionRef(id=decision.id, allowed=decision.allowed, reason=decision.reason)

    def decide(self, subject: Subject, action: Action, labels: tuple[str, ...]) -> Decision:
        """Decide for things of the subject's own tenant, or that are shared with it.

        A namespace contains no other things, so the tenant is the subject's.
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
        decision = self._ask_policy(subject, action, tenant, labels)
        if decision.lasting:
            if len(self._known) >= self._max_kept:
                self._known.clear()
            self._known[key] = decision
        return decision

    def _ask_policy(
        self, subject: Subject, action: Action, tenant: str, labels: tuple[str, ...]
    ) -> Decision:
        own = TENANT + subject.tenant
        # The label of the subject's own tenant forbids nothing, and alone it is no classification.
        classes = tuple(sorted({*labels} - {own}))
        number = self._numbering + _question_key(subject, action, tenant, classes)
        against = _find_refusal(subject, tenant, labels, classes)
        if against:
            return self._as_decision(number, {"allow": False, "reason": against}, lasting=True)
        try:
            of = (subject.roles, action, subject.tenant, classes)
            answer = self._answers.get(of) if self._nameless else None
            new = answer is None
            if answer is None:
                asking: dict[str, Any] = {"tenant": subject.tenant}
                # A policy that never reads the name does not get it.
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
            decision = self._as_decision(number, answer, lasting=self._remember, shown=shown)
            if new and self._nameless:
                if len(self._answers) >= self._max_kept:
                    self._answers.clear()
                self._answers[of] = answer
            return decision
        except EngineError as error:
            _LOG.error("%s denies %s: the policy engine failed: %s", self._name, action, error)
            reason = f"the policy engine failed: {error}"
            denied = self._as_decision(number, {"allow": False, "reason": reason}, lasting=False)
            return denied.model_copy(update={"failed": True})

    def _as_decision(
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
            or (own and _DECISION_ID.fullmatch(own) is None)
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
    """Whether it is a string that can be encoded; half of a surrogate pair cannot."""
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
    """An id derived from policy, question and answer, so that a replay gets the same id."""
    return "pd:" + sha256_hex(f"{number}, {'true' if allowed else 'false'}]")[:24]


def _question_key(subject: Subject, action: Action, tenant: str, classes: tuple[str, ...]) -> str:
    """A question as `json.dumps` writes it, but three times as fast: each decision needs an id."""
    return (
        f'{{"subject": {{"tenant": {quoted(subject.tenant)}, "name": {quoted(subject.name)}, '
        f'"roles": {_list_words(subject.roles)}}}, "action": {quoted(action)}, '
        f'"resource": {{"tenant": {quoted(tenant)}, "labels": {_list_words(classes)}}}}}'
    )


@lru_cache(_MAX_LISTS)
def _list_words(words: tuple[str, ...]) -> str:
    """A list as JSON; cached, because roles and labels recur in most questions."""
    return f"[{', '.join(map(quoted, words))}]"


def _find_refusal(
    subject: Subject, tenant: str, labels: tuple[str, ...], classes: tuple[str, ...]
) -> str:
    """Why no policy can allow it; empty if one can."""
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
