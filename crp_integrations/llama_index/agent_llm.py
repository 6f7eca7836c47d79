"""An LLM for agents that adds an envelope to every call and checks every answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Unpack, cast

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    LLMMetadata,
)
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.llms.callbacks import llm_chat_callback
from llama_index.core.llms.llm import LLM, ToolSelection
from llama_index.core.tools import BaseTool

from crp_integrations.adapters.action_gate import (
    ACTIONS_KEY,
    ActionGate,
    GroundTools,
    OnAction,
    OnUngrounded,
)
from crp_integrations.adapters.arguments import check_callables, check_count, check_relay
from crp_integrations.adapters.conversations import (
    answer_fields,
    check_depth,
    check_fields,
    delegated_fields,
    hand_back,
    handed_judge,
    merge_fields,
    new_session,
    with_judge,
)
from crp_integrations.adapters.observed_answers import Attach, attachment_of, check_attach
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.rejections import rejected_claims
from crp_integrations.errors import SafetyHalt
from crp_integrations.llama_index.grounded_tools import (
    CheckedRun,
    GroundingLLM,
    require_grounded,
    step_calls,
)
from crp_integrations.llama_index.messages import (
    read_conversation,
    read_messages,
    receipt_metadata,
    with_failures,
)
from crp_integrations.llama_index.model import (
    TOOLS,
    AgentCalls,
    check_llm,
    model_name,
    require_function_calling,
)
from crp_integrations.llama_index.nodes import METADATA_KEY
from crp_integrations.llama_index.span_tree import current_span, process_tree, span_session
from crp_integrations.llama_index.spans import (
    WHOLE_REPORT,
    ReportEvent,
    Span,
    agent_position,
    agent_run,
)
from crp_integrations.messages import Message
from crp_integrations.receipt.records import Receipt
from crp_integrations.relay import steps
from crp_integrations.relay.drive import adrive, adrive_stream, drive, drive_stream
from crp_integrations.relay.question_fields import QuestionFields
from crp_integrations.relay.records import Answer
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.turn import Turn
from crp_integrations.session.records import session_id_of

dispatcher = get_dispatcher(__name__)


@dataclass(slots=True)
class _AgentRun(CheckedRun):
    """Session and inherited fields of an agent's run.

    Attributes:
        parent: session of the outer agent; empty for the root.
        handed: question fields passed down by the outer agent.
        judge: judge fields for this agent and inner agents, for those without a judge.
        own: True if the session belongs to this run alone and ends with it.
    """

    session_id: str = ""
    parent: str = ""
    handed: dict[str, Any] = field(default_factory=dict)
    judge: dict[str, Any] = field(default_factory=dict)
    depth: int = 0
    own: bool = False


@dataclass(frozen=True, slots=True)
class _Window:
    turn: Turn
    calls: AgentCalls
    run: _AgentRun
    span: Span | None
    conversation: tuple[Message, ...]
    tools: list[dict[str, Any]]


class CRPAgentLLM(GroundingLLM):
    """Checks an agent's model calls: `FunctionAgent(llm=CRPAgentLLM(relay, llm), …)`.

    Every call of the agent's model is a window: the question's envelope goes into the system
    message, and its answer is examined, judged and sealed. The metadata of the agent's output
    contains a summary of the report as `crp`, `crp_agent` (agent, depth, turn, session, window)
    and, with `attach="full"`, `crp_envelope` (ids, no texts) and `crp_headers`. A withheld answer
    ends the run with `SafetyHalt` before any event of the agent's stream shows it. Tool results are
    evidence. An agent inside a tool call of another agent gets that agent's policy and safety
    budget.

    With `ground_tools`, a step's calls are checked together before a tool runs: `crp_actions` in
    the metadata has a report on each. `pause` and `return` need `tools=llm.grounded(tools)` in the
    agent, or a `CRPAgentWorkflow`, which grounds `handoff` too. A paused tool sends an
    `InputRequiredEvent` and waits for a `HumanResponseEvent` with its `action_id` and the
    `response` approve, reject (with `message`) or edit (with `tool_kwargs`).

    The session is `session_id`, else the `session_id` in `instrument_tags` when the run began; a
    run without one gets a session that ends with it.

    Spec: CRP-SPEC-005 §1.2, §17; related facts §8

    Args:
        relay: relay that supplies the facts and seals the windows.
        llm: the model that answers, with its own settings.
        max_depth: maximum number of agents around this one; None takes the setting
            `sessions.agents.max_loop_depth`.
        on_receipt: called with the receipt on each window, also if the answer is withheld.
        attach: how much of the report the metadata contains: `full`, `summary` (at most 700
            bytes), or `id`, which `Relay.report` accepts.
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

    _relay: Relay = PrivateAttr()
    _llm: LLM = PrivateAttr()
    _max_depth: int = PrivateAttr()
    _on_receipt: Callable[[Receipt], None] | None = PrivateAttr()
    _attach: str = PrivateAttr()
    _asking: dict[str, Any] = PrivateAttr()

    def __init__(
        self,
        relay: Relay,
        llm: LLM,
        *,
        max_depth: int | None = None,
        attach: Attach = "summary",
        on_receipt: Callable[[Receipt], None] | None = None,
        ground_tools: GroundTools = None,
        on_ungrounded: OnUngrounded = "report",
        on_action: OnAction | None = None,
        **asking: Unpack[QuestionFields],
    ) -> None:
        check_relay(relay, "CRPAgentLLM")
        check_llm(llm)
        super().__init__(callback_manager=llm.callback_manager)
        most = relay.settings.sessions.agents.max_loop_depth if max_depth is None else max_depth
        # Not checked as an id: any name may be a session's, since it is hashed when used.
        fields = dict(asking)
        checked = {name: value for name, value in fields.items() if name != "session_id"}
        check_attach(attach)
        check_fields(cast("QuestionFields", checked), relay, "CRPAgentLLM", filled="compact")
        check_count("max_depth", most, least=0)
        check_callables(on_receipt=on_receipt)
        self._relay = relay
        self._llm = llm
        self._max_depth = most
        self._on_receipt = on_receipt
        self._attach = attach
        self._asking = fields
        self._gate = ActionGate.of(
            ground_tools, relay, fields, on_ungrounded=on_ungrounded, on_action=on_action
        )
        process_tree()

    @classmethod
    def class_name(cls) -> str:
        """The component's name."""
        return "CRPAgentLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """The metadata of the model that answers."""
        return self._llm.metadata

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Pack, call, examine, judge and seal.

        Raises:
            SafetyHalt: the answer is withheld.
            AccessDenied: the agent is nested too deep, or the outer agent may not delegate.
            RequestError: the messages contain no question, or a field has no usable value.
        """
        window = self._window(messages, kwargs)
        try:
            return self._released(window, steps.answer_of(drive(window.turn, window.calls)))
        except SafetyHalt as halt:
            self._withheld(window, halt)
            raise
        finally:
            self._leave(window)

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The asynchronous twin of `chat`; packs and examines in worker threads."""
        window = await asyncio.to_thread(self._window, messages, kwargs)
        try:
            answer = steps.answer_of(await adrive(window.turn, window.calls))
            return await asyncio.to_thread(self._released, window, answer)
        except SafetyHalt as halt:
            await asyncio.to_thread(self._withheld, window, halt)
            raise
        finally:
            self._leave(window)

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """Stream the answer: as it arrives if nothing can withhold or mend it, else afterwards.

        Raises:
            SafetyHalt: the answer is withheld; no piece was shown.
        """
        parts = self._parts(self._window(messages, kwargs))
        # Reading one piece first raises `SafetyHalt` here instead of inside the stream.
        first = next(parts)

        def pieces() -> ChatResponseGen:
            yield first
            yield from parts

        return pieces()

    @llm_chat_callback()
    async def astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> ChatResponseAsyncGen:
        """The asynchronous twin of `stream_chat`."""
        parts = self._aparts(await asyncio.to_thread(self._window, messages, kwargs))
        first = await anext(parts)

        async def pieces() -> ChatResponseAsyncGen:
            async with aclosing(parts):
                yield first
                async for part in parts:
                    yield part

        return pieces()

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """The tool calls, read by the model itself."""
        return require_function_calling(self._llm).get_tool_calls_from_response(
            response, error_on_no_tool_call=error_on_no_tool_call, **kwargs
        )

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        specs = [tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools]
        require_grounded(tools, specs, self._gate, self._grounded)
        prepared = require_function_calling(self._llm)._prepare_chat_with_tools_compat(
            tools,
            user_msg=user_msg,
            chat_history=chat_history,
            verbose=verbose,
            allow_parallel_tool_calls=allow_parallel_tool_calls,
            tool_required=tool_required,
            **kwargs,
        )
        return {**prepared, TOOLS: specs}

    def _window(self, messages: Sequence[ChatMessage], arguments: dict[str, Any]) -> _Window:
        span = current_span()
        if span is not None:
            span.covered = True
        run = self._run(span)
        read = read_conversation(messages)
        within = agent_run(span)
        unfounded = within.unfounded if within is not None else ()
        model = str(self._asking.get("model") or model_name(self._llm) or "")
        room = self._llm.metadata.num_output if "max_tokens" in type(self._llm).model_fields else 0
        asking: dict[str, Any] = {
            **merge_fields(with_judge(self._asking, run.judge), run.handed),
            "session_id": run.session_id,
            "loop_depth": run.depth,
            "system_prompt": read.system or None,
            "history": with_failures(read.history, unfounded),
            "results": read.results,
            "rejected": within.rejected if within is not None else (),
            # An agent's own memory shortens its history, so it is sent unchanged.
            "compact": False,
            "tools": arguments.get(TOOLS) or None,
            "max_tokens": room if room > 0 else None,
        }
        if model:
            asking["model"] = model
        turn = self._relay.turn(read.question, **asking)
        turn.agent_turn = agent_position(span).turn
        calls = AgentCalls(self._llm, messages, arguments, read, model)
        calls.shows = turn.show_at_once
        conversation = with_failures(read_messages(messages), unfounded)
        return _Window(turn, calls, run, span, conversation, asking["tools"] or [])

    def _parts(self, window: _Window) -> Generator[ChatResponse]:
        text = ""
        try:
            for part in drive_stream(window.turn, window.calls, shows=window.calls.shows):
                if isinstance(part, str):
                    for piece in window.calls.pieces(part):
                        text += piece
                        yield _piece(text, piece)
                else:
                    response = self._released(window, steps.answer_of(part))
                    yield response.model_copy(update={"delta": ""})
        except SafetyHalt as halt:
            self._withheld(window, halt)
            raise
        finally:
            self._leave(window)

    async def _aparts(self, window: _Window) -> AsyncGenerator[ChatResponse]:
        text = ""
        try:
            parts = adrive_stream(window.turn, window.calls, shows=window.calls.shows)
            async with aclosing(parts):
                async for part in parts:
                    if isinstance(part, str):
                        for piece in window.calls.pieces(part):
                            text += piece
                            yield _piece(text, piece)
                    else:
                        answer = steps.answer_of(part)
                        response = await asyncio.to_thread(self._released, window, answer)
                        yield response.model_copy(update={"delta": ""})
        except SafetyHalt as halt:
            await asyncio.to_thread(self._withheld, window, halt)
            raise
        finally:
            self._leave(window)

    def _run(self, span: Span | None) -> _AgentRun:
        """The agent's run with its session; created at its first call."""
        run = agent_run(span)
        key = id(self._relay)
        with process_tree().lock:
            if run is not None and key in run.own:
                known_run: _AgentRun = run.own[key]
                return known_run
        inside = span.path() if span is not None else []
        around = [enclosing for enclosing in inside if enclosing.runs and enclosing is not run]
        outer = around[0].own.get(key) if around else None
        depth = len(around)
        check_depth(depth, self._max_depth)
        name = self._asking.get("session_id")
        named = "" if around else session_id_of(name) if name else span_session(span)
        made = _AgentRun(session_id=named or new_session(), depth=depth, own=not named)
        made.judge = handed_judge(self._asking, outer.judge if outer is not None else {})
        if outer is not None:
            made.handed = delegated_fields(self._relay, outer.session_id)
            made.parent = outer.session_id
        if run is not None:
            with process_tree().lock:
                run.own[key], made.unfounded = made, run.unfounded
                if made.own:
                    run.at_end.append(lambda: self._relay.end_session(made.session_id))
        return made

    def _check_actions(self, window: _Window, answer: Answer) -> dict[str, Any]:
        """The reports on an answer's tool calls, for its metadata; the run keeps them too."""
        if self._gate is None:
            return {}
        calls, tools = step_calls(answer.reply, window.tools, self._gate, self._grounded)
        asking = {
            **with_judge(self._asking, window.run.judge),
            "residency": window.turn.request.residency,
        }
        window.run.actions = self._gate.check(
            calls,
            window.conversation,
            tools,
            asking,
            envelope=answer.envelope,
            rejected=window.turn.request.rejected,
            approvals=tuple(window.run.approvals),
            session_id=window.run.session_id,
        )
        self._gate.seal(window.run.actions, answer.report, asking)
        return {ACTIONS_KEY: window.run.actions} if window.run.actions else {}

    def _current_run(self) -> CheckedRun:
        span = current_span()
        around = [outer for outer in (span.path() if span is not None else ()) if outer.runs]
        return self._run(around[0]) if around else CheckedRun()

    def _released(self, window: _Window, answer: Answer) -> ChatResponse:
        if not answer.reply.tool_calls:
            hand_back(self._relay, window.run.parent, answer)
            _reject(window.span, answer.report)
        self._hand_on(window, answer.receipt_id)
        position = agent_position(window.span)
        ids = {
            "session_id": answer.session_id,
            "parent_session": window.run.parent,
            "window_id": answer.window_id,
            "window_number": answer.window_number,
        }
        beside = {
            **answer_fields(answer, self._attach),
            "crp_agent": {**position.on_message(), **ids},
            **receipt_metadata(answer.receipt_id),
        }
        proof = {
            METADATA_KEY: attachment_of(answer.report, self._attach),
            **self._check_actions(window, answer),
            **beside,
        }
        report = answer.report.model_dump(mode="json")
        if window.span is not None:
            window.span.own[WHOLE_REPORT] = report
            process_tree().record_answer(window.span, proof)
        dispatcher.event(ReportEvent(report=report, agent={**position.as_json(), **ids}))
        return window.calls.released(answer, proof)

    def _withheld(self, window: _Window, halt: SafetyHalt) -> None:
        self._hand_on(window, halt.trail)
        hand_back(self._relay, window.run.parent, halt)
        if isinstance(halt.report, Report):
            _reject(window.span, halt.report)

    def _hand_on(self, window: _Window, id_: str) -> None:
        """Call `on_receipt` with the receipt of a window, while its session lasts."""
        if self._on_receipt is None or not id_:
            return
        receipt = self._relay.receipt(id_, residency=window.turn.request.residency)
        if receipt is not None:
            self._on_receipt(receipt)

    def _leave(self, window: _Window) -> None:
        if window.run.own and agent_run(window.span) is None:
            self._relay.end_session(window.run.session_id)


def _reject(span: Span | None, report: Report) -> None:
    """Pass flagged claims to the agent whose tool call is running, even one of another relay."""
    if span is not None:
        process_tree().reject(span, rejected_claims(report))


def _piece(text: str, delta: str) -> ChatResponse:
    return ChatResponse(message=ChatMessage(role="assistant", content=text), delta=delta)
