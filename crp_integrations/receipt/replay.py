"""Doing again what a receipt tells of: rank, pack, render, examine, judge.

Each part ends as `equal`, as `differs` with the place of the first difference, or as `not-run`
with the reason. Nothing is read but the receipt and the engines that are handed over.

Spec: CRP-SPEC-005 §15.4
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crp_integrations.receipt import replay_context as making
from crp_integrations.receipt import replay_examination as judging
from crp_integrations.receipt.predicate import Content
from crp_integrations.receipt.reconstruction import (
    MALFORMED,
    LeftOutError,
    Texts,
    content_of,
    malformed,
)
from crp_integrations.receipt.records import Receipt
from crp_integrations.receipt.replay_policy import policies
from crp_integrations.receipt.replay_records import (
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
    made = making.Context(receipt.content["envelope"] or {}, content, texts, tools)
    verdict = judging.Verdict(receipt, content, texts, tools)
    run: Mapping[str, Callable[[], Outcome]] = {
        "budget": lambda: making.budget(made),
        "selection": lambda: making.selection(made),
        "context": lambda: making.context(made),
        "prompt": lambda: making.prompt(made),
        "counts": lambda: making.counts(made),
        "answer": lambda: judging.answer(content, texts),
        "examination": lambda: judging.examination(verdict),
        "judge": lambda: judging.judged(verdict),
        "policy": lambda: policies(verdict),
        "catalogue": lambda: judging.catalogue(content, texts, tools),
        "signals": lambda: judging.signals(content, texts, tools),
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
