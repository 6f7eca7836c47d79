"""Loopback servers in the shapes of Anthropic, Gemini, Azure and Ollama, on the paths of LiteLLM."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.servers import (
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    Double,
    OpenAIShape,
    Recorded,
    event,
    running,
    words,
)


def _texts(parts: Any) -> str:
    """The text of a content that is a string or a list of parts."""
    if isinstance(parts, str):
        return parts
    return "".join(part.get("text") or "" for part in parts or ())


class AnthropicShape:
    """`POST /v1/messages`, whole and as a stream of named events."""

    root = ""
    ends = ""
    types = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
    types |= {400: "invalid_request_error", 429: "rate_limit_error", 503: "overloaded_error"}

    def read(self, seen: Recorded) -> bool:
        assert seen.path == "/v1/messages", seen.path
        assert seen.headers["anthropic-version"], "Anthropic refuses a request without a version"
        assert seen.body["max_tokens"] > 0, "Anthropic refuses a request without max_tokens"
        seen.model = seen.body["model"]
        seen.system = _texts(seen.body.get("system"))
        seen.question = _texts(seen.body["messages"][-1]["content"])
        return bool(seen.body.get("stream"))

    def messages(self, seen: Recorded) -> list[dict[str, Any]]:
        head = [{"role": "system", "content": seen.system}] if seen.system else []
        return [
            *head,
            *({"role": m["role"], "content": _texts(m["content"])} for m in seen.body["messages"]),
        ]

    def refusal(self, status: int, code: str, message: str) -> dict[str, Any]:
        if code == "context_length_exceeded":
            limit, tokens = re.findall(r"\d+", message)
            message = f"prompt is too long: {tokens} tokens > {limit} maximum"
        kind = self.types.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}

    def whole(self, double: Double, seen: Recorded) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"type": "text", "text": double.answer(seen)}]
        if double.tool_calls:
            content = [self._use(call) for call in double.tool_calls]
        return {
            **self._frame(seen),
            "content": content,
            "stop_reason": "tool_use" if double.tool_calls else "end_turn",
            "usage": self.usage(double, seen),
        }

    def empty(self, double: Double, seen: Recorded) -> dict[str, Any]:
        return {**self.whole(double, seen), "content": []}

    def usage(self, double: Double, seen: Recorded) -> dict[str, int]:
        prompt = double.counted(seen) or PROMPT_TOKENS
        return {"input_tokens": prompt, "output_tokens": COMPLETION_TOKENS}

    def pieces(self, double: Double, seen: Recorded) -> Iterator[tuple[str, bool]]:
        usage = self.usage(double, seen)
        opening = {**self._frame(seen), "content": [], "stop_reason": None}
        opening["usage"] = {**usage, "output_tokens": 1}
        yield self._event("message_start", message=opening), False
        if double.tool_calls:
            for place, call in enumerate(double.tool_calls):
                block = {**self._use(call), "input": {}}
                yield self._event("content_block_start", index=place, content_block=block), False
                delta = {"type": "input_json_delta", "partial_json": call["function"]["arguments"]}
                yield self._event("content_block_delta", index=place, delta=delta), False
                yield self._event("content_block_stop", index=place), False
        else:
            block = {"type": "text", "text": ""}
            yield self._event("content_block_start", index=0, content_block=block), False
            for word in words(double.answer(seen)):
                delta = {"type": "text_delta", "text": word}
                yield self._event("content_block_delta", index=0, delta=delta), False
            yield self._event("content_block_stop", index=0), False
        reason = "tool_use" if double.tool_calls else "end_turn"
        delta = {"stop_reason": reason, "stop_sequence": None}
        yield self._event("message_delta", delta=delta, usage=usage), True
        yield self._event("message_stop"), True

    def _frame(self, seen: Recorded) -> dict[str, Any]:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": seen.model,
            "stop_sequence": None,
        }

    def _use(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        arguments = json.loads(function["arguments"])
        return {"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments}

    def _event(self, kind: str, **values: Any) -> str:
        return event({"type": kind, **values}, kind)


class GeminiShape:
    """`POST /models/NAME:generateContent`, and `:streamGenerateContent?alt=sse`."""

    root = ""
    ends = ""
    path = re.compile(r"/models/([^:/]+):(generateContent|streamGenerateContent)(\?alt=sse)?$")
    states = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED"}
    states |= {404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}

    def read(self, seen: Recorded) -> bool:
        found = self.path.match(seen.path)
        assert found, seen.path
        assert seen.headers["x-goog-api-key"], "Gemini refuses a request without a key"
        seen.model = found[1]
        system = seen.body.get("system_instruction") or seen.body.get("systemInstruction") or {}
        seen.system = _texts(system.get("parts"))
        seen.question = _texts(seen.body["contents"][-1]["parts"])
        return found[2] == "streamGenerateContent"

    def messages(self, seen: Recorded) -> list[dict[str, Any]]:
        head = [{"role": "system", "content": seen.system}] if seen.system else []
        roles = {"model": "assistant"}
        return [
            *head,
            *(
                {"role": roles.get(turn["role"], "user"), "content": _texts(turn["parts"])}
                for turn in seen.body["contents"]
            ),
        ]

    def refusal(self, status: int, code: str, message: str) -> dict[str, Any]:
        if code == "context_length_exceeded":
            limit, tokens = re.findall(r"\d+", message)
            message = (
                f"The input token count ({tokens}) exceeds the maximum number of tokens allowed "
                f"({limit})."
            )
        state = self.states.get(status, "INTERNAL")
        return {"error": {"code": status, "message": message, "status": state}}

    def whole(self, double: Double, seen: Recorded) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [{"text": double.answer(seen)}]
        if double.tool_calls:
            parts = [self._call(call) for call in double.tool_calls]
        return self._said(double, seen, parts, "STOP")

    def empty(self, double: Double, seen: Recorded) -> dict[str, Any]:
        return {**self.whole(double, seen), "candidates": []}

    def usage(self, double: Double, seen: Recorded) -> dict[str, int]:
        prompt = double.counted(seen) or PROMPT_TOKENS
        return {
            "promptTokenCount": prompt,
            "candidatesTokenCount": COMPLETION_TOKENS,
            "totalTokenCount": prompt + COMPLETION_TOKENS,
        }

    def pieces(self, double: Double, seen: Recorded) -> Iterator[tuple[str, bool]]:
        parts: list[dict[str, Any]] = [{"text": word} for word in words(double.answer(seen))]
        if double.tool_calls:
            parts = [self._call(call) for call in double.tool_calls]
        for part in parts[:-1]:
            yield event(self._said(double, seen, [part])), False
        yield event(self._said(double, seen, parts[-1:], "STOP")), True

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        return {
            "functionCall": {"name": function["name"], "args": json.loads(function["arguments"])}
        }

    def _said(
        self, double: Double, seen: Recorded, parts: list[dict[str, Any]], ended: str = ""
    ) -> dict[str, Any]:
        candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
        if ended:
            candidate["finishReason"] = ended
        return {
            "candidates": [candidate],
            "usageMetadata": self.usage(double, seen),
            "modelVersion": seen.model,
            "responseId": "r1",
        }


def anthropic_double(**options: Any) -> Any:
    """A running server in Anthropic's shape."""
    return running(Double(shape=AnthropicShape(), **options))


def gemini_double(**options: Any) -> Any:
    """A running server in Gemini's shape."""
    return running(Double(shape=GeminiShape(), **options))


class AzureShape(OpenAIShape):
    """OpenAI's shape at `POST /openai/deployments/NAME/chat/completions?api-version=…`."""

    root = ""
    path = re.compile(r"/openai/deployments/([^/]+)/chat/completions\?api-version=([\d-]+)$")

    def read(self, seen: Recorded) -> bool:
        found = self.path.match(seen.path)
        assert found, seen.path
        assert seen.headers["api-key"], "Azure refuses a request without a key"
        streamed = super().read(seen)
        seen.model = found[1]
        return streamed


class OllamaShape:
    """`POST /api/generate` and `POST /api/chat`, whole."""

    root = ""
    ends = ""

    def read(self, seen: Recorded) -> bool:
        assert seen.path in ("/api/generate", "/api/chat", "/api/show"), seen.path
        seen.model = seen.body.get("model") or seen.body.get("name", "")
        if seen.path == "/api/chat":
            said = self.messages(seen)
            seen.system = "".join(one["content"] for one in said if one["role"] == "system")
            seen.question = said[-1]["content"]
        else:
            seen.system = seen.body.get("system") or seen.body.get("prompt", "")
            seen.question = seen.body.get("prompt", "")
        assert not seen.body.get("stream"), "streams of Ollama are not in this shape"
        return False

    def messages(self, seen: Recorded) -> list[dict[str, Any]]:
        return [{**one, "content": one.get("content") or ""} for one in seen.body["messages"]]

    def refusal(self, status: int, code: str, message: str) -> dict[str, Any]:
        return {"error": message}

    def whole(self, double: Double, seen: Recorded) -> dict[str, Any]:
        if seen.path == "/api/show":
            return {"model_info": {}, "template": ""}
        said = double.answer(seen)
        text: dict[str, Any] = {"response": said}
        if seen.path == "/api/chat":
            text = {"message": {"role": "assistant", "content": said}}
        return {
            "model": seen.model,
            "created_at": "2026-01-01T00:00:00Z",
            **text,
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": PROMPT_TOKENS,
            "eval_count": COMPLETION_TOKENS,
        }

    def empty(self, double: Double, seen: Recorded) -> dict[str, Any]:
        return {**self.whole(double, seen), "response": ""}
