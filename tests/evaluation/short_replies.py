"""A judge's reply in the short form, in which the recorded replies of the tests are kept."""

from __future__ import annotations

from typing import Any

from crp_integrations.dpe.judge.reply import ClaimVerdict, read_reply
from crp_integrations.errors import RequestError
from crp_integrations.evaluation.answers import Screened
from crp_integrations.evaluation.recorded_replies import PLACE_WORD, _id_of, _Texts
from crp_integrations.language.folded_text import Folded, locate


class ShortTexts(_Texts):
    """The texts of a case, by which a reply is shortened."""

    def verdict(self, word: ClaimVerdict, claim: str) -> dict[str, Any]:
        """A word on a claim without its texts; what it leaves out is left out."""
        short: dict[str, Any] = {"status": word.status.value}
        if word.kind:
            short["kind"] = word.kind.value
        wrong = locate(word.wrong, Folded(claim)) if word.wrong else None
        if wrong:
            short["wrong"] = list(wrong)
        if word.fix == "":
            short["fix"] = ""
        elif word.fix is not None:
            short["fix"] = _edit(claim, word.fix)
        return {**short, "quotes": self.places(word.quotes)}

    def places(self, quotes: tuple[tuple[str, str], ...]) -> list[list[Any]]:
        """Where quotations stand: passage, start and end; 0 and 0 for those that do not."""
        found: list[list[Any]] = []
        for name, text in quotes:
            source = name.strip(" []#().").removeprefix(PLACE_WORD).strip()
            folded = self._folded.get(source)
            place = locate(text, folded) if folded is not None else None
            found.append([source, *(place or (0, 0))])
        return found


def shortened(of: Screened, reply: str) -> dict[str, Any]:
    """A reply in its short form.

    Raises:
        RequestError: it holds no verdicts on this case.
    """
    call = of.inquiry("recorded").call()
    words = None if call is None else read_reply(reply, _id_of(call))
    if words is None or not words.numbered:
        raise RequestError(f"the reply to {of.case.name!r:.80} holds no verdicts on it")
    texts = ShortTexts(of)
    short: dict[str, Any] = {
        "claims": [
            {"n": number, **texts.verdict(word, texts.claim(number))}
            for number, word in sorted(words.numbered.items())
        ]
    }
    others = []
    for word in words.unnumbered:
        place = locate(word.text, Folded(of.case.answer))
        if place is not None:
            said = texts.verdict(word, of.case.answer[slice(*place)])
            others.append({"text": list(place), **said})
    needs = [{"n": one.number, "answered": one.answered, "by": list(one.by)} for one in words.needs]
    conflicts = [
        {"claims": list(one.claims), "passages": texts.places(one.quotes)}
        for one in words.conflicts
    ]
    found = {"unnumbered": others, "needs": needs, "conflicts": conflicts}
    return short | {name: rows for name, rows in found.items() if rows}


def _edit(before: str, after: str) -> list[Any]:
    """The one stretch that two texts differ in: its offsets in the first, its words in the second.

    >>> _edit("Dinner costs 12 euros.", "Dinner costs 35 euros.")
    [13, 15, '35']
    """
    start = _shared(before, after)
    end = _shared(before[start:][::-1], after[start:][::-1])
    return [start, len(before) - end, after[start : len(after) - end]]


def _shared(one: str, other: str) -> int:
    """Characters that two texts begin with alike."""
    differing = (n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    return next(differing, min(len(one), len(other)))
