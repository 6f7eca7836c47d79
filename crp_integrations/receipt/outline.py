"""Envelopes and reports without texts and floats, for the content of a receipt.

A reader restores what is left out from the leaves: a claim from its position in the answer, a need
from its number, a value of the context from the fact. So a replay compares against the signed
texts, and a copy without some texts still has the rest of the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from crp_integrations.dpe.records import Claim, Evidence, Finding, Report
from crp_integrations.envelope.records import Drop, Envelope, PackedFact
from crp_integrations.receipt.leaves import small
from crp_integrations.receipt.predicate import SHARE, EnvelopeRecord
from crp_integrations.records import Part
from crp_integrations.scores import SCALE

_JSON_SCALARS: Final = frozenset({str, int, bool, type(None)})
# The number of the community without a name.
NAMELESS: Final = -1
# Fields of a report that are recorded under their own names. Fields in none of these lists are not
# recorded, because a field added later might contain a text.
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
# Entities are not recorded, as they can be read from the answer again.
_OF_CLAIM: Final = (
    "claim_id", "start", "end", "sentence_index", "claim_type", "checked", "attribution", "status",
    "disputed",
)  # fmt: skip
_SHARES_OF_CLAIM: Final = (
    "specificity", "similarity", "entailment", "contradiction", "neutral",
)  # fmt: skip
_OF_EVIDENCE: Final = ("fact_id", "start", "end", "score", "engine")
_OF_COHERENCE: Final = ("compared", "contradicted", "unread")
_OF_CONTRADICTION: Final = (
    "claim_id", "start", "end", "prior_start", "prior_end", "prior_window_id", "kind", "severity",
    "probability", "engine",
)  # fmt: skip


def fixed(value: float | None) -> int | None:
    """Convert a number to millionths; None stays None."""
    return None if value is None else round(value * SCALE)


def plain(value: Any) -> Any:
    """Convert a record's value to JSON without floats: they become millionths, tuples lists."""
    kind = type(value)
    if kind in _JSON_SCALARS:
        return value
    if kind is float:
        return round(value * SCALE)
    if kind is dict:
        # A shortcut for empty tuples: dozens of controls have nothing recorded.
        return {
            str(key): inner if type(inner) in _JSON_SCALARS else [] if inner == () else plain(inner)
            for key, inner in value.items()
        }
    if kind is tuple or kind is list:
        return [inner if type(inner) in _JSON_SCALARS else plain(inner) for inner in value]
    if isinstance(value, str):
        # An enum value becomes a plain string.
        return str(value)
    if isinstance(value, Mapping):
        return plain(dict(value))
    if isinstance(value, (int, float, list, tuple)):
        raise TypeError(f"{kind.__name__} cannot be recorded in a receipt")
    return plain(value.__dict__)


def declared(kind: type[Part], value: Any, **made: Any) -> dict[str, Any]:
    """The fields that `kind` declares, taken from a record; `made` replaces some of them."""
    content = {}
    for name, is_share in _declared(kind):
        if name in made:
            content[name] = made.pop(name)
            continue
        field = getattr(value, name)
        if is_share:
            content[name] = fixed(field)
        else:
            content[name] = small(field) if type(field) is int else plain(field)
    if made:
        raise TypeError(f"{kind.__name__} declares no field {min(made)}")
    return content


@cache
def _declared(kind: type[Part]) -> tuple[tuple[str, bool], ...]:
    """The field names of a part, and whether each is a share."""
    return tuple([(name, SHARE in field.metadata) for name, field in kind.model_fields.items()])


def report(made: Report, needs: Sequence[str]) -> dict[str, Any]:
    """A report without texts, under its own field names."""
    numbers = {need: number for number, need in enumerate(needs)}
    quality = made.quality
    coherence, completeness = quality.coherence, quality.completeness
    return {
        **{name: plain(getattr(made, name)) for name in OF_REPORT},
        "quality": {
            "coherence": {
                **{name: getattr(coherence, name) for name in _OF_COHERENCE},
                "contradictions": [
                    {name: plain(getattr(contradiction, name)) for name in _OF_CONTRADICTION}
                    for contradiction in coherence.contradictions
                ],
            },
            "repetition": plain(quality.repetition),
            "completeness": {
                **plain(completeness),
                **{
                    name: [numbers.get(need, -1) for need in getattr(completeness, name)]
                    for name in ("covered", "uncovered", "new")
                },
            },
            "flow": plain(quality.flow),
        },
        "claims": [_claim(claim) for claim in made.claims],
        "omissions": plain(made.omissions),
        "personal": plain(made.personal),
        "classification": plain(made.classification),
        "stages": [[run.number, run.name, run.engine] for run in made.stages],
    }


def _claim(claim: Claim) -> dict[str, Any]:
    content = {name: plain(getattr(claim, name)) for name in _OF_CLAIM}
    content |= {name: fixed(getattr(claim, name)) for name in _SHARES_OF_CLAIM}
    content["evidence"] = [_evidence(evidence) for evidence in claim.evidence]
    content["findings"] = [_finding(finding) for finding in claim.findings]
    if claim.error is not None:
        content["error"] = claim.error.value
    if claim.wrong is not None:
        content["wrong"] = list(claim.wrong)
    if claim.quotations:
        names = ("fact_id", "passage", "start", "end")
        content["quotations"] = [
            {name: getattr(quotation, name) for name in names} for quotation in claim.quotations
        ]
    return content


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {name: plain(getattr(evidence, name)) for name in _OF_EVIDENCE}


def _finding(finding: Finding) -> dict[str, Any]:
    content = {name: getattr(finding, name) for name in ("stage", "kind", "start", "end")}
    content["evidence"] = None if finding.evidence is None else _evidence(finding.evidence)
    if finding.other_claim_id is not None:
        content["other_claim_id"] = finding.other_claim_id
    return content


def envelope(
    made: Envelope, place_of: Mapping[str, int], labels: Mapping[str, int]
) -> dict[str, Any]:
    """An envelope without texts."""
    return declared(
        EnvelopeRecord,
        made,
        facts=_facts(made.facts, place_of),
        dropped=[_drop(drop, place_of) for drop in made.dropped],
        conflicts=[[conflict.left, conflict.right] for conflict in made.conflicts],
        caps=[[cap.ceiling.value, cap.reason] for cap in made.caps],
        advice=[[advice.word.value, advice.reason] for advice in made.advice],
        communities=[labels[label] for label in made.ckf_communities],
        facts_available=made.total_facts_available,
    )


def _facts(facts: Sequence[PackedFact], place_of: Mapping[str, int]) -> list[dict[str, Any]]:
    contents = []
    for fact in facts:
        # The record's values from its dictionary, which is faster than one attribute at a time.
        values = fact.__dict__
        content: dict[str, Any] = {
            "at": place_of[values["fact_id"]],
            "composite": round(values["composite_score"] * SCALE),
            "diversity": round(values["diversity_bonus"] * SCALE),
            "freshness": round(values["freshness_score"] * SCALE),
            "position": values["position"],
            "tokens": values["token_count"],
        }
        if values["spans"]:
            content["spans"] = [list(span) for span in values["spans"]]
        contents.append(content)
    return contents


def _drop(drop: Drop, place_of: Mapping[str, int]) -> dict[str, Any]:
    content: dict[str, Any] = {"at": place_of[drop.fact_id], "reason": drop.reason.value}
    if drop.kept is not None:
        content["kept"] = place_of[drop.kept]
    return content
