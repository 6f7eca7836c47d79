"""Turns a judge's replies into a status for each claim, needs, conflicts, and a report.

No verdict is accepted without a check. SUPPORTED needs a quotation that occurs in the named
passage and is relevant to its claim (`belief`); CONTRADICTED needs quotations that occur. A reply
that fails, or does not mention a claim, never removes a finding of the exact comparison. The same
replies always give the same report, so recorded replies can be evaluated again by anyone.

Spec: CRP-SPEC-005 §6.2, §7.4 (decision D13)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

from crp_integrations.dpe.derivation import ALLOWED, CONFLICT, derive
from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.judge.belief import (
    Matter,
    QuotedWords,
    belief_of,
    claim_matter,
    heads_table,
    is_elsewhere,
    matter_of,
    sentences_of,
)
from crp_integrations.dpe.judge.correction import Grounds, unfounded, without_note
from crp_integrations.dpe.judge.messages import QUESTION, SYSTEM
from crp_integrations.dpe.judge.reply import ClaimVerdict, ConflictVerdict, NeedVerdict, read_reply
from crp_integrations.dpe.records import NO_SENTENCE, Claim, Report
from crp_integrations.dpe.rejections import with_rejection
from crp_integrations.dpe.report_parts import (
    QUESTION_ID,
    SYSTEM_ID,
    JudgedConflict,
    JudgedNeed,
    JudgeRun,
    Quotation,
)
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.language.folded_text import Folded, locate
from crp_integrations.language.text import has_text
from crp_integrations.vocabulary import Checked, ClaimStatus, ClaimType, ErrorKind, GroundingMode

# If calls with different passages give one claim several statuses, the first of these counts.
FIRST: Final = (
    ClaimStatus.CONTRADICTED,
    ClaimStatus.SUPPORTED,
    ClaimStatus.NOT_CHECKED,
    ClaimStatus.UNSUPPORTED,
    ClaimStatus.NOT_CHECKABLE,
)
# The kind of error for each kind of finding of the exact comparison.
EXACT_ERRORS: Final = MappingProxyType(
    {
        "NUMBER_CHANGED": ErrorKind.NUMBER,
        "MAGNITUDE_ALTERED": ErrorKind.UNIT,
        "DATE_SHIFTED": ErrorKind.DATE,
        "NEGATION_FLIP": ErrorKind.NEGATION,
        "QUOTE_NOT_FOUND": ErrorKind.INVENTION,
        "CITATION_WRONG": ErrorKind.INVENTION,
    }
)
WRONG: Final = (ClaimStatus.CONTRADICTED, ClaimStatus.UNSUPPORTED)
_NUMBER: Final = re.compile(r"[0-9]{1,9}")

_HeardVerdict = tuple[ClaimVerdict | None, frozenset[int]]


@dataclass(frozen=True, slots=True)
class JointVerdicts:
    """The joint result of the replies of a run.

    Attributes:
        claims: all claims in order of the answer, including those that the judge added.
        unplaced: number of assertions whose words do not occur in the answer.
    """

    claims: tuple[Claim, ...]
    needs: tuple[JudgedNeed, ...]
    conflicts: tuple[JudgedConflict, ...]
    unplaced: int


def read_replies(report: Report, dossier: Dossier, run: JudgeRun) -> JointVerdicts | None:
    """The joint result of the replies of a run; None if none of them can be read."""
    reading = _Reading(dossier, run, report.claims)
    if not reading.replied:
        return None
    claims = [reading.claim(number, claim) for number, claim in enumerate(report.claims, 1)]
    claims += reading.unnumbered(claims)
    claims.sort(key=lambda claim: (claim.start, claim.end))
    return JointVerdicts(tuple(claims), reading.needs(), reading.conflicts(), reading.unplaced)


def doubtful_claims(report: Report, dossier: Dossier, run: JudgeRun) -> tuple[int, ...]:
    """Numbers of the claims that a second judge is asked about, after a first one's replies.

    These are the claims that the first one flags, leaves unread, supports against an exact
    finding, or finds in conflict; and those with flagged words that have no number.
    """
    reading = _Reading(dossier, run, report.claims)
    claims = [reading.claim(number, claim) for number, claim in enumerate(report.claims, 1)]
    flagged = [claim for claim in reading.unnumbered(claims) if claim.flagged]
    opposed = {name for conflict in reading.conflicts() for name in conflict.claims}
    return tuple(
        number
        for number, claim in enumerate(claims, 1)
        if claim.flagged
        or claim.disputed
        or claim.status is ClaimStatus.NOT_CHECKED
        or claim.claim_id in opposed
        or any(other.start < claim.end and claim.start < other.end for other in flagged)
    )


def with_status(claim: Claim, status: ClaimStatus) -> Claim:
    """The claim with a new status, without the error and quotations of the old one."""
    bare = {"error": None, "wrong": None, "quotations": (), "reason": "", "fix": None}
    return claim.model_copy(update={"status": status, "disputed": False, "unfounded": "", **bare})


def found_exactly(claim: Claim) -> bool:
    """Whether the exact comparison found a claim wrong; a sub-agent's rejection does not count."""
    return claim.status in WRONG and bool(claim.findings) and claim.rejection is None


def unread(claim: Claim) -> Claim:
    """The claim without a judge's verdict; a finding of the exact comparison stays."""
    return claim if found_exactly(claim) else with_status(claim, ClaimStatus.NOT_CHECKED)


def _is_of_question(quotation: Quotation) -> bool:
    return quotation.fact_id == QUESTION_ID and not quotation.passage


class _Reading:
    """The replies of one run, with the texts that they are about."""

    def __init__(self, dossier: Dossier, run: JudgeRun, claims: Sequence[Claim]) -> None:
        self._dossier = dossier
        self._claims = claims
        self._answer = Folded(dossier.answer)
        before = [text for role, text in dossier.conversation if role == "user"]
        # The user's earlier statements count like those of the question.
        self._question = "\n".join([dossier.question, *before])
        self._belief = belief_of(
            dossier.answer,
            self._question,
            [*(text for _, text in dossier.passages), dossier.instructions],
        )
        self._sources: dict[str, tuple[str, int, str, Folded]] = {}
        self._words: dict[int, list[_HeardVerdict]] = {}
        self._again: dict[int, list[_HeardVerdict]] = {}
        self._names = (run.model, run.second) if run.second_replied else ("", "")
        self._others: list[tuple[_HeardVerdict, bool]] = []
        self._needs: list[tuple[NeedVerdict, Sequence[int]]] = []
        self._conflicts: list[tuple[ConflictVerdict, Sequence[int], frozenset[int], bool]] = []
        self._whole = run.passages
        self.replied = False
        self.unplaced = 0
        for call in run.calls:
            reply = None if call.error else read_reply(call.reply, call.id)
            if reply is None:
                continue
            self.replied = True
            shown = frozenset(call.passages)
            asked = call.numbers(len(claims))
            words = self._again if call.second else self._words
            for number in asked:
                words.setdefault(number, []).append((reply.numbered.get(number), shown))
            self._others += [((verdict, shown), call.second) for verdict in reply.unnumbered]
            if not call.second:
                self._needs += [(need, asked) for need in reply.needs]
            self._conflicts += [
                (conflict, asked, shown, call.second) for conflict in reply.conflicts
            ]
        left = {passage.fact_id for passage in run.left_out}
        named = (QUESTION_ID, SYSTEM_ID, *(fact_id for fact_id, _ in dossier.passages))
        # A passage without words may be a picture that was not read. Without any evidence a claim
        # is unread rather than unsupported, unless the grounding mode is strict or open.
        silent = any(not has_text(text) for _, text in dossier.passages)
        bare = not dossier.passages and not has_text(dossier.instructions)
        self._unread = (
            not left.isdisjoint(named)
            or silent
            or (bare and dossier.grounding is GroundingMode.PREFERRED)
        )

    # --- claims ----------------------------------------------------------------------------

    def claim(self, number: int, claim: Claim) -> Claim:
        """A claim with its status: the second judge's, where it was asked and settles it."""
        first = self._merged(claim, self._words.get(number, []))
        second = self._merged(claim, self._again.get(number, []))
        settled = number in self._again and second.status is not ClaimStatus.NOT_CHECKED
        return self._by(second if settled else first, second=settled)

    def _by(self, claim: Claim, *, second: bool) -> Claim:
        """The claim with the name of the judge that decided, where two were asked."""
        name = self._names[second]
        return claim.model_copy(update={"judge": name}) if name else claim

    def unnumbered(self, claims: Sequence[Claim]) -> list[Claim]:
        """Assertions outside of the numbered claims, with their offsets.

        An assertion within a numbered claim counts only if it is flagged and the claim is not.
        """
        spans = tuple((claim.start, claim.end) for claim in claims)
        verdicts_by_place: dict[tuple[int, int], list[tuple[_HeardVerdict, bool]]] = {}
        for (verdict, shown), second in self._others:
            place = locate(verdict.text, self._answer, spans) if verdict else None
            if place is None:
                self.unplaced += 1
                continue
            verdicts_by_place.setdefault(place, []).append(((verdict, shown), second))
        added: list[Claim] = []
        for (start, end), all_verdicts in verdicts_by_place.items():
            again = [verdict for verdict, second in all_verdicts if second]
            verdicts = again or [verdict for verdict, _ in all_verdicts]
            around = [other for other in claims if other.start <= start and end <= other.end]
            claim = Claim(
                claim_id=f"u{len(added) + 1}",
                text=self._dossier.answer[start:end],
                start=start,
                end=end,
                reads_as=self._dossier.answer[start:end],
                sentence_index=NO_SENTENCE,
                claim_type=ClaimType.FACTUAL,
                specificity=0.0,
                checked=Checked.CHECKED,
            )
            claim = self._by(self._merged(claim, verdicts), second=bool(again))
            if not around or (claim.flagged and not any(other.flagged for other in around)):
                added.append(claim)
        return added

    def _merged(self, claim: Claim, verdicts: Sequence[_HeardVerdict]) -> Claim:
        """The claim with the joint verdict of several calls, each with other passages."""
        candidates = [self._believed(claim, verdict, shown) for verdict, shown in verdicts]
        candidates.sort(key=lambda candidate: FIRST.index(candidate.status))
        best = candidates[0] if candidates else unread(claim)
        if best.status is ClaimStatus.UNSUPPORTED and not found_exactly(claim):
            shown = frozenset[int]().union(*(there for _, there in verdicts))
            if self._unread or len(shown) < self._whole:
                # A passage that was not read may support the claim.
                best = with_status(claim, ClaimStatus.NOT_CHECKED)
        return with_rejection(best)

    def _believed(self, claim: Claim, verdict: ClaimVerdict | None, shown: frozenset[int]) -> Claim:
        """The claim with a judge's verdict, as far as its quotations confirm it."""
        if verdict is None:
            return unread(claim)
        quoted = [(text, self._quotation(source, text, shown)) for source, text in verdict.quotes]
        placed = [(text, place) for text, place in quoted if place is not None]
        quotations = tuple(place for _, place in placed)
        if verdict.status is ClaimStatus.SUPPORTED:
            values = frozenset[str]().union(*(matter_of(text).values for text, _ in placed))
            matter = claim_matter(claim.text)
            counting = [
                place for text, place in placed if self._counts(matter, text, place, values)
            ]
            if not counting or self._is_elsewhere(matter, placed, values):
                return unread(claim)
            disputed = found_exactly(claim) and not self._explained(claim, counting)
            supported = with_status(claim, ClaimStatus.SUPPORTED)
            changes = {"quotations": quotations, "disputed": disputed}
            return supported.model_copy(
                update={**changes, "wrong": claim.wrong} if disputed else changes
            )
        if verdict.status is ClaimStatus.NOT_CHECKABLE:
            return unread(claim) if self._asserts(claim) else with_status(claim, verdict.status)
        if len(placed) < len(quoted) or (verdict.status is ClaimStatus.CONTRADICTED and not placed):
            # The judge objected to the claim, so the claim asserts something.
            stated = {} if found_exactly(claim) or not quoted else {"claim_type": ClaimType.FACTUAL}
            return unread(claim).model_copy(update=stated)
        wrong = self._wrong(claim, verdict.wrong)
        fix = without_note(verdict.fix, claim, self._grounds)
        strange = unfounded(fix, claim, wrong, quotations, self._grounds)
        changes = {"reason": verdict.reason, "fix": fix, "unfounded": strange}
        if found_exactly(claim) and verdict.status is ClaimStatus.UNSUPPORTED:
            return claim.model_copy(update=changes)
        default = ErrorKind.OVERREACH if verdict.status is ClaimStatus.UNSUPPORTED else None
        return claim.model_copy(
            update={
                **changes,
                "status": verdict.status,
                "error": verdict.kind or default,
                "wrong": wrong,
                "quotations": quotations,
            }
        )

    def _counts(
        self, claim: Matter, words: str, quotation: Quotation, values: frozenset[str]
    ) -> bool:
        if _is_of_question(quotation):
            return self._belief.is_stated(claim, self._question, quotation.end)
        return self._belief.counts(claim, self._quoted(words, quotation, values))

    def _quoted(self, words: str, quotation: Quotation, values: frozenset[str]) -> QuotedWords:
        own_orders = not quotation.passage
        source = (
            self._dossier.instructions
            if own_orders
            else self._dossier.passages[quotation.passage - 1][1]
        )
        return QuotedWords(words, source, quotation.start, quotation.end, values, own_orders)

    def _is_elsewhere(
        self, claim: Matter, placed: Sequence[tuple[str, Quotation]], values: frozenset[str]
    ) -> bool:
        if any(_is_of_question(quotation) for _, quotation in placed):
            return False
        quoted = [self._quoted(words, quotation, values) for words, quotation in placed]
        return is_elsewhere(claim, quoted, self._sentences)

    @cached_property
    def _sentences(self) -> list[Matter]:
        """What each sentence of the passages and the system prompt is about."""
        texts = [*(text for _, text in self._dossier.passages), self._dossier.instructions]
        return [matter_of(text[a:b]) for text in texts for a, b in sentences_of(text)]

    def _explained(self, claim: Claim, counting: Sequence[Quotation]) -> bool:
        """Whether another passage than the finding's states the value that was found wrong."""
        start, end = claim.wrong or (claim.start, claim.end)
        values = matter_of(self._dossier.answer[start:end]).values
        known = {quotation.fact_id for quotation in claim.quotations}
        return bool(values) and any(
            quotation.passage
            and quotation.fact_id not in known
            and values <= matter_of(quotation.text).values
            for quotation in counting
        )

    def _asserts(self, claim: Claim) -> bool:
        """Whether a claim must assert something, so that it cannot be NOT_CHECKABLE."""
        if found_exactly(claim):
            return True
        talk = claim.claim_type is ClaimType.META or heads_table(self._dossier.answer, claim.end)
        return not talk and self._belief.asserts(claim.text)

    def _wrong(self, claim: Claim, words: str) -> tuple[int, int] | None:
        span = locate(words, Folded(claim.text)) if words else None
        return (claim.start + span[0], claim.start + span[1]) if span else None

    @cached_property
    def _grounds(self) -> Grounds:
        passages = (text for _, text in self._dossier.passages)
        texts = [self._question, self._dossier.instructions, *passages]
        return Grounds("\n".join(texts), self._belief.translated)

    # --- the question and the evidence -----------------------------------------------------

    def needs(self) -> tuple[JudgedNeed, ...]:
        """The parts of the question; answered if a call says so and names a claim."""
        most = max(1, len(self._dossier.sub_queries)) if self._dossier.question else 0
        by: dict[int, list[str]] = {}
        for need, asked in self._needs:
            if 1 <= need.number <= most:
                claims = by.setdefault(need.number, [])
                if need.answered:
                    claims += [self._claims[n - 1].claim_id for n in need.by if n in asked]
        return tuple(
            JudgedNeed(number=number, answered=bool(claims), by=tuple(dict.fromkeys(claims)))
            for number, claims in sorted(by.items())
        )

    def conflicts(self) -> tuple[JudgedConflict, ...]:
        """Conflicts between at least two claims, or between two quotations that were found."""
        conflicts = []
        for conflict, asked, shown, second in self._conflicts:
            numbers = [number for number in conflict.claims if number in asked]
            if numbers and not second and self._again.keys() >= {*numbers}:
                # The second judge was asked about all of them.
                continue
            claims = [self._claims[number - 1].claim_id for number in numbers]
            places = [self._quotation(source, text, shown) for source, text in conflict.quotes]
            quotations = tuple(dict.fromkeys(place for place in places if place is not None))
            if len(claims) > 1:
                conflicts.append(JudgedConflict(claims=tuple(claims), reason=conflict.reason))
            elif len(quotations) > 1 and len(quotations) == len(places):
                conflicts.append(JudgedConflict(quotations=quotations, reason=conflict.reason))
        return tuple(conflicts)

    def _quotation(self, source: str, text: str, shown: frozenset[int]) -> Quotation | None:
        known = self._source(source)
        if known is None or (known[1] and known[1] not in shown):
            return None
        fact_id, number, original, folded = known
        place = locate(text, folded)
        if place is None:
            return None
        start, end = place
        return Quotation(
            fact_id=fact_id, passage=number, start=start, end=end, text=original[start:end]
        )

    def _source(self, name: str) -> tuple[str, int, str, Folded] | None:
        """Id, number, text and folded text of the source that a quotation names."""
        name = name.strip(" []#().").removeprefix("passage").strip()
        if name not in self._sources:
            if name in (QUESTION, "question", "0"):
                source = (QUESTION_ID, 0, self._question)
            elif name in (SYSTEM, "system"):
                source = (SYSTEM_ID, 0, self._dossier.instructions)
            elif _NUMBER.fullmatch(name) and 1 <= int(name) <= len(self._dossier.passages):
                fact_id, text = self._dossier.passages[int(name) - 1]
                source = (fact_id, int(name), text)
            else:
                return None
            self._sources[name] = (*source, Folded(source[2]))
        return self._sources[name]


# Prefixes of the report flags about the judge.
JUDGE_FLAGS: Final = (
    "judge-not-asked=",
    "judge-failed=",
    "judge-calls-",
    "judge-second-failed=",
    "judge-passages-",
    "judge-own-",
    "judge-unplaced=",
)


def concluded(report: Report, dossier: Dossier, run: JudgeRun, settings: DpeSettings) -> Report:
    """The report with the result of its judge, or with the reason why none was asked."""
    return unjudged(report, run) if run.skipped else judged(report, dossier, run, settings)


def of_judge(flag: str) -> bool:
    """Whether a report's flag comes from its judge."""
    return flag.startswith(JUDGE_FLAGS) or flag in (ALLOWED, CONFLICT)


def judged(report: Report, dossier: Dossier, run: JudgeRun, settings: DpeSettings) -> Report:
    """The report with a judge's verdict on each claim, and with the values derived from them.

    Spec: CRP-SPEC-005 §7.4 (decision D13)
    """
    replies = read_replies(report, dossier, run)
    if replies is None:
        return unjudged(report, run)
    run = run.model_copy(
        update={
            "unplaced": replies.unplaced,
            "needs": replies.needs,
            "conflicts": replies.conflicts,
        }
    )
    changed = report.model_copy(
        update={
            "claims": replies.claims,
            "checked_by": f"judge {run.asked}",
            "judge": run,
            "flags": (*report.flags, *_flags(run)),
        }
    )
    if settings.decides != "claims":
        return changed
    return derive(changed, dossier, settings, run.language)


def unjudged(report: Report, run: JudgeRun) -> Report:
    """The report, unchanged but for the judge's record and a flag: not asked, or unreadable."""
    if run.skipped or not run.calls:
        flag = f"judge-not-asked={run.skipped or 'no claim'}"
    else:
        flag = f"judge-failed={run.calls[-1].error}"
    return report.model_copy(update={"judge": run, "flags": (*report.flags, flag)})


def _flags(run: JudgeRun) -> list[str]:
    flags = []
    first = [call for call in run.calls if not call.second]
    failed = [call.error for call in first if call.error]
    if failed and len({call.id for call in first}) > 1:
        flags += [f"judge-calls-failed={len(failed)}"]
    if len(first) < len(run.calls) and run.calls[-1].error:
        flags.append(f"judge-second-failed={run.calls[-1].error}")
    if run.left_out:
        flags.append(f"judge-passages-left-out={len(run.left_out)}")
    if run.unplaced:
        flags.append(f"judge-unplaced={run.unplaced}")
    if run.own_answer:
        flags.append("judge-own-answer")
    return flags
