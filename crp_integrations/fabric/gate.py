"""The gate through which one subject reads: the guard's word on each class of labels, asked once.

What is let through may still have to lose its personal data on the way; then its text goes through
the redactor. Where there is none, or it fails, nothing of that class is let through.

Spec: Summit §Storage Interfaces, §Privacy & Security (decision E22)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pydantic import JsonValue

from crp_integrations.errors import AccessDenied, EngineError
from crp_integrations.fabric.ports.facts import Brief
from crp_integrations.fabric.records import Fact
from crp_integrations.guard.decisions import Decision, Guard, Subject
from crp_integrations.guard.ports import Redactor
from crp_integrations.seals import sha256


class Gate:
    """Lets a subject's reads through, or not; safe between threads.

    Lasting decisions are kept as long as the gate. The others are kept for one pass of reads, so
    that a use of an exception is told of once for each pass and class of labels.
    """

    __slots__ = ("_guard", "_lasting", "_of_pass", "_redactor", "_subject")

    def __init__(self, guard: Guard, subject: Subject, redactor: Redactor | None = None) -> None:
        self._guard = guard
        self._subject = subject
        self._redactor = redactor
        self._lasting: dict[tuple[str, ...], Decision] = {}
        self._of_pass: dict[tuple[str, ...], Decision] | None = None

    def passing(self) -> Gate:
        """The same gate for one pass of reads, which sees one answer to each question."""
        # Made for every read, where `copy.copy` takes ten times as long.
        one = Gate.__new__(Gate)
        one._guard, one._subject, one._redactor = self._guard, self._subject, self._redactor
        one._lasting, one._of_pass = self._lasting, {}
        return one

    def decision(self, labels: tuple[str, ...]) -> Decision:
        """The guard's decision on reading what carries exactly these labels.

        Raises:
            AccessDenied: the guard could not decide. An empty answer would look like an empty
                fabric.
        """
        known = self._lasting.get(labels)
        if known is None and self._of_pass:
            known = self._of_pass.get(labels)
        if known is not None:
            return known
        found = self._guard.decide(self._subject, "read", labels)
        if found.failed:
            raise AccessDenied(f"guard {found.guard!r} denies read: {found.reason}")
        if found.allowed and found.redact and self._redactor is None:
            found = found.model_copy(
                update={
                    "allowed": False,
                    "reason": "personal data must be redacted, and there is no redactor",
                }
            )
        if found.lasting:
            self._lasting[labels] = found
        elif self._of_pass is not None:
            self._of_pass[labels] = found
        return found

    def may_read(self, labels: tuple[str, ...]) -> bool:
        """Whether the subject may read what carries exactly these labels."""
        return self.decision(labels).allowed

    def briefs(self, found: Iterable[Brief]) -> list[Brief]:
        """Those that may be read, in their order, without what must be redacted."""
        shown = []
        for one in found:
            decision = self.decision(one.labels)
            if decision.redact and decision.allowed:
                one = replace(one, content=self._redacted(one.content, decision))
            if decision.allowed:
                shown.append(one)
        return shown

    def facts(self, found: Iterable[Fact]) -> list[Fact]:
        """Those that may be read, in their order, without what must be redacted.

        A redacted fact has the hash of the text that is shown, and its metadata have an empty text
        where they told that of the whole: it would confirm a guess at what was taken out.
        """
        shown = []
        for one in found:
            decision = self.decision(one.labels)
            if decision.redact and decision.allowed:
                text = self._redacted(one.content, decision)
                shown_as: dict[str, object] = {"content": text, "content_hash": sha256(text)}
                if one.metadata and text != one.content:
                    shown_as["metadata"] = _without(one.metadata, sha256(one.content))
                one = one.model_copy(update=shown_as)
            if decision.allowed:
                shown.append(one)
        return shown

    def _redacted(self, text: str, decision: Decision) -> str:
        """The text without the kinds of personal data that the decision names.

        Raises:
            AccessDenied: there is no redactor, or it failed.
        """
        try:
            if self._redactor is not None:
                return self._redactor.redacted(text, decision.redact)
        except EngineError as error:
            raise AccessDenied(
                f"personal data must be redacted (decision {decision.id}) and could not be "
                f"({type(error).__name__}), so read is denied"
            ) from error
        raise AccessDenied("personal data must be redacted, and there is no redactor")


def _without(value: JsonValue, text: str) -> JsonValue:
    """The same, with an empty text wherever exactly this one stands."""
    if isinstance(value, dict):
        return {name: _without(one, text) for name, one in value.items()}
    if isinstance(value, list):
        return [_without(one, text) for one in value]
    return "" if value == text else value
