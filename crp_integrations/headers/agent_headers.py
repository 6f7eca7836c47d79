"""What passes between agents as headers: down to a sub-agent's call, and back up to its parent.

The values and what they cost are the session's (`session.agents`); here they become headers and
headers become them. Never the session token, an ETag, a tier or `CRP-Set-Session`: those belong
to one session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from crp_integrations.headers import names
from crp_integrations.headers.codec import parse_response, write_request
from crp_integrations.headers.records import RequestHeaders
from crp_integrations.session.agents import Downward, Upward
from crp_integrations.vocabulary import ChainIntegrity

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
# Which session it was that returned them; the trail of its parent names it.
_READ: Final = UP | {names.SESSION_ID}


def write_downward(values: Downward) -> dict[str, str]:
    """The request headers of a sub-agent's call.

    Spec: related facts §8
    """
    return write_request(
        RequestHeaders(
            safety_budget=values.safety_budget,
            session_parent=values.session_parent or None,
            loop_depth=values.loop_depth,
            safety_policy=values.policy or None,
            residency=values.residency or None,
            safety_mode=values.safety_mode,
        )
    )


def read_downward(asked: RequestHeaders) -> Downward | None:
    """What a parent agent handed down in the headers of a request; None where none asks.

    Spec: related facts §8

    A parent that tells no depth counts as the root, and one that tells no budget gives no ceiling.
    """
    if asked.session_parent is None and not asked.loop_depth:
        return None
    ceiling = asked.safety_budget
    return Downward(
        safety_budget=1.0 if ceiling is None else ceiling,
        policy=asked.safety_policy or "",
        session_parent=asked.session_parent or "",
        loop_depth=max(1, asked.loop_depth or 1),
        residency=asked.residency or "",
        safety_mode=asked.safety_mode,
    )


def read_upward(headers: Mapping[str, str], *, status: int = 200) -> Upward:
    """What a sub-agent's response says to its parent; its other headers are not looked at.

    Spec: related facts §8
    """
    said = parse_response(_select(headers, _READ))
    return Upward(
        session_id=said.session_id or "",
        safety_budget=said.safety_budget,
        risk_level=said.hallucination_risk,
        hmac=said.chained_hmac or "",
        chain_integrity=said.chain_integrity or ChainIntegrity.UNVERIFIED,
        audit_uri=said.trail_uri or "",
        quality_score=said.quality_score,
        halted=status == HALTED,
    )


def upward_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Those headers of a sub-agent's response that a parent passes on, as they came."""
    return _select(headers, UP)


def _select(headers: Mapping[str, str], wanted: frozenset[str]) -> dict[str, str]:
    return {
        given: value
        for given, value in headers.items()
        if names.BY_LOWER.get(given.strip().lower()) in wanted
    }
