"""What one subject may read: the guard's decision on each class of labels, asked once.

A text that may be read without its personal data goes through the redactor. Where there is none,
or it fails, nothing of that class is read.

Spec: Summit §Storage Interfaces, §Privacy & Security (decision E22)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pydantic import JsonValue

from crp_integrations.errors import AccessDenied, EngineError
from crp_integrations.fabric.ports import FactBrief
from crp_integrations.fabric.records import Fact
from crp_integrations.guard.decisions import Decision, Guard, Subject
from crp_integrations.guard.ports import Redactor
from crp_integrations.seals import sha256


class AccessFilter:
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

    def passing(self) -> AccessFilter:
        """The same gate for one pass of reads, which sees one answer to each question."""
        one = AccessFilter(self._guard, self._subject, self._redactor)
        one._lasting, one._of_pass = self._lasting, {}
        return one

    def decision(self, labels: tuple[str, ...]) -> Decision:
        """The guard's decision on reading what carries exactly these labels."""
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

    def briefs(self, found: Iterable[FactBrief]) -> list[FactBrief]:
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
        """Those that may be read, in their order, without what must be redacted."""
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
        """The text without the kinds of personal data that the decision names."""
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
