"""What was examined and judged, as content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.examination import Engines, Examination
from crp_integrations.envelope.prompt import BETWEEN
from crp_integrations.policy.policy_text import render_policy
from crp_integrations.policy.records import Policy
from crp_integrations.policy.verdict import AnswerTerms
from crp_integrations.receipt import bare
from crp_integrations.receipt.building_judged import judged_told
from crp_integrations.receipt.leaves import Part
from crp_integrations.receipt.texts import Texts, small
from crp_integrations.receipt.told import Asked, Decided, Told
from crp_integrations.scores import SCALE
from crp_integrations.seals import sha256

# In the place of a prompt that is system prompt, history and question.
CONVERSATION: Final = "conversation"


def examined_told(
    told: Told,
    examined: Examination,
    texts: Texts,
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
    return {
        "answer": answer,
        "question": question if dossier.question else None,
        "passages": None if told.fit and told.envelope else _passages(dossier, shown),
        "needs": _needs(dossier, asked, texts),
        "prior": [
            {
                "window_id": one.window_id,
                "number": one.number,
                "leaf": texts.add(f"prior/{n}", one.text, follows=True),
                "summarised": one.summarised,
                "outdated": one.outdated,
            }
            for n, one in enumerate(dossier.prior, start=1)
        ],
        "windows_left": small(dossier.windows_left),
        "prompt": prompt,
        "system": {
            "domain": dossier.system.domain.value if dossier.system.domain else None,
            "sector": dossier.system.sector.value if dossier.system.sector else None,
            "decides": dossier.system.decides,
            "evidence": list(dossier.system.evidence),
        },
        "grounding": dossier.grounding.value,
        "loop_depth": small(dossier.loop_depth),
        "no_store": dossier.no_store,
        "engines": _engines(examined.engines),
        "signals": [{"at": entry.at, "value": entry.value} for entry in examined.entries],
        "flags": list(told.report.flags[told.flags_before :]),
        "judged": judged,
    }


def _passages(dossier: Dossier, shown: Sequence[tuple[Part, ...]]) -> list[dict[str, Any]]:
    """What the answer was examined beside, where no envelope tells it."""
    importances: Sequence[float | None] = dossier.importances or [None] * len(dossier.passages)
    return [
        {
            "id": name,
            "pieces": [list(p) if isinstance(p, tuple) else p for p in pieces],
            "importance": bare.fixed(importance),
        }
        for (name, _), pieces, importance in zip(dossier.passages, shown, importances, strict=True)
    ]


def _needs(dossier: Dossier, asked: Asked, texts: Texts) -> list[int]:
    """Leaves of what the answer was to cover; those that the question was taken apart into."""
    found = []
    for number, need in enumerate(dossier.sub_queries, start=1):
        known = "request" if need == asked.query else texts.named(need, "need/")
        found.append(texts.number(known) if known else texts.add(f"cover/{number}", need))
    return found


def _engines(engines: Engines) -> dict[str, Any]:
    def decimals(values: Mapping[str, float]) -> dict[str, str]:
        return {name: repr(float(value)) for name, value in values.items()}

    return {
        "embedder": engines.embedder,
        "embedder_thresholds": decimals(engines.embedder_thresholds),
        "dimensions": engines.dimensions,
        "verifier": engines.verifier,
        "verifier_thresholds": decimals(engines.verifier_thresholds),
        "passage": engines.passage,
        "reads": engines.reads,
        "recognisers": [
            [identity, {kind: category.value for kind, category in kinds.items()}]
            for identity, kinds in engines.recognisers
        ],
        "policy": engines.policy,
    }


# Windows have few policies.
@lru_cache(maxsize=64)
def _written(policy: Policy) -> tuple[str, str]:
    """A policy's canonical text and its hash."""
    text = render_policy(policy)
    return text, sha256(text)


def policy_told(decided: Decided, told: Told) -> dict[str, Any]:
    """The policies in force, and what they said."""
    text, digest = _written(decided.policy)
    return {
        "text": text,
        "hash": digest,
        "report_only": None if decided.report_only is None else render_policy(decided.report_only),
        "judgement": None if decided.judgement is None else bare.written(decided.judgement),
        "reported": None if decided.reported is None else bare.written(decided.reported),
        "tier": None if decided.tier is None else decided.tier.value,
        "decision": decided.decision,
        "reason": decided.reason,
        "approved": decided.approved,
        "reviewed": decided.reviewed,
        "safety_budget": round(decided.safety_budget * SCALE),
        "catalogue": told.report.classification.engine,
        "terms": None if decided.terms is None else _terms(decided.terms),
    }


def _terms(terms: AnswerTerms) -> dict[str, Any]:
    return {
        "accept_risk": None if terms.accept_risk is None else terms.accept_risk.value,
        "accept_quality": [one.value for one in terms.accept_quality],
        "part": terms.part,
        "unanswered": terms.unanswered,
        "review_below": round(terms.review_below * SCALE),
    }
