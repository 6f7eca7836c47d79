"""What was examined, judged and decided, as content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.examination import Examination
from crp_integrations.dpe.judge.records import JudgeExchange, JudgeRun
from crp_integrations.envelope.prompt import BETWEEN
from crp_integrations.policy.policy_text import render_policy
from crp_integrations.policy.records import Policy
from crp_integrations.receipt import outline
from crp_integrations.receipt.leaves import Part
from crp_integrations.receipt.outline import declared
from crp_integrations.receipt.predicate_verdict import (
    EnginesTold,
    Examined,
    JudgeCallTold,
    JudgedTold,
    PolicyTold,
    PriorTold,
    RegisteredSystem,
    TermsTold,
)
from crp_integrations.receipt.texts import TextLeaves
from crp_integrations.receipt.window_values import Asked, Decided, Told
from crp_integrations.seals import sha256

# In the place of a prompt that is system prompt, history and question.
CONVERSATION: Final = "conversation"


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
        passages=None if told.fit and told.envelope else _passages(dossier, shown),
        needs=_needs(dossier, asked, texts),
        prior=[
            declared(PriorTold, one, leaf=texts.add(f"prior/{n}", one.text, follows=True))
            for n, one in enumerate(dossier.prior, start=1)
        ],
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


def _needs(dossier: Dossier, asked: Asked, texts: TextLeaves) -> list[int]:
    """Leaves of what the answer was to cover; those that the question was taken apart into."""
    found = []
    for number, need in enumerate(dossier.sub_queries, start=1):
        known = "request" if need == asked.query else texts.named(need, "need/")
        found.append(texts.number(known) if known else texts.add(f"cover/{number}", need))
    return found


def _decimals(values: Mapping[str, float]) -> dict[str, str]:
    return {name: repr(float(value)) for name, value in values.items()}


# Windows have few policies.
@lru_cache(maxsize=64)
def _written(policy: Policy) -> tuple[str, str]:
    """A policy's canonical text and its hash."""
    text = render_policy(policy)
    return text, sha256(text)


def policy_told(decided: Decided, told: Told) -> dict[str, Any]:
    """The policies in force, and what they said."""
    text, digest = _written(decided.policy)
    return declared(
        PolicyTold,
        decided,
        text=text,
        hash=digest,
        report_only=None if decided.report_only is None else render_policy(decided.report_only),
        judgement=None if decided.judgement is None else outline.written(decided.judgement),
        reported=None if decided.reported is None else outline.written(decided.reported),
        catalogue=told.report.classification.engine,
        terms=None if decided.terms is None else declared(TermsTold, decided.terms),
    )


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
