"""A repaired answer beside its original: which of the two is released, and what is recorded."""

from __future__ import annotations

from collections.abc import Sequence
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
from crp_integrations.relay.records import Answer, Repaired
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


def unrepaired(answer: Answer) -> Answer:
    """An answer with the report on its text before the repair, if there was one."""
    made = answer.repaired
    fields = {"report": made.report, "repaired": None} if made else {}
    return answer.model_copy(update=fields)


def joined_repairs(
    repairs: Sequence[Repaired | None],
    parts: Sequence[tuple[str, Report]],
    separator: str,
    reply: Reply,
    report: Report,
) -> Repaired:
    """The repairs of an answer's parts as one, with places and claims of the joined original.

    Args:
        parts: text and report of each part before its repair.
        reply, report: those of the joined original.
    """
    ids = {(claim.start, claim.end): claim.claim_id for claim in report.claims}
    edits: list[Edit] = []
    stays: list[Unrepaired] = []
    at = 0
    for made, (text, own) in zip(repairs, parts, strict=True):
        if made is not None:
            named = {
                claim.claim_id: ids.get((at + claim.start, at + claim.end), claim.claim_id)
                for claim in own.claims
            }
            for edit in made.edits:
                place = {"start": at + edit.start, "end": at + edit.end}
                edits.append(edit.model_copy(update={**place, "claim": named[edit.claim]}))
            stays += [Unrepaired(claim=named[r.claim], reason=r.reason) for r in made.unrepaired]
        at += len(text) + len(separator)
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
