"""Tool calls of LlamaIndex's agents, checked before the tools run."""

import asyncio
import json

import pytest
from llama_index.core.agent.workflow import AgentOutput, AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.agent.workflow.workflow_events import ToolCallResult
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    JsonPickleSerializer,
    JsonSerializer,
)

from crp_integrations import Judge
from crp_integrations.errors import ConfigError
from crp_integrations.llama_index import CRPAgentLLM, CRPAgentWorkflow
from crp_integrations.llama_index.grounded_tools import step_calls
from crp_integrations.messages import Reply
from crp_integrations.vocabulary import EventType
from tests.adapters.actions import (
    ORDER,
    RIGHT,
    WRONG,
    ActionJudge,
    assert_checked_in_region,
    in_region,
)
from tests.adapters.llama_index_doubles import agent, heard, opened, outputs, prompts, scripted
from tests.relay.scripted_relays import session_events

PAY_BOTH = [("pay", RIGHT), ("pay", WRONG)]


class Payments:
    """An agent that pays, with what was paid, and its judge."""

    def __init__(
        self, *script, kind="FunctionAgent", streaming=True, grounds=True, relay=None, **options
    ):
        self.paid = []
        self.judge = ActionJudge()

        def pay(iban: str, euros: int) -> str:
            """Pay an amount to an account."""
            self.paid.append(iban)
            return "paid"

        self.model = scripted(*script)
        options = {"ground_tools": True, "judge": self.judge, **options}
        self.relay = relay or opened()
        self.llm = CRPAgentLLM(self.relay, self.model, **options)
        tools = self.llm.grounded([pay]) if grounds else [pay]
        self.agent = agent(self.llm, tools, kind, streaming=streaming)


def results(events):
    return [event.tool_output for event in events if isinstance(event, ToolCallResult)]


async def test_calls_are_reported_and_run_by_default():
    reports = []
    payments = Payments(PAY_BOTH, "Done.", grounds=False, on_action=reports.append)
    events, _, error = await heard(payments.agent.run(ORDER))
    assert error is None
    assert sorted(payments.paid) == sorted([RIGHT["iban"], WRONG["iban"]])
    entries = outputs(events)[0].metadata["crp_actions"]
    assert [entry["may_run"] for entry in entries] == [True, False]
    assert [report.may_run for report in reports] == [True, False]
    assert payments.judge.asked == 2
    assert "crp_actions" not in prompts(payments.model)
    sealed = session_events(payments.relay, EventType.ACTION_CHECKED)
    assert [event.data["report_hash"] for event in sealed] == [e["report_hash"] for e in entries]


async def test_a_call_is_checked_and_sealed_in_the_region_of_its_window(tmp_path):
    relay, model = in_region(tmp_path), ActionJudge()
    judge = Judge(model, withhold_labels=("secret",))
    payments = Payments([("pay", RIGHT)], "Done.", relay=relay, judge=judge, residency="eu")
    events, _, error = await heard(payments.agent.run(ORDER))
    assert error is None
    assert_checked_in_region(relay, outputs(events)[0].metadata["crp_actions"], model)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("kind", ["FunctionAgent", "AgentWorkflow"])
async def test_a_returned_call_does_not_run_and_is_no_evidence(kind, streaming):
    payments = Payments(
        PAY_BOTH, [("pay", WRONG)], "Done.", kind=kind, streaming=streaming, on_ungrounded="return"
    )
    events, _, error = await heard(payments.agent.run(ORDER))
    assert error is None
    assert payments.paid == [RIGHT["iban"]]
    refused = [output for output in results(events) if output.is_error]
    assert len(refused) == 2
    assert all("/iban" in output.content and WRONG["iban"] in output.content for output in refused)
    assert all(WRONG["iban"] not in text for text in payments.judge.evidence)


@pytest.mark.parametrize("decision", ["approve", "reject", "edit", "perhaps"])
async def test_a_paused_call_asks_a_person_and_pays_the_judge_once(decision):
    payments = Payments(PAY_BOTH, "Done.", on_ungrounded="pause")
    handler = payments.agent.run(ORDER)
    asked, events = [], []
    edited = {**WRONG, "iban": "DE00000000000000000001"}
    async for event in handler.stream_events():
        events.append(event)
        if isinstance(event, InputRequiredEvent):
            assert WRONG["iban"] not in payments.paid
            asked.append(event)
            more = {"tool_kwargs": edited} if decision == "edit" else {"message": "Not this one."}
            handler.ctx.send_event(
                HumanResponseEvent(action_id=event.action_id, response=decision, **more)
            )
    await handler
    assert [(event.tool_name, event.tool_kwargs) for event in asked] == [("pay", WRONG)]
    assert "/iban" in asked[0].prefix
    assert payments.judge.asked == 2
    ran = {"approve": [WRONG["iban"]], "edit": [edited["iban"]]}.get(decision, [])
    assert sorted(payments.paid) == sorted([RIGHT["iban"], *ran])
    refused = [output.content for output in results(events) if output.is_error]
    assert len(refused) == 1 - len(ran)
    if decision == "reject":
        assert "Not this one." in refused[0]


async def test_two_paused_calls_of_a_step_get_their_own_decisions():
    other = {**WRONG, "iban": "DE88888888888888888888"}
    payments = Payments([("pay", WRONG), ("pay", other)], "Done.", on_ungrounded="pause")
    handler = payments.agent.run(ORDER)
    waiting = []
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            waiting.append(event)
        if len(waiting) == 2:
            for request in waiting:
                response = "approve" if request.tool_kwargs == other else "reject"
                handler.ctx.send_event(
                    HumanResponseEvent(action_id=request.action_id, response=response)
                )
            waiting = []
    await handler
    assert payments.paid == [other["iban"]]


@pytest.mark.parametrize("kind", ["FunctionAgent", "AgentWorkflow"])
@pytest.mark.parametrize(
    ("calls", "decisions", "payments_made"),
    [
        (1, ["approve", "approve"], 1),
        (1, ["reject", "approve"], 0),
        (1, ["approve", "reject"], 1),
        (2, ["approve"], 2),
        (2, ["reject"], 0),
        (6, ["approve", "approve"], 6),
    ],
)
async def test_the_first_decision_on_each_call_counts_once(kind, calls, decisions, payments_made):
    payments = Payments([("pay", WRONG)] * calls, "Done.", on_ungrounded="pause", kind=kind)
    handler = payments.agent.run(ORDER)
    asked, events = [], []

    async def listen():
        async for event in handler.stream_events():
            events.append(event)
            if isinstance(event, InputRequiredEvent):
                asked.append(event.action_id)
                for decision in decisions:
                    handler.ctx.send_event(
                        HumanResponseEvent(action_id=event.action_id, response=decision)
                    )
        await handler

    await asyncio.wait_for(listen(), 20)
    assert len(set(asked)) == len(asked) == calls
    assert len(payments.paid) == payments_made
    assert len(results(events)) == calls
    assert len(payments.model.seen) == 2


@pytest.mark.parametrize("clicks", [1, 2])
async def test_an_approved_tool_that_waits_itself_runs_on_after_its_own_event(clicks):
    paid = []

    async def pay(ctx: Context, iban: str, euros: int) -> str:
        """Pay an amount to an account."""
        code = await ctx.wait_for_event(
            HumanResponseEvent,
            waiter_event=InputRequiredEvent(prefix="code"),
            waiter_id="code",
            requirements={"about": "code"},
        )
        paid.append((iban, code.response))
        return "paid"

    llm = CRPAgentLLM(
        opened(),
        scripted([("pay", WRONG)], "Done."),
        ground_tools=True,
        judge=ActionJudge(),
        on_ungrounded="pause",
    )
    handler = agent(llm, llm.grounded([pay])).run(ORDER)

    async def listen():
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent) and event.prefix == "code":
                handler.ctx.send_event(HumanResponseEvent(about="code", response="1234"))
            elif isinstance(event, InputRequiredEvent):
                for _ in range(clicks):
                    handler.ctx.send_event(
                        HumanResponseEvent(action_id=event.action_id, response="approve")
                    )
        await handler

    await asyncio.wait_for(listen(), 20)
    assert paid == [(WRONG["iban"], "1234")]


async def test_an_approved_value_is_evidence_for_later_calls():
    payments = Payments([("pay", WRONG)], [("pay", WRONG)], "Done.", on_ungrounded="pause")
    handler = payments.agent.run(ORDER)
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            handler.ctx.send_event(
                HumanResponseEvent(action_id=event.action_id, response="approve")
            )
    await handler
    assert payments.paid == [WRONG["iban"]] * 2


async def test_a_call_outside_a_checked_step_does_not_run():
    payments = Payments("Done.", on_ungrounded="return")
    output = await payments.agent.tools[0].acall(**RIGHT, crp_context=None)
    assert output.is_error
    assert payments.paid == []


async def test_a_verdict_of_another_run_does_not_count():
    payments = Payments([("pay", WRONG)], "Done.", on_ungrounded="return")
    first = payments.agent.run(f"{ORDER} And 40 to {WRONG['iban']}.")
    await heard(first)
    assert payments.paid == [WRONG["iban"]]
    payments.model._reply = scripted([("pay", WRONG)], "Done.")._reply
    await heard(payments.agent.run(ORDER))
    assert payments.paid == [WRONG["iban"]]


async def test_an_agent_with_a_tool_that_cannot_be_stopped_is_an_error_before_the_model_is_paid():
    payments = Payments([("pay", WRONG)], "Done.", grounds=False, on_ungrounded="return")
    _, _, error = await heard(payments.agent.run(ORDER))
    assert isinstance(error, ConfigError)
    assert "llm.grounded(tools)" in str(error)
    assert payments.model.seen == []


async def test_a_tool_gets_its_context_and_its_other_properties():
    seen = []

    async def count(ctx: Context, euros: int) -> str:
        """Count euros."""
        seen.append((await ctx.store.get("user_msg_str"), euros))
        return "counted"

    tool = FunctionTool.from_defaults(count, return_direct=True)
    llm = CRPAgentLLM(
        opened(),
        scripted([("count", {"euros": 40})], "Done."),
        ground_tools=["count"],
        judge=ActionJudge(),
        on_ungrounded="return",
    )
    [grounded] = llm.grounded([tool])
    assert grounded.metadata is tool.metadata
    _, result, error = await heard(agent(llm, [grounded]).run(ORDER))
    assert error is None
    assert seen == [(ORDER, 40)]
    assert str(result) == "counted"


def handing_over(kind, **options):
    """A workflow of two agents, the first of which wants to hand over, and what it streamed."""
    handing = [("handoff", {"to_agent": "second", "reason": "40 euros"})], "Done."
    wrong = [("handoff", {"to_agent": "second", "reason": "It wants 80 euros."})]
    options = {"ground_tools": True, "judge": ActionJudge(), **options}
    models = scripted(wrong, *handing), scripted("Done.")
    relay = opened()
    agents = [
        FunctionAgent(
            name=name,
            description="pays",
            llm=CRPAgentLLM(relay, model, **options),
            can_handoff_to=["second"],
        )
        for name, model in zip(("first", "second"), models, strict=True)
    ]
    return kind(agents=agents, root_agent="first"), models[0]


async def test_text_that_is_handed_to_another_agent_is_checked():
    workflow, _ = handing_over(CRPAgentWorkflow, on_ungrounded="return")
    events, result, error = await heard(workflow.run(f"{ORDER} The second agent pays."))
    assert error is None
    assert result.current_agent_name == "second"
    refused, taken = results(events)
    assert refused.is_error and "80 euros" in refused.content
    assert not taken.is_error


async def test_a_person_is_asked_before_a_handover():
    workflow, _ = handing_over(CRPAgentWorkflow, on_ungrounded="pause")
    handler = workflow.run(ORDER)
    asked = []
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            asked.append((event.tool_name, event.tool_kwargs["reason"]))
            handler.ctx.send_event(
                HumanResponseEvent(action_id=event.action_id, response="approve")
            )
    assert (await handler).current_agent_name == "second"
    assert asked == [("handoff", "It wants 80 euros.")]


@pytest.mark.parametrize("names", [True, ["handoff"]])
async def test_a_handover_that_cannot_be_stopped_is_an_error_before_the_model_is_paid(names):
    workflow, model = handing_over(AgentWorkflow, on_ungrounded="return", ground_tools=names)
    _, _, error = await heard(workflow.run(ORDER))
    assert isinstance(error, ConfigError)
    assert "CRPAgentWorkflow" in str(error)
    assert model.seen == []


async def test_a_handover_is_reported_by_default():
    workflow, _ = handing_over(AgentWorkflow)
    events, result, error = await heard(workflow.run(ORDER))
    assert error is None
    assert result.current_agent_name == "second"
    assert outputs(events)[0].metadata["crp_actions"][0]["may_run"] is False


@pytest.mark.parametrize("decision", ["approve", "reject"])
@pytest.mark.parametrize("serializer", [JsonSerializer(), JsonPickleSerializer()])
@pytest.mark.parametrize("kind", ["FunctionAgent", "AgentWorkflow"])
async def test_a_paused_run_is_restored_without_another_check(kind, serializer, decision):
    other = {**WRONG, "iban": "DE88888888888888888888"}
    options = {"on_ungrounded": "pause", "kind": kind}
    first = Payments([("pay", WRONG), ("pay", other)], **options)
    handler = first.agent.run(ORDER)
    waiting = {}
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            waiting[event.tool_kwargs["iban"]] = event.action_id
        if len(waiting) == 2:
            break
    saved = json.dumps(handler.ctx.to_dict(serializer=serializer))
    await handler.cancel_run()
    # Another process, whose model wants what was decided upon again.
    second = Payments([("pay", WRONG), ("pay", other)], "Done.", **options)
    context = Context.from_dict(second.agent, json.loads(saved), serializer=serializer)
    handler = second.agent.run(ctx=context)
    decisions = {other["iban"]: "reject", WRONG["iban"]: decision}
    for iban, id_ in waiting.items():
        handler.ctx.send_event(HumanResponseEvent(action_id=id_, response=decisions[iban]))
    paid, asked = [WRONG["iban"]] * (decision == "approve"), []
    async for event in handler.stream_events():
        if isinstance(event, AgentOutput) and not asked:
            asked.append(second.judge.asked)
            assert second.paid == paid
        if isinstance(event, InputRequiredEvent):
            # Decisions that reach a restored run at once may have to be repeated.
            iban, response = event.tool_kwargs["iban"], "reject"
            if asked:
                asked.append(iban)
            else:
                assert event.action_id == waiting[iban]
                response = decisions[iban]
            handler.ctx.send_event(HumanResponseEvent(action_id=event.action_id, response=response))
    await handler
    # What a person refused is no evidence after the pause, and what was approved is.
    refused = [other["iban"], *([] if paid else [WRONG["iban"]])]
    assert [asked[0], *sorted(asked[1:])] == [2, *sorted(refused)]
    assert second.paid == paid * 2
    assert [m.content for m in second.model.seen[0] if m.role == "user"] == [ORDER]


@pytest.mark.parametrize("kind", ["FunctionAgent", "AgentWorkflow"])
async def test_a_restored_run_has_the_whole_history_and_keeps_no_copy_of_it(kind):
    roles = ("user", "assistant")
    history = [ChatMessage(role=roles[n % 2], content=f"{n} " + "note " * 800) for n in range(8)]
    options = {"on_ungrounded": "pause", "kind": kind}
    first = Payments([("pay", WRONG), ("pay", WRONG)], **options)
    handler = first.agent.run(ORDER, chat_history=history)
    waiting = []
    async for event in handler.stream_events():
        waiting += [event.action_id] if isinstance(event, InputRequiredEvent) else []
        if len(waiting) == 2:
            break
    saved = json.dumps(handler.ctx.to_dict(serializer=JsonSerializer()))
    await handler.cancel_run()
    second = Payments("Done.", **options)
    context = Context.from_dict(second.agent, json.loads(saved), serializer=JsonSerializer())
    handler = second.agent.run(ctx=context)
    handler.ctx.send_event(HumanResponseEvent(action_id=waiting[0], response="approve"))
    async for event in handler.stream_events():
        if isinstance(event, ToolCallResult) and len(waiting) == 2:
            # The other call still waits, and could be restored again.
            assert "note" in json.dumps(handler.ctx.to_dict(serializer=JsonSerializer()))
            id_ = waiting.pop()
            handler.ctx.send_event(HumanResponseEvent(action_id=id_, response="reject"))
    await handler
    assert len(second.paid) == 1
    sent = [message.content for message in second.model.seen[0]]
    assert all(message.content in sent for message in history)
    assert "note" not in json.dumps(handler.ctx.to_dict(serializer=JsonSerializer()))


REACT = "Thought: I pay.\nAction: pay\nAction Input: {}"


@pytest.mark.parametrize("grounds", [True, False])
async def test_the_calls_of_a_reasoning_agent_are_read_from_its_text(grounds):
    payments = Payments("", grounds=grounds, on_ungrounded="return")
    script = [REACT.format(json.dumps(arguments)) for arguments in (WRONG, WRONG, RIGHT)]
    payments.model._reply = scripted(*script, "Thought: I can answer.\nAnswer: Done.")._reply
    made = ReActAgent(llm=payments.llm, tools=payments.agent.tools)
    events, _, error = await heard(made.run(ORDER))
    if not grounds:
        assert isinstance(error, ConfigError)
        assert payments.paid == []
        return
    assert error is None
    assert [entry["may_run"] for entry in outputs(events)[0].metadata["crp_actions"]] == [False]
    assert payments.paid == [RIGHT["iban"]]
    assert all(WRONG["iban"] not in text for text in payments.judge.evidence)


def test_tools_may_be_grounded_while_a_step_is_read():
    payments = Payments("", on_ungrounded="return")
    grounded = payments.llm._grounded
    made = []

    class GrowingTools:
        def get_name(self):
            made.extend(payments.llm.grounded([lambda: ""]))
            return "pay"

        def to_openai_tool(self, **_):
            return {}

    payments.agent.tools[0]._metadata = GrowingTools()
    text = REACT.format(json.dumps(RIGHT))
    (call,), _ = step_calls(Reply(text=text, model=""), (), payments.llm._gate, grounded)
    assert (call.name, len(grounded)) == ("pay", 2)
