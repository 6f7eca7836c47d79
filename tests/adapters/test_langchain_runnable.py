"""The whole turn as a Runnable, alone and in chains, with bare and wrapped chat models."""

from __future__ import annotations

import json
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from crp_integrations.errors import (
    ModelContextExceeded,
    ModelError,
    ModelRateLimited,
    ModelTimeout,
    PolicySyntaxError,
    RequestError,
    SafetyHalt,
)
from crp_integrations.langchain import CRPGate, CRPRunnable
from crp_integrations.langchain.runs import session_of
from crp_integrations.messages import Reply, ToolCall, Usage
from tests.adapters.langchain_doubles import (
    FACTS,
    HALTING,
    WAYS,
    Chat,
    leaked,
    no_metadata,
    opened,
    overheard,
    prompts,
    scripted,
)
from tests.doubles import ScriptedModel

QUESTION = "When was the Meridian reactor commissioned?"
WRONG = FACTS[0].replace("412", "512")


def made(*script, **options):
    """A runnable over a relay's own model, and that model."""
    model = ScriptedModel(*(script or (FACTS[0],)))
    return CRPRunnable(
        opened(models=model), **{"model": "gpt-4o", "attach": "full", **options}
    ), model


def checked(message):
    told = message.response_metadata
    assert told["crp"]["risk_level"] == "LOW"
    assert FACTS[0] in told["crp_envelope"]["text"]
    assert told["crp_headers"]["CRP-Safety-Hallucination-Risk"].startswith("LOW")
    assert told["crp_session"]["session_id"].startswith("crp_sess_")
    json.dumps(told)
    return True


@pytest.mark.parametrize(
    "input",
    [
        QUESTION,
        {"question": QUESTION},
        {"input": QUESTION, "chat_history": []},
        {"messages": [("user", QUESTION)]},
        {"messages": HumanMessage(QUESTION)},
        [HumanMessage(QUESTION)],
        HumanMessage(QUESTION),
        [{"role": "user", "content": QUESTION}],
        [HumanMessage([{"type": "text", "text": QUESTION}])],
        ChatPromptTemplate.from_messages([("user", QUESTION)]).invoke({}),
    ],
    ids="text question input dict one messages message openai blocks prompt".split(),
)
@pytest.mark.requirement("CARD-18")
@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_a_question_in_any_form_is_answered_and_checked(input, way):
    crp, model = made()
    message = await crp.ainvoke(input) if way == "ainvoke" else crp.invoke(input)
    assert isinstance(message, AIMessage)
    assert message.content == FACTS[0]
    assert checked(message)
    (call,) = model.calls
    assert call.messages[-1].content == QUESTION
    assert no_metadata(repr(call.messages))


@pytest.mark.parametrize("name", ["history", "chat_history", "messages"])
@pytest.mark.parametrize("given", ["Human: hello", {"role": "user", "content": "hello"}, 3])
def test_a_history_that_is_no_list_of_messages_is_refused(name, given):
    """A text was taken apart into messages of one character each."""
    crp, model = made()
    with pytest.raises(RequestError, match=f"{name} is .*, wanted a list of messages"):
        crp.invoke({"question": QUESTION, name: given})
    assert not model.calls


def test_earlier_messages_go_along_and_what_was_attached_to_them_does_not():
    crp, model = made()
    first = crp.invoke(QUESTION)
    crp.invoke(
        [
            SystemMessage("Be brief."),
            HumanMessage(QUESTION),
            first,
            HumanMessage("Who operates the Meridian reactor?"),
        ]
    )
    sent = model.calls[-1].messages
    assert [one.role for one in sent] == ["system", "user", "assistant", "user"]
    assert sent[0].content.startswith("Be brief.")
    assert sent[2].content == FACTS[0]
    assert no_metadata(repr(model.calls))


def test_usage_and_tool_calls_are_those_of_the_answer():
    call = ToolCall(id="c1", name="look", arguments='{"x": 1}')
    broken = ToolCall(id="c2", name="look", arguments="{")
    usage = Usage(prompt_tokens=11, completion_tokens=7)
    crp, _ = made(
        Reply(text="", tool_calls=(call, broken), usage=usage, finish_reason="tool_calls")
    )
    message = crp.invoke(QUESTION)
    assert message.tool_calls == [
        {"type": "tool_call", "name": "look", "args": {"x": 1}, "id": "c1"}
    ]
    assert [one["id"] for one in message.invalid_tool_calls] == ["c2"]
    assert message.usage_metadata == {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
    assert message.response_metadata["finish_reason"] == "tool_calls"


@pytest.mark.requirement("CARD-18")
@pytest.mark.parametrize("way", ["stream", "astream"])
@pytest.mark.parametrize("own", [False, True], ids=["relay", "llm"])
async def test_a_stream_adds_up_to_the_answer(way, own):
    if own:
        crp = CRPRunnable(opened(), llm=scripted(FACTS[0]), attach="full")
    else:
        crp, _ = made()
    chunks, error = await overheard(crp, QUESTION, way)
    assert error is None
    assert all(isinstance(chunk, AIMessageChunk) for chunk in chunks)
    assert not any(chunk.response_metadata for chunk in chunks[:-1])
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.content == FACTS[0]
    assert checked(whole)
    assert own or len(chunks) > 3


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("own", [False, True], ids=["relay", "llm"])
async def test_a_withheld_answer_leaks_in_no_way_of_listening(way, own):
    if own:
        crp = CRPRunnable(opened(), llm=scripted(WRONG), **HALTING)
    else:
        crp, _ = made(WRONG, **HALTING)
    chain = RunnablePassthrough() | crp | StrOutputParser()
    heard, error = await overheard(chain, QUESTION, way)
    assert isinstance(error, SafetyHalt)
    assert error.report.risk_level != "LOW"
    assert not leaked(heard)


@pytest.mark.requirement("CARD-18")
async def test_batches_keep_their_order_and_their_sessions_apart():
    names = [f"tower{n}" for n in range(32)]
    facts = [
        f"The {name} of the old town is {100 + n} metres high." for n, name in enumerate(names)
    ]

    def reply(call):
        return next(fact for fact in facts if call.messages[-1].content.split()[4] in fact)

    model = ScriptedModel(reply)
    crp = CRPRunnable(opened(*facts, models=model), model="gpt-4o", k=3, attach="full")
    questions = [f"How high is the {name} of the old town?" for name in names]
    for messages in (crp.batch(questions), await crp.abatch(questions)):
        assert [message.content for message in messages] == facts
        sessions = {m.response_metadata["crp_session"]["session_id"] for m in messages}
        assert len(sessions) == 32
        for message, fact in zip(messages, facts, strict=True):
            assert fact in message.response_metadata["crp_envelope"]["text"]


@pytest.mark.requirement("CARD-18")
def test_a_thread_is_a_session():
    crp, _ = made()
    ids = []
    for thread in ("user-1", "user-1", "user-2"):
        message = crp.invoke(QUESTION, {"configurable": {"thread_id": thread}})
        ids.append(message.response_metadata["crp_session"])
    assert ids[0]["session_id"] == ids[1]["session_id"] != ids[2]["session_id"]
    assert [one["window_number"] for one in ids] == [1, 2, 1]
    own = "crp_sess_" + "a" * 20
    message = crp.invoke(QUESTION, {"configurable": {"session_id": own, "thread_id": "user-1"}})
    assert message.response_metadata["crp_session"]["session_id"] == own


def test_a_session_that_is_no_text_is_refused():
    with pytest.raises(RequestError, match="thread_id is list"):
        session_of({"configurable": {"thread_id": []}})


@pytest.mark.requirement("CARD-18")
def test_callbacks_tags_and_names_reach_the_tracers():
    seen = []

    class Listener(BaseCallbackHandler):
        def on_chain_start(self, serialized, inputs, **kwargs):
            seen.append(("chain", kwargs["name"], kwargs["tags"]))

        def on_chat_model_start(self, serialized, messages, **kwargs):
            seen.append(("model", kwargs["parent_run_id"] is not None, kwargs["tags"]))

        def on_llm_end(self, response, **kwargs):
            seen.append(("answer", response.generations[0][0].text, []))

    crp = CRPRunnable(opened(), llm=scripted(FACTS[0]), name="ask the fabric")
    crp.invoke(QUESTION, {"callbacks": [Listener()], "tags": ["mine"]})
    assert seen[0] == ("chain", "ask the fabric", ["mine"])
    assert seen[1][:2] == ("model", True)
    assert "mine" in seen[1][2]
    assert seen[2][:2] == ("answer", FACTS[0])


def test_fields_are_given_when_it_is_made_when_it_is_bound_or_when_it_is_asked():
    crp, model = made(k=1, temperature=0.5)
    few = crp.invoke(QUESTION)
    more = crp.bind(k=3).invoke(QUESTION)
    most = crp.invoke(QUESTION, k=4, seed=3)
    counts = [len(m.response_metadata["crp_envelope"]["facts"]) for m in (few, more, most)]
    assert counts[0] == 1 < counts[1] < counts[2]
    assert [call.temperature for call in model.calls] == [0.5] * 3
    assert [call.seed for call in model.calls] == [None, None, 3]


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream"])
async def test_errors_are_the_package_s_own(way):
    async def ask(crp, input):
        if way == "ainvoke":
            return await crp.ainvoke(input)
        return list(crp.stream(input)) if way == "stream" else crp.invoke(input)

    crp, _ = made(WRONG, **HALTING)
    with pytest.raises(SafetyHalt):
        await ask(crp, QUESTION)
    crp, _ = made(ModelRateLimited("later"))
    with pytest.raises(ModelRateLimited):
        await ask(crp, QUESTION)
    with pytest.raises(PolicySyntaxError):
        made(policy="halt-on")
    crp, _ = made()
    with pytest.raises(PolicySyntaxError):
        await ask(crp.bind(policy="halt-on"), QUESTION)
    for input in (
        "",
        {},
        {"messages": []},
        7,
        [AIMessage("hello")],
        [HumanMessage("a"), AIMessage("b")],
    ):
        with pytest.raises(RequestError):
            await ask(crp, input)
    with pytest.raises(RequestError, match="'user_id'"):
        await ask(crp, {"question": QUESTION, "user_id": "x"})
    with pytest.raises(RequestError, match="question and input"):
        await ask(crp, {"question": QUESTION, "input": QUESTION})
    with pytest.raises(RequestError, match="'policy'"):
        await ask(crp, {"question": QUESTION, "policy": "block-pii"})
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    with pytest.raises(RequestError, match="'image_url'"):
        await ask(crp, [HumanMessage([picture])])


class Refused(Exception):
    def __init__(self, status):
        super().__init__(f"the prompt was {QUESTION}")
        self.status_code = status


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Refused(429), ModelRateLimited),
        (Refused(500), ModelError),
        (TimeoutError(), ModelTimeout),
        (ValueError("context_length_exceeded"), ModelContextExceeded),
    ],
)
def test_errors_of_a_chat_model_are_translated_without_their_words(error, kind):
    crp = CRPRunnable(opened(), llm=scripted(error))
    with pytest.raises(kind) as caught:
        crp.invoke(QUESTION)
    assert type(caught.value) is kind
    assert QUESTION not in str(caught.value)


def test_fallbacks_and_retries_work():
    broken, _ = made(ModelError("down"))
    good, _ = made()
    chain = broken.with_fallbacks([good], exceptions_to_handle=(ModelError,))
    assert chain.invoke(QUESTION).content == FACTS[0]
    twice, model = made(ModelError("once"), FACTS[0])
    retried = twice.with_retry(
        retry_if_exception_type=(ModelError,), wait_exponential_jitter=False, stop_after_attempt=2
    )
    assert retried.invoke(QUESTION).content == FACTS[0]
    assert len(model.calls) == 2
    halted, model = made(WRONG, **HALTING)
    with pytest.raises(SafetyHalt):
        halted.with_retry(retry_if_exception_type=(ModelError,)).invoke(QUESTION)
    assert len(model.calls) == 1


def test_it_stands_where_a_chat_model_stood():
    crp, model = made()
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Answer in one sentence."), ("user", "{question}")]
    )
    chain = {"question": itemgetter("q")} | prompt | crp | StrOutputParser()
    assert chain.invoke({"q": QUESTION}) == FACTS[0]
    assert "".join(chain.stream({"q": QUESTION})) == FACTS[0]
    assert model.calls[0].messages[0].content.startswith("Answer in one sentence.")
    lambdas = RunnableLambda(lambda text: {"question": text}) | crp
    assert lambdas.invoke(QUESTION).content == FACTS[0]


def test_a_chat_model_of_langchain_answers_with_its_own_settings():
    chat = scripted(FACTS[0])
    crp = CRPRunnable(opened(), llm=chat, temperature=0.2, attach="full")
    message = crp.invoke(QUESTION)
    assert checked(message)
    assert chat.bound == [{"temperature": 0.2}]
    assert "gpt-4o" in message.response_metadata["model_name"]
    assert FACTS[0] in prompts(chat)
    assert no_metadata(prompts(chat))


def test_a_reflexive_answer_takes_its_passes_through_the_chat_model():
    replies = [WRONG, "The reactor delivers 412 megawatts.", FACTS[0]]
    chat = scripted(*replies)
    message = CRPRunnable(opened(), llm=chat, strategy="reflexive").invoke(QUESTION)
    assert message.content == FACTS[0]
    assert len(chat.seen) == 3
    assert no_metadata(prompts(chat))


WRAPPED: dict[str, Callable[[Any], Any]] = {
    "bound": lambda chat: chat.bind(stop=["x"]),
    "configured": lambda chat: chat.with_config(tags=["mine"]),
    "retried": lambda chat: chat.with_retry(stop_after_attempt=2),
    "fallbacks": lambda chat: scripted(ValueError("down")).with_fallbacks([chat]),
    "several": lambda chat: chat.bind(stop=["x"]).with_retry(stop_after_attempt=2),
}


class Streaming(Chat):
    """A chat model that streams by itself, whichever way it is called."""

    streaming: bool = True


class Printer(BaseCallbackHandler):
    """What a program does that prints tokens."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_llm_new_token(self, token: str, **kwargs: Any) -> None:
        self.told.append(token)


@pytest.mark.parametrize("kind", WRAPPED)
def test_a_wrapped_chat_model_answers(kind: str) -> None:
    crp = CRPRunnable(opened(), llm=WRAPPED[kind](scripted(FACTS[0])), attach="full")
    message = crp.invoke(QUESTION)
    assert message.content == FACTS[0]
    assert message.response_metadata["crp"]["risk_level"] == "LOW"
    # By its name the facts were counted.
    assert message.response_metadata["crp_envelope"]["model"] == "gpt-4o"


@pytest.mark.parametrize("kind", WRAPPED)
def test_a_wrapped_model_that_streams_by_itself_is_called_whole(kind: str) -> None:
    chat = Streaming(reply=lambda messages: WRONG)
    printer = Printer()
    list(chat.stream("x", {"callbacks": [printer]}))
    assert len(printer.told) > 3
    printer.told.clear()
    crp = CRPRunnable(opened(), llm=WRAPPED[kind](chat), **HALTING)
    with pytest.raises(SafetyHalt):
        list(crp.stream(QUESTION, {"callbacks": [printer]}))
    assert printer.told == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", WRAPPED)
async def test_a_withheld_answer_of_a_wrapped_model_leaks_in_no_way(kind: str, way: str) -> None:
    chat = Streaming(reply=lambda messages: WRONG)
    crp = CRPRunnable(opened(), llm=WRAPPED[kind](chat), **HALTING)
    heard, error = await overheard(crp, QUESTION, way)
    assert isinstance(error, SafetyHalt)
    assert not leaked(heard)


CHAINS: dict[str, Callable[[Any], Any]] = {
    "configured": lambda chain: chain.with_config(run_name="rag"),
    "bound": lambda chain: chain.bind(),
    "listened to": lambda chain: chain.with_listeners(on_end=lambda run: None),
    "retried": lambda chain: chain.with_config(tags=["a"]).with_retry(),
}


@pytest.mark.parametrize(
    ("kind", "way"),
    [*(("configured", way) for way in WAYS), *((kind, "astream") for kind in list(CHAINS)[1:])],
)
async def test_a_guarded_chain_with_a_config_of_its_own_leaks_nothing(kind: str, way: str) -> None:
    found = RunnableLambda(lambda question: {"context": list(FACTS), "question": question})
    chain = CHAINS[kind](
        found
        | RunnablePassthrough.assign(
            answer=RunnableLambda(lambda given: given["question"]) | scripted(WRONG)
        )
    )
    heard, _ = await overheard(chain, QUESTION, way)
    assert leaked(heard), "the listener hears something without a gate"
    heard, error = await overheard(CRPGate.around(chain, **HALTING), QUESTION, way)
    assert isinstance(error, SafetyHalt)
    assert not leaked(heard)


def test_a_call_s_own_values_reach_the_model_inside() -> None:
    chat = scripted(FACTS[0])
    crp = CRPRunnable(opened(), llm=chat.bind(stop=["x"]), temperature=0.2)  # type: ignore[arg-type]
    crp.invoke(QUESTION)
    assert chat.bound == [{"temperature": 0.2}]
