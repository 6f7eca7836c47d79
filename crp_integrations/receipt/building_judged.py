"""What a judge was asked and replied, as content; each reply gets a leaf of its own."""

from __future__ import annotations

from typing import Any

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.judge.records import JudgeExchange, JudgeRun
from crp_integrations.receipt.texts import Texts, small


def judged_told(run: JudgeRun, dossier: Dossier, texts: Texts) -> dict[str, Any]:
    """A judge's run; what its quotations may stand in gets leaves where it has none."""
    told: dict[str, Any] = {
        "model": run.model,
        "prompt": run.prompt,
        "own_answer": run.own_answer,
        "skipped": run.skipped,
        "language": run.language,
        "passages": run.passages,
        "left_out": [[one.fact_id, one.reason] for one in run.left_out],
        "calls": [_call(call, f"judge/{n}", texts) for n, call in enumerate(run.calls, start=1)],
        "conversation": [],
        "instructions": None,
    }
    if run.calls:
        told["conversation"] = [
            {"role": role, "leaf": _spoken(text, f"conversation/{n}", texts)}
            for n, (role, text) in enumerate(dossier.conversation, start=1)
        ]
        if dossier.instructions:
            told["instructions"] = _known(dossier.instructions, "system-prompt", texts)
            if told["instructions"] is None:
                told["instructions"] = texts.add(
                    "instructions", dossier.instructions, of=texts.of, follows=True
                )
    return told


def _call(call: JudgeExchange, name: str, texts: Texts) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": call.id,
        "first": call.first,
        "last": call.last,
        "passages": list(call.passages),
        "prompt_hash": call.prompt_hash,
        "model": call.model,
        "error": call.error,
        "cached": call.cached,
        "milliseconds": small(call.milliseconds),
        "prompt_tokens": small(call.prompt_tokens),
        "completion_tokens": small(call.completion_tokens),
        # As it is printed: a millionth is more than a call of a small model costs.
        "cost": None if call.cost_usd is None else repr(float(call.cost_usd)),
        # It quotes facts, the question, the answer, and what was said before.
        "leaf": texts.add(name, call.reply, of=texts.of, follows=True) if call.reply else None,
    }
    if call.pieces:
        told["pieces"] = [list(piece) for piece in call.pieces]
    return told


def _spoken(text: str, name: str, texts: Texts) -> int:
    """The leaf of an earlier message: that of the history, of the question, or one of its own."""
    for begins in ("history/", "request"):
        known = _known(text, begins, texts)
        if known is not None:
            return known
    return texts.add(name, text, of=texts.of, follows=True)


def _known(text: str, begins: str, texts: Texts) -> int | None:
    name = texts.named(text, begins)
    return texts.number(name) if name else None
