"""Envelopes and reports without texts and without floats, as a receipt tells them.

What is left out is put together again from the texts: a claim from its place in the answer, a
need from its number, a value of the context from the fact. So the same words are compared in a
replay as were signed, and a copy without some texts says the rest of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, get_args, get_origin

from crp_integrations.dpe.records import Claim, Evidence, Finding, Report
from crp_integrations.envelope.records import Drop, Envelope, PackedFact
from crp_integrations.receipt.leaves import small
from crp_integrations.receipt.predicate import EnvelopeTold
from crp_integrations.receipt.predicate_verdict import SHARE
from crp_integrations.records import Part
from crp_integrations.scores import SCALE

_AS_THEY_ARE: Final = frozenset({str, int, bool, type(None)})
# The number of the community without a name.
NAMELESS: Final = -1
# Fields of a report that are told under their own names. What is in neither list is not told: a
# field that comes later may hold a text.
OF_REPORT: Final = (
    "grounding_mode", "claims_total", "claims_by_type", "attribution_dominant",
    "attribution_breakdown", "grounding_pct", "unverifiable_pct", "fabrication_count",
    "distortion_count", "distortion_types", "contradiction_count", "contradiction_scope",
    "fidelity_score", "entailment_score", "contradiction_probability", "neutral_probability",
    "signals", "repetition_level", "repetition_overlap",
    "completeness_score", "flow_score", "flow_remediation", "rqa_score", "base_score",
    "composite_score", "risk_score", "claim_counts", "verification", "checked_by", "flagged",
    "amplifiers_applied", "risk_level", "omission_summary", "gdpr_pii_detected",
    "eu_ai_act_class", "nist_tier", "iso_42001_controls", "checked_share", "flags", "verifier",
    "embedder", "chain_integrity",
)  # fmt: skip
# Entities are read out of the answer again; what most claims have not is left out.
_OF_CLAIM: Final = (
    "claim_id", "start", "end", "sentence_index", "claim_type", "checked", "attribution", "status",
    "disputed",
)  # fmt: skip
_SHARES_OF_CLAIM: Final = (
    "specificity", "similarity", "entailment", "contradiction", "neutral",
)  # fmt: skip
_OF_COHERENCE: Final = ("compared", "contradicted", "unread")
_OF_CONTRADICTION: Final = (
    "claim_id", "start", "end", "prior_start", "prior_end", "prior_window_id", "kind", "severity",
    "probability", "engine",
)  # fmt: skip


def fixed(value: float | None) -> int | None:
    """A number in millionths; None stays None."""
    return None if value is None else round(value * SCALE)


def plain(value: Any) -> Any:
    """A value of a record without floats: millionths in their place, and lists for tuples."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is float:
        return round(value * SCALE)
    if kind is dict:
        # Dozens of controls have nothing behind them.
        return {
            str(name): inner if type(inner) in _AS_THEY_ARE else [] if inner == () else plain(inner)
            for name, inner in value.items()
        }
    if kind is tuple or kind is list:
        return [inner if type(inner) in _AS_THEY_ARE else plain(inner) for inner in value]
    if isinstance(value, str):
        # A word of a closed list, without its class.
        return str(value)
    if isinstance(value, Mapping):
        return plain(dict(value))
    if isinstance(value, (int, float, list, tuple)):
        raise TypeError(f"{kind.__name__} is not told")
    return plain(value.__dict__)


def declared(kind: type[Part], value: Any, **made: Any) -> dict[str, Any]:
    """A part of the content out of the record that it tells of: the fields that `kind` declares."""
    told = {}
    for name, is_share in _declared(kind):
        if name in made:
            told[name] = made.pop(name)
            continue
        found = getattr(value, name)
        if is_share:
            told[name] = fixed(found)
        else:
            told[name] = small(found) if type(found) is int else plain(found)
    if made:
        raise TypeError(f"{kind.__name__} declares no field {min(made)}")
    return told


@cache
def _declared(kind: type[Part]) -> tuple[tuple[str, bool], ...]:
    """The names that a part declares, and whether each is a share."""
    return tuple([(name, SHARE in field.metadata) for name, field in kind.model_fields.items()])


def written(value: Any) -> Any:
    """What is written to the same bytes as `plain` of it: without floats and records.

    Words, tuples and what holds nothing else stay as they are, so little of it is looked at.
    """
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is float:
        return round(value * SCALE)
    if not isinstance(value, Part):
        return plain(value)
    told = dict(value.__dict__)
    for name in changing(type(value)):
        told[name] = written(told[name])
    return told


@cache
def changing(kind: type[Part]) -> tuple[str, ...]:
    """Fields of a record that may hold what is written as something else."""
    fields = kind.model_fields.items()
    return tuple(name for name, field in fields if not _stays(field.annotation))


def _stays(kind: Any) -> bool:
    """Whether values of a type are written as they are."""
    inner = get_args(kind)
    if not inner:
        return isinstance(kind, type) and (kind in _AS_THEY_ARE or issubclass(kind, str))
    if get_origin(kind) is dict:
        return inner[0] is str and _stays(inner[1])
    return all(one is Ellipsis or _stays(one) for one in inner)


@cache
def _of_report() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Fields of a report that are told as they are, and those that are written otherwise."""
    others = changing(Report)
    return (
        tuple([name for name in OF_REPORT if name not in others]),
        tuple([name for name in OF_REPORT if name in others]),
    )


def report(
    found: Report, needs: Sequence[str], told_as: Callable[[Any], Any] = plain
) -> dict[str, Any]:
    """A report without texts, under its own field names."""
    numbers = {need: number for number, need in enumerate(needs)}
    fields = found.__dict__
    as_they_are, others = _of_report()
    told = {name: fields[name] for name in as_they_are}
    if told_as is plain:
        told = plain(told)
    for name in others:
        told[name] = told_as(fields[name])
    quality = found.quality
    coherence = quality.coherence
    told["quality"] = {
        "coherence": {
            **{name: getattr(coherence, name) for name in _OF_COHERENCE},
            "contradictions": [
                {name: told_as(getattr(one, name)) for name in _OF_CONTRADICTION}
                for one in coherence.contradictions
            ],
        },
        "repetition": told_as(quality.repetition),
        "completeness": {
            **told_as(quality.completeness),
            **{
                name: [numbers.get(need, -1) for need in getattr(quality.completeness, name)]
                for name in ("covered", "uncovered", "new")
            },
        },
        "flow": told_as(quality.flow),
    }
    told["claims"] = [_claim(claim) for claim in found.claims]
    told["omissions"] = [told_as(one) for one in found.omissions]
    told["personal"] = told_as(found.personal)
    told["classification"] = told_as(found.classification)
    told["stages"] = [[run.number, run.name, run.engine] for run in found.stages]
    return told


def _claim(claim: Claim) -> dict[str, Any]:
    told = {name: plain(getattr(claim, name)) for name in _OF_CLAIM}
    told |= {name: fixed(getattr(claim, name)) for name in _SHARES_OF_CLAIM}
    told["evidence"] = [_evidence(one) for one in claim.evidence]
    told["findings"] = [_finding(one) for one in claim.findings]
    if claim.error is not None:
        told["error"] = claim.error.value
    if claim.disputed:
        told["disputed"] = True
    if claim.wrong is not None:
        told["wrong"] = list(claim.wrong)
    if claim.quotations:
        told["quotations"] = [
            {"fact_id": one.fact_id, "passage": one.passage, "start": one.start, "end": one.end}
            for one in claim.quotations
        ]
    return told


def _evidence(one: Evidence) -> dict[str, Any]:
    return {
        "fact_id": one.fact_id,
        "start": one.start,
        "end": one.end,
        "score": round(one.score * SCALE),
        "engine": one.engine,
    }


def _finding(one: Finding) -> dict[str, Any]:
    told: dict[str, Any] = {
        "stage": one.stage,
        "kind": one.kind,
        "start": one.start,
        "end": one.end,
        "evidence": None if one.evidence is None else _evidence(one.evidence),
    }
    if one.other_claim_id is not None:
        told["other_claim_id"] = one.other_claim_id
    return told


def envelope(
    made: Envelope, place_of: Mapping[str, int], labels: Mapping[str, int]
) -> dict[str, Any]:
    """An envelope without texts."""
    return declared(
        EnvelopeTold,
        made,
        facts=_facts(made.facts, place_of),
        dropped=[_drop(drop, place_of) for drop in made.dropped],
        conflicts=[[one.left, one.right] for one in made.conflicts],
        caps=[[one.ceiling.value, one.reason] for one in made.caps],
        advice=[[one.word.value, one.reason] for one in made.advice],
        communities=[labels[label] for label in made.ckf_communities],
        facts_available=made.total_facts_available,
    )


def _facts(facts: Sequence[PackedFact], place_of: Mapping[str, int]) -> list[dict[str, Any]]:
    found = []
    for fact in facts:
        # A record's values, without its class being asked for each.
        values = fact.__dict__
        told: dict[str, Any] = {
            "at": place_of[values["fact_id"]],
            "composite": round(values["composite_score"] * SCALE),
            "diversity": round(values["diversity_bonus"] * SCALE),
            "freshness": round(values["freshness_score"] * SCALE),
            "position": values["position"],
            "tokens": values["token_count"],
        }
        if values["spans"]:
            told["spans"] = [list(span) for span in values["spans"]]
        found.append(told)
    return found


def _drop(drop: Drop, place_of: Mapping[str, int]) -> dict[str, Any]:
    told: dict[str, Any] = {"at": place_of[drop.fact_id], "reason": drop.reason.value}
    if drop.kept is not None:
        told["kept"] = place_of[drop.kept]
    return told
