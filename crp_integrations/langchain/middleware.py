"""Agent middleware that adds an envelope to each model call and checks its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NotRequired, Unpack

from langchain.agents import AgentState
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables.config import RunnableConfig, ensure_config
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime
from langgraph.types import Command

from crp_integrations.adapters.action_gate import ActionGate, GroundTools, OnAction, OnUngrounded
from crp_integrations.adapters.arguments import check_callables, check_count, check_relay
from crp_integrations.adapters.conversations import (
    answer_fields,
    check_depth,
    check_fields,
    delegated_fields,
    hand_back,
    handed_judge,
    held_rejections,
    merge_fields,
    new_session,
    with_judge,
)
from crp_integrations.adapters.observed_answers import (
    Attach,
    ReportDelivery,
    attachment_of,
    check_attach,
)
from crp_integrations.dpe.records import RejectedClaim, Report
from crp_integrations.errors import LimitReached, SafetyHalt
from crp_integrations.headers.records import CacheDirectives
from crp_integrations.langchain.action_review import (
    checked_actions,
    require_checkpointer,
    review_calls,
)
from crp_integrations.langchain.messages import (
    METADATA_KEY,
    RECEIPT_KEY,
    attach_rejected,
    read_conversation,
    rejected_in,
)
from crp_integrations.langchain.model import ReleasedAnswer, model_name
from crp_integrations.langchain.model_calls import (
    COMPACTION_KEY,
    CompactedMessages,
    ModelCalls,
    compact_messages,
    tools_of,
)
from crp_integrations.langchain.runs import (
    OuterAgent,
    agent_depth,
    inside_agent,
    keep_for_outer,
    outer_agent,
    session_of,
)
from crp_integrations.ports import share_in_copies
from crp_integrations.receipt.records import Receipt
from crp_integrations.relay import steps
from crp_integrations.relay.drive import adrive, drive
from crp_integrations.relay.question_fields import QuestionFields
from crp_integrations.relay.records import Answer
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.turn import Turn


class CRPState(AgentState[Any]):
    """State of the middleware for one run.

    Attributes:
        crp_parent: session of the outer agent; empty for the root.
        crp_asked: question fields passed down by the outer agent.
        crp_depth: number of agents around this one.
        crp_turn: number of model calls so far.
        crp_own: True if the session belongs to this run alone.
        crp_approvals: tool calls of this thread that a person approved, as texts.
    """

    crp_session: NotRequired[Annotated[str, PrivateStateAttr]]
    crp_parent: NotRequired[Annotated[str, PrivateStateAttr]]
    crp_asked: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]
    crp_depth: NotRequired[Annotated[int, PrivateStateAttr]]
    crp_turn: NotRequired[Annotated[int, PrivateStateAttr]]
    crp_own: NotRequired[Annotated[bool, PrivateStateAttr]]
    crp_approvals: NotRequired[Annotated[list[str], PrivateStateAttr]]


class CRPMiddleware(AgentMiddleware[CRPState, Any]):
    """Checks an agent's model calls: `create_agent(…, middleware=[CRPMiddleware(relay)])`.

    Every model call of the agent is a window: the question's envelope goes into its system message,
    and its answer is examined, judged and sealed. `response_metadata` of the answer contains a
    summary of the report as `crp`, `crp_agent` (session, window, depth, turn) and, with
    `attach="full"`, `crp_envelope` (without texts) and `crp_headers`. A withheld answer ends the
    run with `SafetyHalt`. Evidence is what the model was finally sent, after all other middlewares.
    An agent inside a tool call of another agent gets that agent's policy and safety budget.

    With `compact=True`, or the setting `compaction.enabled`, messages that exceed their share of
    the model's context are shortened before the call; `crp_compaction` on the answer records it.

    With `ground_tools`, the calls of a step are checked together before a tool runs;
    `crp_actions` on the answer has a report on each. `pause` interrupts before the tools and takes
    the decisions approve, edit and reject, in the form of `HumanInTheLoopMiddleware`. The reports
    are in the state by then, so a resumed run does not pay for them again.

    LangGraph's `thread_id` names the session; a run without one gets a session that ends with it.

    Spec: CRP-SPEC-005 §1.2, §17; related facts §8

    Args:
        relay: relay that supplies the facts and seals the windows.
        max_depth: maximum number of agents around this one; None takes the setting
            `sessions.agents.max_loop_depth`.
        max_turns: maximum number of model calls in one run; LangChain's own limit is 9,999 steps.
        block_streams: True streams an answer in pieces after the verdict; False streams tokens as
            they arrive, and a halt follows them; None streams tokens as they arrive if nothing can
            withhold or mend the answer, else in pieces after the verdict. An answer that may be
            repaired or asked for again always waits.
        attach: how much of the report a message contains: `full`, `summary` (at most 700
            bytes), or `id`, which `Relay.report` accepts.
        on_receipt: called with the receipt on each window, also if the answer is withheld.
        ground_tools: True to check the calls of all tools, names of tools, or rules by tool, as in
            `check_call`.
        on_ungrounded: what happens to a call that may not run, or was not read: `report` lets it
            run, `pause` asks a person, `return` gives the model an error in place of a result.
        on_action: called with the report on each tool call.
        asking: fields of a question as in `Relay.ask`; `strategy` is `push`, `pull` or
            `reflexive`.

    Raises:
        RequestError: a field has no usable value, or cannot be used with an agent.
        ConfigError: nothing can check the tool calls that are to be paused or returned.
        PolicySyntaxError: a policy does not follow its grammar.
    """

    state_schema = CRPState

    __deepcopy__ = share_in_copies

    def __init__(
        self,
        relay: Relay,
        *,
        max_depth: int | None = None,
        max_turns: int = 25,
        block_streams: bool | None = None,
        attach: Attach = "summary",
        on_receipt: Callable[[Receipt], None] | None = None,
        ground_tools: GroundTools = None,
        on_ungrounded: OnUngrounded = "report",
        on_action: OnAction | None = None,
        **asking: Unpack[QuestionFields],
    ) -> None:
        super().__init__()
        self.tools = []
        check_relay(relay, "CRPMiddleware")
        most = relay.settings.sessions.agents.max_loop_depth if max_depth is None else max_depth
        check_callables(on_receipt=on_receipt)
        fields = dict(asking)
        check_fields(asking, relay, "CRPMiddleware", filled="session_id")
        check_attach(attach)
        check_count("max_depth", most, least=0)
        check_count("max_turns", max_turns, least=1)
        self.relay = relay
        self._max_depth = most
        self._max_turns = max_turns
        self._block = block_streams
        self._on_receipt = on_receipt
        self._attach = attach
        self._asking = fields
        self._gate = ActionGate.of(
            ground_tools, relay, fields, on_ungrounded=on_ungrounded, on_action=on_action
        )

    # --- the run ---------------------------------------------------------------------------

    def before_agent(self, state: CRPState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Find the run's session and depth.

        Raises:
            AccessDenied: the agent is nested too deep, or the outer agent may not delegate.
            SafetyHalt: the outer agent's safety budget is spent.
            ConfigError: tool calls are to be paused, and the agent has no checkpointer.
        """
        config = ensure_config()
        require_checkpointer(self._gate, config)
        depth = agent_depth(config)
        check_depth(depth, self._max_depth)
        around = outer_agent()
        own = around is not None or not session_of(config)
        session = new_session() if own else session_of(config)
        handed: dict[str, Any] = {}
        if around is not None and around.relay is self.relay:
            handed = delegated_fields(self.relay, around.session_id)
        return {
            "crp_session": session,
            "crp_parent": around.session_id if handed and around else "",
            "crp_asked": handed,
            "crp_depth": depth,
            "crp_turn": 0,
            "crp_own": own,
        }

    async def abefore_agent(self, state: CRPState, runtime: Runtime[Any]) -> dict[str, Any]:
        """The asynchronous twin of `before_agent`."""
        return await asyncio.to_thread(self.before_agent, state, runtime)

    def before_model(self, state: CRPState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Count the model calls.

        Raises:
            LimitReached: the run has used all its model calls.
        """
        turn = state.get("crp_turn", 0) + 1
        if turn > self._max_turns:
            raise LimitReached(
                f"the agent has called its model {self._max_turns} times, which is all it may"
            )
        return {"crp_turn": turn}

    async def abefore_model(self, state: CRPState, runtime: Runtime[Any]) -> dict[str, Any]:
        """The asynchronous twin of `before_model`."""
        return self.before_model(state, runtime)

    def after_model(self, state: CRPState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Pause before tool calls that may not run, or answer them with an error."""
        if self._gate is None or not self._gate.stops:
            return None
        return review_calls(self._gate, state)

    async def aafter_model(self, state: CRPState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """The asynchronous twin of `after_model`."""
        return self.after_model(state, runtime)

    def after_agent(self, state: CRPState, runtime: Runtime[Any]) -> None:
        """End a session that belongs to this run alone, which frees its memory."""
        if state.get("crp_own") and state.get("crp_session"):
            self.relay.end_session(state["crp_session"])

    async def aafter_agent(self, state: CRPState, runtime: Runtime[Any]) -> None:
        """The asynchronous twin of `after_agent`."""
        await asyncio.to_thread(self.after_agent, state, runtime)

    # --- a model call ------------------------------------------------------------------------

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        """Pack, call, examine, judge and seal.

        Raises:
            SafetyHalt: the answer is withheld.
            RequestError: the messages contain no question, or a field has no usable value.
        """
        turn, calls = self._window(request)
        try:
            answer = steps.answer_of(drive(turn, calls.through(handler)))
        except SafetyHalt as halt:
            self._withheld(request, calls, halt)
            raise
        response = self._released(request, calls, answer)
        for shown, config in _held_back(request, calls, response):
            shown.invoke([], config)
        return response

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """The asynchronous twin of `wrap_model_call`; packs and examines in worker threads."""
        turn, calls = await asyncio.to_thread(self._window, request)
        try:
            answer = steps.answer_of(await adrive(turn, calls.athrough(handler)))
        except SafetyHalt as halt:
            await asyncio.to_thread(self._withheld, request, calls, halt)
            raise
        response = await asyncio.to_thread(self._released, request, calls, answer)
        for shown, config in _held_back(request, calls, response):
            await shown.ainvoke([], config)
        return response

    def _window(self, request: ModelRequest[Any]) -> tuple[Turn, ModelCalls]:
        state: Any = request.state
        if self._gate is not None and state.get("crp_turn", 0) <= 1:
            self._gate.require(tools_of(request))
        system = [request.system_message] if request.system_message is not None else []
        model = str(self._asking.get("model") or model_name(request.model) or "")
        rejected = rejected_in(request.messages)
        compact = self._compacted(request, model)
        if compact is not None:
            messages: Any = compact.messages
            request = request.override(messages=messages)
        read = read_conversation([*system, *request.messages], results=True)
        room = getattr(request.model, "max_tokens", None)
        asking: dict[str, Any] = {
            **merge_fields(
                with_judge(self._asking, self._judge_above()), state.get("crp_asked", {})
            ),
            "session_id": state.get("crp_session"),
            "loop_depth": state.get("crp_depth", 0),
            "system_prompt": read.system or None,
            "history": read.history,
            "results": read.results,
            "tools": tools_of(request),
            "compact": False,
            "rejected": rejected,
            "compaction": compact.account if compact is not None else None,
            "max_tokens": room if isinstance(room, int) and room > 0 else None,
        }
        if model:
            asking["model"] = model
        turn = self.relay.turn(read.question, **asking)
        turn.agent_turn = state.get("crp_turn", 0)
        compaction = compact.metadata if compact is not None else {}
        shows = turn.show_at_once if self._block is None else lambda: self._lets_through(turn)
        calls = ModelCalls(request, read, model, shows=shows, compaction=compaction)
        calls.on_sent = turn.note_sent
        return turn, calls

    def _lets_through(self, turn: Turn) -> bool:
        """Whether tokens may be shown before the verdict: not if it may change the text."""
        policy = turn.admission.policy if turn.admission else None
        return (
            not self._block and policy is not None and not (policy.repair_on or policy.ask_again_on)
        )

    def _compacted(self, request: ModelRequest[Any], model: str) -> CompactedMessages | None:
        """The agent's messages after compaction; None if compaction is off."""
        wanted = self._asking.get("compact")
        if not (self.relay.settings.compaction.enabled if wanted is None else wanted):
            return None
        cache: Any = self._asking.get("cache") or CacheDirectives()
        directives = CacheDirectives.parse(cache) if isinstance(cache, str) else cache
        state: Any = request.state
        return compact_messages(
            self.relay,
            request.messages,
            system=request.system_message,
            tools=tools_of(request),
            model=model or None,
            session_id="" if directives.no_store else state.get("crp_session", ""),
        )

    def _released(
        self, request: ModelRequest[Any], calls: ModelCalls, answer: Answer
    ) -> ModelResponse[Any]:
        state: Any = request.state
        if not answer.reply.tool_calls:
            hand_back(self.relay, state.get("crp_parent", ""), answer)
            keep_for_outer(self.relay, answer.report)
        beside = {
            RECEIPT_KEY: answer.receipt_id,
            **answer_fields(answer, self._attach),
            "crp_agent": {
                "session_id": answer.session_id,
                "parent_session": state.get("crp_parent", ""),
                "window_id": answer.window_id,
                "window_number": answer.window_number,
                "depth": state.get("crp_depth", 0),
                "turn": state.get("crp_turn", 0),
            },
        }
        attached: dict[str, Any] = {}
        # A step with tool calls and no text has nothing to report on.
        if answer.text.strip() or not answer.reply.tool_calls:
            attached = {METADATA_KEY: attachment_of(answer.report, self._attach)}
            _deliver_report(calls, answer.report)
        self._hand_on(request, answer.receipt_id)
        own = with_judge(self._asking, self._judge_above())
        asking = merge_fields(own, state.get("crp_asked", {}))
        return calls.released(
            answer,
            {
                **attached,
                **checked_actions(self._gate, request, calls.pending_calls(answer), answer, asking),
                **beside,
                **({COMPACTION_KEY: calls.compaction} if calls.compaction else {}),
            },
        )

    def _withheld(self, request: ModelRequest[Any], calls: ModelCalls, halt: SafetyHalt) -> None:
        _deliver_report(calls, halt.report)
        self._hand_on(request, halt.trail)
        state: Any = request.state
        hand_back(self.relay, state.get("crp_parent", ""), halt)
        if isinstance(halt.report, Report):
            keep_for_outer(self.relay, halt.report)

    def _hand_on(self, request: ModelRequest[Any], id_: str) -> None:
        """Call `on_receipt` with the receipt of a window, while its session lasts."""
        if self._on_receipt is None or not id_:
            return
        state: Any = request.state
        fields = merge_fields(self._asking, state.get("crp_asked", {}))
        receipt = self.relay.receipt(id_, residency=fields.get("residency"))
        if receipt is not None:
            self._on_receipt(receipt)

    # --- a tool call ---------------------------------------------------------------------------

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        """Run a tool with this agent around it."""
        around = self._outer(request)
        before = held_rejections(self.relay, around.session_id)
        with inside_agent(around):
            result = handler(request)
        self._flag(around, result, before)
        return result

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """The asynchronous twin of `wrap_tool_call`."""
        around = self._outer(request)
        before = held_rejections(self.relay, around.session_id)
        with inside_agent(around):
            result = await handler(request)
        self._flag(around, result, before)
        return result

    def _outer(self, request: ToolCallRequest) -> OuterAgent:
        state = request.state if isinstance(request.state, dict) else {}
        return OuterAgent(
            self.relay,
            state.get("crp_session", ""),
            state.get("crp_depth", 0),
            handed_judge(self._asking, self._judge_above()),
        )

    def _judge_above(self) -> Mapping[str, Any]:
        """The outer agent's judge; none from another relay, as it would read this one's facts."""
        around = outer_agent()
        return around.judge if around is not None and around.relay is self.relay else {}

    def _flag(self, around: OuterAgent, result: Any, before: Sequence[RejectedClaim]) -> None:
        """Attach claims flagged during a tool call to the tool's message."""
        rejected = held_rejections(self.relay, around.session_id)
        attach_rejected(result, [claim for claim in rejected if claim not in before])


def _held_back(
    request: ModelRequest[Any], calls: ModelCalls, response: ModelResponse[Any]
) -> Iterator[tuple[ReleasedAnswer, RunnableConfig]]:
    """The messages that streams have not shown yet, with the config to show them."""
    for message in () if calls.shown else response.result:
        if isinstance(message, AIMessage):
            released = ReleasedAnswer(message=message)
            config = released.config(request.model.get_name())
            if config is not None:
                yield released, config


def _deliver_report(calls: ModelCalls, report: object) -> None:
    """Give the sealed report to the handlers that observed the calls."""
    delivery = ReportDelivery()
    delivery.handlers = calls.handlers
    delivery(report)
