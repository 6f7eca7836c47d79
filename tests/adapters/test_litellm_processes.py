"""A router in forked workers, and contexts that outlive the call that they were made for."""

from __future__ import annotations

import asyncio
import gc
import os
from contextvars import Context, copy_context
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.errors import ModelAuthError
from crp_integrations.litellm import CRPProxyHook, CRPRouter
from crp_integrations.litellm.attempt_packing import AttemptPacking, CallAttempts
from crp_integrations.litellm.proxy import ProxyRequest
from crp_integrations.relay.turn import Turn
from tests.adapters.litellm_deployments import QUESTION, entry
from tests.adapters.litellm_proxy_app import MASTER, called
from tests.commands import script
from tests.servers import Double

FORKING = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

SCRIPT = """
import os
import sys

from crp_integrations import Relay
from crp_integrations.errors import EngineError
from crp_integrations.litellm import CRPRouter
from tests.doubles import HashEmbedder

fact = "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts."
asked = [{"role": "user", "content": "How much power does the Meridian reactor deliver?"}]
entry = {"model_name": "quoting", "litellm_params": {"model": "extractive/best"}}


def made():
    relay = Relay.open(embedder=HashEmbedder())
    relay.fabric.add([fact])
    return CRPRouter([entry], relay=relay)


def answered(router):
    return "412" in router.completion("quoting", asked).choices[0].message.content


def forked(work):
    child = os.fork()
    if not child:
        try:
            os._exit(work())
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(4)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# What is documented: the parent makes its router, the workers call it.
router = made()
before = max(forked(lambda: 0 if answered(router) else 3) for _ in range(2))


# A call in the parent starts the loop of the synchronous path, and LiteLLM's native runtime.
def worker():
    try:
        return 0 if answered(made()) else 3
    except EngineError as error:
        return 0 if "in the worker, after the fork" in str(error) else 3


assert answered(made())
print(before, forked(worker))
"""


@FORKING
def test_a_forked_worker_answers_or_says_where_the_first_call_belongs() -> None:
    """The loop's thread stays behind in the first process; to wait for it would be for ever.

    LiteLLM's native runtime, where it has one, works in no process that was forked after its start.
    """
    done = script("-c", SCRIPT)
    assert done.returncode == 0, done.stderr[-800:]
    assert done.stdout.split() == ["0", "0"], done.stderr[-800:]


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
        if stream:
            assert [chunk async for chunk in response]
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
    monkeypatch.setattr("crp_integrations.litellm.proxy.GRACE_SECONDS", 0.0)
    before = alive(CallAttempts, ProxyRequest, Turn)
    with called(CRPProxyHook(relay), [entry(server, "main", "gpt-4o")], num_retries=0) as client:
        sent = {"model": "main", "messages": [{"role": "user", "content": QUESTION}]}
        assert client.ask(sent, {}, MASTER).status == 200
    assert kept
    assert alive(CallAttempts, ProxyRequest, Turn) == before
