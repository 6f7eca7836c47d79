"""A scripted function-calling LLM for LlamaIndex, and agents that ask agents."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from llama_index.core.agent.workflow import AgentOutput, AgentStream, AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.llms.callbacks import llm_chat_callback
from llama_index.core.llms.llm import ToolSelection

from crp_integrations.llama_index.llm import ChatLLM
from tests.adapters.langchain_doubles import (
    FACTS,
    HALTING,
    SECRETS,
    leaked,
    no_metadata,
    opened,
    prompts,
    reader,
)

# A text, tool calls as (name, arguments), or an error.
Said = str | list[tuple[str, dict[str, Any]]] | BaseException
QUESTION = "How much power does the Meridian reactor deliver?"
WRONG = FACTS[0].replace("412", "512")


class Chat(ChatLLM):
    """Answers with a function of its messages, as a stream of words too; keeps what it was sent."""

    model: str = "gpt-4o"
    calls_tools: bool = True
    # Left out of what LlamaIndex writes of a model into its events, which it does at each call.
    seen: list[list[ChatMessage]] = Field(default_factory=list, exclude=True)
    bound: list[dict[str, Any]] = Field(default_factory=list, exclude=True)
    _reply: Callable[[Sequence[ChatMessage]], Said] = PrivateAttr()

    def __init__(self, reply: Callable[[Sequence[ChatMessage]], Said], **fields: Any) -> None:
        super().__init__(**fields)
        self._reply = reply

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(
            model_name=self.model,
            is_chat_model=True,
            is_function_calling_model=self.calls_tools,
            context_window=128_000,
        )

    def _answer(self, messages: Sequence[ChatMessage], given: dict[str, Any]) -> ChatResponse:
        # Copies: what was sent, whatever happens to it later.
        self.seen.append([message.model_copy(deep=True) for message in messages])
        self.bound.append(given)
        said = self._reply(messages)
        if isinstance(said, BaseException):
            raise said
        if isinstance(said, str):
            return ChatResponse(message=ChatMessage(role="assistant", content=said))
        calls = [
            {"id": f"{name}-{len(messages)}-{n}", "name": name, "args": arguments}
            for n, (name, arguments) in enumerate(said)
        ]
        message = ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": calls})
        return ChatResponse(message=message)

    def _pieces(self, whole: ChatResponse) -> list[ChatResponse]:
        words = re.findall(r"\S+\s*", whole.message.content or "")
        pieces = [
            ChatResponse(
                message=ChatMessage(role="assistant", content="".join(words[: n + 1])), delta=word
            )
            for n, word in enumerate(words)
        ]
        return [*pieces, whole.model_copy(update={"delta": ""})]

    @llm_chat_callback()
    def chat(self, messages, **kwargs):
        return self._answer(messages, kwargs)

    @llm_chat_callback()
    async def achat(self, messages, **kwargs):
        return self._answer(messages, kwargs)

    @llm_chat_callback()
    def stream_chat(self, messages, **kwargs):
        def pieces():
            yield from self._pieces(self._answer(messages, kwargs))

        return pieces()

    @llm_chat_callback()
    async def astream_chat(self, messages, **kwargs):
        async def pieces():
            for piece in self._pieces(self._answer(messages, kwargs)):
                yield piece

        return pieces()

    def _prepare_chat_with_tools(
        self, tools, user_msg=None, chat_history=None, tool_required=False, **kwargs
    ):
        asked = [] if user_msg is None else [ChatMessage(role="user", content=str(user_msg))]
        named = [tool.metadata.name for tool in tools]
        return {"messages": [*(chat_history or []), *asked], "tools": named}

    def get_tool_calls_from_response(self, response, error_on_no_tool_call=True, **kwargs):
        return [
            ToolSelection(tool_id=call["id"], tool_name=call["name"], tool_kwargs=call["args"])
            for call in response.message.additional_kwargs.get("tool_calls", ())
        ]


def scripted(*script: Said, **fields: Any) -> Chat:
    """A model that goes through a script, the last entry again and again."""
    count = 0

    def reply(messages: Sequence[ChatMessage]) -> Said:
        nonlocal count
        count += 1
        return script[min(count, len(script)) - 1]

    return Chat(reply, **fields)


def agent(llm: Any, tools: Sequence[Any] = (), kind: str = "FunctionAgent", **fields: Any) -> Any:
    """A `FunctionAgent`, or an `AgentWorkflow` of one."""
    made = FunctionAgent(
        **{"name": "root", "description": "answers", "llm": llm, "tools": list(tools), **fields}
    )
    return made if kind == "FunctionAgent" else AgentWorkflow(agents=[made], root_agent=made.name)


async def heard(run: Any) -> tuple[list[Any], Any, BaseException | None]:
    """What a listener of an agent's run hears, its result, and the error at its end."""
    events: list[Any] = []
    try:
        async for event in run.stream_events():
            events.append(event)
        return events, await run, None
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return events, None, error


def outputs(events: Sequence[Any]) -> list[AgentOutput]:
    """The answers of an agent's models, in order."""
    return [event for event in events if isinstance(event, AgentOutput)]


def streamed(events: Sequence[Any]) -> str:
    """The text of an agent's stream."""
    return "".join(event.delta for event in events if isinstance(event, AgentStream))


__all__ = [
    "FACTS",
    "HALTING",
    "SECRETS",
    "Chat",
    "leaked",
    "no_metadata",
    "opened",
    "prompts",
    "reader",
    "scripted",
]
