"""What the CRP headers of a request say, as the optional fields of a question.

In: the headers of an HTTP request. Out: keyword arguments of `Relay.ask` and its kin:
`relay.ask(question, **from_headers(request.headers))`.
"""

from __future__ import annotations

from typing import cast

from crp_integrations.headers.agent_headers import read_downward
from crp_integrations.headers.codec import RawHeaders, parse_request
from crp_integrations.headers.records import RequestHeaders
from crp_integrations.relay.asking import Asking


def from_headers(headers: RequestHeaders | RawHeaders) -> Asking:
    """The fields of a question that a request's CRP headers ask for.

    Spec: related facts §3, §8

    A policy that comes from a parent agent, which its session or a depth above 0 shows, is one
    that the question inherits; any other is the question's own. Both can only tighten.

    Args:
        headers: as received, a mapping or pairs of name and value, or parsed already.

    Returns:
        Only the fields that a header gives.

    Raises:
        HeaderSyntaxError: a CRP header is unknown, belongs into responses, stands twice or has a
            malformed value.
    """
    said = headers if isinstance(headers, RequestHeaders) else parse_request(headers)
    down = read_downward(said)
    own = said.safety_policy if down is None else None
    asked = Asking(
        session_id=said.session_id,
        grounding=said.grounding,
        strategy=said.dispatch_strategy,
        accept_strategies=said.strategies or None,
        seed=said.seed,
        cache=said.cache,
        if_match=said.if_match,
        residency=said.residency,
        continuation_ids=said.continuation_ids or None,
        accept_quality=said.accept_quality or None,
        accept_risk=said.accept_risk,
        oversight=said.oversight_mode,
        oversight_token=said.oversight_token,
        safety_mode=said.safety_mode,
        policy=own,
        inherited_policy=down.policy or None if down else None,
        report_only=said.safety_policy_report_only,
        report_uri=said.report_uri,
        nonce=said.nonce,
        safety_budget=said.safety_budget,
        loop_depth=down.loop_depth if down else said.loop_depth,
        parent_session=said.session_parent,
        phase=said.phase,
        session_token=said.session_token,
    )
    return cast("Asking", {name: value for name, value in asked.items() if value is not None})
