"""What an answer was examined beside and what a judge was asked, as a receipt tells them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.judge.records import JudgeExchange, JudgeRun
from crp_integrations.dpe.pipeline import Examination
from crp_integrations.envelope.prompt import BETWEEN
from crp_integrations.receipt import outline
from crp_integrations.receipt.leaves import Part, TextLeaves, stretches
from crp_integrations.receipt.outline import declared
from crp_integrations.receipt.predicate_verdict import (
    EnginesTold,
    Examined,
    JudgeCallTold,
    JudgedTold,
    PriorTold,
    RegisteredSystem,
    RejectedTold,
)
from crp_integrations.receipt.window_values import Asked, Told

# In the place of a prompt that is system prompt, history and question.
CONVERSATION: Final = "conversation"
_OF_REJECTED: Final = ("said", "wrong", "reason")


def examined_told(
    told: Told,
    examined: Examination,
    texts: TextLeaves,
    question: int,
    shown: Sequence[tuple[Part, ...]],
) -> dict[str, Any]:
    """What the answer was examined beside, and what engines said."""
    dossier = examined.dossier
    asked = told.asked
    spoken = (asked.system_prompt, *(message.content for message in asked.history), asked.query)
    conversation = BETWEEN.join(part for part in spoken if part)
    prompt: int | str | None = None
    if dossier.prompt:
        same = dossier.prompt == conversation
        prompt = CONVERSATION if same else texts.add("prompt", dossier.prompt, follows=True)
    answer = texts.number("answer")
    if dossier.answer != texts.leaves[answer].text:
        answer = texts.add("examined", dossier.answer, of=texts.of, follows=True)
    run = examined.judged
    judged = None if run is None else judged_told(run, dossier, texts)
    return declared(
        Examined,
        dossier,
        answer=answer,
        question=question if dossier.question else None,
        passages=_evidence(told, dossier, texts, shown),
        needs=_needs(dossier, asked, texts),
        prior=[
            declared(PriorTold, one, leaf=texts.add(f"prior/{n}", one.text, follows=True))
            for n, one in enumerate(dossier.prior, start=1)
        ],
        rejected=_rejected(dossier, texts),
        prompt=prompt,
        system=declared(RegisteredSystem, dossier.system),
        engines=declared(
            EnginesTold,
            examined.engines,
            embedder_thresholds=_decimals(examined.engines.embedder_thresholds),
            verifier_thresholds=_decimals(examined.engines.verifier_thresholds),
        ),
        signals=[{"at": entry.at, "value": entry.value} for entry in examined.entries],
        flags=list(told.report.flags[told.flags_before :]),
        judged=judged,
    )


def _evidence(
    told: Told, dossier: Dossier, texts: TextLeaves, shown: Sequence[tuple[Part, ...]]
) -> list[dict[str, Any]] | None:
    """What the answer was examined beside; None for the facts of the envelope."""
    if told.fit is None or told.envelope is None:
        return _passages(dossier, shown)
    packed = {fact.fact_id: fact for fact in told.envelope.facts}
    if dossier.passages == tuple((one.fact_id, one.content) for one in told.envelope.facts):
        return None
    candidates = {one.fact_id: one for one in told.fit.candidates.facts}
    pieces: list[tuple[Part, ...]] = []
    for number, (name, text) in enumerate(dossier.passages, start=1):
        if not text:
            # What a model said earlier is shown, and is no evidence.
            pieces.append(())
        elif name in packed:
            leaf = texts.fact(name, candidates[name].content)
            spans = packed[name].spans
            own = spans and spans != candidates[name].spans
            pieces.append(tuple(stretches(leaf, spans)) if own else (leaf,))
        elif name in told.sources:
            pieces.append((texts.fact(name, text, told.sources[name]),))
        else:
            pieces.append((_spoken(text, f"evidence/{number}", texts),))
    return _passages(dossier, pieces)


def _passages(dossier: Dossier, shown: Sequence[tuple[Part, ...]]) -> list[dict[str, Any]]:
    """What the answer was examined beside, where no envelope tells it."""
    importances: Sequence[float | None] = dossier.importances or [None] * len(dossier.passages)
    return [
        {
            "id": name,
            "pieces": [list(p) if isinstance(p, tuple) else p for p in pieces],
            "importance": outline.fixed(importance),
        }
        for (name, _), pieces, importance in zip(dossier.passages, shown, importances, strict=True)
    ]


def _rejected(dossier: Dossier, texts: TextLeaves) -> list[dict[str, Any]]:
    """Claims that sub-agents' reports flag; they quote a model, and facts."""
    found = []
    for number, one in enumerate(dossier.rejected, start=1):
        name = f"rejected/{number}"
        more = {
            field: texts.add(f"{name}/{field}", text, of=texts.of, follows=True)
            for field in _OF_REJECTED
            if (text := getattr(one, field))
        }
        leaf = texts.add(name, one.text, of=texts.of, follows=True)
        blank = dict.fromkeys(_OF_REJECTED)
        found.append(declared(RejectedTold, one, **blank | more, leaf=leaf))
    return found


def _needs(dossier: Dossier, asked: Asked, texts: TextLeaves) -> list[int]:
    """Leaves of what the answer was to cover; those that the question was taken apart into."""
    found = []
    for number, need in enumerate(dossier.sub_queries, start=1):
        known = "request" if need == asked.query else texts.named(need, "need/")
        found.append(texts.number(known) if known else texts.add(f"cover/{number}", need))
    return found


def judged_told(run: JudgeRun, dossier: Dossier, texts: TextLeaves) -> dict[str, Any]:
    """A judge's run; what its quotations may stand in gets leaves where it has none."""
    told = declared(
        JudgedTold,
        run,
        left_out=[[one.fact_id, one.reason] for one in run.left_out],
        calls=[_judge_call(call, f"judge/{n}", texts) for n, call in enumerate(run.calls, start=1)],
        conversation=[],
        instructions=None,
    )
    if run.calls:
        told["conversation"] = [
            {"role": role, "leaf": _spoken(text, f"conversation/{n}", texts)}
            for n, (role, text) in enumerate(dossier.conversation, start=1)
        ]
        if dossier.instructions:
            told["instructions"] = _known_leaf(dossier.instructions, "system-prompt", texts)
            if told["instructions"] is None:
                told["instructions"] = texts.add(
                    "instructions", dossier.instructions, of=texts.of, follows=True
                )
    return told


def _judge_call(call: JudgeExchange, name: str, texts: TextLeaves) -> dict[str, Any]:
    told = declared(
        JudgeCallTold,
        call,
        # As it is printed: a millionth is more than a call of a small model costs.
        cost=None if call.cost_usd is None else repr(float(call.cost_usd)),
        # It quotes facts, the question, the answer, and what was said before.
        leaf=texts.add(name, call.reply, of=texts.of, follows=True) if call.reply else None,
    )
    if not call.pieces:
        del told["pieces"]
    return told


def _spoken(text: str, name: str, texts: TextLeaves) -> int:
    """The leaf of an earlier message: that of the history, of the question, or one of its own."""
    for begins in ("history/", "request"):
        known = _known_leaf(text, begins, texts)
        if known is not None:
            return known
    return texts.add(name, text, of=texts.of, follows=True)


def _known_leaf(text: str, begins: str, texts: TextLeaves) -> int | None:
    name = texts.named(text, begins)
    return texts.number(name) if name else None


def _decimals(values: Mapping[str, float]) -> dict[str, str]:
    return {name: repr(float(value)) for name, value in values.items()}
