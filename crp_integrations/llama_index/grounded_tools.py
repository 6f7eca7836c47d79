"""Tools of an agent whose calls run only if their arguments rest on the conversation.

An agent's model checks a step's calls before the agent runs them. LlamaIndex has no hook between
the two, so a tool looks up the report on its own call, and waits for a person's decision with the
workflow's own events. The reports are in the context of a run that waits, so a run that is restored
from it checks no call again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final
from weakref import WeakSet

from llama_index.core.agent.react.output_parser import ReActOutputParser
from llama_index.core.agent.react.types import ActionReasoningStep
from llama_index.core.agent.workflow import AgentWorkflow
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import (
    AsyncBaseTool,
    BaseTool,
    FunctionTool,
    ToolOutput,
    adapt_to_async_tool,
)
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from workflows.runtime.types.results import AddWaiter, StepWorkerStateContextVar, WaitingForEvent

from crp_integrations.adapters.action_gate import (
    PAUSE,
    ActionGate,
    approval_of,
    call_hash,
    rejection_of,
)
from crp_integrations.errors import ConfigError
from crp_integrations.llama_index.llm import ChatLLM
from crp_integrations.llama_index.span_tree import HANDOFF
from crp_integrations.messages import Reply, ToolCall
from crp_integrations.seals import sha256

# Name of the argument by which LlamaIndex passes a run's context to a tool.
_CONTEXT: Final = "crp_context"
# Keys in the state of a run: of this module, and LlamaIndex's key of the conversation.
_WAITING: Final = "crp_waiting"
_MEMORY: Final = "memory"
_DECISIONS: Final = ("approve", "edit", "reject")
# Held while the tools of a model are added to or listed, which threads do at once.
_ADDING: Final = Lock()


@dataclass(slots=True)
class CheckedRun:
    """What is known of the tool calls of an agent's run.

    Attributes:
        actions: reports on the calls of the last step.
        approvals: calls that a person approved, as texts.
        decisions: a person's first decision on each call.
        settled: ids of the calls whose decision was carried out.
        waiting: ids of the calls whose decision was not carried out yet.
        unfounded: call id and text of the tool results that are errors.
    """

    actions: list[dict[str, Any]] = field(default_factory=list)
    approvals: list[str] = field(default_factory=list)
    decisions: dict[str, HumanResponseEvent] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    unfounded: set[tuple[str, str]] = field(default_factory=set)

    async def save(self, context: Context) -> None:
        """Put what a restored run needs into the state of a run that waits; else remove it."""
        memory = await context.store.get(_MEMORY, default=None)
        messages = [] if memory is None else await memory.aget_all()
        # Nothing is awaited between this and the call that stores it, so that the latest counts.
        state = {
            "actions": self.actions,
            "approvals": self.approvals,
            "unfounded": sorted(self.unfounded),
            "waiting": sorted(self.waiting),
            # The JSON form of a context leaves the memory out.
            "messages": messages,
            "token_limit": getattr(memory, "token_limit", None),
        }
        await context.store.set(_WAITING, state if self.waiting else None)

    async def restore(self, context: Context) -> None:
        """Take over the state of a run that waited, if this is its continuation."""
        state = None if self.actions else await context.store.get(_WAITING, default=None)
        if state is None:
            return
        if await context.store.get(_MEMORY, default=None) is None:
            memory = ChatMemoryBuffer.from_defaults(
                chat_history=state["messages"], token_limit=state.get("token_limit")
            )
            await context.store.set(_MEMORY, memory)
        if not self.actions:
            self.actions, self.approvals = state["actions"], state["approvals"]
            self.unfounded.update((id_, text) for id_, text in state["unfounded"])
            self.waiting.update(state.get("waiting", ()))

    async def end(self, context: Context, action: str) -> None:
        """Remove a call that waits no more from the state of the run."""
        if action in self.waiting:
            self.waiting.discard(action)
            await self.save(context)


class GroundingLLM(ChatLLM):
    """A model that checks its agent's tool calls."""

    _gate: ActionGate | None = PrivateAttr(default=None)
    _grounded: WeakSet[BaseTool] = PrivateAttr(default_factory=WeakSet)

    def grounded(self, tools: Iterable[BaseTool | Callable[..., Any]]) -> list[AsyncBaseTool]:
        """Tools or functions as tools that run a call only if its report or a person allows it.

        Raises:
            ConfigError: no tool is checked.
        """
        if self._gate is None:
            raise ConfigError("grounded() needs ground_tools; give it to CRPAgentLLM")
        made = [
            tool
            if isinstance(tool, AsyncBaseTool) and tool in self._grounded
            else grounded_tool(tool, self._gate, self._current_run)
            for tool in tools
        ]
        with _ADDING:
            self._grounded.update(made)
        return made

    def _current_run(self) -> CheckedRun:
        """The run of the agent whose tool is running; one without reports if it is not known."""
        raise NotImplementedError


class CRPAgentWorkflow(AgentWorkflow):
    """An `AgentWorkflow` that grounds its agents' tools and its own tool `handoff`.

    An agent whose model is a `CRPAgentLLM` with `ground_tools` needs no `llm.grounded(tools)` here.
    """

    async def get_tools(
        self, agent_name: str, input_str: str | None = None
    ) -> Sequence[AsyncBaseTool]:
        """The agent's tools and `handoff`."""
        tools = await super().get_tools(agent_name, input_str)
        llm = self.agents[agent_name].llm
        if not isinstance(llm, GroundingLLM) or llm._gate is None:
            return tools
        return llm.grounded(tools)


def require_grounded(
    tools: Sequence[BaseTool],
    specs: Sequence[Mapping[str, Any]],
    gate: ActionGate | None,
    grounded: Container[BaseTool],
) -> None:
    """Check, before the model is called, that an agent's tools can be stopped.

    Args:
        specs: the tools in the OpenAI format.
        grounded: the tools that `grounded_tool` made.
    """
    if gate is None:
        return
    gate.require(specs)
    for tool in tools if gate.stops else ():
        name = tool.metadata.get_name()
        if gate.covers(name):
            _require(name, gate, {name} if tool in grounded else ())


def step_calls(
    reply: Reply,
    tools: Sequence[dict[str, Any]],
    gate: ActionGate,
    grounded: Collection[BaseTool],
) -> tuple[Sequence[ToolCall], Sequence[dict[str, Any]]]:
    """The tool calls of a reply, and the tools' definitions.

    A `ReActAgent` gives its model no tools, and reads one call from the model's text.

    Raises:
        ConfigError: the call is to be stopped, and the agent runs its tool without a check.
    """
    if tools or reply.tool_calls:
        return reply.tool_calls, tools
    try:
        step = ReActOutputParser().parse(reply.text)
    except ValueError:
        return (), ()
    if not isinstance(step, ActionReasoningStep):
        return (), ()
    with _ADDING:
        grounded = list(grounded)
    if gate.stops and gate.covers(step.action):
        _require(step.action, gate, {tool.metadata.get_name() for tool in grounded})
    arguments = json.dumps(step.action_input, ensure_ascii=False, default=str)
    call = ToolCall(id="", name=step.action, arguments=arguments)
    return [call], [tool.metadata.to_openai_tool(skip_length_check=True) for tool in grounded]


def _require(name: str, gate: ActionGate, grounded: Container[str]) -> None:
    if name not in grounded:
        fix = "give the agent tools=llm.grounded(tools)"
        if name == HANDOFF:
            fix = "run the agents in a CRPAgentWorkflow, or name other tools in ground_tools"
        raise ConfigError(
            f"on_ungrounded is {gate.on_ungrounded!r}, and the agent runs the tool {name!r:.60} "
            f"without a check; {fix}"
        )


def grounded_tool(
    tool: BaseTool | Callable[..., Any],
    gate: ActionGate,
    current_run: Callable[[], CheckedRun],
) -> FunctionTool:
    """A tool that refuses a call, or asks a person, where the report on the call says so."""
    inner = adapt_to_async_tool(
        tool if isinstance(tool, BaseTool) else FunctionTool.from_defaults(tool)
    )
    name = inner.metadata.get_name()

    async def run(**arguments: Any) -> ToolOutput:
        context = arguments.pop(_CONTEXT, None)
        checked = current_run()
        if context is not None and gate.covers(name):
            await checked.restore(context)
        action = ""
        refusal = gate.refusal(checked.actions, name, arguments)
        if refusal is not None and gate.on_ungrounded == PAUSE and context is not None:
            action = _action_id(name, arguments)
            response = await _decision(context, checked, action, name, arguments, refusal)
            refusal = _refusal(name, response)
            if refusal is None:
                edited = response.get("tool_kwargs") if response.get("response") == "edit" else None
                arguments = dict(arguments if edited is None else edited)
                checked.approvals.append(approval_of(name, arguments))
        if refusal is not None:
            await checked.end(context, action)
            return ToolOutput(
                tool_name=name,
                content=refusal,
                raw_input={"args": (), "kwargs": arguments},
                raw_output=refusal,
                is_error=True,
            )
        if isinstance(inner, FunctionTool) and inner.requires_context and inner.ctx_param_name:
            arguments[inner.ctx_param_name] = context
        try:
            return await inner.acall(**arguments)
        except WaitingForEvent:
            # The tool itself waits for an event; the workflow runs its step again then.
            checked.settled.discard(action)
            raise
        finally:
            if action in checked.settled:
                await checked.end(context, action)

    async def as_it_is(output: ToolOutput) -> ToolOutput:
        return output

    grounded = FunctionTool(async_fn=run, metadata=inner.metadata, async_callback=as_it_is)
    grounded.requires_context, grounded.ctx_param_name = True, _CONTEXT
    return grounded


def _action_id(name: str, arguments: Mapping[str, Any]) -> str:
    """The id of a call in its run: equal calls differ, and a step that runs again has the same."""
    step = StepWorkerStateContextVar.get()
    place = getattr(step.state, "work_item_id", None) or getattr(step.event, "tool_id", "")
    return sha256(f"{call_hash(name, arguments)} {place}")


async def _decision(
    context: Context,
    checked: CheckedRun,
    action: str,
    name: str,
    arguments: Mapping[str, Any],
    text: str,
) -> HumanResponseEvent:
    """Wait for a person's decision; the workflow runs the tool's step again when it comes.

    A step that runs again for a further decision waits without end, and so gives no result.
    """
    if action not in checked.settled:
        checked.waiting.add(action)
    await checked.save(context)
    # Nothing is awaited from here until the decision is settled, so that it counts once.
    again = action in checked.settled
    request = InputRequiredEvent(
        prefix=text,
        action_id=action,
        tool_name=name,
        tool_kwargs=dict(arguments),
        allowed_decisions=list(_DECISIONS),
    )
    waiter = f"{action} settled" if again else action
    waiting: Any = {
        "waiter_id": waiter,
        "waiter_event": None if again else request,
        "requirements": {"action_id": waiter},
        "timeout": None,
    }
    response = await context.wait_for_event(HumanResponseEvent, **waiting)
    checked.decisions.setdefault(response.get("action_id"), response)
    if action not in checked.decisions:
        # A restored run has lost its requirements, and takes any decision for this one.
        context.write_event_to_stream(request)
        raise WaitingForEvent(AddWaiter(event_type=HumanResponseEvent, **waiting))
    checked.settled.add(action)
    return checked.decisions[action]


def _refusal(name: str, response: HumanResponseEvent) -> str | None:
    decision = response.get("response")
    edited = response.get("tool_kwargs")
    if decision == "approve" or (decision == "edit" and isinstance(edited, Mapping)):
        return None
    if decision != "reject":
        return rejection_of(name, f"{decision!r:.80} is none of {', '.join(_DECISIONS)}")
    return rejection_of(name, response.get("message"))
