"""The tier that is emitted: the envelope's, capped by the quality of the answer."""

from __future__ import annotations

from crp_integrations.dpe.records import Report
from crp_integrations.dpe.risk import ceiling
from crp_integrations.dpe.settings import QualitySettings
from crp_integrations.envelope.records import Cap, Envelope
from crp_integrations.vocabulary import QualityTier


def emitted(envelope: Envelope, report: Report, settings: QualitySettings) -> Envelope:
    """An envelope whose tier the answer's quality score caps, after every override.

    Spec: CRP-SPEC-005 §18.4, CRP-SPEC-003 §8.3 (decision E4)

    Returns:
        The envelope itself where the score allows its tier; else one of a lower tier, with the
        cap as its last.
    """
    allowed, bound = ceiling(report.rqa_score, settings)
    tier = envelope.quality_tier.capped(allowed)
    if tier is envelope.quality_tier:
        return envelope
    reason = f"rqa_score {report.rqa_score:.3f} is below {bound:.2f}"
    cap = Cap(ceiling=allowed, reason=reason)
    # Nothing is validated again: a tier and its reason are all that changes.
    return envelope.model_copy(update={"quality_tier": tier, "caps": (*envelope.caps, cap)})


def before_its_answer(envelope: Envelope, tier: QualityTier | None) -> Envelope:
    """An emitted envelope as it was: the cap is of its answer, and another may follow.

    Args:
        tier: its own, None where nothing was capped.
    """
    if tier is None or tier is envelope.quality_tier:
        return envelope
    return envelope.model_copy(update={"quality_tier": tier, "caps": envelope.caps[:-1]})
