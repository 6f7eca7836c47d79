"""The optional fields of a question: their names, their values in CRP headers, and their check.

A request's headers become keyword arguments of `Relay.ask` and similar methods:
`relay.ask(question, **from_headers(request.headers))`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, cast
from uuid import UUID

from pydantic import ValidationError

from crp_integrations import vocabulary
from crp_integrations.dpe.records import RejectedClaim
from crp_integrations.envelope.records import EarlierWindow, Envelope
from crp_integrations.errors import AccessDenied, RequestError
from crp_integrations.governance.compaction.records import CompactionAccount
from crp_integrations.headers.codec import RawHeaders, parse_request, read_downward
from crp_integrations.headers.names import AgentPhase
from crp_integrations.headers.records import CacheDirectives, RequestHeaders
from crp_integrations.messages import Message
from crp_integrations.relay.judge import JudgeOptions, JudgeSource
from crp_integrations.relay.records import Request
from crp_integrations.relay.settings import Settings, first_problem
from crp_integrations.session.records import session_id_of


class QuestionFields(JudgeOptions, total=False):
    """Fields of a `Request` that a caller may give, and its judge; None means not given."""

    judge: JudgeSource

    model: str | None
    budget_tokens: vocabulary.BudgetTokens | None
    grounding: vocabulary.GroundingMode | str | None
    session_id: str | int | UUID | None
    sub_queries: Sequence[str] | None
    decompose: vocabulary.Decomposition | str | None
    k: int | None
    system_prompt: str | None
    history: Sequence[Message | Mapping[str, Any]] | None
    results: int | None
    max_tokens: int | None
    temperature: float | None
    seed: int | None
    tools: Sequence[dict[str, Any]] | None
    cache: CacheDirectives | str | None
    residency: str | None
    if_match: str | None
    prior: Sequence[EarlierWindow] | None
    pinned: Sequence[str] | None
    previous: Envelope | None
    loop_depth: int | None
    strategy: vocabulary.Strategy | str | None
    accept_strategies: Sequence[vocabulary.Strategy | str] | None
    accept_quality: Sequence[vocabulary.QualityTier | str] | None
    accept_risk: vocabulary.RiskLevel | str | None
    policy: str | None
    report_only: str | None
    oversight: vocabulary.Oversight | str | None
    oversight_token: str | None
    continuation_ids: Sequence[str] | None
    session_token: str | None
    safety_budget: float | None
    parent_session: str | int | UUID | None
    agent_id: str | None
    inherited_policy: str | None
    safety_mode: vocabulary.SafetyMode | str | None
    report_uri: str | None
    nonce: str | None
    phase: AgentPhase | str | None
    compact: bool | None
    compaction: CompactionAccount | None
    rejected: Sequence[RejectedClaim] | None
    on_flag: vocabulary.FlagAction | str | Sequence[vocabulary.FlagAction | str] | None
    on_flag_level: vocabulary.RiskLevel | str | None
    most_again: int | None


def from_headers(headers: RequestHeaders | RawHeaders) -> QuestionFields:
    """The fields of a question that a request's CRP headers set.

    Spec: related facts §3, §8

    A policy is inherited if it comes from a parent agent, that is if the headers name a parent
    session or a depth above 0; otherwise it is the question's own. Both can only tighten.

    Args:
        headers: received headers, as a mapping or pairs of name and value, or parsed ones.

    Raises:
        HeaderSyntaxError: a CRP header is unknown, is a response header, occurs twice or has a
            malformed value.
    """
    request = headers if isinstance(headers, RequestHeaders) else parse_request(headers)
    down = read_downward(request)
    own = request.safety_policy if down is None else None
    asked = QuestionFields(
        session_id=request.session_id,
        grounding=request.grounding,
        strategy=request.dispatch_strategy,
        accept_strategies=request.strategies or None,
        seed=request.seed,
        cache=request.cache,
        if_match=request.if_match,
        residency=request.residency,
        continuation_ids=request.continuation_ids or None,
        accept_quality=request.accept_quality or None,
        accept_risk=request.accept_risk,
        oversight=request.oversight_mode,
        oversight_token=request.oversight_token,
        safety_mode=request.safety_mode,
        policy=own,
        inherited_policy=down.policy or None if down else None,
        report_only=request.safety_policy_report_only,
        report_uri=request.report_uri,
        nonce=request.nonce,
        safety_budget=request.safety_budget,
        loop_depth=down.loop_depth if down else request.loop_depth,
        parent_session=request.session_parent,
        phase=request.phase,
        session_token=request.session_token,
    )
    return cast(
        "QuestionFields", {name: value for name, value in asked.items() if value is not None}
    )


def with_call_fields(asking: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """A component's fields under those of a call; `most_again` belongs to the `on_flag` with it."""
    joined, on_flag = {**asking, **fields}, fields.get("on_flag")
    replaced = (
        asking.get("on_flag") and on_flag and vocabulary.FlagAction.ASK_AGAIN not in str(on_flag)
    )
    if replaced and fields.get("most_again") is None:
        joined.pop("most_again", None)
    return joined


# Wording used instead of pydantic's message, by type of error.
_WANTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "string_type": "wanted a text",
        "string_too_short": "it is empty",
        "int_type": "wanted a whole number",
        "int_parsing": "wanted a whole number",
        "int_from_float": "wanted a whole number",
    }
)


def admit(**fields: Any) -> Request:
    """Build a request from a caller's fields."""
    query = fields.get("query")
    if isinstance(query, str) and not query.strip():
        raise RequestError("query is empty; ask a question")
    check_model_name(fields.get("model", ""))
    for name in ("session_id", "parent_session"):
        if fields.get(name) not in (None, ""):
            fields[name] = session_id_of(fields[name], name)
    try:
        return Request(**fields)
    except ValidationError as error:
        raise RequestError(_problem(error)) from error


def check_model_name(model: object) -> None:
    """Check that `model` is a name, not a model object."""
    if not isinstance(model, str | None):
        raise RequestError(
            f"model is {type(model).__name__}, wanted a name such as 'gpt-4o-mini'; a chat model "
            "of LangChain or LlamaIndex answers as Relay.open(llm=…) or in CRPRunnable(llm=…)"
        )


def _problem(error: ValidationError) -> str:
    """Describe the first error in words of this package."""
    field, problem = first_problem(error)
    first = error.errors(include_url=False)[0]
    kind, seen = first["type"], first["input"]
    if kind == "extra_forbidden":
        near = get_close_matches(field, Request.model_fields, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        return f"{field[:60]!r} is not an argument of a question{meant}"
    named = kind in ("enum", "literal_error") and isinstance(seen, str)
    shown = f" {seen!r:.40}" if named or field == "on_flag" else ""
    if kind == "model_type":
        problem = f"wanted {first.get('ctx', {}).get('class_name', 'an object')}"
    wanted = _WANTED.get(kind, problem).replace("Input should be", "wanted")
    return f"{field or 'request'}{shown} is not usable: {wanted}"


def admit_depth(request: Request, settings: Settings) -> None:
    """Stop a call whose chain of agents calling agents is too deep.

    Spec: CRP-SPEC-005 §17 (decision D5)
    """
    most = settings.dpe.amplifiers.stop_above
    if request.loop_depth > most:
        raise AccessDenied(
            f"loop depth {request.loop_depth} is above {most}, so the call is stopped"
        )
