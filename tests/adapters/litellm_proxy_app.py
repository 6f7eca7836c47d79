"""LiteLLM's proxy with the hook: the real application, or its hooks called in its order."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import sys
import threading
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import litellm
from fastapi import HTTPException

from crp_integrations.engines.litellm_versions import plain_tools

MASTER = "sk-master"
TEAMS = {MASTER: "", "sk-acme": "acme", "sk-other": "other"}
SERVER = "litellm.proxy.proxy_server"
HOOKS = "crp_hooks_of_the_tests"


def installed() -> bool:
    """Whether LiteLLM's application can be run here."""
    needed = ("apscheduler", "orjson", "litellm_proxy_extras", "backoff", "uvicorn")
    return all(importlib.util.find_spec(name) for name in needed)


@dataclass
class Given:
    """What a client got.

    Attributes:
        pieces: the data of a stream's events.
    """

    status: int
    headers: dict[str, str]
    body: dict[str, Any] = field(default_factory=dict)
    pieces: list[dict[str, Any]] = field(default_factory=list)

    @property
    def text(self) -> str:
        if self.body:
            return self.body["choices"][0]["message"]["content"]
        return "".join(
            (one["choices"][0]["delta"].get("content") or "")
            for one in self.pieces
            if one["choices"]
        )

    @property
    def told(self) -> dict[str, Any]:
        """What carries the proof: a whole response, or one piece of a stream."""
        return self.body or next(one for one in self.pieces if "crp" in one)

    @property
    def crp(self) -> dict[str, Any]:
        return self.told["crp"]


async def authorised(request: Any, api_key: str) -> Any:
    """A user of one of the teams."""
    from litellm.proxy._types import LitellmUserRoles, UserAPIKeyAuth

    if api_key not in TEAMS:
        raise PermissionError("no such key")
    return UserAPIKeyAuth(
        api_key=api_key,
        team_id=TEAMS[api_key] or None,
        user_role=LitellmUserRoles.PROXY_ADMIN,
    )


class Application:
    """A client of the running application."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, body: dict[str, Any], headers: dict[str, str], key: str) -> Given:
        sent = {"Authorization": f"Bearer {key}", **headers}
        path = f"{self.url}/v1/chat/completions"
        response = httpx.post(path, json=body, headers=sent, timeout=60)
        told = dict(response.headers)
        if not response.content:
            return Given(response.status_code, told)
        if not response.headers["content-type"].startswith("text/event-stream"):
            return Given(response.status_code, told, response.json())
        lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.strip()]
        assert lines.pop() == "[DONE]"
        pieces = [json.loads(line) for line in lines]
        if response.status_code >= 400:
            (body,) = pieces
            return Given(response.status_code, told, body)
        return Given(response.status_code, told, pieces=pieces)


@contextmanager
def application(
    folder: Path, hook: Any, entries: list[dict[str, Any]], **settings: Any
) -> Iterator[Application]:
    """The real application, with the hook as its callback."""
    import uvicorn
    from litellm.proxy import proxy_server

    # LiteLLM reads callbacks from a file beside its configuration.
    module = types.ModuleType(HOOKS)
    vars(module).update(hook=hook, authorised=authorised)
    sys.modules[HOOKS] = module
    (folder / "proxy_callbacks.py").write_text(f"from {HOOKS} import authorised, hook\n")
    config = {
        "model_list": entries,
        "litellm_settings": {"callbacks": ["proxy_callbacks.hook"]},
        "router_settings": settings,
        "general_settings": {
            "custom_auth": "proxy_callbacks.authorised",
            "forward_client_headers_to_llm_api": True,
        },
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))
    asyncio.run(proxy_server.initialize(config=str(path)))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    how = {"host": "127.0.0.1", "port": port, "log_level": "error", "lifespan": "off"}
    server = uvicorn.Server(uvicorn.Config(proxy_server.app, **how))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield Application(f"http://127.0.0.1:{port}")
    finally:
        server.should_exit = True
        thread.join(timeout=10)


class Record:
    """LiteLLM's own record of a request, of which there is one each."""


class Called:
    """Calls the hooks as the application does, around calls of a router."""

    def __init__(self, hook: Any, router: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.hook, self.router, self.loop = hook, router, loop

    def ask(self, body: dict[str, Any], headers: dict[str, str], key: str) -> Given:
        work = self.asked(body, headers, key)
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    async def asked(self, body: dict[str, Any], headers: dict[str, str], key: str) -> Given:
        lower = {name.lower(): value for name, value in headers.items()}
        data = {
            **body,
            "proxy_server_request": {"headers": {**lower, "authorization": key}},
            "metadata": {"headers": dict(lower)},
            "litellm_logging_obj": Record(),
        }
        user = types.SimpleNamespace(api_key=key, team_id=TEAMS[key] or None)
        try:
            return await self.played(data, user)
        except Exception as error:  # noqa: BLE001 - as the application does
            del data["litellm_logging_obj"]
            turned = await self.hook.async_post_call_failure_hook(data, error, user)
            error = turned or error
            told = dict(getattr(error, "headers", None) or {})
            told |= await self.told(data, user, None)
            status = getattr(error, "status_code", 500)
            if status == 304:
                return Given(status, _lower(told))
            detail = error.detail if isinstance(error, HTTPException) else str(error)
            return Given(status, _lower(told), {"error": {"message": detail}})

    async def played(self, data: dict[str, Any], user: Any) -> Given:
        data = await self.hook.async_pre_call_hook(user, None, data, "acompletion") or data
        own = ("proxy_server_request", "litellm_logging_obj")
        call = {name: value for name, value in data.items() if name not in own}
        if data.get("tools"):
            # The application has the libraries by which LiteLLM looks for MCP servers.
            call |= plain_tools()
        response = await asyncio.create_task(self.router.acompletion(**call))
        if not data.get("stream"):
            response = await self.hook.async_post_call_success_hook(data, user, response)
            told = await self.told(data, user, response)
            return Given(200, told, response.model_dump(mode="json"))
        told = await self.told(data, user, response)
        chunks = self.hook.async_post_call_streaming_iterator_hook(user, response, data)
        pieces = [
            chunk.model_dump(mode="json", exclude_none=True, exclude_unset=True)
            async for chunk in chunks
        ]
        return Given(200, told, pieces=pieces)

    async def told(self, data: dict[str, Any], user: Any, response: Any) -> dict[str, str]:
        hook = self.hook.async_post_call_response_headers_hook
        return _lower(await hook(data, user, response, request_headers={}) or {})


@contextmanager
def called(hook: Any, entries: list[dict[str, Any]], **settings: Any) -> Iterator[Called]:
    """The hooks called in the application's order."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def made() -> Any:
        return litellm.Router(model_list=entries, **settings)

    router = asyncio.run_coroutine_threadsafe(made(), loop).result()
    before = sys.modules.get(SERVER)
    stand_in = types.ModuleType(SERVER)
    vars(stand_in)["llm_router"] = router
    sys.modules[SERVER] = stand_in
    try:
        yield Called(hook, router, loop)
    finally:
        if before is None:
            del sys.modules[SERVER]
        else:
            sys.modules[SERVER] = before
        asyncio.run_coroutine_threadsafe(_ended(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _ended() -> None:
    """Cancel what LiteLLM left in the loop."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def _lower(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
