"""Out of a receipt: what a judge was asked and what it replied."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import ValidationError

from crp_integrations.dpe.judge.records import JudgeExchange, JudgeRun, LeftOut
from crp_integrations.errors import ReceiptBroken
from crp_integrations.receipt.predicate_judged import JudgeCallTold, JudgedTold


def run_of(told: JudgedTold, text: Callable[[int], str]) -> JudgeRun:
    """A judge's run.

    Args:
        text: of a leaf by its number.

    Raises:
        LeftOutError: a reply was left out of this copy.
        ReceiptBroken: it is none.
    """
    try:
        return JudgeRun(
            model=told.model,
            prompt=told.prompt,
            own_answer=told.own_answer,
            skipped=told.skipped,
            calls=tuple(_exchange(call, text) for call in told.calls),
            passages=told.passages,
            left_out=tuple(LeftOut(fact_id=id_, reason=why) for id_, why in told.left_out),
            language=told.language,
        )
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(one) for one in ("content.examined.judged", *first["loc"]))
        raise ReceiptBroken(place, str(first["msg"])) from None


def _exchange(call: JudgeCallTold, text: Callable[[int], str]) -> JudgeExchange:
    return JudgeExchange(
        id=call.id,
        first=call.first,
        last=call.last,
        passages=call.passages,
        pieces=call.pieces,
        prompt_hash=call.prompt_hash,
        model=call.model,
        reply="" if call.leaf is None else text(call.leaf),
        error=call.error,
        cached=call.cached,
        milliseconds=call.milliseconds,
        prompt_tokens=call.prompt_tokens,
        completion_tokens=call.completion_tokens,
        cost_usd=None if call.cost is None else float(call.cost),
    )
