"""Clients for servers with the OpenAI HTTP API, without a provider's library.

A request contains only the call and the arguments that an operator's gateway passes on; its only
headers are the server's key and the content type. Redirects are not followed. A server's own
message may repeat parts of a prompt, so it is not part of an error's text, but only of its
`refusal`, for the caller.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from copy import copy
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final

import httpx

from crp_integrations.engines.litellm import message_json
from crp_integrations.errors import (
    ConfigError,
    MissingExtra,
    ModelAuthError,
    ModelError,
    ModelTimeout,
    provider_error,
    provider_refusal,
)
from crp_integrations.messages import ModelCall, Reply, ToolCall, Usage

_LOG: Final = logging.getLogger("crp_integrations.engines")

OK: Final = 200
DONE: Final = b"[DONE]"
SHORTEST_KEY: Final = 8
# Names of the field for a model's maximum input tokens in servers' lists of models.
LIMIT_FIELDS: Final = ("context_length", "max_model_len", "context_window")
# Seconds: timeout for the list, how long it stays valid, and the pause after a failed read.
LIST_TIMEOUT: Final = 5.0
LIST_HOLDS: Final = 300.0
LIST_PAUSE: Final = 30.0


class OpenAIServer:
    """Answers calls through `POST {base_url}/chat/completions`. Thread-safe.

    Until `aclose`, the asynchronous methods can only be used in the event loop of their first use.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str = "",
        timeout_s: float = 60.0,
        connections: int = 256,
        most_bytes: int = 2_000_000,
        deadline_s: float = 600.0,
    ) -> None:
        """Set the server; nothing is sent yet.

        Args:
            timeout_s: maximum seconds without a byte of an answer.
            deadline_s: maximum seconds of a whole answer, however it trickles in; the synchronous
                methods count from the first byte of its body.
        """
        if not base_url.startswith(("http://", "https://")):
            raise ConfigError(f"upstream {base_url!r:.80} is not an http or https address")
        sent = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._server = _Connections(
            base_url.rstrip("/") + "/chat/completions",
            most_bytes,
            deadline_s,
            {"timeout": timeout_s, "limits": limits, "follow_redirects": False, "headers": sent},
        )
        self._arguments: dict[str, Any] = {}
        self._listed = _ListedLimits(self._server, base_url.rstrip("/") + "/models", timeout_s)

    def context_limit(self, model: str) -> int | None:
        """A model's maximum input tokens by the server's list of models; None if it has none.

        The list is read once and stays valid for some minutes.
        """
        return self._listed.of(model)

    def known(self, model: str) -> None:
        """Accept every name, since only the server knows its models."""

    def shaped(self, arguments: Mapping[str, Any]) -> OpenAIServer:
        """A copy for one question with further request fields, such as `top_p`."""
        shaped = copy(self)
        shaped._arguments = dict(arguments)
        return shaped

    async def aclose(self) -> None:
        """Close the connections; the next call opens new ones."""
        await self._server.aclose()

    def call(self, call: ModelCall) -> Reply:
        """Answer a call."""
        with self._server.posted(self._body(call), call.model) as pieces:
            return _whole(b"".join(pieces), call.model)

    async def acall(self, call: ModelCall) -> Reply:
        """Answer a call without blocking the event loop."""
        async with self._server.aposted(self._body(call), call.model) as pieces:
            return _whole(b"".join([piece async for piece in pieces]), call.model)

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        """Pieces of text as they arrive, then the whole reply."""
        events = _EventStream(call.model)
        with self._server.posted(self._body(call, stream=True), call.model) as pieces:
            for piece in pieces:
                yield from events.add(piece)
        yield events.reply()

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous version of `stream`."""
        events = _EventStream(call.model)
        async with self._server.aposted(self._body(call, stream=True), call.model) as pieces:
            async for piece in pieces:
                for text in events.add(piece):
                    yield text
        yield events.reply()

    def _body(self, call: ModelCall, *, stream: bool = False) -> dict[str, Any]:
        body: dict[str, Any] = {
            **self._arguments,
            "model": call.model,
            "messages": [message_json(message) for message in call.messages],
        }
        for name in ("temperature", "seed"):
            if getattr(call, name) is not None:
                body[name] = getattr(call, name)
        # Not in addition to the newer field, if the caller has set that one.
        if call.max_tokens is not None and "max_completion_tokens" not in body:
            body["max_tokens"] = call.max_tokens
        if call.tools:
            body["tools"] = [dict(tool) for tool in call.tools]
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body


OPENAI: Final = "openai"
OPENAI_ADDRESS: Final = "https://api.openai.com/v1"


class OpenAIModels(OpenAIServer):
    """OpenAI's models, or those of the server at `api_base`, where LiteLLM is not installed.

    Key and address come from the options, then from `OPENAI_API_KEY` and `OPENAI_BASE_URL`.
    """

    def __init__(self, *, timeout_s: float, options: Mapping[str, Any] | None = None) -> None:
        """Take server and key from the options or the environment."""
        further = dict(options or {})
        stated = further.pop("api_base", None)
        address = stated or os.environ.get("OPENAI_BASE_URL") or OPENAI_ADDRESS
        key = further.pop("api_key", None) or os.environ.get("OPENAI_API_KEY", "")
        super().__init__(address, api_key=key, timeout_s=timeout_s)
        self._arguments = further
        self._any_name = stated is not None
        self._without_key = not key and address == OPENAI_ADDRESS

    def known(self, model: str) -> None:
        """Raise unless a name is one of OpenAI's, or `api_base` was given, and a key is set."""
        provider, slash, _ = model.partition("/")
        if slash and provider != OPENAI and not self._any_name:
            raise MissingExtra("litellm", f"the model {model!r:.80}")
        if self._without_key:
            raise ModelAuthError(f"model {model!r:.80} needs a key: set OPENAI_API_KEY")

    def _body(self, call: ModelCall, *, stream: bool = False) -> dict[str, Any]:
        self.known(call.model)
        own = call.model.removeprefix(f"{OPENAI}/")
        return {**super()._body(call, stream=stream), "model": own}


class _ListedLimits:
    """The context limits in a server's list of models, if it has any. Thread-safe."""

    def __init__(self, server: _Connections, url: str, timeout_s: float) -> None:
        self._server, self._url = server, url
        self._timeout = min(LIST_TIMEOUT, timeout_s)
        self._found: dict[str, int] = {}
        self._until = 0.0
        self._lock = threading.Lock()

    def of(self, model: str) -> int | None:
        """The limit of a model, by its name with or without a provider in front."""
        with self._lock:
            if time.monotonic() >= self._until:
                read = self._read()
                # If the list cannot be read now, the previous one stays in use.
                self._found = self._found if read is None else read
                self._until = time.monotonic() + (LIST_PAUSE if read is None else LIST_HOLDS)
            return self._found.get(model) or self._found.get(model.rpartition("/")[2])

    def _read(self) -> dict[str, int] | None:
        try:
            listed = json.loads(self._server.fetched(self._url, self._timeout))["data"]
            return {str(entry["id"]): limit for entry in listed if (limit := _limit_in(entry))}
        except (ModelError, httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            # The error's own text may contain an address with a key.
            _LOG.info("the upstream's list of models was not read: %s", type(error).__name__)
            return None


def _limit_in(entry: Mapping[str, Any]) -> int | None:
    """The limit in an entry of a list of models; None if it has none."""
    stated = (entry.get(name) for name in LIMIT_FIELDS)
    plain = (limit for limit in stated if isinstance(limit, int) and not isinstance(limit, bool))
    return next((limit for limit in plain if limit > 0), None)


class _Connections:
    """The connections to a server, shared by all copies from `shaped`."""

    def __init__(
        self, url: str, most_bytes: int, deadline_s: float, options: Mapping[str, Any]
    ) -> None:
        self._url, self._most, self._options = url, most_bytes, options
        self._deadline = deadline_s
        self._async: httpx.AsyncClient | None = None
        self._sync: httpx.Client | None = None

    async def aclose(self) -> None:
        """Close open connections."""
        if self._async is not None:
            await self._async.aclose()
            self._async = None
        if self._sync is not None:
            self._sync.close()
            self._sync = None

    def fetched(self, url: str, timeout_s: float) -> bytes:
        """The body of a GET response from another address of the server."""
        if self._sync is None:
            self._sync = httpx.Client(cookies=_no_cookies(), **self._options)
        begun = time.monotonic()
        with self._sync.stream("GET", url, timeout=timeout_s) as response:
            response.raise_for_status()
            return b"".join(self._limited(response, begun))

    @contextmanager
    def posted(self, body: Mapping[str, Any], model: str) -> Iterator[Iterator[bytes]]:
        """The bytes of an answer, as they arrive."""
        if self._sync is None:
            self._sync = httpx.Client(cookies=_no_cookies(), **self._options)
        begun = time.monotonic()
        with (
            _translated(model),
            self._sync.stream("POST", self._url, json=body) as response,
        ):
            if response.status_code != OK:
                raise self._refused(response, b"".join(self._limited(response, begun)), model)
            yield self._limited(response, begun)

    @asynccontextmanager
    async def aposted(
        self, body: Mapping[str, Any], model: str
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The asynchronous version of `posted`."""
        if self._async is None:
            self._async = httpx.AsyncClient(cookies=_no_cookies(), **self._options)
        begun = time.monotonic()
        with _translated(model):
            request = self._async.build_request("POST", self._url, json=body)
            async with asyncio.timeout(self._deadline):
                response = await self._async.send(request, stream=True)
            async with aclosing(response):
                if response.status_code != OK:
                    pieces = [piece async for piece in self._alimited(response, begun)]
                    raise self._refused(response, b"".join(pieces), model)
                yield self._alimited(response, begun)

    def _refused(self, response: httpx.Response, body: bytes, model: str) -> ModelError:
        status = response.status_code
        summary = f"the upstream answered the call to model {model!r} with status {status}"
        text = body.decode(errors="replace")
        for sent in self._options["headers"].values():
            # Keys have no fixed form; a shorter value could be an ordinary word of the message.
            secret = str(sent).removeprefix("Bearer ")
            text = text.replace(secret, "[key]") if len(secret) >= SHORTEST_KEY else text
        return _error(summary, status, text, response.headers.get("Retry-After", ""))

    def _limited(self, response: httpx.Response, begun: float) -> Iterator[bytes]:
        read = 0
        for piece in response.iter_bytes():
            read += len(piece)
            self._check(read, begun)
            yield piece

    async def _alimited(self, response: httpx.Response, begun: float) -> AsyncIterator[bytes]:
        read = 0
        async for piece in response.aiter_bytes():
            read += len(piece)
            self._check(read, begun)
            yield piece

    def _check(self, read: int, begun: float) -> None:
        if time.monotonic() - begun > self._deadline:
            raise httpx.ReadTimeout(f"the answer took more than {self._deadline:g} seconds")
        if read > self._most:
            raise ModelError(f"the upstream answered with more than {self._most} bytes")


class _EventStream:
    """Assembles a reply from the server-sent events of a stream."""

    def __init__(self, model: str) -> None:
        self._called = self._model = model
        self._rest = b""
        self._text: list[str] = []
        self._tools: dict[int, dict[str, str]] = {}
        self._places: dict[int, int] = {}
        self._finish = ""
        self._usage = Usage()

    def add(self, piece: bytes) -> Iterator[str]:
        """Add received bytes; yields the texts of events that they complete."""
        # Split as bytes, since a text may contain characters that `str.splitlines` splits at.
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            name, _, value = line.strip().partition(b":")
            if name == b"data" and value.strip() != DONE:
                text = self._read(_json(value, self._called))
                if text:
                    self._text.append(text)
                    yield text

    def reply(self) -> Reply:
        """The whole reply."""
        if not self._finish:
            raise ModelError(f"the stream of model {self._called!r} broke off before its end")
        calls = tuple(
            ToolCall(id=tool["id"], name=tool["name"], arguments=tool["arguments"] or "{}")
            for _, tool in sorted(self._tools.items())
        )
        return Reply(
            text="".join(self._text),
            model=self._model,
            tool_calls=calls,
            usage=self._usage,
            finish_reason=self._finish,
        )

    def _read(self, event: Any) -> str:
        try:
            if event.get("error"):
                summary = f"the stream of model {self._called!r} ended in an error"
                code = event["error"].get("code") if isinstance(event["error"], dict) else None
                # The HTTP status was sent earlier, so servers put the error's status in the event.
                raise _error(summary, code if isinstance(code, int) else None, json.dumps(event))
            if event.get("usage"):
                self._usage = _usage(event)
            if not event.get("choices"):
                return ""
            self._model = event.get("model") or self._model
            choice = event["choices"][0]
            self._finish = choice.get("finish_reason") or self._finish
            delta = choice.get("delta") or {}
            for call in delta.get("tool_calls") or ():
                known = self._tool(int(call.get("index") or 0), call.get("id") or "")
                function = call.get("function") or {}
                known["id"] = call.get("id") or known["id"]
                known["name"] = function.get("name") or known["name"]
                known["arguments"] += function.get("arguments") or ""
            return str(delta.get("content") or "")
        except (AttributeError, KeyError, IndexError, TypeError, ValueError):
            raise _no_answer(self._called) from None

    def _tool(self, index: int, id_: str) -> dict[str, str]:
        """The tool call that a piece belongs to."""
        place = self._places.get(index, index)
        if id_ and self._tools.get(place, {}).get("id") not in (None, "", id_):
            # Some servers send all parallel calls with index 0, each with its own id.
            place = self._places[index] = max(self._tools) + 1
        return self._tools.setdefault(place, {"id": "", "name": "", "arguments": ""})


def _no_cookies() -> CookieJar:
    """A jar that keeps no cookies, as one caller's must not be sent with another's request."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=[]))


def _whole(data: bytes, model: str) -> Reply:
    """Convert a completion to a reply."""
    completion = _json(data, model)
    try:
        if not completion["choices"]:
            raise ModelError(f"model {model!r} sent no choice in its answer")
        choice = completion["choices"][0]
        message = choice["message"]
        calls = tuple(
            ToolCall(
                id=call.get("id") or "",
                name=call["function"]["name"],
                arguments=call["function"].get("arguments") or "{}",
            )
            for call in message.get("tool_calls") or ()
        )
        return Reply(
            text=message.get("content") or "",
            model=completion.get("model") or model,
            tool_calls=calls,
            usage=_usage(completion),
            finish_reason=choice.get("finish_reason") or "stop",
        )
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        raise _no_answer(model) from None


def _usage(completion: Mapping[str, Any]) -> Usage:
    usage = completion.get("usage") or {}
    return Usage(
        prompt_tokens=usage.get("prompt_tokens") or 0,
        completion_tokens=usage.get("completion_tokens") or 0,
    )


def _json(data: bytes, model: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise _no_answer(model) from None


def _no_answer(model: str) -> ModelError:
    return ModelError(f"the upstream's answer for model {model!r} is not in the OpenAI format")


def _error(summary: str, status: int | None, body: str, retry_after: str = "") -> ModelError:
    error: ModelError = provider_error(status, body)(summary)
    error.provider_status = status
    error.refusal, error.retry_after = provider_refusal(body), retry_after
    return error


@contextmanager
def _translated(model: str) -> Iterator[None]:
    """Turn errors of httpx into the package's."""
    try:
        yield
    except (httpx.TimeoutException, TimeoutError) as error:
        raise ModelTimeout(f"model {model!r} did not answer in time") from error
    except (httpx.ConnectError, httpx.UnsupportedProtocol) as error:
        raise ModelError(f"the upstream of model {model!r} cannot be reached") from error
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        raise ModelError(f"the call to model {model!r} failed ({type(error).__name__})") from error
