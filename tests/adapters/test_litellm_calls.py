"""Several calls of one window through a router: asking again, preparing, usage, cost, errors."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import litellm
import pytest
from litellm.integrations.custom_logger import CustomLogger

from crp_integrations import Relay
from crp_integrations.engines.litellm_versions import library
from crp_integrations.errors import (
    ConfigError,
    ModelContextExceeded,
    ModelError,
    ModelRateLimited,
    RequestError,
    SafetyHalt,
)
from crp_integrations.litellm import CRPRouter
from tests.adapters.litellm_deployments import (
    BAD,
    GOOD,
    JUDGE,
    QUESTION,
    WAYS,
    answered,
    entry,
    outcomes,
    router,
    text,
)
from tests.adapters.litellm_deployments import FACTS as DEPLOYED
from tests.counting import mistral, window
from tests.doubles import HashEmbedder
from tests.relay.judges import MEASURED
from tests.servers import Double, Recorded

SESSION = "crp_sess_" + "5" * 16
AGAIN = {"policy": "upgrade-on-risk hierarchical", "judge": JUDGE}
WITHHOLDING = {"policy": "halt-on CRITICAL", "judge": JUDGE}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}


def bad_then_good(server: Double) -> None:
    """The first answer of each model is not supported, every later one is."""
    server.answers = lambda seen: BAD if server.requests[0] is seen else GOOD


# --- asking again --------------------------------------------------------------------------


@pytest.mark.parametrize("how", WAYS)
def test_an_unsupported_answer_is_asked_for_again(relay: Relay, server: Double, how: str) -> None:
    bad_then_good(server)
    called = router(relay, entry(server, "main", "gpt-4o"))
    response = answered(how, called, crp=AGAIN, temperature=0.9, seed=11, session_id=SESSION)
    first, second = (one.body for one in server.requests)
    assert text(response) == GOOD
    # The turn's own values win over the caller's: cooler, and with another seed.
    assert (first["temperature"], first["seed"]) == (0.9, 11)
    assert second["temperature"] < 0.9
    assert second["seed"] != 11
    assert server.requests[1].context == response.crp_envelope["text"]
    assert len(server.requests[1].system) > len(server.requests[0].system)
    # Usage is that of both calls, each told by itself; one window is sealed.
    assert response.usage.total_tokens == 36
    assert [one["purpose"] for one in response.crp_calls] == ["answer", "answer"]
    assert response.crp_cost == pytest.approx(sum(one["cost_usd"] for one in response.crp_calls))
    assert outcomes(relay, SESSION) == ["released"]


def test_what_is_asked_again_is_packed_for_the_fallback_that_answers(
    relay: Relay, server: Double
) -> None:
    bad_then_good(server)
    # The first deployment answers once and is out of order then.
    server.choose = lambda seen: "broken" if seen.model == "gpt-4o" and server.requests else ""
    server.windows = {"open-mistral-7b": window(500, mistral())}
    called = router(
        relay,
        entry(server, "main", "gpt-4o"),
        entry(server, "small", "open-mistral-7b", info={"max_input_tokens": 500}),
        fallbacks=[{"main": ["small"]}],
    )
    response = called.completion("main", [{"role": "user", "content": QUESTION}], crp=AGAIN)
    first, refused, last = server.requests
    assert [one.model for one in server.requests] == ["gpt-4o", "gpt-4o", "open-mistral-7b"]
    assert (refused.fault, last.fault) == ("broken", "")
    assert last.context == response.crp_envelope["text"] != first.context
    # Remedy and lower temperature hold for the fallback too.
    assert "temperature" not in first.body
    assert refused.body["temperature"] == last.body["temperature"]
    assert response.crp_calls[1]["tried"] == ["openai/gpt-4o", "openai/open-mistral-7b"]


def test_a_turns_own_temperature_is_left_out_where_a_model_takes_none(
    relay: Relay, server: Double
) -> None:
    bad_then_good(server)
    called = router(relay, entry(server, "main", "o3-mini"))
    response = called.completion("main", [{"role": "user", "content": QUESTION}], crp=AGAIN)
    assert response.choices[0].message.content == GOOD
    assert len(server.requests) == 2
    assert not [one for one in server.requests if "temperature" in one.body]
    # A caller's own is refused, as LiteLLM does.
    with pytest.raises(ModelError):
        called.completion("main", [{"role": "user", "content": QUESTION}], temperature=0.3)
    assert len(server.requests) == 2


@pytest.mark.parametrize("how", WAYS)
def test_what_stays_unsupported_is_withheld(relay: Relay, server: Double, how: str) -> None:
    server.text = BAD
    called = router(relay, entry(server, "main", "gpt-4o"))
    policy = {"policy": "halt-on MEDIUM; upgrade-on-risk hierarchical", "judge": JUDGE}
    with pytest.raises(SafetyHalt) as caught:
        answered(how, called, crp=policy, session_id=SESSION)
    assert caught.value.status_hint == 451
    assert len(server.requests) == 3
    assert outcomes(relay, SESSION) == ["halted"]
    assert relay.verify().windows == 1


def test_the_passes_of_a_reflexive_answer_go_out_as_they_are(relay: Relay, server: Double) -> None:
    replies = iter([BAD, "The year is wrong: the context says 1957.", GOOD])
    server.answers = lambda seen: next(replies)
    called = router(relay, entry(server, "main", "gpt-4o"))
    response = called.completion(
        "main",
        [{"role": "user", "content": QUESTION}],
        crp={"strategy": "reflexive"},
        tools=[TOOL],
    )
    draft, verify, refine = server.requests
    assert [one["purpose"] for one in response.crp_calls] == ["answer", "critique", "answer"]
    assert response.choices[0].message.content == GOOD
    assert response.usage.total_tokens == 54
    # All three carry the same facts, and each goes on from the one before.
    said = [one.body["messages"] for one in (draft, verify, refine)]
    assert said[1][: len(said[0])] == said[0]
    assert said[2][: len(said[1])] == said[1]
    assert response.crp_envelope["text"] == refine.context == draft.context
    assert ("tools" in draft.body, "tools" in verify.body) == (True, False)


def test_a_call_that_takes_the_question_apart_has_nothing_of_the_answers_shape(
    relay: Relay, server: Double
) -> None:
    server.answers = lambda seen: (
        "When was plant 7 built?\nWhen was plant 9 built?" if not seen.context else GOOD
    )
    called = router(relay, entry(server, "main", "gpt-4o"))
    response = called.completion(
        "main",
        [{"role": "user", "content": "When were plants 7 and 9 built?"}],
        crp={"decompose": "model"},
        tools=[TOOL],
        stop=["END"],
        max_tokens=50,
        user="me",
    )
    apart, answer = (one.body for one in server.requests)
    assert [one["purpose"] for one in response.crp_calls] == ["decompose", "answer"]
    assert not {"tools", "stop"} & apart.keys()
    assert {"tools", "stop"} <= answer.keys()
    assert (apart["user"], answer["user"]) == ("me", "me")
    assert response.usage.total_tokens == 36


# --- usage and cost ------------------------------------------------------------------------


@pytest.mark.parametrize("how", WAYS)
def test_the_cost_is_litellms_own_and_none_where_no_price_is_known(
    relay: Relay, server: Double, how: str
) -> None:
    def cost(model: str, **more: Any) -> float | None:
        return answered(how, router(relay, entry(server, "main", model, **more))).crp_cost

    row = litellm.model_cost["gpt-4o-mini"]
    listed = 11 * row["input_cost_per_token"] + 7 * row["output_cost_per_token"]
    assert cost("gpt-4o-mini") == pytest.approx(listed)
    assert cost("nobody-knows-7b") is None
    priced = {"input_cost_per_token": 0.001, "output_cost_per_token": 0.002}
    assert cost("priced-by-the-entry-7b", **priced) == pytest.approx(0.025)
    free = dict.fromkeys(priced, 0.0)
    assert cost("free-by-the-entry-7b", **free) == 0.0


@pytest.mark.parametrize("how", WAYS)
def test_a_cost_with_an_unknown_part_is_not_known(relay: Relay, server: Double, how: str) -> None:
    bad_then_good(server)
    server.choose = lambda seen: "broken" if seen.model == "gpt-4o" and server.requests else ""
    called = router(
        relay,
        entry(server, "main", "gpt-4o"),
        entry(server, "small", "nobody-knows-7b"),
        fallbacks=[{"main": ["small"]}],
    )
    response = answered(how, called, crp=AGAIN)
    assert [one["cost_usd"] is None for one in response.crp_calls] == [False, True]
    assert response.crp_cost is None


def test_what_callbacks_of_others_get_holds_nothing_of_crp(
    relay: Relay, server: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[Any] = []

    class Log(CustomLogger):
        async def async_log_success_event(self, kwargs, response_obj, start_time, end_time) -> None:
            logged.append((response_obj, str(kwargs.get("standard_logging_object"))))

    # Routers of other tests have left theirs, and LiteLLM takes a hundred in all.
    for kind in ("input", "success", "failure"):
        monkeypatch.setattr(litellm, f"{kind}_callback", [])
    for kind in ("input", "success", "failure"):
        monkeypatch.setattr(litellm, f"_async_{kind}_callback", [])
    monkeypatch.setattr(litellm, "callbacks", [Log()])
    called = router(relay, entry(server, "main", "gpt-4o"))

    async def asked() -> Any:
        response = await called.acompletion("main", [{"role": "user", "content": QUESTION}])
        for _ in range(200):
            if logged:
                break
            await asyncio.sleep(0.02)
        return response

    response = asyncio.run(asked())
    assert response.crp["window_number"] == 1
    ((seen, told),) = logged
    assert not hasattr(seen, "crp")
    assert "crp_" not in told


# --- errors --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", WAYS)
def test_an_error_tells_what_was_tried(relay: Relay, server: Double, how: str) -> None:
    server.faults = {"gpt-4o": "broken", "gpt-4o-mini": "rate"}
    called = router(
        relay,
        entry(server, "main", "gpt-4o"),
        entry(server, "other", "gpt-4o-mini"),
        fallbacks=[{"main": ["other"]}],
    )
    with pytest.raises(ModelError) as caught:
        answered(how, called, session_id=SESSION)
    assert caught.value.tried == ("openai/gpt-4o", "openai/gpt-4o-mini")
    assert caught.value.provider_status in (429, 500)
    assert caught.value.status_hint == (429 if caught.value.provider_status == 429 else 502)
    assert outcomes(relay, SESSION) == ["failed"]


@pytest.mark.parametrize("how", WAYS)
def test_our_own_refusal_of_an_attempt_is_the_error_that_is_raised(
    relay: Relay, server: Double, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = router(relay, entry(server, "main", "gpt-4o"))
    # As an operator might set it for the process after the router was made.
    monkeypatch.setattr(library(), "headers", {"CRP-Context-ETag": "x"})
    with pytest.raises(ConfigError, match="CRP metadata"):
        answered(how, called, session_id=SESSION)
    assert server.requests == []
    assert outcomes(relay, SESSION) == ["failed"]


def test_a_budget_that_is_used_up_is_a_typed_error(
    relay: Relay, server: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    # LiteLLM holds one router's budgets against every other in the process.
    monkeypatch.setattr(litellm, "callbacks", list(litellm.callbacks))
    called = router(
        relay,
        entry(server, "main", "gpt-4o"),
        entry(server, "other", "nobody-knows-7b"),
        provider_budget_config={"openai": {"budget_limit": 1e-9, "time_period": "1d"}},
    )
    assert answered("completion", called).crp_cost > 1e-9
    # LiteLLM books a call's cost after it has answered.

    def again_and_again() -> None:
        for _ in range(200):
            answered("completion", called, session_id=SESSION)
            time.sleep(0.02)

    with pytest.raises(ModelRateLimited, match="budget") as caught:
        again_and_again()
    assert caught.value.tried == ()
    assert outcomes(relay, SESSION)[-1] == "failed"


def test_a_response_without_a_choice_is_asked_of_the_next(relay: Relay, server: Double) -> None:
    server.faults = {"gpt-4o": "empty"}
    entries = [entry(server, "main", "gpt-4o"), entry(server, "small", "gpt-4o-mini")]
    called = router(relay, *entries, fallbacks=[{"main": ["small"]}])
    response = called.completion("main", [{"role": "user", "content": QUESTION}])
    assert response.crp_calls[0]["tried"] == ["openai/gpt-4o", "openai/gpt-4o-mini"]
    with pytest.raises(ModelError, match="no choice"):
        router(relay, entries[0]).completion("main", [{"role": "user", "content": QUESTION}])


# --- streams -------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["break", "cut", "garbled", "malformed", "empty"])
def test_a_stream_that_breaks_off_before_its_verdict_is_asked_of_the_next(
    relay: Relay, server: Double, fault: str
) -> None:
    server.faults = {"gpt-4o": fault}
    called = router(
        relay,
        entry(server, "main", "gpt-4o"),
        entry(server, "small", "open-mistral-7b", info={"max_input_tokens": 500}),
        fallbacks=[{"main": ["small"]}],
    )
    stream = answered("stream", called, crp=WITHHOLDING)
    assert text(stream) == GOOD
    assert stream.crp_envelope["model"] == "openai/open-mistral-7b"
    assert server.requests[-1].context == stream.crp_envelope["text"]
    assert stream.crp_calls[0]["tried"] == ["openai/gpt-4o", "openai/open-mistral-7b"]


def test_a_slow_stream_is_read_to_its_end(relay: Relay, server: Double) -> None:
    server.fault = "trickle"
    stream = answered("stream", router(relay, entry(server, "main", "gpt-4o")))
    assert text(stream) == GOOD
    assert stream.usage.total_tokens == 18


def test_a_stream_is_retried_as_often_as_the_router_says(relay: Relay, server: Double) -> None:
    server.fault = "cut"
    called = router(relay, entry(server, "main", "gpt-4o"), num_retries=2, retry_after=0)
    with pytest.raises(ModelError, match="broke off"):
        answered("stream", called, crp=WITHHOLDING)
    assert len(server.requests) == 3


# --- what goes out -------------------------------------------------------------------------


def test_a_header_that_is_not_listed_is_refused(relay: Relay, server: Double) -> None:
    called = router(relay, entry(server, "main", "gpt-4o"), allow_headers=["X-Team"])
    for name in ("headers", "extra_headers"):
        with pytest.raises(ConfigError, match=r"not on the list.*allow_headers"):
            answered("completion", called, **{name: {"X-Secret": "1"}})
    assert server.requests == []
    answered("completion", called, extra_headers={"x-team": "red", "OpenAI-Organization": "org"})
    headers = server.requests[0].headers
    assert (headers["x-team"], headers["openai-organization"]) == ("red", "org")
    with pytest.raises(ConfigError, match="CRP metadata"):
        router(relay, entry(server, "main", "gpt-4o"), allow_headers=["CRP-Context-ETag"])


def test_a_header_of_a_deployments_entry_goes_to_that_deployment_alone(
    relay: Relay, server: Double
) -> None:
    called = router(
        relay,
        entry(server, "main", "gpt-4o", extra_headers={"X-Region": "eu"}),
        entry(server, "other", "gpt-4o-mini"),
        fallbacks=[{"main": ["other"]}],
    )
    server.faults = {"gpt-4o": "broken"}
    answered("completion", called)
    assert ["x-region" in one.headers for one in server.requests] == [True, False]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"crp_session": "x"}, ConfigError, "crp_session"),
        ({"extra_body": {"CRP-Context-ETag": "x"}}, ConfigError, "CRP-Context-ETag"),
        ({"crp": {"colour": "red"}}, RequestError, "colour"),
        ({"crp": {"model": "gpt-4o"}}, RequestError, "model"),
        ({"crp": {"k": 3}, "k": 4}, RequestError, "given twice"),
    ],
)
def test_what_is_no_field_of_a_question_is_refused(
    relay: Relay, server: Double, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        answered("completion", router(relay, entry(server, "main", "gpt-4o")), **options)
    assert server.requests == []


@pytest.mark.parametrize("how", WAYS)
def test_what_a_tool_answered_follows_the_question_on_the_wire(
    relay: Relay, server: Double, how: str
) -> None:
    bad_then_good(server)
    called = router(relay, entry(server, "main", "gpt-4o"))
    messages = [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "1957"},
    ]
    response = answered(how, called, messages, tools=[TOOL], crp=AGAIN)
    assert response.crp_envelope["query"] == QUESTION
    assert len(server.requests) == 2
    for seen in server.requests:
        said = seen.body["messages"][1:]
        assert [one["role"] for one in said] == ["user", "assistant", "user", "assistant", "tool"]
        assert said[2]["content"] == QUESTION
        assert said[3]["tool_calls"] == [CALL]


def test_checks_before_a_call_do_not_leave_out_what_can_be_packed_again(
    relay: Relay, server: Double
) -> None:
    # The first deployment's envelope alone is larger than the second's window.
    server.windows = {"open-mistral-7b": window(500, mistral())}
    server.faults = {"gpt-4o": "broken"}
    called = router(
        relay,
        entry(server, "main", "gpt-4o"),
        entry(server, "small", "open-mistral-7b", info={"max_input_tokens": 500}),
        fallbacks=[{"main": ["small"]}],
        enable_pre_call_checks=True,
    )
    response = answered("completion", called)
    first, second = server.requests
    assert first.context
    assert second.context == response.crp_envelope["text"]
    assert len(second.context) < len(first.context)


@pytest.mark.requirement("003-10.1-3")
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("limit", [500, 800, 1_600, 2_600])
def test_a_small_window_gets_context_and_fits(
    relay: Relay, server: Double, limit: int, how: str
) -> None:
    server.windows = {"open-mistral-7b": window(limit, mistral())}
    server.faults = {"gpt-4o": "broken"}
    called = router(
        relay,
        entry(server, "main", "gpt-4o"),
        entry(server, "small", "open-mistral-7b", info={"max_input_tokens": limit}),
        fallbacks=[{"main": ["small"]}],
    )
    response = answered(how, called, budget_tokens="window")
    last = server.requests[-1]
    assert last.context == response.crp_envelope["text"]
    # The input limit leaves room for the margin alone: the answer is not part of the input.
    assert limit * 0.5 < mistral()(last.body["messages"]) <= limit


@pytest.mark.parametrize("how", WAYS)
def test_a_deployment_without_room_for_context_is_passed_over_by_name(
    relay: Relay, server: Double, how: str
) -> None:
    tiny = entry(server, "tiny", "open-mistral-7b", info={"max_input_tokens": 90})
    good = entry(server, "good", "gpt-4o-mini")
    server.faults = {"gpt-4o": "broken"}
    lists: list[dict[str, Any]] = [
        {"fallbacks": [{"main": ["tiny", "good"]}]},
        {"fallbacks": [{"main": ["tiny"]}, {"tiny": ["good"]}]},
        {"fallbacks": [{"main": ["tiny"]}], "context_window_fallbacks": [{"tiny": ["good"]}]},
    ]
    for options in lists:
        server.requests.clear()
        called = router(relay, entry(server, "main", "gpt-4o"), tiny, good, **options)
        response = answered(how, called)
        assert [one.model for one in server.requests] == ["gpt-4o", "gpt-4o-mini"]
        assert response.crp_envelope["text"] == server.requests[-1].context != ""
    # The group itself, and nobody behind it; its name is in the error.
    server.requests.clear()
    alone = {**tiny, "model_name": "main"}
    with pytest.raises(ModelContextExceeded, match="openai/open-mistral-7b") as raised:
        answered(how, router(relay, alone))
    assert raised.value.tried == ("openai/open-mistral-7b",)
    assert not server.requests
    # Without facts for the question there is nothing to make room for, and a cap is a wish.
    for asked in ({"budget_tokens": 0}, {"k": 1, "budget_tokens": 1}):
        answered(how, router(relay, alone), **asked)
    assert len(server.requests) == 2


def test_two_requests_do_not_share_what_was_tried(relay: Relay, server: Double) -> None:
    def slow_for_the_first(seen: Recorded) -> str:
        return "broken" if seen.model == "gpt-4o" and "plant 3" in seen.question else ""

    server.choose = slow_for_the_first
    called = router(
        relay,
        entry(server, "main", "gpt-4o"),
        entry(server, "other", "gpt-4o-mini"),
        fallbacks=[{"main": ["other"]}],
        disable_cooldowns=True,
    )

    async def both() -> list[Any]:
        return await asyncio.gather(
            *(
                called.acompletion(
                    "main", [{"role": "user", "content": f"When was plant {n} built?"}]
                )
                for n in (3, 4)
            )
        )

    first, second = asyncio.run(both())
    assert first.crp_calls[0]["tried"] == ["openai/gpt-4o", "openai/gpt-4o-mini"]
    assert second.crp_calls[0]["tried"] == ["openai/gpt-4o"]


def test_a_router_is_one_list_of_headers(relay: Relay, server: Double) -> None:
    """The wire holds what LiteLLM's own client sends for the same call, and nothing more."""
    called = CRPRouter([entry(server, "main", "gpt-4o")], relay=relay, num_retries=0)
    answered("completion", called)
    asyncio.run(
        called.router.acompletion(model="main", messages=[{"role": "user", "content": "x"}])
    )
    ours, theirs = server.requests
    assert ours.headers.keys() == theirs.headers.keys()


# --- several windows -----------------------------------------------------------------------


@pytest.mark.parametrize("how", WAYS)
def test_an_incomplete_answer_is_continued_and_comes_as_one(server: Double, how: str) -> None:
    parts = [
        "Plant 7 was built in 1957.",
        "Plant 9 delivers 427 megawatts, and plant 12 is run under licence 7012.",
    ]
    server.answers = lambda seen: parts["built" not in seen.question]
    question = (
        "When was plant 7 built? How many megawatts does plant 9 deliver? "
        "Under which licence is plant 12 run?"
    )
    needs = [one.strip() + "?" for one in question.split("?")[:3]]
    continuing = Relay.open(
        embedder=HashEmbedder(), dpe=MEASURED, dispatch={"continue_incomplete": True}
    )
    continuing.fabric.add(DEPLOYED)
    called = router(continuing, entry(server, "main", "gpt-4o"))
    response = answered(
        how,
        called,
        [{"role": "user", "content": question}],
        session_id=SESSION,
        k=2,
        crp={"sub_queries": needs},
    )
    answers = [one for one in response.crp_calls if one["purpose"] == "answer"]
    assert len(answers) == 2
    assert text(response).startswith(parts[0])
    assert text(response).endswith(parts[1])
    assert response.usage.total_tokens == 18 * len(response.crp_calls) == 18 * len(server.requests)
    assert outcomes(continuing, SESSION) == ["released", "released"]
    assert response.crp["window_number"] == 2
    # A bridge carries no facts and is not packed; every window's call carries its own.
    for seen, told in zip(server.requests, response.crp_calls, strict=True):
        assert bool(seen.context) == (told["purpose"] == "answer")


@pytest.mark.parametrize("how", WAYS)
def test_parts_of_a_question_are_each_packed_for_the_deployment_that_answers(
    relay: Relay, server: Double, how: str
) -> None:
    server.answers = lambda seen: (
        "Plant 7 was built in 1957." if "7" in seen.question else "Plant 9 was built in 1959."
    )
    server.faults = {"gpt-4o": "broken"}
    server.windows = {"open-mistral-7b": window(500, mistral())}
    called = router(
        relay,
        entry(server, "main", "gpt-4o"),
        entry(server, "small", "open-mistral-7b", info={"max_input_tokens": 500}),
        fallbacks=[{"main": ["small"]}],
        disable_cooldowns=True,
    )
    response = answered(
        how,
        called,
        [{"role": "user", "content": "When was plant 7 built? When was plant 9 built?"}],
        session_id=SESSION,
        crp={"strategy": "fan-out"},
    )
    assert len(response.crp_calls) == 3
    answering = [one for one in server.requests if not one.fault]
    assert [one.model for one in answering] == ["open-mistral-7b"] * 3
    assert all(one.context for one in answering)
    assert answering[-1].context == response.crp_envelope["text"]
    assert relay.verify().windows == 4
