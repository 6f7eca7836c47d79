"""A LlamaIndex LLM over LiteLLM, for any provider string; CRP metadata is never sent."""

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
    """An LLM that completes a prompt by sending it as one user message."""

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
    """Calls a model through LiteLLM, with tools, structured output and streams that report usage.

    It does not pack or check by itself: give it to `CRPQueryEngine(llm=…)`, `CRPSynthesizer` or
    `CRPAgentLLM`. Messages must be text.

    Attributes:
        model: provider string as LiteLLM takes it, such as `gpt-4o-mini`, or `extractive`.
        stop: stop sequences; those of a call take precedence.
        context_window: context limit of the model in tokens; None for the known limit.
        function_calling: whether the model supports tools.
        timeout: time limit of one attempt in seconds.
        max_retries: number of retries that LiteLLM makes after a transient failure.
        headers: headers to send in addition to those of the provider's client.
        options: further arguments for LiteLLM, such as `top_p`.
        client: another model client, such as a relay's; None for LiteLLM's. It gets only the
            messages, the tools and the sampling values, not `stop`, `options` and further
            arguments of LiteLLM.

    Raises:
        ConfigError: a header is named `CRP-…`, or an option can only be set for a single call.
        RequestError: a field is unknown or has no usable value, or `client` is not a Model.
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
        """Context limit, name and tool support of the model, in LlamaIndex's form."""
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
            kwargs: sampling values, tools in the OpenAI format, and further arguments of LiteLLM.

        Raises:
            ModelError: the provider did not answer; a subclass if the cause is known.
            RequestError: a message contains something other than text.
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
        """Answer in pieces; the last one contains the tool calls and the usage."""
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
        """The tool calls of a response; arguments that are not a JSON object become empty.

        Raises:
            ValueError: there is no tool call and `error_on_no_tool_call` is True.
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
        # A provider that does not know `parallel_tool_calls` may still return several.
        made = response.message.additional_kwargs.get("tool_calls") or []
        if not allow_parallel_tool_calls and len(made) > 1:
            response.message.additional_kwargs["tool_calls"] = made[:1]
        return response

    def _prepare_call(
        self, messages: Sequence[ChatMessage], arguments: Mapping[str, Any]
    ) -> tuple[Model, ModelCall]:
        """The client and the call; a separate client if LiteLLM gets further arguments."""
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
