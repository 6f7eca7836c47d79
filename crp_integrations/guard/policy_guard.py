"""The guard that asks a policy: deny by default, each class of things decided once.

What no policy may loosen is checked first, here: a subject without a tenant, things without a
label and things of another tenant, also by a label `tenant:NAME`, are denied before any engine is
asked. An engine that fails, or answers with something else than a decision, denies. Where the
policy does not read the subject's name, all subjects with the same roles are one class, and the
engine is asked once for it; each still gets a decision, and an id, of its own.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final

from crp_integrations.errors import EngineError
from crp_integrations.guard.decisions import Action, Decision, PolicyDecisionRef, Resource, Subject
from crp_integrations.guard.ports import Bundle, PolicyEngine
from crp_integrations.seals import sha256_hex

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
        engine: evaluates the policy.
        bundle: the policy; its hash is part of every decision's id.
        remember: whether the engine's answers are kept until the bundle changes. An engine whose
            policy may change under way, such as a server, is asked again by each pass of reads.
        most_kept: decisions kept in memory.
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
        found = self._decided(subject, action, resource.tenant, resource.labels)
        return PolicyDecisionRef(id=found.id, allowed=found.allowed, reason=found.reason)

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
        found = self._asked(subject, action, tenant, labels)
        if found.lasting:
            if len(self._known) >= self._most:
                self._known.clear()
            self._known[key] = found
        return found

    def _asked(
        self, subject: Subject, action: Action, tenant: str, labels: tuple[str, ...]
    ) -> Decision:
        own = TENANT + subject.tenant
        # The own tenant's name stands against nothing, and alone it says nothing.
        classes = tuple(sorted({*labels} - {own}))
        number = self._numbering + _question_key(subject, action, tenant, classes)
        against = _against(subject, tenant, labels, classes)
        if against:
            return self._said(number, {"allow": False, "reason": against}, lasting=True)
        try:
            of = (subject.roles, action, subject.tenant, classes)
            told = self._said_of.get(of) if self._nameless else None
            new = told is None
            if told is None:
                asking: dict[str, Any] = {"tenant": subject.tenant}
                # What no source reads is not written for it either.
                if not self._nameless:
                    asking["name"] = subject.name
                asking["roles"] = list(subject.roles)
                question = {
                    "subject": asking,
                    "action": action,
                    "resource": {"tenant": tenant, "labels": list(classes)},
                }
                told = self._engine.decide(self._bundle, question)
            # Whoever writes or erases is shown no text.
            shown = action == "read"
            found = self._said(number, told, lasting=self._remember, shown=shown)
            if new and self._nameless:
                if len(self._said_of) >= self._most:
                    self._said_of.clear()
                self._said_of[of] = told
            return found
        except EngineError as error:
            _LOG.error("%s denies %s: the policy engine failed: %s", self._name, action, error)
            reason = f"the policy engine failed: {error}"
            denied = self._said(number, {"allow": False, "reason": reason}, lasting=False)
            return denied.model_copy(update={"failed": True})

    def _said(
        self,
        number: str,
        told: Mapping[str, Any],
        *,
        lasting: bool,
        shown: bool = True,
    ) -> Decision:
        """The engine's answer as a decision."""
        allowed, reason = told.get("allow"), told.get("reason", "")
        redact, own = told.get("redact", []), told.get("decision_id", "")
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
