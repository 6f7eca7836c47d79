"""The closed word lists of the policy language, and the texts that profiles and modes stand for.

Spec: related facts §3, §6
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final

from crp_integrations.vocabulary import SafetyMode


class PolicySource(StrEnum):
    """What an answer may rest on.

    Spec: related facts §6

    Attributes:
        CONTEXT: what was put before the model for this question: the facts of its envelope, what
            the caller handed in, and earlier windows of the same session.
        PARAMETRIC: what the model knows by itself.
        CKF: what was read out of the fabric while answering, by a tool or an agent, and stood in
            no envelope.
        CROSS_SESSION: what another session has said, apart from those that this one delegated to.
    """

    CONTEXT = "context"
    PARAMETRIC = "parametric"
    CKF = "ckf"
    CROSS_SESSION = "cross-session"


class Profile(StrEnum):
    """Names of ready policies.

    Spec: related facts §6
    """

    MEDICAL = "medical"
    FINANCIAL = "financial"
    DEVELOPER = "developer"
    PUBLIC_FACING = "public-facing"


class Demand(StrEnum):
    """What of a policy is unmet, as far as asking the model again could mend it."""

    RISK = "risk"
    GROUNDING = "grounding"
    ENTAILMENT = "entailment"
    FABRICATION = "fabrication"
    REPETITION = "repetition"
    FLOW = "flow"
    COMPLETENESS = "completeness"
    QUALITY = "quality"


class ViolationType(StrEnum):
    """Kinds of violations, as a violation report names them."""

    SOURCE = "source"
    RISK = "risk"
    GROUNDING = "grounding"
    ENTAILMENT = "entailment"
    UNGROUNDED = "ungrounded"
    PARAMETRIC = "parametric"
    PERSONAL_DATA = "personal-data"
    FABRICATION = "fabrication"
    REPETITION = "repetition"
    FLOW = "flow"
    COMPLETENESS = "completeness"
    QUALITY = "quality"
    INHERITANCE = "inheritance"


PROFILE_TEXTS: Final = MappingProxyType(
    {
        Profile.MEDICAL: (
            "default-src context; halt-on HIGH; require-grounding 0.90; require-entailment 0.85; "
            "block-ungrounded; block-pii; block-fabrication; oversight human-review; "
            "require-flow 0.70; require-completeness 0.90"
        ),
        Profile.FINANCIAL: (
            "default-src context parametric; halt-on CRITICAL; warn-on HIGH; "
            "require-grounding 0.80; block-fabrication; upgrade-on-risk reflexive; "
            "require-completeness 0.80"
        ),
        Profile.DEVELOPER: (
            "default-src context parametric; warn-on CRITICAL; require-quality S A B; "
            "oversight auto"
        ),
        Profile.PUBLIC_FACING: (
            "default-src context parametric; halt-on CRITICAL; warn-on HIGH; block-pii; "
            "require-flow 0.60; max-repetition MINOR; require-completeness 0.70"
        ),
    }
)

# The text of `strict` is the document's; the other two are ours, and withhold nothing.
MODE_TEXTS: Final = MappingProxyType(
    {
        SafetyMode.STRICT: "halt-on CRITICAL; warn-on HIGH; block-ungrounded",
        SafetyMode.WARN: "warn-on HIGH",
        SafetyMode.PERMISSIVE: "default-src context parametric",
    }
)
