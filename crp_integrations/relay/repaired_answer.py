"""A repaired answer beside its original: which of the two is released, and what is recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from crp_integrations.dpe.pipeline import Examination
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.repair import Edit, Repair, Unrepaired
from crp_integrations.dpe.stages.report import finish
from crp_integrations.headers import names
from crp_integrations.messages import Reply
from crp_integrations.policy.demands import RISKS
from crp_integrations.receipt.window_values import OriginalValues
from crp_integrations.relay.judged_answer import JudgedAnswer
from crp_integrations.relay.records import Answer, Piece, Repaired
from crp_integrations.seals import digest

# Flag of a flagged answer whose form permits no repair, since other code has parsed it.
NOT_REPAIRED: Final = "not-repaired=structured"


@dataclass(frozen=True, slots=True)
class OriginalAnswer:
    """An answer that was repaired, as the model wrote it.

    Attributes:
        report: the judged report that the repair rests on, without a window's identity.
        examined: its examination, and the number of flags that the examination set.
    """

    reply: Reply
    report: Report
    repair: Repair
    examined: tuple[Examination, int] | None
    judged: JudgedAnswer | None = None

    def record(self, settings_digest: str) -> Repaired:
        """The record of the repair for the caller."""
        return Repaired(
            reply=self.reply,
            report=finish(self.report, settings_digest=settings_digest),
            edits=self.repair.edits,
            unrepaired=self.repair.unrepaired,
        )

    def values(self, settings_digest: str) -> OriginalValues:
        """The values for the receipt."""
        examination, flags = self.examined or (None, len(self.report.flags))
        finished = finish(self.report, settings_digest=settings_digest)
        edits = self.repair.edits
        return OriginalValues(self.reply.answer, finished, examination, flags, edits)

    @property
    def header(self) -> dict[str, str]:
        """The response header that says what was done."""
        return repair_header(self.repair)

    @property
    def flag(self) -> str:
        """The report's flag on the repair."""
        return f"repaired={len(self.repair.edits)}"

    def event(self, settings_digest: str) -> dict[str, Any]:
        """The data of the journal's event: counts and hashes."""
        return {
            "edits": len(self.repair.edits),
            "unrepaired": len(self.repair.unrepaired),
            "response_hash": self.report.response_content_hash,
            "report_hash": finish(self.report, settings_digest=settings_digest).report_hash,
            "edits_hash": digest([edit.model_dump() for edit in self.repair.edits]),
        }


def repair_header(made: Repair | Repaired) -> dict[str, str]:
    """The response header on a repair."""
    return {names.REPAIRED: f"edits={len(made.edits)};unrepaired={len(made.unrepaired)}"}


def joined_repairs(
    answers: Sequence[Answer],
    pieces: Sequence[Piece],
    parts: Sequence[tuple[str, Report]],
    separator: str,
    examine: Callable[[Sequence[Answer], str, Sequence[tuple[str, Report]]], Report],
) -> Repaired | None:
    """The repairs of several windows as one, with places and claims of their joined originals."""
    windows = {answer.window_id: answer.repaired for answer in answers if answer.repaired}
    if not windows:
        return None
    repairs = [windows.get(piece.window_id) for piece in pieces]
    before = [
        (made.text, made.report) if made else part
        for made, part in zip(repairs, parts, strict=True)
    ]
    own = [
        answer.model_copy(update={"report": answer.repaired.report, "repaired": None})
        if answer.repaired
        else answer
        for answer in answers
    ]
    text = separator.join(part for part, _ in before)
    report = examine(own, text, before)
    ids = {(claim.start, claim.end): claim.claim_id for claim in report.claims}
    edits: list[Edit] = []
    stays: list[Unrepaired] = []
    at = 0
    for made, (part, read) in zip(repairs, before, strict=True):
        named = {c.claim_id: ids.get((at + c.start, at + c.end), c.claim_id) for c in read.claims}
        for edit in made.edits if made else ():
            moved = {"start": at + edit.start, "end": at + edit.end, "claim": named[edit.claim]}
            edits.append(edit.model_copy(update=moved))
        rows = made.unrepaired if made else ()
        stays += [row.model_copy(update={"claim": named[row.claim]}) for row in rows]
        at += len(part) + len(separator)
    reply = answers[-1].model_reply.changed(text=text)
    return Repaired(reply=reply, report=report, edits=tuple(edits), unrepaired=tuple(stays))


def is_worse(again: Reply, report: Report, before: Report) -> bool:
    """Whether what was asked for again is empty, or more of its claims or its risk are wrong."""
    if again.tool_calls:
        return False
    return (
        not again.answer.strip()
        or report.claim_counts.wrong > before.claim_counts.wrong
        or RISKS.index(report.risk_level) > RISKS.index(before.risk_level)
    )


def is_better(repaired: Report, original: Report) -> bool:
    """Whether a repaired text may be released: it was read, and fewer of its claims are wrong."""
    after, before = repaired.claim_counts, original.claim_counts
    return (
        after.wrong < before.wrong
        and after.unread <= before.unread
        and RISKS.index(repaired.risk_level) <= RISKS.index(original.risk_level)
    )
