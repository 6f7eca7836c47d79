"""Every door repairs a flagged answer, or asks again for it, with the calls that its page names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextvars import Context
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import Response, StreamingResponse
from llama_index.core.schema import NodeWithScore, TextNode
from pydantic import BaseModel
from starlette.testclient import TestClient

from crp_integrations.adapters.conversations import replace_text
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.repair import Edit, edited
from crp_integrations.errors import ConfigError, RequestError, SafetyHalt
from crp_integrations.gateway import GatewaySettings
from crp_integrations.langchain import CRPGate, CRPMiddleware, CRPRunnable
from crp_integrations.llama_index import CRPAgentLLM, CRPQueryEngine
from crp_integrations.llama_index import CRPGate as QueryEngineGate
from tests.adapters import langchain_doubles as langchain
from tests.adapters import llama_index_doubles as llama_index
from tests.adapters.litellm_deployments import ASKED, entry, router
from tests.gateway.application import BODY, FAST, application, fill, key_for
from tests.judges import changed, claims_of, material
from tests.servers import openai_double

FACTS = langchain.FACTS
QUESTION = "How much power does the Meridian reactor deliver?"
RIGHT = "The reactor at Meridian gives 412 megawatts of power."
WRONG = RIGHT.replace("412", "512")


class Repairs:
    """A judge that corrects 512 to 412 in each claim, and supports the others."""

    model_name = "judge-1"

    def __init__(self) -> None:
        self.calls = 0

    def reply(self, messages: Sequence[BaseMessage]) -> str:
        """The verdicts on the claims of a call."""
        self.calls += 1
        asked = material(str(message.content) for message in messages)
        assert asked is not None
        number, text = next(p for p in asked["passages"] if "412" in p[1])
        claims = []
        for n, claim in claims_of(asked):
            verdict: dict[str, Any] = {"status": "SUPPORTED", "wrong": "", "fix": ""}
            verdict["quotes"] = [{"in": str(number), "text": text}]
            if "512" in claim:
                verdict |= {**changed("512", text, str(number)), "fix": claim.replace("512", "412")}
            claims.append({"n": n, "reason": "", **verdict})
        return json.dumps({"id": asked["id"], "claims": claims, "unnumbered": []})

    @property
    def judge(self) -> Any:
        """The judge as a model of LangChain."""
        return langchain.Chat(reply=self.reply, model_name=self.model_name)


Played = tuple[str, int]


def by_ask(answers: Sequence[str], judge: Any, **how: Any) -> Played:
    model = langchain.scripted(*answers)
    relay = langchain.opened(llm=model, judge=judge)
    return relay.ask(QUESTION, **how).text, len(model.seen)


def by_runnable(answers: Sequence[str], judge: Any, **how: Any) -> Played:
    model = langchain.scripted(*answers)
    chain = CRPRunnable(langchain.opened(judge=judge), llm=model, **how)
    return chain.invoke(QUESTION).text, len(model.seen)


def by_middleware(answers: Sequence[str], judge: Any, **how: Any) -> Played:
    model = langchain.scripted(*answers)
    agent = create_agent(
        model, [], middleware=[CRPMiddleware(langchain.opened(), judge=judge, **how)]
    )
    state: Any = agent.invoke({"messages": [HumanMessage(QUESTION)]})
    return state["messages"][-1].text, len(model.seen)


def by_gate(answers: Sequence[str], judge: Any, **how: Any) -> Played:
    left = list(answers)

    def answer(question: str) -> dict[str, Any]:
        return {"answer": left.pop(0), "context": list(FACTS)}

    gate = CRPGate.around(RunnableLambda(answer), judge=judge, **{"policy": "warn-on HIGH", **how})
    return gate.invoke(QUESTION)["answer"], len(answers) - len(left)


def by_agate(answers: Sequence[str], judge: Any, **how: Any) -> Played:
    left = list(answers)

    def answer(question: str) -> dict[str, Any]:
        return {"answer": AIMessage(left.pop(0)), "context": list(FACTS)}

    gate = CRPGate.around(RunnableLambda(answer), judge=judge, **{"policy": "warn-on HIGH", **how})
    return asyncio.run(gate.ainvoke(QUESTION))["answer"].text, len(answers) - len(left)


class Engine(BaseQueryEngine):
    """A query engine with scripted answers."""

    def __init__(self, answers: Sequence[str], *, streams: bool = False) -> None:
        super().__init__(None)
        self.left, self.streams = list(answers), streams
        self.asked: list[Any] = []

    def _get_prompt_modules(self) -> Any:
        return {}

    def _query(self, query_bundle: Any) -> Any:
        self.asked.append(query_bundle)
        nodes = [NodeWithScore(node=TextNode(text=fact)) for fact in FACTS]
        text = self.left.pop(0)
        if self.streams:
            return StreamingResponse((word for word in text.split(" ")), source_nodes=nodes)
        return Response(text, source_nodes=nodes)

    async def _aquery(self, query_bundle: Any) -> Any:
        return self._query(query_bundle)


def by_query_engine_gate(answers: Sequence[str], judge: Any, **how: Any) -> Played:
    engine = Engine(answers)
    gate = QueryEngineGate(engine, judge=judge, **{"policy": "warn-on HIGH", **how})
    return str(gate.query(QUESTION)), len(engine.asked)


def by_async_query_engine_gate(answers: Sequence[str], judge: Any, **how: Any) -> Played:
    engine = Engine(answers)
    gate = QueryEngineGate(engine, judge=judge, **{"policy": "warn-on HIGH", **how})
    return str(asyncio.run(gate.aquery(QUESTION))), len(engine.asked)


def by_query_engine(answers: Sequence[str], judge: Any, **how: Any) -> Played:
    model = llama_index.scripted(*answers)
    engine = CRPQueryEngine(llama_index.opened(), llm=model, judge=judge, streaming=True, **how)
    return str(engine.query(QUESTION)), len(model.seen)


def by_agent(answers: Sequence[str], judge: Any, **how: Any) -> Played:
    model = llama_index.scripted(*answers)
    llm = CRPAgentLLM(llama_index.opened(), model, judge=judge, **how)

    async def run() -> str:
        return str(await llama_index.agent(llm).run(QUESTION))

    return asyncio.run(run()), len(model.seen)


def by_router(answers: Sequence[str], judge: Any, **how: Any) -> Played:
    left = list(answers)
    with openai_double(answers=lambda seen: left.pop(0)) as server:
        routed = router(langchain.opened(), entry(server, "main", "gpt-4o"), judge=judge)
        asked = [{**ASKED[-1], "content": QUESTION}]
        response = routed.completion("main", asked, crp=how)
    return response.choices[0].message.content, len(server.requests)


def by_gateway(answers: Sequence[str], judge: Any, **how: Any) -> Played:
    words = {"repair": "repair-on MEDIUM", "ask-again": "ask-again-on MEDIUM; repair-on MEDIUM"}
    left = list(answers)
    with TemporaryDirectory() as folder, openai_double(answers=lambda seen: left.pop(0)) as server:
        fill(Path(folder), "acme", list(FACTS))
        key, kept = key_for("acme")
        app = application(
            Path(folder), server, kept, settings=GatewaySettings(**FAST), options={"judge": judge}
        )
        with TestClient(app) as client:
            response = client.post(
                "/v1/chat/completions",
                json={**BODY, "messages": [{"role": "user", "content": QUESTION}]},
                headers={
                    "Authorization": f"Bearer {key}",
                    "CRP-Safety-Policy": words[how["on_flag"]],
                },
            )
    if how["on_flag"] == "repair":
        assert response.headers["CRP-Safety-Repaired"] == "edits=1;unrepaired=0"
    return response.json()["choices"][0]["message"]["content"], len(server.requests)


DOORS = (
    by_ask,
    by_runnable,
    by_middleware,
    by_gate,
    by_agate,
    by_query_engine_gate,
    by_async_query_engine_gate,
    by_query_engine,
    by_agent,
    by_router,
    by_gateway,
)


@pytest.fixture(params=DOORS, ids=lambda door: door.__name__)
def door(request: pytest.FixtureRequest) -> Any:
    """A door in an empty context: frameworks' variables of earlier tests are not reset in it."""
    return partial(Context().run, request.param)


def test_a_flagged_answer_is_repaired_with_one_call_more(door: Any) -> None:
    reads = Repairs()
    assert door([WRONG], reads.judge, on_flag="repair") == (RIGHT, 1)
    assert reads.calls == 2


def test_a_flagged_answer_is_asked_for_again(door: Any) -> None:
    reads = Repairs()
    assert door([WRONG, RIGHT], reads.judge, on_flag="ask-again") == (RIGHT, 2)
    assert reads.calls == 2


def test_what_is_asked_for_again_in_vain_is_repaired(door: Any) -> None:
    reads = Repairs()
    text, asked = door([WRONG, f"Well. {WRONG}"], reads.judge, on_flag="ask-again")
    assert (text, asked, reads.calls) == (f"Well. {RIGHT}", 2, 3)


@pytest.mark.parametrize("action", ["repair", "ask-again"])
@pytest.mark.parametrize("door", [door for door in DOORS if door is not by_gateway])
def test_a_second_reading_that_fails_withholds_where_a_failed_judge_does(
    door: Any, action: str
) -> None:
    reads = Repairs()
    whole = reads.reply

    def reply(messages: Sequence[BaseMessage]) -> str:
        return whole(messages) if reads.calls < 1 else json.dumps({"reads": "nothing"})

    reads.reply = reply  # type: ignore[method-assign]
    how: dict[str, Any] = {"on_flag": action, "judge_failure": "halt"}
    with pytest.raises(SafetyHalt) as caught:
        Context().run(door, [WRONG, RIGHT], reads.judge, **how)
    assert caught.value.directive == "judge_failure halt"
    assert caught.value.value == "Unreadable"
    report: Any = caught.value.report
    assert (report.risk_level, report.judge.failed) == ("UNKNOWN", "Unreadable")


# --- the gates -----------------------------------------------------------------------------------


class Power(BaseModel):
    """A structured answer."""

    text: str


def given(answer: Any) -> dict[str, Any]:
    return {"answer": answer, "context": list(FACTS), "question": QUESTION}


@pytest.mark.parametrize("answer", [WRONG, AIMessage(WRONG), Power(text=WRONG)])
def test_a_gate_keeps_the_type_of_what_it_repairs(answer: Any) -> None:
    gate = CRPGate("halt-on HIGH", on_flag="repair", judge=Repairs().judge)
    output = gate.invoke(given(answer))
    shown = output["answer"]
    assert type(shown) is type(answer)
    assert RIGHT in (shown.text if not isinstance(shown, str) else shown)
    assert "repaired=1" in output["crp"]["flags"]
    assert WRONG in output["crp_repaired"]["original"]
    (edit,) = output["crp_repaired"]["edits"]
    assert (edit["old"], edit["new"]) == ("512", "412")


BLOCKS: list[Any] = [
    {"type": "text", "text": "Well. "},
    {"type": "reasoning", "summary": []},
    {"type": "text", "text": WRONG, "annotations": []},
    "Good.",
]


def through_a_gate(judge: Any) -> Any:
    gate = CRPGate("halt-on HIGH", on_flag="repair", judge=judge)
    return gate.invoke(given(AIMessage(BLOCKS)))["answer"].content


def through_an_agent(judge: Any) -> Any:
    model = langchain.scripted(AIMessage(BLOCKS))
    middleware = CRPMiddleware(langchain.opened(), judge=judge, on_flag="repair")
    agent: Any = create_agent(model, [], middleware=[middleware])
    return agent.invoke({"messages": [HumanMessage(QUESTION)]})["messages"][-1].content


@pytest.mark.parametrize("door", [through_a_gate, through_an_agent])
def test_the_blocks_of_a_repaired_message_stay(door: Any) -> None:
    expected = [*BLOCKS[:2], {"type": "text", "text": RIGHT}, BLOCKS[3]]
    assert Context().run(door, Repairs().judge) == expected


CALL = {"name": "Power", "args": {"text": WRONG}, "id": "1"}
PARSED = AIMessage(WRONG, additional_kwargs={"parsed": Power(text=WRONG)})
RAW = {"raw": AIMessage("", tool_calls=[CALL]), "parsed": Power(text=WRONG), "parsing_error": None}


@pytest.mark.parametrize("answer", [PARSED, RAW, AIMessage("", tool_calls=[CALL])])
def test_a_gate_says_that_it_cannot_repair_what_is_parsed(answer: Any) -> None:
    gate = CRPGate("warn-on HIGH", on_flag="repair", judge=Repairs().judge)
    output = gate.invoke(given(answer))
    assert output["answer"] == answer
    assert "not-repaired=structured" in output["crp"]["flags"]
    assert "crp_repaired" not in output


@pytest.mark.parametrize("answer", [PARSED, AIMessage("", tool_calls=[CALL])])
def test_an_agent_says_that_it_cannot_repair_what_is_parsed(answer: AIMessage) -> None:
    reports: list[Report] = []
    how: dict[str, Any] = {"on_flag": "repair", "on_report": reports.append}
    middleware = CRPMiddleware(langchain.opened(), judge=Repairs().judge, **how)
    structured = ToolStrategy(Power) if answer.tool_calls else None
    agent: Any = create_agent(
        langchain.scripted(answer), [], middleware=[middleware], response_format=structured
    )
    state = Context().run(agent.invoke, {"messages": [HumanMessage(QUESTION)]})
    if structured:
        assert state["structured_response"] == Power(text=WRONG)
    else:
        assert state["messages"][-1].text == WRONG
    (report,) = reports
    assert report.flagged
    assert "not-repaired=structured" in report.flags


def edits_of(text: str, *changes: tuple[str, str]) -> list[Edit]:
    places = [(text.index(old), old, new) for old, new in changes]
    return [
        Edit(start=at, end=at + len(old), old=old, new=new, claim=f"c{at}")
        for at, old, new in places
    ]


@pytest.mark.parametrize("separator", ["", "\n"])
@pytest.mark.parametrize(
    ("changes", "blocks"),
    [
        ([("aa", "xx"), ("dd", "yy")], ["xx bb.", 5, "cc yy.", "ee."]),
        ([("bb.", "b."), ("ee.", "")], ["aa b.", 5, "cc dd."]),
        ([("cc dd.", "")], ["aa bb.", 5, "ee."]),
    ],
)
def test_each_block_gets_its_own_edits(
    separator: str, changes: list[tuple[str, str]], blocks: list[Any]
) -> None:
    texts: list[Any] = ["aa bb.", 5, "cc dd.", "ee."]

    def replaced(*made: tuple[str, str]) -> tuple[str, list[Any]]:
        whole = separator.join(text for text in texts if isinstance(text, str))
        edits = edits_of(whole, *made)
        new = edited(whole, edits)
        own: Any = lambda block: block if isinstance(block, str) else None  # noqa: E731
        return new, replace_text(texts, new, edits, own, str, separator)

    assert replaced(*changes)[1] == blocks
    whole = separator.join(["aa bb.", "cc dd.", "ee."])
    between = Edit(start=6, end=6, old="", new="!", claim="c1")
    for more in ([], [edits_of(whole, (f"dd.{separator}ee", "zz"))[0]]):
        new = edited(whole, [between, *more])
        own: Any = lambda block: block if isinstance(block, str) else None  # noqa: E731
        blocks_of = replace_text(texts, new, [between, *more], own, str, separator)
        assert blocks_of == ([new, 5] if more else ["aa bb.!", 5, "cc dd.", "ee."])
    text, merged = replaced((f"bb.{separator}cc", "zz"))
    assert merged == [text, 5]
    assert replace_text([5], "aa", [], lambda block: None, str) == [5, "aa"]


def test_a_check_reports_on_the_answer_as_it_is() -> None:
    gate = CRPGate("warn-on HIGH", on_flag="repair", judge=Repairs().judge)
    assert gate.check(WRONG, list(FACTS), QUESTION).flagged


def test_a_gate_withholds_from_the_level_that_it_is_given() -> None:
    gate = CRPGate("warn-on HIGH", on_flag="withhold", judge=Repairs().judge)
    with pytest.raises(SafetyHalt) as caught:
        gate.invoke(given(WRONG))
    assert caught.value.directive == "halt-on MEDIUM"


def test_a_gate_without_its_chain_cannot_ask_again() -> None:
    how: dict[str, Any] = {"judge": Repairs().judge}
    for action in ("ask-again", ["ask-again", "withhold"]):
        with pytest.raises(RequestError, match=r"CRPGate\.around"):
            CRPGate("warn-on HIGH", on_flag=action, **how)
    gate = CRPGate("warn-on HIGH; ask-again-on MEDIUM", **how)
    assert gate.check(WRONG, list(FACTS), QUESTION).flagged
    with pytest.raises(RequestError, match=r"CRPGate\.around"):
        gate.invoke(given(WRONG))


def test_a_repair_without_a_judge_is_an_error() -> None:
    with pytest.raises(ConfigError, match="repair-on MEDIUM needs a judge"):
        CRPGate("unchecked allow", on_flag="repair")
    with pytest.raises(RequestError, match="'fix' is unknown"):
        CRPGate(on_flag="fix", judge=Repairs().judge)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"on_flag": 5}, "on_flag is 5"),
        ({"on_flag": True}, "on_flag is True"),
        ({"on_flag_level": "HIGH"}, "without on_flag"),
        ({"on_flag_level": "MEDIUM"}, "without on_flag"),
        ({"most_again": 2}, "most_again 2 has no effect"),
        ({"most_again": 2, "on_flag": "repair"}, "most_again 2 has no effect"),
        ({"on_flag": "ask-again", "most_again": 9}, "at most 2"),
    ],
)
def test_a_gate_refuses_what_has_no_effect(how: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        CRPGate.around(RunnableLambda(str), judge=Repairs().judge, **how)
    with pytest.raises(RequestError, match=words):
        QueryEngineGate(Engine([]), judge=Repairs().judge, **how)


def test_a_call_replaces_the_count_of_the_action_that_it_replaces() -> None:
    relay = langchain.opened(judge=Repairs().judge)
    made: dict[str, Any] = {"on_flag": "ask-again", "most_again": 2}
    for how, calls in (
        ({"on_flag": "repair"}, 1),
        ({"on_flag": ["repair", "withhold"]}, 1),
        ({"on_flag": ("ask-again", "repair")}, 3),
    ):
        model = langchain.scripted(WRONG, WRONG + " It is.", WRONG + " Yes.")
        assert "412" in CRPRunnable(relay, llm=model, **made).invoke(QUESTION, **how).text
        assert len(model.seen) == calls
    chain = CRPRunnable(relay, llm=langchain.scripted(WRONG), **made)
    with pytest.raises(RequestError, match="most_again 2 has no effect"):
        chain.invoke(QUESTION, on_flag="repair", most_again=2)


@pytest.mark.parametrize("action", ["ask-again", "repair"])
def test_no_gate_acts_on_a_judge_in_the_background(action: str) -> None:
    how: dict[str, Any] = {"on_flag": action, "judge_mode": "background", "on_report": print}
    with pytest.raises(ConfigError, match="in the background"):
        CRPGate.around(RunnableLambda(str), "unchecked allow", judge=Repairs().judge, **how)


@pytest.mark.parametrize("value", [{"topic": "reactor"}, ["reactor"]])
def test_a_chain_without_a_question_cannot_be_asked_again(value: Any) -> None:
    chain = RunnableLambda(lambda asked: pytest.fail("the chain is not paid"))
    gate = CRPGate.around(chain, on_flag=["ask-again", "withhold"], judge=Repairs().judge)
    for asked in (lambda: gate.invoke(value), lambda: asyncio.run(gate.ainvoke(value))):
        with pytest.raises(RequestError, match="needs a question"):
            asked()


def test_a_gate_obeys_the_policy_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRP_POLICY", "repair-on MEDIUM")
    gate = CRPGate("warn-on HIGH", judge=Repairs().judge)
    assert gate.invoke(given(WRONG))["answer"] == RIGHT


@pytest.mark.parametrize(
    "door", [by_gate, by_agate, by_query_engine_gate, by_runnable, by_middleware, by_agent]
)
@pytest.mark.parametrize("second", ["", f"{WRONG} {WRONG.replace('Meridian', 'Sol')}"])
def test_a_door_discards_an_empty_or_worse_second_answer(door: Any, second: str) -> None:
    assert door([WRONG, second], Repairs().judge, on_flag="ask-again") == (RIGHT, 2)
    assert door([WRONG, second], Repairs().judge, policy="ask-again-on MEDIUM") == (WRONG, 2)


def test_a_gated_query_engine_is_asked_again_with_the_findings() -> None:
    engine = Engine([WRONG, RIGHT])
    gate = QueryEngineGate(engine, on_flag="ask-again", judge=Repairs().judge)
    assert str(gate.query(QUESTION)) == RIGHT
    first, second = engine.asked
    assert f"- {WRONG}" in second.query_str
    assert second.embedding_strs == first.embedding_strs == [QUESTION]


def test_a_gated_query_engine_reads_a_stream_first() -> None:
    gate = QueryEngineGate(Engine([WRONG], streams=True), on_flag="repair", judge=Repairs().judge)
    response: Any = gate.query(QUESTION)
    assert len(response.source_nodes) == len(FACTS)
    assert response.metadata["crp_repaired"]["edits"]


def test_a_gated_query_engine_withholds() -> None:
    gate = QueryEngineGate(Engine([WRONG]), judge=Repairs().judge)
    with pytest.raises(SafetyHalt):
        gate.query(QUESTION)
    with pytest.raises(RequestError, match="CRPGate takes a query engine"):
        QueryEngineGate("engine", judge=Repairs().judge)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", [{"on_flag": "repair"}, {"policy": "ask-again-on MEDIUM"}])
def test_no_stream_of_an_agent_shows_what_is_replaced(how: dict[str, Any]) -> None:
    model = langchain.scripted(WRONG, RIGHT)
    middleware = CRPMiddleware(
        langchain.opened(), judge=Repairs().judge, block_streams=False, **how
    )
    agent: Any = create_agent(model, [], middleware=[middleware])
    parts = agent.stream({"messages": [HumanMessage(QUESTION)]}, stream_mode="messages")
    assert "".join(part.text for part, _ in parts) == RIGHT


@pytest.mark.parametrize("mode", ["wait", "background"])
def test_a_gate_hands_out_one_report_of_each_answer(mode: str) -> None:
    reports: list[Any] = []
    gate = CRPGate(
        "unchecked allow", judge=Repairs().judge, on_report=reports.append,
        **({"judge_mode": mode} if mode == "background" else {"on_flag": "repair"}),  # type: ignore[arg-type]
    )  # fmt: skip
    gate.invoke(given(WRONG))
    made: Any = gate._gate._examination["judge"]
    made.wait()
    assert [report.risk_level for report in reports] == ["LOW" if mode == "wait" else "HIGH"]
