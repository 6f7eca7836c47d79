"""Doing again what a judge was asked: the same words, by their ids and hashes.

Statuses and level are computed again from the recorded replies with the report (`examination`).

Spec: CRP-SPEC-005 §6.2, §15.4 (decision D13)
"""

from __future__ import annotations

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.judge import prompt as words
from crp_integrations.dpe.judge.prompt import JudgePrompt
from crp_integrations.dpe.judge.records import JudgeExchange, JudgeRun
from crp_integrations.dpe.judge.reply import read_reply
from crp_integrations.dpe.records import Claim
from crp_integrations.errors import ReceiptBroken
from crp_integrations.messages import Message
from crp_integrations.receipt.again import NotRun, Outcome
from crp_integrations.receipt.places import Difference, first

_AT = "content.examined.judged"
UNREADABLE = "Unreadable"


def asked_again(run: JudgeRun | None, dossier: Dossier, claims: tuple[Claim, ...]) -> Outcome:
    """What each call asked, put together again.

    Args:
        claims: as they were before the judge's word.

    Raises:
        NotRun: no judge was asked.
        ReceiptBroken: a call names passages or claims that there are not.
    """
    if run is None:
        raise NotRun("no judge was configured")
    if not run.calls:
        raise NotRun(f"the judge was not asked: {run.skipped or 'there is no claim'}")
    found = first(run.passages, len(dossier.passages), "examined.judged.passages")
    if found is not None:
        return found, ""
    shipped = JudgePrompt(language=run.language) if run.language in words.LANGUAGES else None
    known = shipped is not None and shipped.identity == run.prompt
    before: tuple[Message, ...] = ()
    for number, call in enumerate(run.calls):
        place = f"examined.judged.calls[{number}]"
        id_, user = words.material(
            dossier,
            claims,
            _claims(call, len(claims), place),
            _shown(call, dossier, place),
            len(dossier.passages),
        )
        if call.id != id_:
            return Difference(f"{place}.id", call.id, id_), ""
        read = read_reply(call.reply, id_) is not None
        if call.error in ("", UNREADABLE) and read is bool(call.error):
            return Difference(f"{place}.error", call.error, UNREADABLE if not read else ""), ""
        if shipped is None or not known:
            continue
        sent = words.messages(shipped, user)
        if number and run.calls[number - 1].id == id_:
            # A reply that could not be read is asked for once more.
            again = run.calls[number - 1].reply or "-"
            sent = (
                *before,
                Message(role="assistant", content=again),
                Message(role="user", content=words.AGAIN),
            )
        before = sent
        found = first(call.prompt_hash, words.prompt_hash(sent), f"{place}.prompt_hash")
        if found is not None:
            return found, ""
    why = "" if known else f"the prompt {run.prompt!r:.60} is not one that ships, and is told"
    return None, why


def _claims(call: JudgeExchange, count: int, place: str) -> tuple[int, int]:
    if not 1 <= call.first <= call.last <= count:
        raise ReceiptBroken(f"{_AT}: {place}", f"asks about claims that are none of {count}")
    return call.first, call.last


def _shown(call: JudgeExchange, dossier: Dossier, place: str) -> list[tuple[int, str]]:
    """Number and text of each passage, or piece of one, that a call showed."""
    parts: dict[int, list[tuple[int, int]]] = {}
    for number, start, end in call.pieces:
        parts.setdefault(number, []).append((start, end))
    if not {*parts} <= {*call.passages} or len({*call.passages}) < len(call.passages):
        raise ReceiptBroken(f"{_AT}: {place}", "its pieces are not of its passages")
    found = []
    for number in call.passages:
        if not 1 <= number <= len(dossier.passages):
            raise ReceiptBroken(f"{_AT}: {place}", f"names passage {number}")
        text = dossier.passages[number - 1][1]
        found += [(number, text[start:end]) for start, end in parts.get(number, [(0, len(text))])]
    return found
