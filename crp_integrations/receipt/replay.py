"""Doing again what a receipt tells of: rank, pack, render, examine, judge.

Each part ends as `equal`, as `differs` with the place of the first difference, or as `not-run`
with the reason. Nothing is read but the receipt and the engines that are handed over.

Spec: CRP-SPEC-005 §15.4
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crp_integrations.receipt import replay_context as first_half
from crp_integrations.receipt import replay_verdict as second_half
from crp_integrations.receipt.again import (
    DIFFERS,
    EQUAL,
    NOT_RUN,
    NOTHING,
    Again,
    Differs,
    NotRun,
    Outcome,
    Replayed,
    Tools,
)
from crp_integrations.receipt.predicate import Content
from crp_integrations.receipt.reading import MALFORMED, LeftOutError, Texts, content_of, malformed
from crp_integrations.receipt.records import Receipt


def replay(receipt: Receipt, tools: Tools = NOTHING) -> Replayed:
    """Do again what a receipt tells of, from nothing but the receipt.

    Signature, tree and chain are `verify`'s.

    Spec: CRP-SPEC-005 §15.4

    Args:
        tools: engines at hand; what they say is compared where the receipt names the same ones.

    Returns:
        What each part came to; `Replayed.require` refuses a receipt that something differs from.

    Raises:
        ReceiptBroken: the content is malformed; names the place.
    """
    content, texts = content_of(receipt), Texts(receipt)
    made = first_half.Context(receipt.content["envelope"] or {}, content, texts, tools)
    verdict = second_half.Verdict(receipt, content, texts, tools)
    run: Mapping[str, Callable[[], Outcome]] = {
        "budget": lambda: first_half.budget(made),
        "selection": lambda: first_half.selection(made),
        "context": lambda: first_half.context(made),
        "prompt": lambda: first_half.prompt(made),
        "counts": lambda: first_half.counts(made),
        "answer": lambda: second_half.answer(content, texts),
        "examination": lambda: second_half.examination(verdict),
        "judge": lambda: second_half.judged(verdict),
        "policy": lambda: second_half.policies(verdict),
        "catalogue": lambda: second_half.catalogue(content, texts, tools),
        "signals": lambda: second_half.signals(content, texts, tools),
    }
    if content.examined is None or content.examined.judged is None:
        # Of most windows nobody expects a judge; where one was configured, it is told.
        run = {name: one for name, one in run.items() if name != "judge"}
    parts = tuple(_part(name, one) for name, one in run.items())
    return Replayed(
        receipt_id=receipt.receipt_id,
        same=all(one.state != DIFFERS for one in parts),
        whole=_whole(content, {one.name: one.state for one in parts}),
        parts=parts,
    )


def _part(name: str, run: Callable[[], Outcome]) -> Again:
    try:
        difference, why = run()
    except Differs as error:
        difference, why = error.difference, ""
    except (NotRun, LeftOutError) as error:
        return Again(name=name, state=NOT_RUN, why=str(error))
    except MALFORMED as error:
        raise malformed(f"content ({name})", error) from error
    if difference is None:
        return Again(name=name, state=EQUAL, why=why)
    return Again(
        name=name,
        state=DIFFERS,
        place=difference.place,
        recorded=difference.recorded,
        replayed=difference.replayed,
        why=why,
    )


def _whole(content: Content, states: Mapping[str, str]) -> bool:
    """Whether everything was run that the receipt has something to run of."""
    wanted = {"context", "answer", "policy"}
    if content.envelope is not None:
        wanted.add("selection")
    if content.calls:
        wanted.add("prompt")
    if content.examined is not None:
        wanted.add("examination")
        if content.examined.judged is not None and content.examined.judged.calls:
            wanted.add("judge")
    return all(states[name] == EQUAL for name in wanted)
