"""An LLM of LlamaIndex over LiteLLM: any provider string, and nothing of CRP on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.bridge.pydantic import ConfigDict, Field, PrivateAttr, SecretStr
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import BaseTool

from crp_integrations.adapters.arguments import pydantic_errors
from crp_integrations.engines.context_limits import context_limit
from crp_integrations.engines.litellm import DEFAULT_TIMEOUT_S
from crp_integrations.engines.models import answerer, call_of, client_of
from crp_integrations.engines.models import tool_choice as chosen
from crp_integrations.errors import RequestError
from crp_integrations.llama_index.messages import (
    calls_in,
    calls_json,
    check_text_only,
    message_of,
    selections,
)
from crp_integrations.llama_index.model import check_fields
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.ports import Model


class ChatLLM(FunctionCallingLLM):
    """An LLM whose completions are answers to one message of a user."""

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Answer a prompt."""
        return _completion(self.chat(_user_message(prompt), **kwargs))

    @llm_completion_callback()
    async def acomplete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponse:
        """The asynchronous twin of `complete`."""
        return _completion(await self.achat(_user_message(prompt), **kwargs))

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        """Answer a prompt in pieces."""
        parts = self.stream_chat(_user_message(prompt), **kwargs)

        def pieces() -> CompletionResponseGen:
            for part in parts:
                yield _completion(part)

        return pieces()

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseAsyncGen:
        """The asynchronous twin of `stream_complete`."""
        parts = await self.astream_chat(_user_message(prompt), **kwargs)

        async def pieces() -> CompletionResponseAsyncGen:
            async for part in parts:
                yield _completion(part)

        return pieces()


def _user_message(prompt: str) -> list[ChatMessage]:
    return [ChatMessage(role="user", content=prompt)]


def _completion(response: ChatResponse) -> CompletionResponse:
    return CompletionResponse(
        text=response.message.content or "",
        additional_kwargs=response.additional_kwargs,
        raw=response.raw,
        delta=response.delta,
    )


class CRPLLM(ChatLLM):
    """Calls a model through LiteLLM, with tools, structured output and streams that tell usage.

    It packs and checks nothing by itself: give it to `CRPQueryEngine(llm=…)`, `CRPSynthesizer` or
    `CRPAgentLLM`. Messages are text.

    Attributes:
        model: provider string as LiteLLM takes it, such as `gpt-4o-mini`, or `extractive`.
        stop: texts at which the model ends; a call's own win.
        context_window: tokens that the model takes in; None for what is known of it.
        function_calling: whether the model takes tools.
        timeout: seconds until one attempt is given up.
        max_retries: further attempts that LiteLLM makes after a passing failure.
        headers: the only headers sent beside those of the provider's client.
        options: LiteLLM's further arguments, such as `top_p`.
        client: another model client, such as a relay's; None for LiteLLM's. It gets the messages,
            the tools and the sampling values; `stop`, `options` and LiteLLM's further arguments
            are its own affair.

    Raises:
        ConfigError: a header is named `CRP-…`, or an option belongs to the single call.
        RequestError: there is no such field, it has no usable value, or the client is none.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    model: str = Field(min_length=1)
    temperature: float | None = Field(default=None, ge=0.0)
    max_tokens: int | None = Field(default=None, gt=0)
    seed: int | None = None
    stop: list[str] | None = None
    context_window: int | None = Field(default=None, gt=0)
    function_calling: bool = True
    timeout: float = Field(default=DEFAULT_TIMEOUT_S, gt=0.0)
    max_retries: int = Field(default=0, ge=0)
    api_base: str | None = None
    api_key: SecretStr | None = Field(default=None, exclude=True)
    headers: dict[str, str] = Field(default_factory=dict, exclude=True)
    options: dict[str, Any] = Field(default_factory=dict, exclude=True)

    _client: Model = PrivateAttr()
    _foreign_client: bool = PrivateAttr(default=False)

    def __init__(self, model: str, *, client: Model | None = None, **fields: Any) -> None:
        with pydantic_errors(type(self)):
            super().__init__(model=model, **check_fields(type(self), fields))
        if client is not None and (isinstance(client, type) or not hasattr(client, "call")):
            raise RequestError(
                f"client is {type(client).__name__}; give a Model, or None for LiteLLM's"
            )
        self._foreign_client = client is not None
        self._client = client if client is not None else client_of(self, {})

    @classmethod
    def class_name(cls) -> str:
        """The component's name."""
        return "CRPLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """What LlamaIndex asks of a model: its window, its name, whether it takes tools."""
        return LLMMetadata(
            context_window=self.context_window or context_limit(self.model, {})[0],
            num_output=self.max_tokens or -1,
            is_chat_model=True,
            is_function_calling_model=self.function_calling,
            model_name=self.model,
        )

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Answer a conversation.

        Args:
            kwargs: sampling values, tools in the OpenAI shape, and LiteLLM's further arguments.

        Raises:
            ModelError: the provider did not; one of its subclasses where the cause is known.
            RequestError: a message holds something other than text.
        """
        client, call = self._prepare_call(messages, kwargs)
        return _response(client.call(call))

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The asynchronous twin of `chat`."""
        client, call = self._prepare_call(messages, kwargs)
        return _response(await client.acall(call))

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """Answer in pieces; the last one has the tool calls and the usage."""
        client, call = self._prepare_call(messages, kwargs)

        def pieces() -> ChatResponseGen:
            text = ""
            for part in client.stream(call):
                text += part if isinstance(part, str) else ""
                yield _piece(part, text)

        return pieces()

    @llm_chat_callback()
    async def astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> ChatResponseAsyncGen:
        """The asynchronous twin of `stream_chat`."""
        client, call = self._prepare_call(messages, kwargs)

        async def pieces() -> ChatResponseAsyncGen:
            text = ""
            async for part in client.astream(call):
                text += part if isinstance(part, str) else ""
                yield _piece(part, text)

        return pieces()

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """The tool calls of a response; one whose arguments are no JSON object has none.

        Raises:
            ValueError: there is none, and LlamaIndex wants one.
        """
        calls = selections(list(calls_in(response.message)))
        if not calls and error_on_no_tool_call:
            raise ValueError("wanted at least one tool call, and the model made none")
        return calls

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        tool_choice: str | dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        messages = list(chat_history or [])
        if user_msg is not None:
            asked = ChatMessage(role="user", content=user_msg)
            messages.append(asked if isinstance(user_msg, str) else user_msg)
        specs = [tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools]
        prepared = {"messages": messages, **kwargs}
        if specs:
            prepared["tools"] = specs
            choice = chosen(tool_choice, specs) or ("required" if tool_required else None)
            if choice is not None:
                prepared["tool_choice"] = choice
            if not allow_parallel_tool_calls:
                prepared["parallel_tool_calls"] = False
        return prepared

    def _validate_chat_with_tools_response(
        self,
        response: ChatResponse,
        tools: Sequence[BaseTool],
        allow_parallel_tool_calls: bool = False,
        **kwargs: Any,
    ) -> ChatResponse:
        # A provider that knows no `parallel_tool_calls` may make several all the same.
        made = response.message.additional_kwargs.get("tool_calls") or []
        if not allow_parallel_tool_calls and len(made) > 1:
            response.message.additional_kwargs["tool_calls"] = made[:1]
        return response

    def _prepare_call(
        self, messages: Sequence[ChatMessage], arguments: Mapping[str, Any]
    ) -> tuple[Model, ModelCall]:
        """The client and the call; a client of its own where LiteLLM gets further arguments."""
        check_text_only(messages)
        call, further = call_of(self, map(message_of, messages), arguments)
        own = bool(further) and not self._foreign_client
        client = client_of(self, further) if own else self._client
        return (client if self._foreign_client else answerer(client, call)), call


def _response(reply: Reply, delta: str | None = None) -> ChatResponse:
    usage, more = reply.usage, {}
    if usage.total_tokens:
        more = {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.total_tokens,
        }
    called = {"tool_calls": calls_json(reply.tool_calls)} if reply.tool_calls else {}
    return ChatResponse(
        message=ChatMessage(
            role=MessageRole.ASSISTANT, content=reply.text, additional_kwargs=called
        ),
        delta=delta,
        raw={"model": reply.model, "finish_reason": reply.finish_reason, "usage": dict(more)},
        additional_kwargs=more,
    )


def _piece(part: str | Reply, text: str) -> ChatResponse:
    if isinstance(part, Reply):
        return _response(part, delta="")
    return ChatResponse(
        message=ChatMessage(role=MessageRole.ASSISTANT, content=text), delta=part, raw=None
    )
