"""From the values of one window to the draft of its receipt.

Everything is written down once, as plain JSON, and the greater parts as soon as they are made;
nothing is validated on the way, since it comes from records that are. `predicate.Content` reads it
back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

from crp_integrations.envelope.budget import EnvelopeInputs
from crp_integrations.envelope.candidates import ScoredSpan
from crp_integrations.envelope.near_duplicates import PairRelation, as_pairs
from crp_integrations.envelope.rank import is_temporal
from crp_integrations.receipt import bare
from crp_integrations.receipt.building_calls import calls_told, request_told
from crp_integrations.receipt.building_verdict import examined_told, policy_told
from crp_integrations.receipt.disclosed import disclosed_part
from crp_integrations.receipt.leaves import Part, quoted
from crp_integrations.receipt.predicate import SCHEMA
from crp_integrations.receipt.records import Draft
from crp_integrations.receipt.texts import Texts, rendered, small, texts_as_json
from crp_integrations.receipt.told import Told
from crp_integrations.receipt.written import part, together
from crp_integrations.scores import SCALE
from crp_integrations.seals import iso

# Candidates up to which every near-identical pair is worked out for the receipt.
ALL_PAIRS: Final = 300
NAME: Final = "crp-integrations"


def draft(told: Told, version: str) -> Draft:
    """The receipt of a window, before it is signed.

    Spec: CRP-SPEC-005 §15.4

    Args:
        version: of the package.

    Raises:
        ValueError: it would hold what cannot be signed, as a float.
    """
    texts = Texts()
    labels = _labels(told.fit)
    candidates = part(_candidates(told.fit, labels, texts))
    # Of passages that no envelope tells of.
    shown: list[tuple[Part, ...]] = []
    envelope = None
    if told.envelope is not None and told.fit is not None:
        facts = told.fit.candidates.facts
        places = {one.fact_id: n for n, one in enumerate(facts)}
        envelope = part(bare.envelope(told.envelope, places, labels))
        context = texts.rendered(told.envelope)
    else:
        if told.examined is not None:
            shown = [(texts.fact(name, text),) for name, text in told.examined.dossier.passages]
        context = rendered(shown)
    texts.of = tuple(sorted(quoted(context)))
    text = told.envelope.text if told.envelope else texts.composed(context)
    texts.add("context", text, of=texts.of, parts=context)
    question = texts.add("request", told.asked.query)
    request = request_told(told.asked, texts, question, told)
    calls = calls_told(told, texts, question, context)
    texts.add("answer", told.text, of=texts.of, follows=True)
    examined = examined_told(told, told.examined, texts, question, shown) if told.examined else None
    needs = told.examined.dossier.sub_queries if told.examined else ()
    seal = texts.add("seal", texts_as_json(dict(told.state)), of=range(len(texts.leaves)))
    fit = told.fit
    parts = {
        "candidates": candidates,
        "envelope": envelope,
        "examined": part(examined),
        "report": part(bare.report(told.report, needs, bare.written)),
        "settings": disclosed_part(told.settings),
    }
    rest = {
        "schema": SCHEMA,
        "scale": SCALE,
        "package": {"name": NAME, "version": version},
        "request": request,
        "model": {
            "asked": fit.model if fit else next((call.model for call in told.calls), ""),
            "answered": told.answered_by,
            "finish_reason": told.finish_reason,
            "tokenizer": {
                "identity": fit.tokenizer,
                "exactness": fit.exactness.value,
                "source": fit.source,
            }
            if fit
            else None,
            "embedder": told.embedder,
            "reranker": told.reranker,
        },
        "selected": None if fit is None else _selected(fit),
        "fit": None if fit is None else _fit(fit),
        "calls": calls,
        "policy": policy_told(told.decided, told),
        "seal": seal,
    }
    return Draft(together(parts, rest), tuple(texts.leaves))


def _selected(fit: EnvelopeInputs) -> dict[str, Any]:
    chosen = fit.candidates
    every = len(chosen.facts) <= ALL_PAIRS
    return {
        "duplicates": _pairs(as_pairs(chosen.duplicates), every=every),
        "conflicts": _pairs(as_pairs(chosen.conflicts), every=every),
        "all_pairs": every,
        "memory_tier_hit": chosen.memory_tier_hit,
        "tier_hits": list(chosen.tier_hits),
        "algorithms": list(chosen.algorithms),
        "relevant_floor": chosen.relevant_floor,
    }


def _pairs(pairs: PairRelation, *, every: bool) -> list[list[int]]:
    return [list(pair) for pair in (pairs if every else pairs.asked())]


def _labels(fit: EnvelopeInputs | None) -> dict[str, int]:
    """A number for the label of each community; the label is made of words of its facts."""
    labels = (one.community for one in fit.candidates.facts) if fit else ()
    found = {label: number for number, label in enumerate(dict.fromkeys(filter(None, labels)))}
    # A community without a name is one all the same, and is not told of.
    return {**found, "": bare.NAMELESS}


def _candidates(
    fit: EnvelopeInputs | None, labels: Mapping[str, int], texts: Texts
) -> list[dict[str, Any]]:
    if fit is None:
        return []
    facts = fit.candidates.facts
    # Facts of one ingestion share their time.
    times = {time: iso(time) for time in {one.ingested_at for one in facts} if time}
    found = []
    # In one loop: a receipt has hundreds of candidates, and a call of each takes a third as long.
    for leaf, one in zip(texts.facts(facts), facts, strict=True):
        told: dict[str, Any] = {
            "characters": len(one.content),
            "id": one.fact_id,
            "importance": one.importance,
            "leaf": leaf,
            "relevance": one.relevance,
            "source": one.source_id,
            "tokens": one.tokens,
        }
        # What is as it mostly is, is left out.
        if one.score is not None:
            told["score"] = one.score
        if one.lexical:
            told["lexical"] = one.lexical
        if one.hop:
            told["hop"] = one.hop
        if one.ingested_at is not None:
            told["ingested_at"] = times[one.ingested_at]
        if one.stale:
            told["stale"] = True
        if one.community is not None:
            told["community"] = labels[one.community]
        if stretches := _flat(one.stretches):
            told["stretches"] = stretches
        if one.spans:
            told["spans"] = [list(span) for span in one.spans]
        if one.decay is not None:
            told["decay"] = one.decay
        if one.decision:
            told["decision"] = one.decision
        if one.refused is not None:
            told["refused"] = one.refused.value
        found.append(told)
    named = [label for label in labels if label]
    if named:
        texts.add("communities", texts_as_json(named), of=range(len(texts.leaves)))
    return found


def _flat(found: Sequence[ScoredSpan]) -> list[int]:
    """Start, end and score of each stretch, one after the other."""
    return [*chain.from_iterable(found)]


def _fit(fit: EnvelopeInputs) -> dict[str, Any]:
    room = fit.room
    return {
        "now": iso(fit.now),
        "room": None
        if room is None
        else {
            "limit": small(room.limit),
            "around": small(room.around),
            "question": room.question,
            "answer": small(room.answer),
            "asked": small(room.asked),
        },
        "budget_tokens": small(fit.budget_tokens),
        "counts": list(fit.counts),
        "k": small(fit.k),
        "max_age_seconds": small(fit.max_age_seconds),
        "window_number": fit.window_number,
        "tiers_before": [tier.value for tier in fit.tiers_before],
        "salted": fit.salted,
        "temporal": is_temporal(fit.candidates.query, fit.now),
        "pinned": list(fit.pinned),
        "previous": list(fit.previous),
    }
