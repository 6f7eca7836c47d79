"""What passes between agents as headers: down to a sub-agent's call, and back up to its parent.

Never the session token, an ETag, a tier or `CRP-Set-Session`: those belong to one session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from crp_integrations.errors import HeaderSyntaxError
from crp_integrations.headers import names
from crp_integrations.headers.parse import read
from crp_integrations.headers.records import RequestHeaders
from crp_integrations.headers.write import ask
from crp_integrations.vocabulary import ChainIntegrity, RiskLevel, SafetyMode

HALTED: Final = 451
DOWN: Final = frozenset(
    {
        names.SAFETY_BUDGET,
        names.POLICY,
        names.SESSION_PARENT,
        names.LOOP_DEPTH,
        names.RESIDENCY,
        names.SAFETY_MODE,
    }
)
UP: Final = frozenset(
    {
        names.SAFETY_BUDGET,
        names.RISK,
        names.CHAINED_HMAC,
        names.CHAIN_INTEGRITY,
        names.TRAIL_URI,
        names.QUALITY_SCORE,
    }
)


@dataclass(frozen=True, slots=True)
class Downward:
    """What a sub-agent's call is given by its parent.

    Spec: related facts §8

    Attributes:
        safety_budget: the parent's, in [0, 1]; a ceiling for the child.
        session_parent: the parent's session, `crp_sess_…`.
        loop_depth: the child's: the parent's and 1.
        policy: the parent's, in its canonical form; the child's may only be stricter.
        residency: region of two letters; empty for none.
        safety_mode: None for none.
    """

    safety_budget: float
    session_parent: str
    loop_depth: int
    policy: str = ""
    residency: str = ""
    safety_mode: SafetyMode | None = None


@dataclass(frozen=True, slots=True)
class Upward:
    """What a sub-agent's response says to its parent; None for what it does not say.

    Spec: related facts §8

    Attributes:
        safety_budget: what the child has left, in [0, 1].
        chain_tip: `sha256:…`, for the parent's trail.
        halted: the child's answer was withheld (451).
    """

    safety_budget: float | None = None
    risk: RiskLevel | None = None
    chain_tip: str | None = None
    chain_integrity: ChainIntegrity | None = None
    trail_uri: str | None = None
    quality_score: float | None = None
    halted: bool = False


def down(values: Downward) -> dict[str, str]:
    """The request headers of a sub-agent's call.

    Spec: related facts §8

    Raises:
        HeaderSyntaxError: a value cannot be said in a header, such as a region whose name is not
            two letters: what is bound to a region must not go on without it.
    """
    if not 0.0 <= values.safety_budget <= 1.0:
        raise HeaderSyntaxError(
            f"safety budget {values.safety_budget!r:.40} is not from 0.0 to 1.0"
        )
    if values.loop_depth < 1:
        raise HeaderSyntaxError(
            f"loop depth {values.loop_depth} is not a sub-agent's; wanted the parent's and 1"
        )
    return ask(
        RequestHeaders(
            safety_budget=values.safety_budget,
            session_parent=values.session_parent,
            loop_depth=values.loop_depth,
            safety_policy=values.policy or None,
            residency=values.residency or None,
            safety_mode=values.safety_mode,
        )
    )


def up(headers: Mapping[str, str], *, status: int = 200) -> Upward:
    """What a sub-agent's response says to its parent; its other headers are not looked at.

    Spec: related facts §8

    Args:
        status: of the response, 451 for a halt.

    Raises:
        HeaderSyntaxError: one of these headers is malformed or stands twice.
    """
    said = read(returned(headers))
    return Upward(
        safety_budget=said.safety_budget,
        risk=said.hallucination_risk,
        chain_tip=said.chained_hmac,
        chain_integrity=said.chain_integrity,
        trail_uri=said.trail_uri,
        quality_score=said.quality_score,
        halted=status == HALTED,
    )


def returned(headers: Mapping[str, str]) -> dict[str, str]:
    """Those headers of a sub-agent's response that its parent may see, as they came."""
    return {name: value for name, value in headers.items() if _named(name) in UP}


def _named(given: str) -> str:
    return names.BY_LOWER.get(given.strip().lower(), "")
