"""A judge by hand in tests: a case, what it is asked, and a report from replies that are given."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.judge.inquiry import Inquiry, JudgeReply, JudgeTerms
from crp_integrations.dpe.judge.verdict import judged
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.report_parts import JudgeRun
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.messages import ModelCall
from crp_integrations.vocabulary import ClaimStatus, GroundingMode

# From what a call holds, as a dictionary, to a reply: an object, or its text.
Rule = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class Case:
    """An answer with what it is judged by."""

    answer: str
    passages: Sequence[str]
    question: str = ""
    grounding: GroundingMode = GroundingMode.PREFERRED
    conversation: tuple[tuple[str, str], ...] = ()
    system: str = ""
    terms: JudgeTerms = field(default_factory=lambda: JudgeTerms("test/judge"))
    # Text of the claims that the segmentation is taken to miss.
    missed: str = ""

    @property
    def dossier(self) -> Dossier:
        """Passages are named `f1`, `f2`, …."""
        return Dossier(
            question=self.question,
            answer=self.answer,
            passages=tuple((f"f{n}", text) for n, text in enumerate(self.passages, 1)),
            grounding=self.grounding,
            conversation=self.conversation,
            instructions=self.system,
        )

    @property
    def screened(self) -> Report:
        """The report of the stages without a model call, as if they had compared nothing."""
        report = examine(self.dossier, embedder=None, verifier=None, settings=DpeSettings())
        bare = {"status": ClaimStatus.NOT_CHECKED, "error": None, "wrong": None}
        unread = {**bare, "quotations": (), "findings": (), "evidence": ()}
        return report.model_copy(
            update={
                "claims": tuple(
                    one.model_copy(update=unread)
                    for one in report.claims
                    if not self.missed or one.text != self.missed
                )
            }
        )

    def inquiry(self) -> Inquiry:
        return Inquiry(self.dossier, self.screened.claims, self.terms)

    @property
    def material(self) -> dict[str, Any]:
        """What the first call holds."""
        call = self.inquiry().call()
        assert call is not None
        return asked(call)

    def played(self, rule: Rule) -> tuple[JudgeRun, list[ModelCall]]:
        """What came of asking a judge that answers by a rule, and the calls."""
        inquiry, calls = self.inquiry(), []
        while (call := inquiry.call()) is not None:
            calls.append(call)
            said = rule(asked(call))
            if not isinstance(said, JudgeReply):
                text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
                said = JudgeReply(text=text, model="judge-1")
            inquiry.take(said)
        return inquiry.run(), calls

    def judged(self, rule: Rule) -> Report:
        """The report with what a judge that answers by a rule says."""
        run, _ = self.played(rule)
        return judged(self.screened, self.dossier, run, DpeSettings())


def asked(call: ModelCall) -> dict[str, Any]:
    """The material of a call."""
    found: dict[str, Any] = json.loads(call.messages[1].content)
    return found


def claims_of(data: dict[str, Any]) -> list[tuple[int, str]]:
    """The numbered claims of the material."""
    return [(one[0], one[1]) for one in data["answer"] if isinstance(one, list)]


def quoted(*places: tuple[int | str, str]) -> list[dict[str, str]]:
    return [{"in": str(where), "text": text} for where, text in places]


def supported(n: int, *places: tuple[int | str, str]) -> dict[str, Any]:
    return {"n": n, "status": "SUPPORTED", "quotes": quoted(*places)}


def contradicted(
    n: int, *places: tuple[int | str, str], kind: str = "NUMBER", wrong: str = ""
) -> dict[str, Any]:
    verdict = {"n": n, "status": "CONTRADICTED", "kind": kind, "wrong": wrong}
    return {**verdict, "quotes": quoted(*places), "reason": "It says otherwise."}


def unsupported(n: int, kind: str = "OVERREACH", wrong: str = "") -> dict[str, Any]:
    return {"n": n, "status": "UNSUPPORTED", "kind": kind, "wrong": wrong, "quotes": []}


def saying(*claims: dict[str, Any], unnumbered: Sequence[dict[str, Any]] = ()) -> Rule:
    """A judge with these verdicts, under the right id."""
    return lambda data: {"id": data["id"], "claims": list(claims), "unnumbered": list(unnumbered)}


def statuses(report: Report) -> list[str]:
    return [str(claim.status) for claim in report.claims]
