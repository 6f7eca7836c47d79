"""Completions by way of chat, for LLMs that chat."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
)
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM


class Chatting(FunctionCallingLLM):
    """An LLM whose completions are answers to one message of a user."""

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Answer a prompt."""
        return _completion(self.chat(_said(prompt), **kwargs))

    @llm_completion_callback()
    async def acomplete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponse:
        """The asynchronous twin of `complete`."""
        return _completion(await self.achat(_said(prompt), **kwargs))

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        """Answer a prompt in pieces."""
        parts = self.stream_chat(_said(prompt), **kwargs)

        def pieces() -> CompletionResponseGen:
            for part in parts:
                yield _completion(part)

        return pieces()

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseAsyncGen:
        """The asynchronous twin of `stream_complete`."""
        parts = await self.astream_chat(_said(prompt), **kwargs)

        async def pieces() -> CompletionResponseAsyncGen:
            async for part in parts:
                yield _completion(part)

        return pieces()


def _said(prompt: str) -> list[ChatMessage]:
    return [ChatMessage(role="user", content=prompt)]


def _completion(response: ChatResponse) -> CompletionResponse:
    return CompletionResponse(
        text=response.message.content or "",
        additional_kwargs=response.additional_kwargs,
        raw=response.raw,
        delta=response.delta,
    )
