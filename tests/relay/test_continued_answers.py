"""Answers over several windows: what is continued, how it is joined, and what ends it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.dpe import remedies
from crp_integrations.dpe.repair import edited
from crp_integrations.envelope.candidates import SUMMARY_SOURCE
from crp_integrations.envelope.continuation import EARLIER
from crp_integrations.errors import EngineError, ModelError, ModelRateLimited, QualityUnreachable
from crp_integrations.headers.codec import parse_response
from crp_integrations.language.text import split_sentences
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.relay.records import Answer
from crp_integrations.relay.turn import Turn
from crp_integrations.vocabulary import CompletenessLevel, EventType, Purpose, RiskLevel
from tests.doubles import ScriptedModel
from tests.judges import material
from tests.relay.conftest import Opener
from tests.relay.judges import CONTRADICTED, MEASURED, UNSUPPORTED, ScriptedJudge
from tests.relay.need_questions import (
    COMMISSIONED,
    COOLING,
    COST,
    INVENTED,
    LICENCE,
    MODEL,
    NEEDS,
    QUESTION,
    REVENUE,
    WORSE,
    event_data,
    made,
    question,
    session,
    system,
    windows,
)

# Two facts a window, so that something is left to show.
NARROW = {"model": MODEL, "k": 2}
BRIDGE = "With the date settled, the reactor's output deserves a closer look."
ABRUPT = (
    "You asked me what they took in! I would say: Northfield Energy, revenue, $4.2 million, "
    "2023. My reactor was commissioned on 4 March 2019, and yours delivers 412 megawatts. "
    "Does it draw water from the river? It does not draw water, summer!"
)
# A need that the continuation covers anew explains a change of topic, so none counts as covered.
LOW_NEW = MEASURED.model_copy(
    update={"quality": MEASURED.quality.model_copy(update={"covered": 1.0})}
)


def joined(answer: Answer) -> str:
    return "\n\n".join(piece.text for piece in answer.pieces)


# --- when --------------------------------------------------------------------------------


@pytest.mark.requirement("005-10.3-1", "005-10.3-3")
def test_an_incomplete_answer_is_continued_and_the_caller_gets_one(open_relay: Opener) -> None:
    model = ScriptedModel(COMMISSIONED, f"{REVENUE} {COOLING}")
    relay = made(open_relay, model)
    answer = relay.ask(QUESTION, **NARROW)
    assert len(model.calls) == 2
    # The continuation asks for what is uncovered and for nothing else.
    assert question(model.calls[1]).splitlines() == list(NEEDS[1:])
    assert [piece.text for piece in answer.pieces] == [COMMISSIONED, f"{REVENUE} {COOLING}"]
    assert answer.text == joined(answer) == answer.reply.text
    first, second = windows(relay, answer.session_id)
    assert [piece.window_id for piece in answer.pieces] == [first.window_id, second.window_id]
    assert (answer.window_id, answer.window_number) == (second.window_id, 2)
    (event,) = event_data(relay, answer.session_id, EventType.COMPLETENESS_CONTINUATION)
    assert (event["of"], event["uncovered"]) == (first.window_id, 2)
    assert (event["level"], event["completeness"]) == ("INCOMPLETE", 0.3333)
    assert relay.verify().windows == 2


@pytest.mark.requirement("005-10.3-1")
@pytest.mark.parametrize(
    ("asking", "options", "windows_made"),
    [
        ({}, {}, 1),
        ({}, {"dispatch": {"continue_partial": True}}, 2),
        ({"policy": "require-completeness 0.50"}, {}, 2),
        ({}, {"policy": "require-completeness 0.50"}, 2),
        ({"policy": "require-completeness 0.50", "cache": "no-cache"}, {}, 1),
    ],
)
def test_a_partial_answer_is_continued_by_permission_only(
    open_relay: Opener, asking: dict[str, Any], options: dict[str, Any], windows_made: int
) -> None:
    partial = f"{COMMISSIONED} {COOLING}"
    model = ScriptedModel(partial, REVENUE)
    relay = made(open_relay, model, **options)
    answer = relay.ask(QUESTION, **NARROW, **asking)
    answering = [call for call in model.calls if call.purpose is Purpose.ANSWER]
    assert len(answering) == len(windows(relay, answer.session_id)) == windows_made
    assert (REVENUE in answer.text) is (windows_made == 2)
    assert answer.text.startswith(partial)


@pytest.mark.requirement("005-10.3-1")
@pytest.mark.parametrize(("asking", "windows_made"), [
    ({}, 1),
    ({"policy": "require-completeness 0.50"}, 2),
    ({"policy": "require-completeness 0.90"}, 2),
])  # fmt: skip
def test_a_demand_continues_an_incomplete_answer_without_the_setting(
    open_relay: Opener, asking: dict[str, Any], windows_made: int
) -> None:
    model = ScriptedModel(COMMISSIONED, f"{REVENUE} {COOLING}")
    relay = made(open_relay, model, profile="observe")
    answer = relay.ask(QUESTION, **NARROW, **asking)
    assert len(windows(relay, answer.session_id)) == windows_made
    assert (REVENUE in answer.text) is (windows_made == 2)


@pytest.mark.requirement("005-10.3-1")
@pytest.mark.parametrize(
    ("asking", "options"),
    [
        ({"cache": "no-cache"}, {}),
        ({}, {"dispatch": {"continue_incomplete": False}}),
        ({}, {"max_windows": 1}),
        # Every fact was shown, so a continuation would have nothing to say.
        ({"k": None}, {}),
    ],
)
def test_what_forbids_a_continuation(
    open_relay: Opener, asking: dict[str, Any], options: dict[str, Any]
) -> None:
    model = ScriptedModel(COMMISSIONED)
    relay = made(open_relay, model, **options)
    answer = relay.ask(QUESTION, **{**NARROW, **asking})
    assert (answer.text, answer.pieces, len(model.calls)) == (COMMISSIONED, (), 1)
    assert answer.report.quality.completeness.level is CompletenessLevel.INCOMPLETE
    assert len(windows(relay, answer.session_id)) == 1
    assert relay.verify().windows == 1


def test_windows_end_with_the_maximum(open_relay: Opener) -> None:
    script = (COMMISSIONED, REVENUE, COOLING)
    for most in (1, 2, 3):
        model = ScriptedModel(*script)
        relay = made(open_relay, model, max_windows=most, dispatch={"flow": "none"})
        relay.fabric.add([f"{LICENCE} It has {n} annexes on the river." for n in range(2, 9)])
        answer = relay.ask(QUESTION, **NARROW, policy="require-completeness 0.10")
        assert [call.purpose for call in model.calls] == [Purpose.ANSWER] * most
        assert answer.text == "\n\n".join(script[:most])
        assert answer.headers["CRP-Context-Window"] == f"{most}/{most}"


def test_a_continuation_that_covers_nothing_is_the_last(open_relay: Opener) -> None:
    model = ScriptedModel(COMMISSIONED, "Nothing is known on that.", REVENUE)
    relay = made(open_relay, model, dispatch={"flow": "none"})
    answer = relay.ask(QUESTION, **NARROW)
    assert len(model.calls) == 2
    assert len(answer.pieces) == 2


def test_an_answer_without_a_word_is_not_continued(open_relay: Opener) -> None:
    model = ScriptedModel("")
    answer = made(open_relay, model).ask(QUESTION, **NARROW)
    assert (answer.text, len(model.calls)) == ("", 1)


# --- what the next window is given -------------------------------------------------------


@pytest.mark.requirement("005-10.3-2", "005-18.1-2")
def test_the_continuation_targets_what_is_uncovered(open_relay: Opener) -> None:
    model = ScriptedModel(COMMISSIONED, f"{REVENUE} {COOLING}")
    relay = made(open_relay, model)
    answer = relay.ask(QUESTION, **NARROW)
    words = remedies.towards_completeness((NEEDS[0],), NEEDS[1:])
    assert words in system(model.calls[1])
    facts = [f for f in answer.envelope.facts if not f.source_id.startswith(SUMMARY_SOURCE)]
    # Of the three that were not shown, the one on an uncovered need comes first.
    assert facts[0].content == REVENUE
    assert len(facts) == NARROW["k"]
    assert answer.envelope.sub_queries == NEEDS[1:]


@pytest.mark.requirement("003-14.1-2", "003-14.1-4")
def test_a_window_by_its_id_knows_what_was_shown_and_said(open_relay: Opener) -> None:
    model = ScriptedModel(COMMISSIONED, REVENUE)
    relay = made(open_relay, model)
    first = relay.ask(f"{NEEDS[0]}?", **NARROW)
    second = relay.ask(
        f"{NEEDS[1]}?",
        model=MODEL,
        session_id=first.session_id,
        continuation_ids=[first.continuation_id],
    )
    shown = {fact.fact_id for fact in first.envelope.facts}
    assert len(shown) == 2
    assert shown.isdisjoint(fact.fact_id for fact in second.envelope.facts)
    told = [f for f in second.envelope.facts if f.source_id.startswith(SUMMARY_SOURCE)]
    assert [fact.content for fact in told] == [EARLIER + COMMISSIONED]
    assert second.envelope.window_number == 2
    # Without the id the same session shows them again.
    again = relay.ask(f"{NEEDS[1]}?", model=MODEL, session_id=first.session_id)
    assert shown & {fact.fact_id for fact in again.envelope.facts}


# --- flow --------------------------------------------------------------------------------


def abrupt(open_relay: Opener, *after: Any, **options: Any) -> tuple[ScriptedModel, Relay]:
    """A relay whose continuation speaks of the same things in quite another way."""
    model = ScriptedModel(COMMISSIONED, ABRUPT, *after)
    return model, made(open_relay, model, **options)


@pytest.mark.requirement("005-11.5-1", "005-11.5-2", "005-11.6-1", "005-18.1-2")
def test_the_words_of_a_continuation_quote_the_end_and_ask_to_read_on(open_relay: Opener) -> None:
    before = f"{COMMISSIONED} It has four units. They were built in turn. Each has a pump."
    model = ScriptedModel(before, f"{REVENUE} {COOLING}")
    relay = made(open_relay, model)
    answer = relay.ask(QUESTION, **NARROW)
    told = system(model.calls[1])
    assert parse_response(answer.headers).flow.remediation == "prompt-augmented"
    (event,) = event_data(relay, answer.session_id, EventType.FLOW_REMEDIATION)
    assert event["remedy"] == "prompt-augmented"
    last = " ".join(span.of(before) for span in split_sentences(before)[-3:])
    assert f"'{last}'" in told
    for words in (
        "Do NOT re-introduce the topic",
        "Do NOT repeat content",
        "transitional language",
        "same style, formality, and level of detail",
    ):
        assert words in told
    model = ScriptedModel(before, f"{REVENUE} {COOLING}")
    made(open_relay, model, dispatch={"flow": "none"}).ask(QUESTION, **NARROW)
    assert "transitional language" not in system(model.calls[1])


@pytest.mark.requirement("005-11.5-1", "005-11.5-3", "005-11.5-4", "005-11.6-1")
def test_a_break_is_bridged_by_a_call_of_its_own(open_relay: Opener) -> None:
    model, relay = abrupt(open_relay, BRIDGE, dpe=LOW_NEW)
    answer = relay.ask(QUESTION, **NARROW)
    stitch = model.calls[2]
    assert answer.report.flow_score < 0.50
    assert (stitch.purpose, stitch.temperature) == (Purpose.STITCH, 0.2)
    before, after = answer.pieces[0].text, answer.pieces[2].text
    ends = [span.of(before) for span in split_sentences(before)[-2:]]
    begins = [span.of(after) for span in split_sentences(after)[:2]]
    assert f"PASSAGE A ends with: '{' '.join(ends)}'" in question(stitch)
    assert f"PASSAGE B begins with: '{' '.join(begins)}'" in question(stitch)
    assert "1-2 sentence bridge" in question(stitch)
    # It stands between the two, marked by having no window, and neither text is altered.
    assert [piece.text for piece in answer.pieces] == [before, BRIDGE, after]
    assert [bool(piece.window_id) for piece in answer.pieces] == [True, False, True]
    assert (before, after) == (COMMISSIONED, model.script[1])
    assert answer.text == joined(answer)
    # What was sealed is what each window said.
    with relay.fabric.begin(write=False) as transaction:
        said = transaction.sessions.priors([piece.window_id for piece in answer.pieces])
    assert [window.answer for window in said.values()] == [before, after]
    (event,) = event_data(relay, answer.session_id, EventType.FLOW_STITCH)
    assert event["of"] == answer.pieces[0].window_id
    assert event["stitch_hash"].startswith("sha256:")
    assert BRIDGE not in str(event_data(relay, answer.session_id))
    assert parse_response(answer.headers).flow.remediation == "stitched"
    assert relay.verify().windows == 2


@pytest.mark.requirement("005-11.5-1")
def test_asking_again_for_flow_needs_permission(open_relay: Opener) -> None:
    mended = f"Furthermore, the Meridian reactor delivers 412 megawatts. {REVENUE} {COOLING}"
    model, relay = abrupt(open_relay, BRIDGE, dpe=LOW_NEW)
    answer = relay.ask(QUESTION, **NARROW)
    assert answer.report.flow_remediation == "redispatch"
    assert event_data(relay, answer.session_id, EventType.RE_DISPATCH) == []
    assert model.calls[2].purpose is Purpose.STITCH
    permitted = {"dispatch": {"redispatch_on_flow": True}}
    model, relay = abrupt(open_relay, mended, "NONE", BRIDGE, dpe=LOW_NEW, **permitted)
    answer = relay.ask(QUESTION, **NARROW)
    again = event_data(relay, answer.session_id, EventType.RE_DISPATCH)
    assert [one["triggers"] for one in again] == [["flow"]]
    # The second window was asked again, reflexively, and quotes the first one's end.
    assert COMMISSIONED in system(model.calls[2])
    assert model.calls[2].temperature == 0.2
    assert mended in answer.text


@pytest.mark.parametrize("flow", ["stitch", "augment"])
@pytest.mark.requirement("005-11.5-3")
def test_a_bridge_that_cannot_be_made_is_left_out(open_relay: Opener, flow: str) -> None:
    for broken in (ModelError("gone"), ModelRateLimited("slow down"), "  \n"):
        model, relay = abrupt(open_relay, broken, dpe=LOW_NEW, dispatch={"flow": flow})
        answer = relay.ask(QUESTION, **NARROW)
        assert len(model.calls) == 3
        assert [piece.text for piece in answer.pieces] == [COMMISSIONED, model.script[1]]
        assert event_data(relay, answer.session_id, EventType.FLOW_STITCH) == []
        assert parse_response(answer.headers).flow.remediation != "stitched"


@pytest.mark.requirement("005-11.5-4")
def test_a_bridge_that_the_policy_would_withhold_is_left_out(open_relay: Opener) -> None:
    for policy, pieces in (("warn-on HIGH", 3), ("halt-on CRITICAL", 2)):
        _, relay = abrupt(open_relay, INVENTED, dpe=LOW_NEW)
        answer = relay.ask(QUESTION, **NARROW, policy=policy)
        assert len(answer.pieces) == pieces
        assert (INVENTED in answer.text) is (pieces == 3)


MINISTER = "Energy minister Elena Castellan approved the plant on 12 June 1987 for $97 million."


def same_words(answer: Answer) -> None:
    """Whether the headers say what the report says, on all of the text."""
    report, headers = answer.report, parse_response(answer.headers)
    assert max(claim.end for claim in report.claims) == len(answer.text)
    assert headers.claim_count == len(report.claims)
    assert headers.fabrications == report.fabrication_count
    assert headers.hallucination_risk is report.risk_level
    score = None if report.risk_score is None else pytest.approx(report.risk_score, abs=1e-3)
    assert headers.hallucination_score == score
    assert headers.grounding_pct == pytest.approx(report.grounding_pct, abs=1e-3)
    assert headers.quality_score == pytest.approx(report.rqa_score, abs=1e-3)
    assert headers.repetition.level is report.repetition_level
    completeness = report.quality.completeness
    assert headers.completeness.total == len(NEEDS)
    assert headers.completeness.covered == len(completeness.covered)


@pytest.mark.requirement("005-10.1-1", "005-11.5-4")
@pytest.mark.parametrize("second", [f"{REVENUE} {COOLING}", ABRUPT, f"{COMMISSIONED} {REVENUE}"])
@pytest.mark.parametrize("bridge", [BRIDGE, MINISTER])
def test_headers_and_report_are_on_the_whole_text(
    open_relay: Opener, second: str, bridge: str
) -> None:
    for options in ({"dpe": MEASURED}, {"dpe": LOW_NEW}):
        relay = made(open_relay, ScriptedModel(COMMISSIONED, second, bridge), **options)
        answer = relay.ask(QUESTION, **NARROW)
        same_words(answer)
        if MINISTER in answer.text:
            assert answer.report.risk_level in (RiskLevel.HIGH, RiskLevel.CRITICAL)


class JudgeOfNeeds(ScriptedJudge):
    """Finds no need answered, so that every window is continued and every break bridged."""

    def call(self, call: ModelCall) -> Reply:
        asked = material(message.content for message in call.messages)
        self._needs = (False,) * len(asked.get("needs", ()) if asked else ())
        return super().call(call)


@pytest.mark.requirement("005-11.5-4")
@pytest.mark.parametrize(
    ("status", "asking", "pieces"),
    [
        (CONTRADICTED, {}, 3),
        (UNSUPPORTED, {}, 3),
        (CONTRADICTED, {"policy": "halt-on HIGH; unchecked allow"}, 2),
        (CONTRADICTED, {"policy": "unchecked allow", "accept_risk": "MEDIUM"}, 2),
    ],
)
def test_a_judge_reads_the_bridge_too(
    open_relay: Opener, status: str, asking: dict[str, Any], pieces: int
) -> None:
    second = f"You asked me what they took in! {REVENUE} My! {COOLING}"
    judge = JudgeOfNeeds({"minister": status})
    script = (COMMISSIONED, second, MINISTER)
    relay = made(open_relay, ScriptedModel(*script), judge=judge, dispatch={"flow": "stitch"})
    answer = relay.ask(QUESTION, **NARROW, **asking)
    assert len(answer.pieces) == pieces
    # Each window and the bridge.
    assert len(judge.calls) == 3
    same_words(answer)
    wrong = [claim.text for claim in answer.report.claims if claim.flagged]
    assert wrong == [MINISTER] * (pieces == 3)
    assert relay.verify().windows == 2


def test_a_bridge_that_repeats_an_invention_is_not_borne_out_by_it(open_relay: Opener) -> None:
    model, relay = abrupt(open_relay, INVENTED, dpe=LOW_NEW)
    model.script = (f"{COMMISSIONED} {INVENTED}", ABRUPT, INVENTED)
    answer = relay.ask(QUESTION, **NARROW, policy="warn-on HIGH")
    repeated = [claim for claim in answer.report.claims if "Larkspur" in claim.text]
    assert len(repeated) == 2
    assert all(claim.flagged for claim in repeated)
    same_words(answer)


def test_without_a_remedy_a_break_is_reported_alone(open_relay: Opener) -> None:
    model, relay = abrupt(open_relay, BRIDGE, dpe=LOW_NEW, dispatch={"flow": "none"})
    answer = relay.ask(QUESTION, **NARROW)
    assert len(model.calls) == 2
    assert answer.report.flow_score < 0.50


# --- what goes wrong ---------------------------------------------------------------------


@pytest.mark.requirement("005-10.3-3")
def test_a_continuation_that_fails_takes_nothing_back(open_relay: Opener) -> None:
    model = ScriptedModel(
        Reply(text=COMMISSIONED, usage=COST, model=MODEL), ModelRateLimited("slow down")
    )
    relay = made(open_relay, model)
    answer = relay.ask(QUESTION, **NARROW)
    assert (answer.text, answer.window_number, answer.pieces) == (COMMISSIONED, 1, ())
    assert [node.outcome for node in windows(relay, answer.session_id)] == ["released", "failed"]
    assert answer.reply.usage == COST
    assert relay.verify().windows == 2


def test_a_continuation_that_is_withheld_takes_nothing_back(open_relay: Opener) -> None:
    model = ScriptedModel(COMMISSIONED, f"{COMMISSIONED} {WORSE}")
    relay = made(open_relay, model)
    answer = relay.ask(QUESTION, **NARROW, policy="halt-on HIGH")
    assert answer.text == COMMISSIONED
    assert [node.outcome for node in windows(relay, answer.session_id)] == ["released", "halted"]
    assert session(relay, answer.session_id).safety_budget == 1.0


def test_a_continuation_that_cannot_be_examined_takes_nothing_back(
    open_relay: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel(COMMISSIONED, REVENUE)
    relay = made(open_relay, model)
    examine = Turn._examine

    def failing(turn: Turn, envelope: Any, text: str) -> Any:
        if text == REVENUE:
            raise EngineError("the reader is gone")
        return examine(turn, envelope, text)

    monkeypatch.setattr(Turn, "_examine", failing)
    answer = relay.ask(QUESTION, **NARROW)
    assert answer.text == COMMISSIONED
    assert [node.outcome for node in windows(relay, answer.session_id)] == ["released", "failed"]


def test_the_headers_of_several_windows_say_the_worst(open_relay: Opener) -> None:
    model = ScriptedModel(WORSE, f"{REVENUE} {COOLING}")
    relay = made(open_relay, model)
    answer = relay.ask(QUESTION, **NARROW)
    first, second = windows(relay, answer.session_id)
    assert first.risk_level is RiskLevel.CRITICAL
    assert second.risk_level is not RiskLevel.CRITICAL
    said = parse_response(answer.headers)
    assert said.hallucination_risk is RiskLevel.CRITICAL
    assert said.grounding_pct < 1.0
    assert said.window == (2, 5)
    assert said.chained_hmac == second.hmac
    assert said.safety_budget == session(relay, answer.session_id).safety_budget
    # The report is the last window's, as it is sealed.
    assert answer.window_reports[-1].risk_level is second.risk_level


def test_all_windows_are_paid_for(open_relay: Opener) -> None:
    replies = [Reply(text=text, usage=COST, model=MODEL) for text in (COMMISSIONED, REVENUE)]
    model = ScriptedModel(*replies, Reply(text="Nothing more.", usage=COST, model=MODEL))
    answer = made(open_relay, model).ask(QUESTION, **NARROW)
    assert answer.reply.usage.prompt_tokens == 100 * len(model.calls)
    assert answer.reply.usage.cost_usd == pytest.approx(0.01 * len(model.calls))


# --- other ways to ask -------------------------------------------------------------------


def test_a_stream_is_continued_and_shown_after_the_last_verdict(open_relay: Opener) -> None:
    script = (COMMISSIONED, f"{REVENUE} {COOLING}")
    relay = made(open_relay, ScriptedModel(*script))
    *parts, answer = relay.stream(QUESTION, **NARROW)
    assert "".join(parts) == answer.text == "\n\n".join(script)


def test_the_keyless_model_continues_offline(open_relay: Opener) -> None:
    relay = made(open_relay, None)
    answer = relay.ask(QUESTION, k=2)
    assert len(answer.pieces) >= 2
    assert all(piece.window_id for piece in answer.pieces)
    assert answer.report.risk_level is RiskLevel.LOW
    assert relay.verify().windows == len(answer.pieces)


# --- a policy that demands completeness --------------------------------------------------


def test_a_demand_for_completeness_is_judged_after_the_last_window(open_relay: Opener) -> None:
    partial = f"{COMMISSIONED} {COOLING}"
    model = ScriptedModel(partial, REVENUE)
    relay = made(open_relay, model, dispatch={"flow": "none"})
    answer = relay.ask(QUESTION, **NARROW, policy="require-completeness 0.90")
    assert [piece.text for piece in answer.pieces] == [partial, REVENUE]


def test_an_answer_that_stays_incomplete_is_unreachable(open_relay: Opener) -> None:
    model = ScriptedModel(COMMISSIONED, "Nothing is known on that.")
    relay = made(open_relay, model, dispatch={"flow": "none"})
    with pytest.raises(QualityUnreachable, match=r"require-completeness 0\.90 is not met"):
        relay.ask(QUESTION, **NARROW, policy="require-completeness 0.90")
    assert len(model.calls) == 2


class Corrector(JudgeOfNeeds):
    """Corrects the year that stands in no fact."""

    def _verdict(self, number: int, claim: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        verdict = super()._verdict(number, claim, asked)
        if verdict["status"] == CONTRADICTED:
            year = next(word for word in claim.split() if "30" in word).strip(".")
            verdict |= {"wrong": year, "fix": claim.replace("30", "20")}
        return verdict


@pytest.mark.parametrize("wrong", [(0,), (1,), (0, 1)])
def test_a_continued_answer_has_the_original_of_each_repaired_window(
    open_relay: Opener, wrong: tuple[int, ...]
) -> None:
    right = [COMMISSIONED, f"{COOLING} {COMMISSIONED}"]
    written = [text.replace("20", "30") if at in wrong else text for at, text in enumerate(right)]
    judge = Corrector({" 30": CONTRADICTED})
    relay = made(open_relay, ScriptedModel(*written), judge=judge)
    answer = relay.ask(QUESTION, on_flag="repair", **NARROW)
    later = len(answer.pieces) - 1
    assert answer.text == "\n\n".join([right[0], *right[1:] * later])
    original = answer.repaired
    assert original is not None
    assert original.text == answer.model_reply.text
    assert original.text == "\n\n".join([written[0], *written[1:] * later])
    assert edited(original.text, original.edits) == answer.text
    flagged = {claim.claim_id: claim for claim in original.report.claims if claim.flagged}
    assert [edit.claim for edit in original.edits] == list(flagged)
    for edit in original.edits:
        claim = flagged[edit.claim]
        assert claim.start <= edit.start < edit.end <= claim.end
    assert f"repaired={len(flagged)}" in answer.report.flags
    assert not [flag for flag in original.report.flags if flag.startswith("repaired")]
    assert answer.headers["CRP-Safety-Repaired"] == f"edits={len(flagged)};unrepaired=0"
