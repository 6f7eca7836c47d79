"""Measures how often the verdict on labelled answers is right.

Two error rates matter together: right answers that are flagged, and wrong answers that pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, Final

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.judge.belief import Matter, matter_of
from crp_integrations.dpe.judge.inquiry import Inquiry, JudgeReply, JudgeTerms
from crp_integrations.dpe.judge.verdict import judged
from crp_integrations.dpe.ports import Judgement, Verifier
from crp_integrations.dpe.records import Claim, Report
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.errors import RequestError
from crp_integrations.evaluation.data_sets import each
from crp_integrations.language.claims import segment as segment_claims
from crp_integrations.language.folded_text import Folded, locate
from crp_integrations.language.text import split_sentences
from crp_integrations.messages import ModelCall
from crp_integrations.relay.defaults import chosen_settings
from crp_integrations.relay.settings import Settings
from crp_integrations.relay.storeless_functions import screened_answer

FORM: Final = (
    "id, question, passages (or context), answer, hallucinated (true or false) and spans (start, "
    "end and type of each); or id, evidence, claim and label"
)
SUPPORTED: Final = "supported"
# Number of sentences that the oracle judge quotes for a claim.
ORACLE_QUOTES: Final = 3


@dataclass(frozen=True, slots=True)
class Marked:
    """A wrong stretch of an answer, by character offsets, and its kind."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class AnswerCase:
    """An answer with its evidence, and whether it is right.

    Attributes:
        domain: group of the answer; the file's name if the row has none.
        marked: the wrong stretches; empty for a right answer, or if they are not known.
        needs: parts of the question; empty to split it by rules.
    """

    name: str
    domain: str
    question: str
    passages: tuple[str, ...]
    answer: str
    wrong: bool
    marked: tuple[Marked, ...] = ()
    style: str = ""
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Screened:
    """A case with the report of the stages that call no judge."""

    case: AnswerCase
    report: Report
    dossier: Dossier
    settings: DpeSettings

    def inquiry(self, terms: JudgeTerms | str) -> Inquiry:
        """The inquiry with the calls to a judge on this case."""
        chosen = JudgeTerms(model=terms) if isinstance(terms, str) else terms
        return Inquiry(self.dossier, self.report.claims, chosen)


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """The verdict on one case.

    Attributes:
        calls: number of calls of the judge; 0 if none was asked.
        flagged: True if the answer's level is MEDIUM or above.
        met: True if a flagged claim overlaps a marked stretch.
        overlap: characters both flagged and marked, over those flagged or marked; None if
            nothing is flagged, or nothing is marked.
        settled: True if every claim was settled without a judge.
        failed: name of the error that left the answer without the judge's verdict; empty for none.
    """

    case: AnswerCase
    report: Report
    calls: int
    flagged: bool
    met: bool
    overlap: float | None
    settled: bool
    failed: str = ""


def read_cases(
    paths: Iterable[Path], *, most: int | None = None, seed: int = 0
) -> list[AnswerCase]:
    """The cases of files; a random sample of each if it has more than `most`."""
    collected: list[AnswerCase] = []
    for path in paths:
        name = path.name.split(".")[0]
        cases = list(each(path, FORM, lambda row, name=name: _case(row, name)))  # type: ignore[misc]
        if not cases:
            raise RequestError(f"{path} holds no rows, wanted one JSON object on each line")
        if most is not None and len(cases) > most:
            cases = Random(seed).sample(cases, most)  # noqa: S311 - a sample, no secret
        collected += cases
    return collected


def _case(row: dict[str, Any], domain: str) -> AnswerCase:
    if "claim" in row:
        return AnswerCase(
            name=str(row["id"]),
            domain=domain,
            question=str(row.get("question") or ""),
            passages=(_text(row["evidence"]),),
            answer=_text(row["claim"]),
            wrong=row["label"] != SUPPORTED,
        )
    passages = row.get("passages") or [row["context"]]
    return AnswerCase(
        name=str(row["id"]),
        domain=str(row.get("task") or domain),
        question="" if row["question"] is None else _text(row["question"]),
        passages=tuple(_text(passage) for passage in passages),
        answer=_text(row["answer"]),
        wrong=bool(row["hallucinated"]),
        marked=tuple(
            Marked(int(mark["start"]), int(mark["end"]), str(mark["type"]))
            for mark in row.get("spans") or ()
        ),
        style=str(row.get("style") or ""),
        needs=tuple(map(_text, row.get("needs") or ())),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def screened(
    case: AnswerCase, settings: Settings | None = None, verifier: Verifier | None = None
) -> Screened:
    """Run the stages that call no judge on a case."""
    chosen = chosen_settings(settings)
    report, dossier = screened_answer(
        case.answer,
        list(case.passages),
        case.question or None,
        settings=chosen,
        verifier=verifier,
        sub_queries=case.needs,
    )
    return Screened(case, report, dossier, chosen.dpe)


def verdict(
    of: Screened,
    ask: Callable[[ModelCall], JudgeReply] | None = None,
    terms: JudgeTerms | str = "judge",
) -> ScoredAnswer:
    """The verdict on a case.

    Args:
        ask: returns the judge's reply to a call; None for the report without a judge.
    """
    report, calls, failed = of.report, 0, ""
    if ask is not None:
        inquiry = of.inquiry(terms)
        while (call := inquiry.call()) is not None:
            inquiry.take(ask(call))
            calls += 1
        report = judged(report, of.dossier, inquiry.run(), of.settings)
        failed = inquiry.failed
    return ScoredAnswer(
        case=of.case,
        report=report,
        calls=calls,
        flagged=report.flagged,
        met=any(_meets(claim, of.case) for claim in report.claims if claim.flagged),
        overlap=_overlap(report.claims, of.case),
        settled=of.report.is_settled,
        failed=failed,
    )


def _meets(claim: Claim, case: AnswerCase) -> bool:
    return any(claim.start < mark.end and mark.start < claim.end for mark in case.marked)


def _overlap(claims: Sequence[Claim], case: AnswerCase) -> float | None:
    flagged: set[int] = set()
    for claim in claims:
        if claim.flagged:
            flagged |= set(range(*(claim.wrong or (claim.start, claim.end))))
    marked = {place for mark in case.marked for place in range(mark.start, mark.end)}
    if not flagged or not marked:
        return None
    return len(flagged & marked) / len(flagged | marked)


# --- prompts and a judge made from the marks ---------------------------------------------------


def prompts(
    cases: Iterable[Screened], terms: JudgeTerms | str = "judge"
) -> Iterator[dict[str, Any]]:
    """The first call of each case, as messages, without its label."""
    for screened in cases:
        call = screened.inquiry(terms).call()
        if call is not None:
            messages = [{"role": str(m.role), "content": m.content} for m in call.messages]
            yield {"name": screened.case.name, "messages": messages}


def oracle(of: Screened, errs: float = 0.0, seed: int = 0) -> Callable[[ModelCall], JudgeReply]:
    """A judge made from the marks, right on every claim but for a random share `errs`."""
    chance = Random(f"{seed} {of.case.name}")  # noqa: S311 - errors of a script, no secret
    statements = [
        (str(number), text, matter_of(text))
        for number, passage in enumerate(of.case.passages, 1)
        for text in _quotable(passage)
    ]

    def ask(call: ModelCall) -> JudgeReply:
        asked = json.loads(call.messages[1].content)
        claims = []
        for number, claim in enumerate(of.report.claims, 1):
            wrong = _meets(claim, of.case)
            if errs and chance.random() < errs:
                wrong = not wrong
            claims.append(
                {
                    "n": number,
                    "status": "CONTRADICTED" if wrong else "SUPPORTED",
                    "quotes": _nearest(matter_of(claim.text), statements),
                }
            )
        reply = {"id": asked["id"], "claims": claims, "unnumbered": []}
        return JudgeReply(text=json.dumps(reply), model="oracle")

    return ask


def _quotable(passage: str) -> Iterator[str]:
    """The sentences of a passage that can be found again as quotations."""
    folded = Folded(passage)
    for span in split_sentences(passage):
        if locate(text := passage[span.start : span.end], folded):
            yield text


def _nearest(claim: Matter, statements: Sequence[tuple[str, str, Matter]]) -> list[dict[str, str]]:
    """The sentences of the evidence that share most words and values with a claim."""
    ranked = sorted(
        statements,
        key=lambda row: -2 * len(row[2].values & claim.values) - len(row[2].words & claim.words),
    )
    return [{"in": place, "text": text} for place, text, _ in ranked[:ORACLE_QUOTES]]


class OracleVerifier:
    """A verifier made from the marks of one case: always right about every claim."""

    identity = "oracle@1"
    thresholds: Mapping[str, float] = MappingProxyType({})
    passage = 4_000

    def __init__(self, case: AnswerCase) -> None:
        self._wrong = {
            segment.read(case.answer)
            for segment in segment_claims(case.answer)
            if any(segment.start < mark.end and mark.start < segment.end for mark in case.marked)
        }

    def judge(self, claim: str, passages: Sequence[str]) -> Judgement:
        """Contradicted if the claim overlaps a mark, else entailed."""
        wrong = claim in self._wrong
        return Judgement(0.0, 1.0, 0.0, 0) if wrong else Judgement(1.0, 0.0, 0.0, 0)
