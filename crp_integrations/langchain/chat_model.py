"""A LangChain chat model over LiteLLM, for any provider string; CRP metadata is never sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, Literal, Self

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SecretStr,
    model_validator,
)

from crp_integrations.adapters.arguments import pydantic_errors
from crp_integrations.engines.litellm import DEFAULT_TIMEOUT_S, LiteLLMModel
from crp_integrations.engines.models import answerer, call_of, client_of
from crp_integrations.engines.models import tool_choice as chosen
from crp_integrations.errors import RequestError
from crp_integrations.langchain.messages import (
    calls_of,
    check_text_only,
    chunks_of,
    message_of,
    usage_of,
)
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.ports import Model

# Arguments that LangChain passes for its traces or has already acted on; ignored here.
_IGNORED: Final = ("ls_structured_output_format", "strict", "stream")


class CRPChatModel(BaseChatModel):
    """Calls a model through LiteLLM, with tools, structured output and streams that report usage.

    It does not pack or check by itself: give it to `CRPRunnable(llm=…)`, or to an agent with
    `CRPMiddleware`. Metadata of earlier answers is not sent. Messages must be text.

    Attributes:
        model: provider string as LiteLLM takes it, such as `gpt-4o-mini`, or `extractive`;
            `invoke(…, model=…)` names another one for a call.
        stop: stop sequences; those of a call take precedence.
        timeout: time limit of one attempt in seconds.
        max_retries: number of retries that LiteLLM makes after a transient failure.
        headers: headers to send in addition to those of the provider's client.
        options: further arguments for LiteLLM, such as `top_p`.

    Raises:
        ConfigError: a header is named `CRP-…`, or an option can only be set for a single call.
        RequestError: a field is unknown, or has no usable value.
    """

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    model: str = Field(min_length=1)
    temperature: float | None = Field(default=None, ge=0.0)
    max_tokens: int | None = Field(default=None, gt=0)
    seed: int | None = None
    stop: list[str] | None = None
    timeout: float = Field(default=DEFAULT_TIMEOUT_S, gt=0.0)
    max_retries: int = Field(default=0, ge=0)
    streaming: bool = False
    api_base: str | None = None
    api_key: SecretStr | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)

    _client: LiteLLMModel = PrivateAttr()

    @model_validator(mode="wrap")
    @classmethod
    def _validate(cls, fields: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        with pydantic_errors(cls):
            return handler(fields)

    @model_validator(mode="after")
    def _make_client(self) -> CRPChatModel:
        self._client = client_of(self, {})
        return self

    @property
    def _llm_type(self) -> str:
        return "crp-litellm"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model, "temperature": self.temperature, "seed": self.seed}

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | dict[str, Any] | Literal[True] | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools to the model.

        Args:
            tools: tools in any form that LangChain accepts.
            tool_choice: `auto`, `none`, `any` (or `required`, True) for at least one, the name of
                the one that must be called, or the provider's own form.

        Raises:
            RequestError: `tool_choice` names an unknown tool.
        """
        specs = [convert_to_openai_tool(tool) for tool in tools]
        if tool_choice is not None:
            kwargs["tool_choice"] = chosen(tool_choice, specs)
        return self.bind(tools=specs, **kwargs)

    def with_structured_output(
        self,
        schema: dict[str, Any] | type,
        *,
        include_raw: bool = False,
        method: str = "function_calling",
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """Make the model answer in the form of a schema.

        Args:
            schema: a pydantic class, or a schema in any form that LangChain accepts.
            method: `function_calling`; `json_schema`, which the provider enforces; or `json_mode`,
                where the prompt must describe the form.
            strict: only for `json_schema`: whether the answer may contain nothing else.

        Raises:
            RequestError: the method or an option is unknown.
        """
        if method == "function_calling":
            return super().with_structured_output(schema, include_raw=include_raw, **kwargs)
        if method not in ("json_schema", "json_mode"):
            wanted = "function_calling, json_schema, json_mode"
            raise RequestError(f"method {method!r:.40} is not one of {wanted}")
        if kwargs:
            raise RequestError(f"option {min(kwargs)!r:.40} is not known with method {method}")
        form: dict[str, Any] = {"type": "json_object"}
        if method == "json_schema":
            json_schema = convert_to_json_schema(schema, strict=strict)
            named = {"name": json_schema.get("title") or "answer", "schema": json_schema}
            asked = {**named, "strict": strict} if strict is not None else named
            form = {"type": "json_schema", "json_schema": asked}
        model = self.bind(response_format=form)
        if isinstance(schema, type) and issubclass(schema, BaseModel):
            parser: Runnable[Any, Any] = PydanticOutputParser(pydantic_object=schema)
        else:
            parser = JsonOutputParser()
        if not include_raw:
            return model | parser
        parsed = RunnablePassthrough.assign(
            parsed=itemgetter("raw") | parser, parsing_error=lambda _: None
        )
        failed = RunnablePassthrough.assign(parsed=lambda _: None)
        return RunnableMap(raw=model) | parsed.with_fallbacks(
            [failed], exception_key="parsing_error"
        )

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        client, call = self._prepare_call(messages, stop, kwargs)
        return _result(client.call(call))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        client, call = self._prepare_call(messages, stop, kwargs)
        return _result(await client.acall(call))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        client, call = self._prepare_call(messages, stop, kwargs)
        for part in client.stream(call):
            chunk = _chunk(part)
            if run_manager and chunk.text:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        client, call = self._prepare_call(messages, stop, kwargs)
        async for part in client.astream(call):
            chunk = _chunk(part)
            if run_manager and chunk.text:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        provider, slash, _ = self.model.partition("/")
        params["ls_provider"] = provider if slash else "litellm"
        params["ls_model_name"] = kwargs.get("model") or self.model
        ends = stop or self.stop
        if ends:
            params["ls_stop"] = ends
        return params

    def _prepare_call(
        self, messages: Sequence[BaseMessage], stop: list[str] | None, arguments: Mapping[str, Any]
    ) -> tuple[Model, ModelCall]:
        """The client and the call; a separate client if LiteLLM gets further arguments."""
        check_text_only(messages)
        ends = {"stop": stop} if stop else {}
        sent = map(message_of, messages)
        call, further = call_of(self, sent, {**arguments, **ends}, aside=_IGNORED)
        client = client_of(self, further) if further else self._client
        return answerer(client, call), call


def _response_metadata(reply: Reply) -> dict[str, Any]:
    return {
        "model_name": reply.model,
        "finish_reason": reply.finish_reason,
        "model_provider": "litellm",
        **({"cost_usd": reply.usage.cost_usd} if reply.usage.cost_usd is not None else {}),
    }


def _result(reply: Reply) -> ChatResult:
    message = AIMessage(
        reply.text,
        response_metadata=_response_metadata(reply),
        usage_metadata=usage_of(reply.usage),
        **calls_of(reply.tool_calls),
    )
    return ChatResult(generations=[ChatGeneration(message=message)])


def _chunk(part: str | Reply) -> ChatGenerationChunk:
    if isinstance(part, str):
        return ChatGenerationChunk(message=AIMessageChunk(content=part))
    message = AIMessageChunk(
        content="",
        response_metadata=_response_metadata(part),
        usage_metadata=usage_of(part.usage),
        tool_call_chunks=chunks_of(part.tool_calls),
        chunk_position="last",
    )
    return ChatGenerationChunk(message=message)
