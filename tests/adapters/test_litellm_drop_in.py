"""`CRPRouter` in the place of a `litellm.Router`: its errors and its further attributes."""

from __future__ import annotations

import asyncio
import copy
import pickle
import time
from collections import Counter
from typing import Any

import litellm
import openai
import pytest
from litellm.integrations.custom_logger import CustomLogger

from crp_integrations import Relay
from crp_integrations.errors import (
    CRPError,
    ModelAuthError,
    ModelContextExceeded,
    ModelError,
    ModelNotFound,
    ModelRateLimited,
    ModelTimeout,
    RequestError,
)
from crp_integrations.litellm import CRPRouter
from tests.adapters.litellm_deployments import ASKED, WAYS, answered, entry, outcomes, router
from tests.servers import Double

SESSION = "crp_sess_" + "3" * 16
# LiteLLM's class by fault, and this package's.
BOTH = {
    "unauthorised": (litellm.AuthenticationError, ModelAuthError),
    "forbidden": (litellm.APIError, ModelAuthError),
    "not-found": (litellm.NotFoundError, ModelNotFound),
    "rate": (litellm.RateLimitError, ModelRateLimited),
    "broken": (litellm.InternalServerError, ModelError),
    "unavailable": (litellm.ServiceUnavailableError, ModelError),
    "context": (litellm.ContextWindowExceededError, ModelContextExceeded),
    "bad-request": (litellm.BadRequestError, ModelError),
    "slow": (litellm.Timeout, ModelTimeout),
    "drop": (litellm.InternalServerError, ModelError),
}
FIELDS = ("status_code", "llm_provider", "model", "code", "param", "type")


def called_by(server: Double, relay: Relay, **options: Any) -> CRPRouter:
    return router(relay, entry(server, "main", "gpt-4o"), disable_cooldowns=True, **options)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("fault", BOTH)
def test_an_error_is_one_of_litellms_and_one_of_this_package(
    relay: Relay, server: Double, how: str, fault: str
) -> None:
    server.fault = fault
    called = called_by(server, relay)
    options = {"timeout": 0.3} if fault == "slow" else {}
    theirs, own = BOTH[fault]
    with pytest.raises(theirs) as plain:
        asyncio.run(called.router.acompletion("main", ASKED, **options))
    with pytest.raises(theirs) as caught:
        answered(how, called, session_id=SESSION, **options)
    assert isinstance(caught.value, own)
    assert isinstance(caught.value, type(plain.value))
    error: Any = caught.value
    for name in FIELDS:
        assert getattr(error, name, None) == getattr(plain.value, name, None), name
    response = getattr(plain.value, "response", None)
    if response is not None:
        assert (error.response.status_code, error.response.text) == (
            response.status_code,
            response.text,
        )
    # The sentence is this package's; the provider's words follow it.
    assert error.message == str(error)
    assert str(error).startswith(error.args[0])
    assert error.refusal is None or error.refusal["message"] in str(error)
    assert fault in ("forbidden", "slow", "drop", "broken", "unavailable") or error.refusal
    assert error.tried == ("openai/gpt-4o",)
    assert outcomes(relay, SESSION) == ["failed"]


def test_errors_that_litellm_mocks_are_caught_the_same_way(relay: Relay, server: Double) -> None:
    called = called_by(server, relay)
    for words, theirs in (
        ("litellm.RateLimitError", litellm.RateLimitError),
        ("litellm.ContextWindowExceededError", litellm.ContextWindowExceededError),
        ("litellm.InternalServerError", litellm.InternalServerError),
    ):
        for how in WAYS:
            with pytest.raises(theirs) as caught:
                answered(how, called, mock_response=words)
            assert isinstance(caught.value, ModelError)
    assert server.requests == []


def test_an_unknown_group_is_the_bad_request_that_litellm_raises(
    relay: Relay, server: Double
) -> None:
    called = called_by(server, relay)
    with pytest.raises(litellm.BadRequestError) as plain:
        asyncio.run(called.router.acompletion("nobody", ASKED))
    with pytest.raises(type(plain.value), match=r"'nobody'.*main") as caught:
        called.completion("nobody", ASKED)
    assert isinstance(caught.value, ModelNotFound)


@pytest.mark.parametrize("fault", ["cut", "break", "garbled", "malformed", "empty"])
def test_what_litellm_lets_pass_is_an_openai_error_too(
    relay: Relay, server: Double, fault: str
) -> None:
    server.fault = fault
    with pytest.raises(openai.APIError) as caught:
        answered("stream", called_by(server, relay))
    assert isinstance(caught.value, ModelError)


@pytest.mark.parametrize("fault", ["rate", "context", "broken"])
def test_an_error_is_copied_and_pickled(relay: Relay, server: Double, fault: str) -> None:
    server.fault = fault
    with pytest.raises(BOTH[fault]) as caught:
        called_by(server, relay).completion("main", ASKED)
    error: Any = caught.value
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert (again.status_code, again.tried) == (error.status_code, error.tried)


def test_there_is_one_class_for_each_pair(relay: Relay, server: Double) -> None:
    server.fault = "rate"
    kinds = set()
    for _ in range(3):
        with pytest.raises(CRPError) as caught:
            called_by(server, relay).completion("main", ASKED)
        kinds.add(type(caught.value))
    assert len(kinds) == 1


@pytest.mark.parametrize(
    "arguments", [{"n": 2}, {"crp": {"k": 0}}, {"crp": {"policy": "halt"}}, {"messages": []}]
)
def test_a_refused_request_has_the_status_that_clients_read(
    relay: Relay, server: Double, arguments: dict[str, Any]
) -> None:
    with pytest.raises(RequestError) as caught:
        called_by(server, relay).completion("main", **{"messages": ASKED, **arguments})
    assert caught.value.status_code == caught.value.status_hint == 400


# --- further attributes --------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_the_router_lacks_is_asked_of_litellms(relay: Relay, server: Double) -> None:
    called = called_by(server, relay, num_retries=3)
    assert called.num_retries == called.router.num_retries == 3
    assert called.get_model_names() == ["main"]
    assert callable(called.aembedding)
    assert hasattr(called, "model_list")


def test_an_attribute_that_nobody_has_is_an_error(relay: Relay, server: Double) -> None:
    called = called_by(server, relay)
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = called.no_such_thing
    # Private names are each class's own.
    with pytest.raises(AttributeError, match=r"CRPRouter.*_no_such"):
        _ = called._no_such


def test_an_attribute_is_set_on_litellms_router(relay: Relay, server: Double) -> None:
    server.fault = "broken"
    called = called_by(server, relay)
    called.num_retries = 2
    assert called.router.num_retries == 2
    with pytest.raises(ModelError):
        called.completion("main", ASKED)
    assert len(server.requests) == 3
    with pytest.raises(AttributeError, match=r"'retries'.*num_retries"):
        called.retries = 2


def test_a_router_is_copied_and_made_without_its_constructor(relay: Relay, server: Double) -> None:
    called = called_by(server, relay)
    assert copy.copy(called).router is called.router
    bare = CRPRouter.__new__(CRPRouter)
    assert not hasattr(bare, "num_retries")
    assert not hasattr(bare, "__setstate__")


# --- callbacks ------------------------------------------------------------------------------


class BothWays(CustomLogger):
    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self.calls = calls

    def log_success_event(self, *about: Any, **named: Any) -> None:
        self.calls.append("logger")

    def log_failure_event(self, *about: Any, **named: Any) -> None:
        self.calls.append("logger")


class Asynchronous(BothWays):
    async def async_log_success_event(self, *about: Any, **named: Any) -> None:
        self.calls.append("logger's twin")

    async def async_log_failure_event(self, *about: Any, **named: Any) -> None:
        self.calls.append("logger's twin")


def waited_for(calls: list[str], count: int) -> Counter[str]:
    for _ in range(100):
        if len(calls) >= count:
            break
        time.sleep(0.05)
    time.sleep(0.2)  # for a call too many
    return Counter(calls)


@pytest.mark.parametrize("how", ["whole", "stream", "failure"])
def test_completion_calls_each_callback_once_as_litellms_router_does(
    relay: Relay, server: Double, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def function(kwargs: Any, response: Any, start: Any, end: Any) -> None:
        assert kwargs["messages"][-1] == ASKED[-1]
        text = "complete_streaming_response" if how == "stream" else "litellm_call_id"
        assert how == "failure" or (kwargs[text] and response.choices[0].message.content)
        calls.append("function")

    async def coroutine(kwargs: Any, response: Any, start: Any, end: Any) -> None:
        calls.append("coroutine")

    def of_the_call(kwargs: Any, response: Any, start: Any, end: Any) -> None:
        calls.append("of the call")

    called = called_by(server, relay)
    event = "failure" if how == "failure" else "success"
    server.fault = "bad-request" if how == "failure" else ""
    monkeypatch.setattr(litellm, f"{event}_callback", [function, coroutine])
    monkeypatch.setattr(litellm, f"_async_{event}_callback", [])
    monkeypatch.setattr(litellm, "callbacks", [BothWays(calls), Asynchronous(calls)])
    wanted = Counter(["function", "of the call", "coroutine", "logger", "logger's twin"])
    own = {f"{event}_callback": [of_the_call]}
    if how == "failure":
        own, wanted = {}, wanted - Counter(["of the call"])
        with pytest.raises(ModelError):
            called.completion("main", ASKED)
    elif how == "stream":
        assert list(called.completion("main", ASKED, stream=True, **own))
    else:
        called.completion("main", ASKED, **own)
    assert waited_for(calls, wanted.total()) == wanted
