"""Stops an agent's tool calls that may not run: after the model, before the tools.

The reports are on the message that contains the calls, so they are in the state before a node
interrupts: a resumed node reads them again and calls no judge. An interrupt and the decisions on it
have the form of LangChain's `HumanInTheLoopMiddleware`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain.agents.middleware import ModelRequest
from langchain_core.messages import AIMessage, AnyMessage, ToolCall, ToolMessage
from langchain_core.runnables.config import RunnableConfig
from langgraph.types import interrupt

from crp_integrations.adapters.action_gate import (
    ACTIONS_KEY,
    PAUSE,
    ActionGate,
    approval_of,
    rejection_of,
)
from crp_integrations.errors import ConfigError
from crp_integrations.langchain.messages import message_of, rejected_in
from crp_integrations.langchain.model_calls import tools_of
from crp_integrations.messages import Message
from crp_integrations.messages import ToolCall as RequestedCall
from crp_integrations.relay.records import Answer

APPROVALS_KEY: Final = "crp_approvals"
# LangGraph's name for the checkpointer in the configuration of a node; it has no public one.
_CHECKPOINTER: Final = "__pregel_checkpointer"
_DECISIONS: Final = ("approve", "edit", "reject")


def require_checkpointer(gate: ActionGate | None, config: RunnableConfig) -> None:
    """Check that a run which may be paused can be resumed.

    A middleware is created before its agent, so this is checked as a run begins.
    """
    if gate is None or gate.on_ungrounded != PAUSE:
        return
    if not config.get("configurable", {}).get(_CHECKPOINTER):
        raise ConfigError(
            "on_ungrounded is 'pause', and the agent has no checkpointer to resume from; give "
            "create_agent(…, checkpointer=InMemorySaver())"
        )


def checked_actions(
    gate: ActionGate | None,
    request: ModelRequest[Any],
    calls: Sequence[RequestedCall],
    answer: Answer,
    asking: Mapping[str, Any],
) -> dict[str, Any]:
    """The reports on the tool calls of an answer, for its metadata."""
    if gate is None or not calls:
        return {}
    state: Any = request.state
    system = [request.system_message] if request.system_message is not None else []
    entries = gate.check(
        calls,
        # The agent's own messages, also if shortened ones were sent.
        [_evidence_of(message) for message in (*system, *request.messages)],
        tools_of(request),
        asking,
        envelope=answer.envelope,
        rejected=rejected_in(request.messages),
        approvals=state.get(APPROVALS_KEY, ()),
        session_id=state.get("crp_session", ""),
    )
    gate.seal(entries, answer.report, asking)
    return {ACTIONS_KEY: entries} if entries else {}


def _evidence_of(message: AnyMessage) -> Message:
    """A message for the check; LangChain's summary of others is a model's words, not the user's."""
    if message.additional_kwargs.get("lc_source") == "summarization":
        return message_of(message).changed(role="assistant")
    return message_of(message)


def review_calls(gate: ActionGate, state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Pause before the last answer's tool calls that may not run, or answer them with an error.

    Returns:
        The change of the state; None for none.
    """
    messages = state["messages"]
    place = next(
        (n for n in reversed(range(len(messages))) if isinstance(messages[n], AIMessage)), None
    )
    if place is None:
        return None
    message: AIMessage = messages[place]
    # Only results after the message count: some servers give the calls of each step the same ids.
    answered = {m.tool_call_id for m in messages[place:] if isinstance(m, ToolMessage)}
    entries = message.response_metadata.get(ACTIONS_KEY, ())
    refusals = [
        (call, gate.refusal(entries, call["name"], call["args"]))
        for call in message.tool_calls
        if call["id"] not in answered
    ]
    stopped = [(call, text) for call, text in refusals if text is not None]
    if not stopped:
        return None
    if gate.on_ungrounded != PAUSE:
        return {"messages": [_error_message(call, text) for call, text in stopped]}
    decisions = _ask_person(stopped)
    calls = {call["id"]: call for call in message.tool_calls}
    rejections: list[AnyMessage] = []
    approvals = list(state.get(APPROVALS_KEY, ()))
    for (call, _), decision in zip(stopped, decisions, strict=True):
        if decision["type"] == "reject":
            text = rejection_of(call["name"], decision.get("message"))
            rejections.append(_error_message(call, text))
            continue
        if decision["type"] == "edit":
            edited = dict(decision["edited_action"]["args"])
            calls[call["id"]] = ToolCall(**{**call, "args": edited})
        approvals.append(approval_of(call["name"], calls[call["id"]]["args"]))
    revised = message.model_copy(update={"tool_calls": list(calls.values())})
    return {"messages": [revised, *rejections], APPROVALS_KEY: approvals}


def _error_message(call: ToolCall, text: str) -> ToolMessage:
    return ToolMessage(text, name=call["name"], tool_call_id=call["id"] or "", status="error")


def _ask_person(stopped: Sequence[tuple[ToolCall, str]]) -> Sequence[Mapping[str, Any]]:
    """Interrupt until a decision on each call has a usable value."""
    request: dict[str, Any] = {
        "action_requests": [
            {"name": call["name"], "args": call["args"], "description": text}
            for call, text in stopped
        ],
        "review_configs": [
            {"action_name": call["name"], "allowed_decisions": list(_DECISIONS)}
            for call, _ in stopped
        ],
    }
    while True:
        answer = interrupt(request)
        decisions: Any = answer.get("decisions") if isinstance(answer, Mapping) else None
        problem = _problem(decisions, [call for call, _ in stopped])
        if not problem:
            return list(decisions)
        # LangGraph keeps the answer, so an error here would come back at every attempt to resume.
        request["error"] = problem


def _problem(decisions: Any, stopped: Sequence[ToolCall]) -> str:
    """What is wrong with the decisions; empty for nothing."""
    if not isinstance(decisions, list | tuple) or len(decisions) != len(stopped):
        return (
            f"decisions are {decisions!r:.80}; resume with Command(resume={{'decisions': […]}}), "
            f"and {len(stopped)} of them, such as {{'type': 'approve'}}"
        )
    for call, decision in zip(stopped, decisions, strict=True):
        kind = decision.get("type") if isinstance(decision, Mapping) else None
        if kind not in _DECISIONS:
            return f"decision {decision!r:.80} has no type of {', '.join(_DECISIONS)}"
        action = decision.get("edited_action") if kind == "edit" else {"args": {}}
        if (
            not isinstance(action, Mapping)
            or not isinstance(action.get("args"), Mapping)
            or action.get("name", call["name"]) != call["name"]
        ):
            return (
                f"the edited action is {action!r:.80}; give the name {call['name']!r:.60} and "
                "args, a dict"
            )
    return ""
