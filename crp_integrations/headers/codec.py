"""Writes and parses records of headers, with one table of fields and headers for both directions.

Fields are in the order in which their headers are sent.

Spec: related facts §3, §8
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from crp_integrations import vocabulary
from crp_integrations.errors import HeaderSyntaxError
from crp_integrations.headers import grammar, names, values
from crp_integrations.headers.names import AgentPhase
from crp_integrations.headers.records import CacheDirectives, RequestHeaders, ResponseHeaders
from crp_integrations.headers.values import read_lower, read_upper
from crp_integrations.session.agents import Downward, Upward


class HeaderField(NamedTuple):
    """The header of a field.

    Attributes:
        write: converts the value to text, which is then checked against the header's syntax.
        read: converts text with valid syntax to the value.
    """

    name: str
    write: Callable[[Any], str]
    read: Callable[[str], Any]


def _fraction(name: str) -> HeaderField:
    return HeaderField(name, grammar.write_fraction, float)


def _count(name: str) -> HeaderField:
    return HeaderField(name, str, int)


def _pair(name: str) -> HeaderField:
    return HeaderField(name, values.write_pair, values.read_pair)


def _text(name: str) -> HeaderField:
    return HeaderField(name, str, str)


def _id(name: str) -> HeaderField:
    return HeaderField(name, str, values.read_id)


# Headers with the same meaning in requests and responses.
_SESSION_ID = _id(names.SESSION_ID)
_DISPATCH = HeaderField(names.DISPATCH_STRATEGY, str, read_lower(vocabulary.Strategy))
_SEED = _count(names.SEED)
_RESIDENCY = HeaderField(names.RESIDENCY, str.upper, read_lower(str))
_OVERSIGHT = HeaderField(names.OVERSIGHT_MODE, str, read_lower(vocabulary.Oversight))
_NONCE = HeaderField(names.NONCE, str, values.read_nonce)
_BUDGET = HeaderField(names.SAFETY_BUDGET, values.write_budget, values.read_budget)
_DEPTH = _count(names.LOOP_DEPTH)
_PARENT = _id(names.SESSION_PARENT)
_PHASE = HeaderField(names.PHASE, str, read_upper(AgentPhase))

REQUEST: Final[MappingProxyType[str, HeaderField]] = MappingProxyType(
    {
        "session_id": _SESSION_ID,
        "grounding": HeaderField(names.GROUNDING_MODE, str, read_lower(vocabulary.GroundingMode)),
        "strategies": HeaderField(
            names.ACCEPT_STRATEGY,
            values.write_list,
            values.read_each(read_lower(vocabulary.Strategy)),
        ),
        "dispatch_strategy": _DISPATCH,
        "seed": _SEED,
        "cache": HeaderField(names.CACHE, lambda cache: cache.text, CacheDirectives.parse),
        "if_match": HeaderField(names.IF_MATCH, str, read_lower(str)),
        "residency": _RESIDENCY,
        "continuation_ids": HeaderField(names.CONTINUATION_ID, values.write_list, values.read_ids),
        "accept_quality": HeaderField(
            names.ACCEPT_QUALITY,
            values.write_list,
            values.read_each(read_upper(vocabulary.QualityTier)),
        ),
        "accept_risk": HeaderField(names.ACCEPT_RISK, str, read_upper(vocabulary.RiskLevel)),
        "oversight_mode": _OVERSIGHT,
        "safety_mode": HeaderField(names.SAFETY_MODE, str, read_lower(vocabulary.SafetyMode)),
        "safety_policy": _text(names.POLICY),
        "safety_policy_report_only": _text(names.POLICY_REPORT_ONLY),
        "report_uri": _text(names.SAFETY_REPORT_URI),
        "nonce": _NONCE,
        "safety_budget": _BUDGET,
        "loop_depth": _DEPTH,
        "session_parent": _PARENT,
        "phase": _PHASE,
        "session_token": _text(names.SESSION_TOKEN),
        "oversight_token": HeaderField(names.OVERSIGHT_TOKEN, str, read_lower(str)),
    }
)

RESPONSE: Final[MappingProxyType[str, HeaderField]] = MappingProxyType(
    {
        "protocol_version": _text(names.PROTOCOL),
        "session_id": _SESSION_ID,
        "window": _pair(names.WINDOW),
        "strategy": HeaderField(names.STRATEGY, str, read_lower(vocabulary.Strategy)),
        "quality_tier": HeaderField(names.QUALITY_TIER, str, read_upper(vocabulary.QualityTier)),
        "saturation": _fraction(names.SATURATION),
        "facts_used": _pair(names.FACTS_USED),
        "tokens_used": _count(names.TOKENS_USED),
        "etag": HeaderField(names.ETAG, str, read_lower(str)),
        "cache_status": HeaderField(
            names.CACHE_STATUS, values.write_cache_status, values.read_cache_status
        ),
        "continuation_id": _text(names.CONTINUATION_ID),
        "tier_hit": _count(names.TIER_HIT),
        "ckf_hits": _count(names.CKF_HITS),
        "ckf_community": HeaderField(names.CKF_COMMUNITY, str, read_lower(str)),
        "knowledge_age": HeaderField(
            names.KNOWLEDGE_AGE, grammar.write_duration, values.read_duration
        ),
        "claim_count": _count(names.CLAIM_COUNT),
        "attribution": HeaderField(names.ATTRIBUTION, str, read_upper(vocabulary.Attribution)),
        "grounding_pct": _fraction(names.GROUNDING_PCT),
        "attribution_score": _fraction(names.ATTRIBUTION_SCORE),
        "fabrications": _count(names.FABRICATIONS),
        "distortions": HeaderField(
            names.DISTORTIONS, values.write_distortions, values.read_distortions
        ),
        "contradictions": HeaderField(
            names.CONTRADICTIONS, values.write_contradictions, values.read_contradictions
        ),
        "entailment_score": _fraction(names.ENTAILMENT),
        "fidelity_score": _fraction(names.FIDELITY),
        "hallucination_risk": HeaderField(names.RISK, str, read_upper(vocabulary.RiskLevel)),
        "hallucination_score": _fraction(names.RISK_SCORE),
        "repetition": HeaderField(
            names.REPETITION, values.write_repetition, values.read_repetition
        ),
        "completeness": HeaderField(
            names.COMPLETENESS, values.write_completeness, values.read_completeness
        ),
        "flow": HeaderField(names.FLOW, values.write_flow, values.read_flow),
        "quality_score": _fraction(names.QUALITY_SCORE),
        "omissions": HeaderField(names.OMISSIONS, values.write_omissions, values.read_omissions),
        "personal_data": HeaderField(
            names.PERSONAL, lambda value: str(value).lower(), lambda text: text.lower() == "true"
        ),
        "ai_act_class": HeaderField(names.AI_ACT, str, read_upper(vocabulary.AiActClass)),
        "nist_tier": HeaderField(names.NIST_TIER, str, read_upper(str)),
        "iso_42001": HeaderField(
            names.ISO_CONTROLS, values.write_list, values.read_each(read_upper(str))
        ),
        "controls_met": _pair(names.CONTROLS_MET),
        "chained_hmac": HeaderField(names.CHAINED_HMAC, str, read_lower(str)),
        "window_hmac": HeaderField(names.WINDOW_HMAC, str, read_lower(str)),
        "chain_integrity": HeaderField(
            names.CHAIN_INTEGRITY, str, read_upper(vocabulary.ChainIntegrity)
        ),
        "dag_root": HeaderField(
            names.DAG_ROOT, "dag:{}".format, lambda text: text.partition(":")[2]
        ),
        "lineage": HeaderField(names.LINEAGE, values.write_lineage, values.read_lineage),
        "report_uri": _text(names.REPORT_URI),
        "trail_id": _id(names.TRAIL_ID),
        "trail_uri": _text(names.TRAIL_URI),
        "residency": _RESIDENCY,
        "policy_applied": _text(names.POLICY_APPLIED),
        "violation": HeaderField(
            names.VIOLATION, values.write_list, values.read_each(read_lower(str))
        ),
        "oversight_mode": _OVERSIGHT,
        "retry_after": HeaderField(names.RETRY_AFTER, values.write_retry, values.read_retry),
        "nonce": _NONCE,
        "seed": _SEED,
        "dispatch_strategy": _DISPATCH,
        "phase": _PHASE,
        "loop_depth": _DEPTH,
        "safety_budget": _BUDGET,
        "budget_warning": HeaderField(
            names.BUDGET_WARNING, str, read_lower(vocabulary.BudgetWarning)
        ),
        "tool_calls": _count(names.TOOL_CALLS),
        "session_parent": _PARENT,
        "revision_round": _pair(names.REVISION_ROUND),
        "set_session": HeaderField(names.SET_SESSION, values.write_session, values.read_session),
    }
)


def write_response(headers: ResponseHeaders) -> dict[str, str]:
    """A response's header values by name; a field that is None has no header."""
    return _write_record(headers, RESPONSE)


def write_request(asked: RequestHeaders) -> dict[str, str]:
    """A request's header values by name, for another gateway; a field that is None has no header.

    These headers must never be sent to a model's provider.

    Spec: related facts §2, §3
    """
    return _write_record(asked, REQUEST)


def _write_record(
    record: RequestHeaders | ResponseHeaders, table: Mapping[str, HeaderField]
) -> dict[str, str]:
    written = {}
    for name, form in table.items():
        value = getattr(record, name)
        # An empty list, or a cache header without directives, has no header either.
        if value is None or value == ():
            continue
        text = form.write(value)
        if text or not isinstance(value, str):
            written[form.name] = grammar.check_value(form.name, text)
    return written


# Pairs reveal a header that was sent twice in one spelling; a mapping cannot.
RawHeaders: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]

# Maximum characters of a header's name in an error message.
_SHOWN_CHARACTERS: Final = 60


def parse_request(headers: RawHeaders) -> RequestHeaders:
    """Parse a request's CRP headers; other headers are ignored.

    Raises:
        HeaderSyntaxError: a CRP header is unknown, belongs in responses, occurs twice or has a
            malformed value. No CRP header is ignored.
    """
    return RequestHeaders(**_values(headers, _REQUEST, "response", unknown=True))


def parse_response(headers: RawHeaders) -> ResponseHeaders:
    """Parse a response's CRP headers; unknown ones, as of later versions, are ignored.

    Raises:
        HeaderSyntaxError: a value is malformed, a name occurs twice or belongs in requests.
    """
    return ResponseHeaders(**_values(headers, _RESPONSE, "request", unknown=False))


def _values(
    headers: RawHeaders, table: Mapping[str, tuple[str, HeaderField]], other: str, *, unknown: bool
) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in _crp_headers(headers, table, other, unknown=unknown):
        field, form = table[name]
        fields[field] = form.read(grammar.check_value(name, value))
    return fields


def _crp_headers(
    headers: RawHeaders, table: Mapping[str, object], other: str, *, unknown: bool
) -> Iterator[tuple[str, str]]:
    """The CRP headers, with names as in `names.py`; unknown ones are refused if `unknown` is true.

    Headers of the direction `other` are always refused.
    """
    seen: set[str] = set()
    for raw_name, value in headers.items() if isinstance(headers, Mapping) else headers:
        if not isinstance(raw_name, str):
            raise HeaderSyntaxError(
                f"a header's name is of type {type(raw_name).__name__}, not text"
            )
        stripped = raw_name.strip()
        lower = stripped.lower()
        if not lower.startswith(names.PREFIX):
            continue
        if stripped != raw_name:
            # A proxy may have treated "Name :" as a different header.
            raise HeaderSyntaxError(
                f"the name {raw_name[:_SHOWN_CHARACTERS]!r} has blanks around it"
            )
        name = _BY_LOWER.get(lower)
        if name is None:
            if unknown:
                shown = raw_name[:_SHOWN_CHARACTERS]
                raise HeaderSyntaxError(
                    f"{shown!r} is not a header of CRP {names.PROTOCOL_VERSION}"
                )
            continue
        if name not in table:
            raise HeaderSyntaxError(f"{name} is a {other} header and does not belong here")
        if name in seen:
            raise HeaderSyntaxError(f"{name} occurs twice; write it once")
        seen.add(name)
        yield name, value


def _by_name(table: Mapping[str, HeaderField]) -> MappingProxyType[str, tuple[str, HeaderField]]:
    return MappingProxyType({form.name: (field, form) for field, form in table.items()})


_REQUEST: Final = _by_name(REQUEST)
_RESPONSE: Final = _by_name(RESPONSE)
# Names are case-insensitive; this maps them to the spelling of `names.py`.
_BY_LOWER: Final = MappingProxyType({name.lower(): name for name in (*_REQUEST, *_RESPONSE)})


HALTED: Final = 451
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
# Also the sub-agent's session, which the parent's trail records.
_READ: Final = UP | {names.SESSION_ID}


def write_downward(values: Downward) -> dict[str, str]:
    """The request headers of a sub-agent's call."""
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
    """The values that a parent agent passed in the headers of a request; None without a parent.

    A parent that sends no depth counts as the root; without a budget there is no ceiling.
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
    """The values that a sub-agent's response returns to its parent; other headers are ignored."""
    response = parse_response(_select(headers, _READ))
    return Upward(
        session_id=response.session_id or "",
        safety_budget=response.safety_budget,
        risk_level=response.hallucination_risk,
        hmac=response.chained_hmac or "",
        chain_integrity=response.chain_integrity or vocabulary.ChainIntegrity.UNVERIFIED,
        audit_uri=response.trail_uri or "",
        quality_score=response.quality_score,
        halted=status == HALTED,
        flagged=values.read_flagged(_flagged(headers)),
    )


def _flagged(headers: Mapping[str, str]) -> str:
    name = names.FLAGGED_CLAIMS.lower()
    return next((value for raw_name, value in headers.items() if raw_name.lower() == name), "")


def _select(headers: Mapping[str, str], wanted: frozenset[str]) -> dict[str, str]:
    return {
        raw_name: value
        for raw_name, value in headers.items()
        if _BY_LOWER.get(raw_name.strip().lower()) in wanted
    }
