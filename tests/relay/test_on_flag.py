"""What a relay does with a flagged answer before its policy decides: ask again, repair, withhold."""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.errors import RequestError
from crp_integrations.messages import ModelCall, Reply, ToolCall
from crp_integrations.receipt.records import Receipt
from crp_integrations.receipt.redaction import redact
from crp_integrations.receipt.replay import replay
from crp_integrations.relay.steps import Halt, Release
from crp_integrations.vocabulary import EventType, RiskLevel
from tests.doubles import ScriptedModel
from tests.judges import ScriptedJudge, changed
from tests.receipt.relayed import changed as changed_receipt
from tests.relay.conftest import FACTS, Opener
from tests.relay.scripted_relays import outcome, session_events, system

RIGHT = "The Meridian reactor delivers 412 megawatts."
WRONG = RIGHT.replace("412", "900")
QUESTION = "How many megawatts?"
OTHER = "It is operated by Northfield Energy."
CALL = ToolCall(id="1", name="state", arguments=f'{{"text": "{WRONG}"}}')
LATE = {"judge_mode": "background", "on_report": print}
VERDICT = {**changed("900", FACTS[0]), "fix": RIGHT}


class CountingJudge(ScriptedJudge):
    """A scripted judge that keeps its calls; after some of them it fails."""

    def __init__(self, verdict: dict[str, Any] = VERDICT, answers: int = 99) -> None:
        super().__init__({"900": verdict})
        self.calls: list[ModelCall] = []
        self._answers = answers

    def call(self, call: ModelCall) -> Any:
        self.calls.append(call)
        if len(self.calls) > self._answers:
            raise TimeoutError
        return super().call(call)


def relay_of(
    open_relay: Opener, *script: str | Reply, judge: Any = None, **options: Any
) -> tuple[Relay, ScriptedModel, CountingJudge]:
    """A relay with a judge; the model, and the judge."""
    judge = judge or CountingJudge()
    model = ScriptedModel(*script)
    relay = open_relay(models=model, judge=judge, profile="observe", **options)
    relay.fabric.add(list(FACTS))
    return relay, model, judge


def test_by_default_a_flagged_answer_is_reported(open_relay: Opener) -> None:
    relay, model, judge = relay_of(open_relay, WRONG)
    answer = relay.ask(QUESTION)
    assert (answer.text, answer.report.flagged, answer.repaired) == (WRONG, True, None)
    assert (len(model.calls), len(judge.calls)) == (1, 1)


@pytest.mark.parametrize(
    "asking", [{"on_flag": "repair"}, {"policy": "repair-on MEDIUM; halt-on MEDIUM"}]
)
def test_a_repaired_answer_is_judged_again_before_any_halt(
    open_relay: Opener, asking: dict[str, Any]
) -> None:
    relay, model, judge = relay_of(open_relay, f"{WRONG} {OTHER}")
    answer = relay.ask(QUESTION, **asking)
    assert answer.text == answer.reply.text == f"{RIGHT} {OTHER}"
    assert answer.report.risk_level is RiskLevel.LOW
    assert "repaired=1" in answer.report.flags
    assert (len(model.calls), len(judge.calls)) == (1, 2)
    original = answer.repaired
    assert original is not None
    assert original.text == f"{WRONG} {OTHER}"
    assert original.report.flagged
    (edit,) = original.edits
    text = original.text
    assert text[: edit.start] + edit.new + text[edit.end :] == answer.text
    assert answer.report.response_content_hash != original.report.response_content_hash
    (event,) = session_events(relay, EventType.ANSWER_REPAIRED)
    assert event.data["response_hash"] == original.report.response_content_hash
    assert event.data["report_hash"] == original.report.report_hash


def repaired_receipt(open_relay: Opener) -> Receipt:
    relay, _, _ = relay_of(open_relay, f"{WRONG} {OTHER}")
    receipt = relay.receipt(relay.ask(QUESTION, on_flag="repair").receipt_id)
    assert receipt is not None
    return receipt


def test_a_receipt_has_the_original_and_its_edits(open_relay: Opener) -> None:
    receipt = repaired_receipt(open_relay)
    record = receipt.content["repaired"]
    text = receipt.text(record["original"])
    assert text is not None
    assert text == f"{WRONG} {OTHER}"
    for edit in reversed(record["edits"]):
        text = text[: edit["start"]] + str(receipt.text(edit["leaf"])) + text[edit["end"] :]
    assert text == receipt.text(receipt.number("answer"))
    played = replay(receipt)
    assert played.word == "holds"
    assert {part.name: part.state for part in played.parts}["repair"] == "equal"


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["repaired"]["edits"].clear(),
        lambda content: content["repaired"]["edits"][0].update(end=1),
        lambda content: content["repaired"]["report"].update(risk_level="LOW"),
        lambda content: content["repaired"].update(original=content["examined"]["answer"]),
    ],
)
def test_a_changed_repair_differs(open_relay: Opener, change: Any) -> None:
    played = replay(changed_receipt(repaired_receipt(open_relay), change))
    assert played.word == "differs"
    assert "repair" in [part.name for part in played.parts if part.state == "differs"]


def test_who_leaves_out_the_answer_leaves_out_its_original(open_relay: Opener) -> None:
    copy = redact(repaired_receipt(open_relay), names=["answer"])
    texts = [text for text in copy.texts if isinstance(text, str)]
    assert not any("900" in text or RIGHT in text for text in texts if "4 March" not in text)
    assert replay(copy).word == "not recomputed"


def test_a_level_below_that_of_the_action_changes_nothing(open_relay: Opener) -> None:
    relay, _, judge = relay_of(open_relay, WRONG)
    answer = relay.ask(QUESTION, on_flag="repair", on_flag_level="CRITICAL")
    assert (answer.text, answer.repaired, len(judge.calls)) == (WRONG, None, 1)


def test_the_stricter_of_argument_and_policy_applies(open_relay: Opener) -> None:
    relay, _, _ = relay_of(open_relay, WRONG, policy="repair-on MEDIUM")
    session: dict[str, Any] = {"session_id": "a", "on_flag": "repair"}
    answer = relay.ask(QUESTION, on_flag_level="CRITICAL", **session)
    assert answer.text == RIGHT
    assert "repair-on MEDIUM" in answer.headers["CRP-Safety-Policy-Applied"]


@pytest.mark.parametrize(("text", "noted"), [(WRONG, ["ask-again-on", "repair-on"]), (RIGHT, [])])
def test_what_a_reported_policy_would_do_is_noted(
    open_relay: Opener, text: str, noted: list[str]
) -> None:
    relay, model, judge = relay_of(open_relay, text)
    answer = relay.ask(QUESTION, report_only="repair-on MEDIUM; ask-again-on MEDIUM")
    assert (answer.text, len(model.calls), len(judge.calls)) == (text, 1, 1)
    events = session_events(relay, EventType.POLICY_VIOLATION)
    assert [event.data["directives"] for event in events] == ([noted] if noted else [])
    assert all(event.data["report_only"] for event in events)
    receipt = relay.receipt(answer.receipt_id)
    assert receipt is not None
    assert replay(receipt).word == "holds"


def test_an_argument_holds_for_its_question_alone(open_relay: Opener) -> None:
    relay, _, _ = relay_of(open_relay, WRONG)
    assert relay.ask(QUESTION, session_id="a", on_flag="repair").text == RIGHT
    assert relay.ask(QUESTION, session_id="a").text == WRONG


def test_what_nobody_reads_again_is_not_released(open_relay: Opener) -> None:
    verdict = {**VERDICT, "fix": "Meridian's reactor yields 412 megawatts."}
    relay, _, judge = relay_of(open_relay, WRONG, judge=CountingJudge(verdict, answers=1))
    answer = relay.ask(QUESTION, on_flag="repair")
    assert (answer.text, answer.report.flagged, answer.repaired) == (WRONG, True, None)
    assert "repair-discarded" in answer.report.flags
    assert len(judge.calls) > 1


def test_a_repair_whose_reading_failed_is_withheld_and_replays(open_relay: Opener) -> None:
    relay, _, _ = relay_of(open_relay, WRONG, judge=CountingJudge(answers=1))
    ended = outcome(relay, QUESTION, on_flag="repair", judge_failure="halt")
    assert isinstance(ended, Halt)
    assert (ended.reason, ended.directive) == ("JUDGE_FAILED", "judge_failure halt")
    assert ended.answer.repaired is not None
    assert ended.answer.repaired.text == WRONG
    receipt = relay.receipt(ended.answer.receipt_id)
    assert receipt is not None
    assert replay(receipt).word == "holds"


def test_a_repair_that_is_as_wrong_is_discarded(open_relay: Opener) -> None:
    judge = CountingJudge({**VERDICT, "fix": "The Meridian reactor does not deliver 900."})
    relay, _, _ = relay_of(open_relay, WRONG, judge=judge)
    answer = relay.ask(QUESTION, on_flag="repair")
    assert (answer.text, answer.repaired) == (WRONG, None)
    ended = outcome(relay, QUESTION, on_flag=["repair", "withhold"])
    assert isinstance(ended, Halt)
    assert ended.directive == "halt-on MEDIUM"


def test_ask_again_gives_the_model_the_claim_with_the_evidence(open_relay: Opener) -> None:
    relay, model, judge = relay_of(open_relay, WRONG, RIGHT)
    answer = relay.ask(QUESTION, on_flag="ask-again")
    assert (answer.text, answer.repaired) == (RIGHT, None)
    assert (len(model.calls), len(judge.calls)) == (2, 2)
    words = system(model.calls[1]).split("<context>")[0]
    assert f'- {WRONG}\n  The context says: "{FACTS[0][:-1]}"' in words
    (event,) = session_events(relay, EventType.RE_DISPATCH)
    assert event.data["triggers"] == ["flagged"]


@pytest.mark.parametrize(
    ("asking", "models", "judged", "text"),
    [
        ({"on_flag": "ask-again"}, 2, 3, RIGHT),
        ({"on_flag": "ask-again", "most_again": 2}, 3, 4, RIGHT),
        ({"on_flag": "ask-again", "most_again": 0}, 1, 2, RIGHT),
        ({"on_flag": ("ask-again", "withhold")}, 2, 2, None),
        ({"policy": "ask-again-on MEDIUM"}, 2, 2, WRONG),
        ({"policy": "ask-again-on HIGH", "on_flag": "repair", "most_again": 2}, 3, 4, RIGHT),
        ({"on_flag": "report", "on_flag_level": "HIGH", "most_again": 2}, 1, 1, WRONG),
    ],
)
def test_what_is_asked_again_in_vain_is_repaired_or_withheld(
    open_relay: Opener, asking: dict[str, Any], models: int, judged: int, text: str | None
) -> None:
    answers = [WRONG, f"{WRONG} {OTHER}", f"{OTHER} {WRONG}"]
    relay, model, judge = relay_of(open_relay, *answers)
    ended = outcome(relay, QUESTION, **asking)
    assert (len(model.calls), len(judge.calls)) == (models, judged)
    assert isinstance(ended, Halt if text is None else Release)
    if text is not None and isinstance(ended, Release):
        assert text in ended.answer.text


@pytest.mark.parametrize(
    "reply",
    [
        Reply(text=WRONG, parsed=True),
        Reply(text="", tool_calls=(CALL,), answers_by_call=True, parsed=True),
        Reply(text="", tool_calls=(CALL, CALL), answers_by_call=True),
    ],
)
def test_the_report_says_where_a_form_permits_no_repair(open_relay: Opener, reply: Reply) -> None:
    relay, _, judge = relay_of(open_relay, reply)
    flag = "not-repaired=structured"
    answer = relay.ask(QUESTION, on_flag="repair")
    assert (answer.reply.answer, answer.repaired) == (reply.answer, None)
    assert answer.report.flags.count(flag) == 1
    assert len(judge.calls) == 1
    assert flag not in relay.ask(QUESTION).report.flags
    receipt = relay.receipt(answer.receipt_id)
    assert receipt is not None
    assert replay(receipt).word == "holds"


def test_a_sampled_judge_reads_what_was_repaired(open_relay: Opener) -> None:
    relay, _, _ = relay_of(open_relay, WRONG)
    sampled = {"on_flag": "repair", "judge_when": "sample:0.5"}
    answers = [relay.ask(QUESTION, session_id=str(n), **sampled) for n in range(8)]  # type: ignore[arg-type]
    texts = {"judge-not-asked=sample" in answer.report.flags: answer.text for answer in answers}
    assert texts == {True: WRONG, False: RIGHT}


def test_a_stream_waits_for_the_repair(open_relay: Opener) -> None:
    relay, _, _ = relay_of(open_relay, WRONG)
    *pieces, answer = relay.stream(QUESTION, live=True, on_flag="repair")
    assert "".join(map(str, pieces)) == answer.text == RIGHT  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("asking", "words"),
    [
        ({"on_flag": "fix"}, "'report', 'ask-again', 'repair' or 'withhold'"),
        ({"on_flag": "repair", "on_flag_level": "LOW"}, "one of CRITICAL, HIGH, MEDIUM"),
        ({"on_flag": "repair", "judge": False}, "repair-on MEDIUM needs"),
        ({"on_flag": "repair", **LATE}, "in the background"),
        ({"on_flag": "ask-again", "policy": "unchecked allow", **LATE}, "in the background"),
        ({"on_flag_level": "HIGH"}, "without on_flag"),
        ({"on_flag_level": "MEDIUM"}, "without on_flag"),
        ({"most_again": 2}, "most_again 2 has no effect"),
        ({"most_again": 2, "on_flag": "repair"}, "most_again 2 has no effect"),
        ({"most_again": 2, "on_flag": ["repair", "withhold"]}, "most_again 2 has no effect"),
        ({"on_flag": 5}, "on_flag 5"),
        ({"on_flag": "repair", "on_flag_level": "high"}, "'high'.* one of CRITICAL, HIGH, MEDIUM$"),
    ],
)
def test_what_cannot_be_done_is_an_error(
    open_relay: Opener, asking: dict[str, Any], words: str
) -> None:
    relay, model, _ = relay_of(open_relay, WRONG)
    with pytest.raises(RequestError, match=words):
        relay.ask(QUESTION, **asking)
    assert model.calls == []


@pytest.mark.parametrize("second", ["", f"{WRONG} {WRONG.replace('Meridian', 'other')}"])
def test_an_empty_or_worse_second_answer_is_discarded(open_relay: Opener, second: str) -> None:
    relay, model, _ = relay_of(open_relay, f"{WRONG} {OTHER}", second)
    answer = relay.ask(QUESTION, policy="ask-again-on MEDIUM")
    assert (answer.text, len(model.calls)) == (f"{WRONG} {OTHER}", 2)
    assert {"re-dispatches=1", "ask-again-discarded"} <= set(answer.report.flags)
    receipt = relay.receipt(answer.receipt_id)
    assert receipt is not None
    assert replay(receipt).word == "holds"
    relay, _, _ = relay_of(open_relay, WRONG, second)
    assert relay.ask(QUESTION, on_flag="ask-again").text == RIGHT


def test_ask_again_names_the_claim_on_which_comparison_and_judge_disagree(
    open_relay: Opener,
) -> None:
    relay, model, _ = relay_of(open_relay, WRONG, RIGHT, judge=ScriptedJudge({}))
    relay.ask(QUESTION, on_flag="ask-again")
    assert f"- {WRONG}\n" in system(model.calls[1]).split("<context>")[0]
