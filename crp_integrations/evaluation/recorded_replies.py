"""Reads recorded replies of a judge from a file and replays them for a case.

A reply is the text that a model returned, the JSON object of that text, or its short form: the same
object with offsets instead of words of the answer and the evidence, so that replies can be stored
where the texts must not be. Each part may have either form.

- `quotes`: `["2", 14, 31]`, the passage and offsets in it; 0 and 0 for words that do not occur.
- `wrong`: `[4, 9]`, offsets in the claim; `fix`: `[4, 9, "35"]`, with the replacement.
- `text` of an unnumbered assertion: offsets in the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from crp_integrations.dpe.judge.inquiry import JudgeReply
from crp_integrations.dpe.judge.messages import QUESTION
from crp_integrations.evaluation.answers import Screened
from crp_integrations.evaluation.data_sets import each
from crp_integrations.language.folded_text import Folded
from crp_integrations.messages import ModelCall

RecordedReply = str | dict[str, Any]

FORM: Final = "name and reply: a text, or an object with a list of claims"
# Replaces words that are in no passage, so that the quotation is rejected like the original.
NOWHERE: Final = "not in the passage"
# A word that some models put before a passage's number.
PLACE_WORD: Final = "passage"


def replies(path: Path) -> dict[str, RecordedReply]:
    """The replies of a file, by the name of their case.

    Raises:
        RequestError: a line is not an object with a name and a reply; names file and line.
    """
    return dict(each(path, FORM, _named_reply))


def _named_reply(row: dict[str, Any]) -> tuple[str, RecordedReply]:
    reply = row["reply"]
    if not isinstance(reply, str) and not (
        isinstance(reply, dict)
        and isinstance(reply.get("claims"), list)
        and all(isinstance(claim, dict) for claim in reply["claims"])
    ):
        raise TypeError("not a reply")
    return str(row["name"]), reply


def recorded(of: Screened, reply: str | Mapping[str, Any]) -> Callable[[ModelCall], JudgeReply]:
    """A judge that answers the first call of a case with a recorded reply, and fails after it."""
    asked: list[ModelCall] = []

    def ask(call: ModelCall) -> JudgeReply:
        asked.append(call)
        if len(asked) > 1:
            return JudgeReply(error="NotRecorded")
        if isinstance(reply, str):
            return JudgeReply(text=reply, model="recorded")
        whole = {"id": _id_of(call), **_Texts(of).restored(reply)}
        return JudgeReply(text=json.dumps(whole), model="recorded")

    return ask


def _id_of(call: ModelCall) -> str:
    return str(json.loads(call.messages[1].content)["id"])


class _Texts:
    """The texts of one case, in which the offsets of a reply are resolved."""

    def __init__(self, of: Screened) -> None:
        self._answer = of.case.answer
        self._claims = of.report.claims
        self._texts = {str(number): text for number, text in enumerate(of.case.passages, 1)}
        self._texts[QUESTION] = of.case.question
        self._folded = {name: Folded(text) for name, text in self._texts.items()}

    def claim(self, number: object) -> str:
        """The text of a claim by its number; empty if there is no such claim."""
        if isinstance(number, int) and 1 <= number <= len(self._claims):
            return self._claims[number - 1].text
        return ""

    def restored(self, reply: Mapping[str, Any]) -> dict[str, Any]:
        """A reply with texts instead of offsets; parts that are texts already stay the same."""
        whole = dict(reply)
        whole["claims"] = [
            self._restored_verdict(verdict, self.claim(verdict.get("n")))
            for verdict in reply["claims"]
        ]
        for name in ("unnumbered", "needs", "conflicts"):
            rows = reply.get(name)
            whole[name] = rows if isinstance(rows, list) else []
        whole["unnumbered"] = [
            self._restored_assertion(assertion)
            for assertion in whole["unnumbered"]
            if isinstance(assertion, dict)
        ]
        whole["conflicts"] = [
            {**conflict, "passages": self._quotations(conflict.get("passages"))}
            for conflict in whole["conflicts"]
            if isinstance(conflict, dict)
        ]
        return whole

    def _restored_verdict(self, row: dict[str, Any], claim: str) -> dict[str, Any]:
        whole = {**row, "quotes": self._quotations(row.get("quotes"))}
        if (wrong := _offsets(row.get("wrong"))) is not None:
            whole["wrong"] = claim[slice(*wrong)]
        fix = row.get("fix")
        if isinstance(fix, list) and len(fix) == 3 and (edit := _offsets(fix[:2])) is not None:
            whole["fix"] = f"{claim[: edit[0]]}{fix[2]}{claim[edit[1] :]}"
        return whole

    def _restored_assertion(self, row: dict[str, Any]) -> dict[str, Any]:
        place = _offsets(row.get("text"))
        text = row.get("text") if place is None else self._answer[slice(*place)]
        claim = text if isinstance(text, str) else ""
        return {**self._restored_verdict(row, claim), "text": claim}

    def _quotations(self, quotes: object) -> list[dict[str, Any]]:
        return [self._quotation(quote) for quote in quotes] if isinstance(quotes, list) else []

    def _quotation(self, quote: object) -> dict[str, Any]:
        if isinstance(quote, dict):
            return quote
        if isinstance(quote, list) and len(quote) == 3:
            place = _offsets(quote[1:])
            text = self._texts.get(str(quote[0]), "")[slice(*place)] if place else ""
            return {"in": str(quote[0]), "text": text or NOWHERE}
        return {"in": "", "text": NOWHERE}


def _offsets(value: object) -> tuple[int, int] | None:
    """Start and end; None if the value is not a pair of offsets."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    start, end = value
    if type(start) is not int or type(end) is not int or not 0 <= start <= end:
        return None
    return start, end
