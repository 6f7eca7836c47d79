"""What a context that outlives its call keeps of it: timers hold one for hours."""

from __future__ import annotations

import asyncio
import gc
from contextvars import Context, copy_context
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.errors import ModelAuthError
from crp_integrations.litellm import CRPProxyHook, CRPRouter
from crp_integrations.litellm.attempt_packing import AttemptPacking, CallAttempts
from crp_integrations.litellm.proxy_request import ProxyRequest
from crp_integrations.relay.turn import Turn
from tests.adapters.deployments import QUESTION, entry
from tests.adapters.proxied import MASTER, called
from tests.servers import Double


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Context]:
    """The contexts in which attempts were made, as asyncio keeps that of a cancelled timer."""
    contexts: list[Context] = []
    hook = AttemptPacking.async_pre_call_deployment_hook

    async def hooked(self: AttemptPacking, kwargs: dict[str, Any], call_type: Any) -> Any:
        contexts.append(copy_context())
        return await hook(self, kwargs, call_type)

    monkeypatch.setattr(AttemptPacking, "async_pre_call_deployment_hook", hooked)
    return contexts


def alive(*kinds: type) -> list[str]:
    gc.collect()
    return [type(one).__name__ for one in gc.get_objects() if type(one) in kinds]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_context_keeps_nothing_of_a_question_that_ended(
    relay: Relay, server: Double, kept: list[Context], stream: bool
) -> None:
    router = CRPRouter([entry(server, "main", "gpt-4o")], relay=relay, num_retries=0)
    before = alive(CallAttempts, Turn)

    async def asked() -> None:
        said = [{"role": "user", "content": QUESTION}]
        response = await router.acompletion(
            "main",
            said,
            stream=stream,
            session_id="crp_sess_" + "5" * 16,
            crp={"cache": "no-store"},
        )
        assert response.crp
        del response
        # LiteLLM logs a call after it has answered.
        await asyncio.sleep(0.2)

    asyncio.run(asked())
    assert kept
    assert alive(CallAttempts, Turn) == before


def test_a_context_keeps_nothing_of_a_call_that_failed(
    relay: Relay, server: Double, kept: list[Context]
) -> None:
    router = CRPRouter([entry(server, "main", "gpt-4o")], relay=relay, num_retries=0)
    server.fault = "unauthorised"
    before = alive(CallAttempts, Turn)

    async def asked() -> None:
        with pytest.raises(ModelAuthError):
            await router.acompletion("main", [{"role": "user", "content": QUESTION}])
        await asyncio.sleep(0.2)

    asyncio.run(asked())
    assert kept
    assert alive(CallAttempts, Turn) == before


def test_a_context_keeps_nothing_of_a_proxys_request(
    relay: Relay, server: Double, kept: list[Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crp_integrations.litellm.proxy_request.GRACE_SECONDS", 0.0)
    before = alive(CallAttempts, ProxyRequest, Turn)
    with called(CRPProxyHook(relay), [entry(server, "main", "gpt-4o")], num_retries=0) as client:
        sent = {"model": "main", "messages": [{"role": "user", "content": QUESTION}]}
        assert client.ask(sent, {}, MASTER).status == 200
    assert kept
    assert alive(CallAttempts, ProxyRequest, Turn) == before
