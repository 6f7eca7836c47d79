"""The extractive model as a LiteLLM provider, so that `extractive/best` stands in a model list."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import cache
from typing import Any, Final

from crp_integrations.engines.extractive import EXTRACTIVE, ExtractiveModel
from crp_integrations.engines.litellm_versions import library, register_provider
from crp_integrations.errors import ConfigError
from crp_integrations.messages import Message, ModelCall, Reply

_REGISTERING: Final = threading.Lock()


def register_extractive() -> None:
    """Make `extractive/NAME` callable through LiteLLM in this process; again has no effect."""
    library()
    with _REGISTERING:
        if not register_provider(EXTRACTIVE, _handler()):
            raise ConfigError(f"LiteLLM has another provider named {EXTRACTIVE!r} already")


@cache
def _handler() -> Any:
    from litellm import CustomLLM, ModelResponse

    answerer = ExtractiveModel()

    def call_of(keywords: dict[str, Any]) -> ModelCall:
        return ModelCall(
            model=f"{EXTRACTIVE}/{keywords['model']}", messages=read(keywords["messages"])
        )

    def answered(keywords: dict[str, Any]) -> Any:
        call = call_of(keywords)
        response = keywords.get("model_response") or ModelResponse()
        response.model = call.model
        response.choices[0].message.content = answerer.call(call).text
        response.choices[0].finish_reason = "stop"
        return response

    def pieces(keywords: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for part in answerer.stream(call_of(keywords)):
            ended = isinstance(part, Reply)
            yield {
                "text": "" if ended else part,
                "is_finished": ended,
                "finish_reason": "stop" if ended else "",
                "index": 0,
                "tool_use": None,
                "usage": None,
            }

    class Extractive(CustomLLM):
        """Hands LiteLLM's calls to the extractive model."""

        def completion(self, *args: Any, **keywords: Any) -> Any:
            return answered(keywords)

        async def acompletion(self, *args: Any, **keywords: Any) -> Any:
            return answered(keywords)

        def streaming(self, *args: Any, **keywords: Any) -> Iterator[Any]:
            return pieces(keywords)

        # LiteLLM iterates over this one without awaiting it first, whatever its base says.
        async def astreaming(  # type: ignore[override]
            self, *args: Any, **keywords: Any
        ) -> AsyncIterator[Any]:
            for piece in pieces(keywords):
                yield piece

    return Extractive()


def read(messages: Sequence[dict[str, Any]]) -> tuple[Message, ...]:
    """Messages in the OpenAI shape as ours, their text parts joined; other roles left out."""
    found = []
    for message in messages:
        content = message.get("content") or ""
        if not isinstance(content, str):
            content = "".join(part.get("text") or "" for part in content)
        if message.get("role") in ("system", "user", "assistant", "tool"):
            found.append(Message(role=message["role"], content=content))
    return tuple(found)
