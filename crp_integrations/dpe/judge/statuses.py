"""From a judge's replies to a status for each claim, to needs and to conflicts.

Nothing is believed unread. SUPPORTED needs a quotation that stands in the passage named and says
something of its claim (`belief`); CONTRADICTED needs quotations that stand. What exact comparison
found before the judge is never lowered by a reply that fails, leaves out or says nothing of it.

Spec: CRP-SPEC-005 §6.2, §7.4 (decision D13)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.judge.belief import (
    Matter,
    QuotedWords,
    belief_of,
    claim_matter,
    heads_table,
    matter_of,
)
from crp_integrations.dpe.judge.messages import QUESTION, SYSTEM
from crp_integrations.dpe.judge.reasons import rejection
from crp_integrations.dpe.judge.records import (
    QUESTION_ID,
    SYSTEM_ID,
    Conflict,
    JudgedNeed,
    JudgeRun,
    Quotation,
)
from crp_integrations.dpe.judge.reply import SaidConflict, SaidNeed, Word, read_reply
from crp_integrations.dpe.records import NO_SENTENCE, Claim, Report
from crp_integrations.language.folded_text import Folded, locate
from crp_integrations.language.text import has_text
from crp_integrations.vocabulary import (
    Checked,
    ClaimStatus,
    ClaimType,
    ErrorKind,
    GroundingMode,
)

# Of several words on one claim, from calls with other passages, the first of these counts.
FIRST: Final = (
    ClaimStatus.CONTRADICTED,
    ClaimStatus.SUPPORTED,
    ClaimStatus.NOT_CHECKED,
    ClaimStatus.UNSUPPORTED,
    ClaimStatus.NOT_CHECKABLE,
)
# Which error each finding of an exact comparison stands for.
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

_Heard = tuple[Word | None, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Read:
    """What the replies of a run come to.

    Attributes:
        claims: in order of the answer, with those that the judge added.
        unplaced: assertions whose words do not stand in the answer.
    """

    claims: tuple[Claim, ...]
    needs: tuple[JudgedNeed, ...]
    conflicts: tuple[Conflict, ...]
    unplaced: int


def read_replies(report: Report, dossier: Dossier, run: JudgeRun) -> Read | None:
    """What the replies of a run come to; None where none of them can be read."""
    reading = _Reading(dossier, run, report.claims)
    if not reading.replied:
        return None
    claims = [reading.claim(number, claim) for number, claim in enumerate(report.claims, 1)]
    claims += reading.unnumbered(claims)
    claims.sort(key=lambda claim: (claim.start, claim.end))
    return Read(tuple(claims), reading.needs(), reading.conflicts(), reading.unplaced)


def with_status(claim: Claim, status: ClaimStatus) -> Claim:
    """A claim with a status alone, without what an earlier one rested on."""
    bare = {"error": None, "wrong": None, "quotations": (), "reason": "", "fix": ""}
    return claim.model_copy(update={"status": status, "disputed": False, **bare})


def with_rejection(claim: Claim) -> Claim:
    """A claim, flagged where it repeats a rejected one without support."""
    found = rejection(claim)
    if found is None or claim.status in (ClaimStatus.SUPPORTED, ClaimStatus.CONTRADICTED):
        return claim
    return claim.model_copy(
        update={
            "status": ClaimStatus.UNSUPPORTED,
            "error": ErrorKind.INVENTION,
            "wrong": (found.start, found.end),
            "quotations": (),
            "reason": found.reason,
        }
    )


def found_exactly(claim: Claim) -> bool:
    """Whether exact comparison found a claim wrong, before any judge; a rejection is no finding."""
    return claim.status in WRONG and bool(claim.findings) and rejection(claim) is None


def unread(claim: Claim) -> Claim:
    """A claim that a judge did not read: what exact comparison found of it stays."""
    return claim if found_exactly(claim) else with_status(claim, ClaimStatus.NOT_CHECKED)


class _Reading:
    """The replies of one run beside the texts that they are about."""

    def __init__(self, dossier: Dossier, run: JudgeRun, claims: Sequence[Claim]) -> None:
        self._dossier = dossier
        self._claims = claims
        self._answer = Folded(dossier.answer)
        before = [text for role, text in dossier.conversation if role == "user"]
        # What the question states, and what the user stated before it.
        self._question = "\n".join([dossier.question, *before])
        self._belief = belief_of(
            dossier.answer,
            self._question,
            [*(text for _, text in dossier.passages), dossier.instructions],
        )
        self._sources: dict[str, tuple[str, int, str, Folded]] = {}
        self._words: dict[int, list[_Heard]] = {}
        self._others: list[_Heard] = []
        self._needs: list[tuple[SaidNeed, range]] = []
        self._conflicts: list[tuple[SaidConflict, range, frozenset[int]]] = []
        self._whole = run.passages
        self.replied = False
        self.unplaced = 0
        for call in run.calls:
            found = None if call.error else read_reply(call.reply, call.id)
            if found is None:
                continue
            self.replied = True
            shown = frozenset(call.passages)
            asked = range(call.first, min(call.last, len(claims)) + 1)
            for number in asked:
                self._words.setdefault(number, []).append((found.numbered.get(number), shown))
            self._others += [(word, shown) for word in found.unnumbered]
            self._needs += [(need, asked) for need in found.needs]
            self._conflicts += [(conflict, asked, shown) for conflict in found.conflicts]
        left = {one.fact_id for one in run.left_out}
        named = (QUESTION_ID, SYSTEM_ID, *(fact_id for fact_id, _ in dossier.passages))
        # A passage without words may be a picture, and nobody read what it says. Without any
        # evidence nothing is unsupported, unless the mode says so.
        silent = any(not has_text(text) for _, text in dossier.passages)
        bare = not dossier.passages and not has_text(dossier.instructions)
        self._unread = (
            not left.isdisjoint(named)
            or silent
            or (bare and dossier.grounding is GroundingMode.PREFERRED)
        )

    # --- claims ----------------------------------------------------------------------------

    def claim(self, number: int, claim: Claim) -> Claim:
        """A claim with its status."""
        return self._merged(claim, self._words.get(number, []))

    def unnumbered(self, claims: Sequence[Claim]) -> list[Claim]:
        """Assertions that stand in no numbered claim, with their offsets.

        Words within a numbered claim count only where they are flagged and it is not.
        """
        spans = tuple((claim.start, claim.end) for claim in claims)
        heard: dict[tuple[int, int], list[_Heard]] = {}
        for word, shown in self._others:
            place = locate(word.text, self._answer, spans) if word else None
            if place is None:
                self.unplaced += 1
                continue
            heard.setdefault(place, []).append((word, shown))
        found: list[Claim] = []
        for (start, end), words in heard.items():
            around = [one for one in claims if one.start <= start and end <= one.end]
            claim = Claim(
                claim_id=f"u{len(found) + 1}",
                text=self._dossier.answer[start:end],
                start=start,
                end=end,
                reads_as=self._dossier.answer[start:end],
                sentence_index=NO_SENTENCE,
                claim_type=ClaimType.FACTUAL,
                specificity=0.0,
                checked=Checked.CHECKED,
            )
            claim = self._merged(claim, words)
            if not around or (claim.flagged and not any(one.flagged for one in around)):
                found.append(claim)
        return found

    def _merged(self, claim: Claim, heard: Sequence[_Heard]) -> Claim:
        """A claim with what several calls, each with other passages, come to."""
        found = [self._believed(claim, word, shown) for word, shown in heard]
        found.sort(key=lambda one: FIRST.index(one.status))
        best = found[0] if found else unread(claim)
        if best.status is ClaimStatus.UNSUPPORTED and not found_exactly(claim):
            shown = frozenset[int]().union(*(there for _, there in heard))
            if self._unread or len(shown) < self._whole:
                # What was not read may say it.
                best = with_status(claim, ClaimStatus.NOT_CHECKED)
        return with_rejection(best)

    def _believed(self, claim: Claim, word: Word | None, shown: frozenset[int]) -> Claim:
        """A claim with a judge's word, as far as that is believed."""
        if word is None:
            return unread(claim)
        said = [(text, self._quotation(source, text, shown)) for source, text in word.quotes]
        stand = [(text, place) for text, place in said if place is not None]
        quotations = tuple(place for _, place in stand)
        if word.status is ClaimStatus.SUPPORTED:
            values = frozenset[str]().union(*(matter_of(text).values for text, _ in stand))
            matter = claim_matter(claim.text)
            counting = [one for text, one in stand if self._counts(matter, text, one, values)]
            if not counting:
                return unread(claim)
            disputed = found_exactly(claim) and not self._explained(claim, counting)
            supported = with_status(claim, ClaimStatus.SUPPORTED)
            told = {"quotations": quotations, "disputed": disputed}
            return supported.model_copy(update={**told, "wrong": claim.wrong} if disputed else told)
        if word.status is ClaimStatus.NOT_CHECKABLE:
            return unread(claim) if self._asserts(claim) else with_status(claim, word.status)
        if len(stand) < len(said) or (word.status is ClaimStatus.CONTRADICTED and not stand):
            # It was held against the answer, so what it is about asserts something.
            stated = {} if found_exactly(claim) or not said else {"claim_type": ClaimType.FACTUAL}
            return unread(claim).model_copy(update=stated)
        told = {"reason": word.reason, "fix": word.fix}
        if found_exactly(claim) and word.status is ClaimStatus.UNSUPPORTED:
            return claim.model_copy(update=told)
        default = ErrorKind.OVERREACH if word.status is ClaimStatus.UNSUPPORTED else None
        return claim.model_copy(
            update={
                **told,
                "status": word.status,
                "error": word.kind or default,
                "wrong": self._wrong(claim, word.wrong),
                "quotations": quotations,
            }
        )

    def _counts(self, claim: Matter, said: str, found: Quotation, values: frozenset[str]) -> bool:
        if found.fact_id == QUESTION_ID and not found.passage:
            return self._belief.is_stated(claim, self._question, found.end)
        own_orders = not found.passage
        source = (
            self._dossier.instructions
            if own_orders
            else self._dossier.passages[found.passage - 1][1]
        )
        quoted = QuotedWords(said, source, found.start, found.end, values, own_orders)
        return self._belief.counts(claim, quoted)

    def _explained(self, claim: Claim, counting: Sequence[Quotation]) -> bool:
        """Whether another passage than the finding's states the value that was found wrong."""
        start, end = claim.wrong or (claim.start, claim.end)
        values = matter_of(self._dossier.answer[start:end]).values
        known = {one.fact_id for one in claim.quotations}
        return bool(values) and any(
            one.passage and one.fact_id not in known and values <= matter_of(one.text).values
            for one in counting
        )

    def _asserts(self, claim: Claim) -> bool:
        """Whether a claim cannot be one that asserts nothing."""
        if found_exactly(claim):
            return True
        talk = claim.claim_type is ClaimType.META or heads_table(self._dossier.answer, claim.end)
        return not talk and self._belief.asserts(claim.text)

    def _wrong(self, claim: Claim, words: str) -> tuple[int, int] | None:
        found = locate(words, Folded(claim.text)) if words else None
        return (claim.start + found[0], claim.start + found[1]) if found else None

    # --- the question and the evidence -----------------------------------------------------

    def needs(self) -> tuple[JudgedNeed, ...]:
        """The parts of the question: answered where one call says so and names a claim."""
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

    def conflicts(self) -> tuple[Conflict, ...]:
        """What cannot both be true: two claims at least, or two quotations that stand."""
        found = []
        for said, asked, shown in self._conflicts:
            claims = [self._claims[n - 1].claim_id for n in said.claims if n in asked]
            places = [self._quotation(source, text, shown) for source, text in said.quotes]
            stand = tuple(dict.fromkeys(one for one in places if one is not None))
            if len(claims) > 1:
                found.append(Conflict(claims=tuple(claims), reason=said.reason))
            elif len(stand) > 1 and len(stand) == len(places):
                found.append(Conflict(quotations=stand, reason=said.reason))
        return tuple(found)

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
        """Id, number and text of what a quotation names."""
        name = name.strip(" []#().").removeprefix("passage").strip()
        if name not in self._sources:
            if name in (QUESTION, "question", "0"):
                found = (QUESTION_ID, 0, self._question)
            elif name in (SYSTEM, "system"):
                found = (SYSTEM_ID, 0, self._dossier.instructions)
            elif _NUMBER.fullmatch(name) and 1 <= int(name) <= len(self._dossier.passages):
                fact_id, text = self._dossier.passages[int(name) - 1]
                found = (fact_id, int(name), text)
            else:
                return None
            self._sources[name] = (*found, Folded(found[2]))
        return self._sources[name]
