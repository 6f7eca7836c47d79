"""From a judge's replies to a status and a reason for each claim, and to the answer's level.

Nothing is believed unread: a verdict whose quotation does not stand in its passage is NOT_CHECKED,
as is a claim that the reply leaves out. The same replies always come to the same report, so a
recorded one can be read again by anybody.

Spec: CRP-SPEC-005 §6.2, §7.4 (decision D13)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.judge.messages import QUESTION, SYSTEM, Word, read_reply
from crp_integrations.dpe.judge.records import QUESTION_ID, SYSTEM_ID, JudgeRun, Quotation
from crp_integrations.dpe.records import REJECTED, Claim, Finding, Report
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.errors import ConfigError
from crp_integrations.language.folding import Folded, locate
from crp_integrations.vocabulary import (
    Checked,
    ClaimStatus,
    ClaimType,
    ErrorKind,
)

MOST: Final = 5
LONGEST: Final = 90
# Gravest first.
REASON_ORDER: Final = (ClaimStatus.CONTRADICTED, ClaimStatus.UNSUPPORTED, ClaimStatus.NOT_CHECKED)

SENTENCES: Final = MappingProxyType(
    {
        "en": MappingProxyType(
            {
                "contradicted": "The answer says {wrong}; {source} says {quote}",
                "contradicted bare": "The evidence contradicts {wrong}",
                "unsupported": "The evidence does not support {wrong}",
                "rejected": "A sub-agent's report rejected {wrong}",
                "unchecked": "{wrong} was not checked",
                "passage": "passage {number}",
                "question": "the question",
                "system": "the system prompt",
            }
        ),
        "de": MappingProxyType(
            {
                "contradicted": "In der Antwort steht {wrong}; in {source} steht {quote}",
                "contradicted bare": "Die Quellen widersprechen {wrong}",
                "unsupported": "Die Quellen belegen {wrong} nicht",
                "rejected": "Der Bericht über einen Unteragenten verwirft {wrong}",
                "unchecked": "{wrong} wurde nicht geprüft",
                "passage": "Abschnitt {number}",
                "question": "der Frage",
                "system": "der Systemanweisung",
            }
        ),
        "fr": MappingProxyType(
            {
                "contradicted": "La réponse dit {wrong} ; {source} dit {quote}",
                "contradicted bare": "Les sources contredisent {wrong}",
                "unsupported": "Les sources n'appuient pas {wrong}",
                "rejected": "Le rapport sur un sous-agent rejette {wrong}",
                "unchecked": "{wrong} n'a pas été vérifié",
                "passage": "le passage {number}",
                "question": "la question",
                "system": "l'instruction système",
            }
        ),
        "es": MappingProxyType(
            {
                "contradicted": "La respuesta dice {wrong}; {source} dice {quote}",
                "contradicted bare": "Las fuentes contradicen {wrong}",
                "unsupported": "Las fuentes no respaldan {wrong}",
                "rejected": "El informe sobre un subagente rechaza {wrong}",
                "unchecked": "{wrong} no se ha comprobado",
                "passage": "el pasaje {number}",
                "question": "la pregunta",
                "system": "la instrucción del sistema",
            }
        ),
    }
)


def reasons(answer: str, claims: Sequence[Claim], language: str = "en") -> tuple[str, ...]:
    """At most five sentences on the claims that speak against an answer, gravest first."""
    if language not in SENTENCES:
        wanted = ", ".join(SENTENCES)
        raise ConfigError(f"language {language!r:.40} is not one of {wanted}")
    words = SENTENCES[language]
    told = [claim for claim in claims if claim.flagged or _open(claim)]
    told.sort(key=lambda claim: (REASON_ORDER.index(claim.status), claim.start))
    found = (_sentence(answer, claim, words) + "." for claim in told)
    return tuple(list(dict.fromkeys(found))[:MOST])


def _open(claim: Claim) -> bool:
    checkable = claim.claim_type in (ClaimType.FACTUAL, ClaimType.PROCEDURAL)
    return claim.status is ClaimStatus.NOT_CHECKED and checkable


def _sentence(answer: str, claim: Claim, words: MappingProxyType[str, str]) -> str:
    start, end = claim.wrong or (claim.start, claim.end)
    wrong = _quoted(answer[start:end])
    if claim.status is ClaimStatus.NOT_CHECKED:
        said = words["unchecked"].format(wrong=wrong)
    elif claim.status is ClaimStatus.UNSUPPORTED:
        name = "rejected" if rejection(claim) else "unsupported"
        said = words[name].format(wrong=wrong)
    elif not claim.quotations:
        said = words["contradicted bare"].format(wrong=wrong)
    else:
        first = claim.quotations[0]
        name = first.fact_id if first.passage == 0 else "passage"
        source = words[name if name in words else "passage"].format(number=first.passage)
        said = words["contradicted"].format(wrong=wrong, source=source, quote=_quoted(first.text))
    return said[:1].upper() + said[1:]


def _quoted(text: str) -> str:
    """Words as they stand, in quotation marks unless they are one figure with its unit."""
    flat = " ".join(text.split()).strip(" .,;:")
    if len(flat) > LONGEST:
        flat = flat[:LONGEST].rsplit(" ", 1)[0] + " …"
    plain = len(flat.split()) <= 2 and any(character.isdigit() for character in flat)
    return flat if plain else f"“{flat}”"


SPECIFIC: Final = frozenset(
    {ErrorKind.INVENTION, ErrorKind.NUMBER, ErrorKind.DATE, ErrorKind.NAME, ErrorKind.UNIT}
)
"""Kinds of error by which an unsupported claim is an invented specific."""

# How the flags begin that say what became of the judge, and the one on a claim that `open` allows.
JUDGE_FLAGS: Final = (
    "judge-not-asked=",
    "judge-failed=",
    "judge-calls-",
    "judge-passages-",
    "judge-own-",
)
ALLOWED: Final = "unsupported-allowed"
CONFLICT: Final = "judge-conflict"
OF_STATUSES: Final = (ALLOWED, CONFLICT)
# Of several words on one claim, from calls with other passages, the first of these counts.
FIRST: Final = (
    ClaimStatus.CONTRADICTED,
    ClaimStatus.SUPPORTED,
    ClaimStatus.NOT_CHECKED,
    ClaimStatus.UNSUPPORTED,
    ClaimStatus.NOT_CHECKABLE,
)
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
CHECKABLE: Final = (ClaimType.FACTUAL, ClaimType.PROCEDURAL)


def concluded(report: Report, dossier: Dossier, run: JudgeRun, settings: DpeSettings) -> Report:
    """A report with what became of its judge: asked, or left out with a reason."""
    return unjudged(report, run) if run.skipped else judged(report, dossier, run, settings)


def of_judge(flag: str) -> bool:
    """Whether a flag of a report is one that follows from its judge."""
    return flag.startswith(JUDGE_FLAGS) or flag in OF_STATUSES


def rejection(claim: Claim) -> Finding | None:
    """The finding that a sub-agent's report rejected what a claim repeats; None for none."""
    return next((one for one in claim.findings if one.kind == REJECTED), None)


def with_rejection(claim: Claim) -> Claim:
    """A claim as a judge left it, flagged where it repeats a rejected one without support."""
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


def judged(report: Report, dossier: Dossier, run: JudgeRun, settings: DpeSettings) -> Report:
    """A report with what a judge said of each claim, and what follows from it.

    Spec: CRP-SPEC-005 §7.4 (decision D13)
    """
    from crp_integrations.dpe.derivation import derive

    reading = _Reading(dossier, run)
    if not reading.replied:
        return unjudged(report, run)
    claims = tuple(reading.claim(number, claim) for number, claim in enumerate(report.claims, 1))
    added = reading.unnumbered(claims)
    if added:
        claims = tuple(sorted((*claims, *added), key=lambda claim: (claim.start, claim.end)))
    run = run.model_copy(update={"unplaced": reading.unplaced})
    changed = report.model_copy(
        update={
            "claims": claims,
            "checked_by": f"judge {run.asked}",
            "judge": run,
            "flags": (*report.flags, *_flags(run)),
        }
    )
    if settings.decides != "claims":
        return changed
    return derive(changed, dossier, settings, run.language)


def unjudged(report: Report, run: JudgeRun) -> Report:
    """A report as it was, with what became of the judge: not asked, or no reply that reads."""
    why = "" if run.skipped else run.calls[-1].error if run.calls else "no claim"
    flags = [f"judge-not-asked={run.skipped}"] if run.skipped else [f"judge-failed={why}"]
    if why == "no claim":
        flags = ["judge-not-asked=no claim"]
    return report.model_copy(update={"judge": run, "flags": (*report.flags, *flags)})


def _flags(run: JudgeRun) -> list[str]:
    flags = []
    failed = [call.error for call in run.calls if call.error]
    if failed and len({call.id for call in run.calls}) > 1:
        flags += [f"judge-calls-failed={len(failed)}"]
    if run.left_out:
        flags.append(f"judge-passages-left-out={len(run.left_out)}")
    if run.unplaced:
        flags.append(f"judge-unplaced={run.unplaced}")
    if run.own_answer:
        flags.append("judge-own-answer")
    return flags


class _Reading:
    """The replies of one run beside the texts that they are about."""

    def __init__(self, dossier: Dossier, run: JudgeRun) -> None:
        self._dossier = dossier
        self._answer = Folded(dossier.answer)
        self._sources: dict[str, tuple[str, int, str, Folded]] = {}
        self._words: dict[int, list[tuple[Word | None, frozenset[int]]]] = {}
        self._others: list[tuple[Word, frozenset[int]]] = []
        self._whole = run.passages
        self.replied = False
        self.unplaced = 0
        for call in run.calls:
            found = None if call.error else read_reply(call.reply, call.id)
            if found is None:
                continue
            self.replied = True
            shown = frozenset(call.passages)
            for number in range(call.first, call.last + 1):
                self._words.setdefault(number, []).append((found.numbered.get(number), shown))
            self._others += [(word, shown) for word in found.unnumbered]
        left = {one.fact_id for one in run.left_out}
        self._cut = not left.isdisjoint((QUESTION_ID, SYSTEM_ID))
        self._unread = {
            number for number, (fact_id, _) in enumerate(dossier.passages, 1) if fact_id in left
        }

    def claim(self, number: int, claim: Claim) -> Claim:
        """A claim with its status."""
        return self._merged(claim, self._words.get(number, []))

    def _merged(self, claim: Claim, heard: Sequence[tuple[Word | None, frozenset[int]]]) -> Claim:
        """A claim with what several calls, each with other passages, come to."""
        found = [self._checked(claim, word, shown) for word, shown in heard]
        found.sort(key=lambda one: FIRST.index(one.status))
        best = found[0] if found else _with(claim, ClaimStatus.NOT_CHECKED)
        if best.status is ClaimStatus.UNSUPPORTED:
            shown = frozenset[int]().union(*(there for _, there in heard))
            if self._cut or self._unread or len(shown) < self._whole:
                # What was not read may say it.
                best = _with(claim, ClaimStatus.NOT_CHECKED)
        return with_rejection(best)

    def unnumbered(self, claims: Sequence[Claim]) -> list[Claim]:
        """Assertions that stand in no numbered claim, with their offsets.

        Words within a numbered claim count only where they are flagged and it is not.
        """
        spans = tuple((claim.start, claim.end) for claim in claims)
        heard: dict[tuple[int, int], list[tuple[Word | None, frozenset[int]]]] = {}
        for word, shown in self._others:
            place = locate(word.text, self._answer, spans)
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
                sentence_index=0,
                claim_type=ClaimType.FACTUAL,
                specificity=0.0,
                checked=Checked.CHECKED,
            )
            claim = self._merged(claim, words)
            if not around or (claim.flagged and not any(one.flagged for one in around)):
                found.append(claim)
        return found

    def _checked(self, claim: Claim, word: Word | None, shown: frozenset[int]) -> Claim:
        """A word that is believed as far as its quotations stand where it says."""
        if word is None:
            return _with(claim, ClaimStatus.NOT_CHECKED)
        quotations = []
        for source, text in word.quotes:
            found = self._quotation(source, text, shown)
            if found is None:
                # It was held against the answer, so what it is about asserts something.
                held = word.status in (ClaimStatus.CONTRADICTED, ClaimStatus.UNSUPPORTED)
                unread = _with(claim, ClaimStatus.NOT_CHECKED)
                stated = {"claim_type": ClaimType.FACTUAL} if held else {}
                return unread.model_copy(update=stated)
            quotations.append(found)
        needed = word.status in (ClaimStatus.SUPPORTED, ClaimStatus.CONTRADICTED)
        if needed and not quotations:
            return _with(claim, ClaimStatus.NOT_CHECKED)
        flagged = word.status in (ClaimStatus.CONTRADICTED, ClaimStatus.UNSUPPORTED)
        default = ErrorKind.OVERREACH if word.status is ClaimStatus.UNSUPPORTED else None
        return claim.model_copy(
            update={
                "status": word.status,
                "error": (word.kind or default) if flagged else None,
                "wrong": self._wrong(claim, word.wrong) if flagged else None,
                "quotations": tuple(quotations),
                "reason": word.reason,
            }
        )

    def _wrong(self, claim: Claim, words: str) -> tuple[int, int] | None:
        found = locate(words, Folded(claim.text)) if words else None
        return (claim.start + found[0], claim.start + found[1]) if found else None

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
                found = (QUESTION_ID, 0, self._said())
            elif name in (SYSTEM, "system"):
                found = (SYSTEM_ID, 0, self._dossier.instructions)
            elif _NUMBER.fullmatch(name) and 1 <= int(name) <= len(self._dossier.passages):
                fact_id, text = self._dossier.passages[int(name) - 1]
                found = (fact_id, int(name), text)
            else:
                return None
            self._sources[name] = (*found, Folded(found[2]))
        return self._sources[name]

    def _said(self) -> str:
        """What the question states, and what the user stated before it."""
        before = [text for role, text in self._dossier.conversation if role == "user"]
        return "\n".join([self._dossier.question, *before])


def _with(claim: Claim, status: ClaimStatus) -> Claim:
    """A claim with a status alone, without what an earlier one rested on."""
    bare = {"error": None, "wrong": None, "quotations": (), "reason": ""}
    return claim.model_copy(update={"status": status, **bare})
