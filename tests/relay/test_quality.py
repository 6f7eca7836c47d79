"""Stages 6 to 9 in a relay: the envelope's needs, earlier windows, and the tier that is shown."""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations import Relay, examine
from crp_integrations.dpe.dossier import PriorWindow
from crp_integrations.relay.records import Answer
from crp_integrations.relay.settings import Preset, load
from crp_integrations.relay.steps import NotModified
from crp_integrations.vocabulary import QualityTier
from tests.doubles import ScriptedModel
from tests.relay.conftest import FACTS, Opener
from tests.relay.judges import ScriptedJudge

QUESTION = "How many megawatts does the Meridian reactor deliver?"
SESSION = "crp_sess_" + "a" * 16


@pytest.fixture
def full(open_relay: Opener) -> Relay:
    """A relay whose envelopes reach a tier that an answer can lower."""
    relay = open_relay()
    relay.fabric.add(list(FACTS))
    return relay


def ask(relay: Relay, question: str = QUESTION, **fields: Any) -> Answer:
    return relay.ask(question, session_id=SESSION, **fields)


@pytest.mark.requirement("005-10.2-1")
def test_the_report_judges_the_envelopes_own_sub_queries(full: Relay) -> None:
    question = "Who operates the Meridian reactor and what revenue did Northfield Energy report?"
    answer = ask(full, question)
    done = answer.report.quality.completeness
    assert len(answer.envelope.sub_queries) == 2
    assert set(done.covered) | set(done.uncovered) == set(answer.envelope.sub_queries)
    given = ask(full, sub_queries=["Meridian reactor operator", "Tulips in the valley"])
    done = given.report.quality.completeness
    assert {*done.covered, *done.uncovered} == {"Meridian reactor operator", "Tulips in the valley"}


UNRELATED = "Bananas are yellow."


@pytest.mark.parametrize("preset", ["default", "literal"])
def test_an_unrelated_sentence_answers_no_need_at_any_door(
    open_relay: Opener, preset: Preset
) -> None:
    settings = load(preset=preset)
    relay = open_relay(
        models=ScriptedModel(UNRELATED), preset=preset, dpe=settings.dpe, profile="observe"
    )
    relay.fabric.add(list(FACTS))
    batch = relay.batch([QUESTION], model="any/model")
    answers = [relay.ask(QUESTION, model="any/model"), *batch.answers]
    reports = [examine(UNRELATED, list(FACTS), QUESTION, settings=settings)]
    for answer in answers:
        assert answer is not None
        reports.append(answer.report)
        assert "COMPLETE; sub-queries=1/1" not in answer.headers.values()
    for headers in (*(answer.headers for answer in answers if answer), batch.headers):
        assert ("CRP-Quality-Completeness" in headers) is (preset == "literal")
        assert ("CRP-Quality-Score" in headers) is (preset == "literal")
    for report in reports:
        assert report.quality.completeness.covered == ()
        assert report.completeness_score == (0.0 if preset == "literal" else None)


def test_a_judge_says_which_needs_are_answered_and_headers_agree(open_relay: Opener) -> None:
    question = "Who operates the Meridian reactor and what revenue did Northfield Energy report?"
    for needs, value in (
        ((False, False), "INCOMPLETE; sub-queries=0/2; uncovered="),
        ((True, False), "PARTIAL; sub-queries=1/2; uncovered="),
        ((True, True), "COMPLETE; sub-queries=2/2"),
    ):
        relay = open_relay(
            models=ScriptedModel(FACTS[1]), judge=ScriptedJudge(needs=needs), profile="observe"
        )
        relay.fabric.add(list(FACTS))
        answer = relay.ask(question, model="any/model")
        assert answer.headers["CRP-Quality-Completeness"].startswith(value)
        assert answer.report.completeness_score == sum(needs) / 2
        assert len(answer.report.judge.calls) == 1  # type: ignore[union-attr]


def test_an_answer_given_again_is_found_repeated(full: Relay) -> None:
    first = ask(full)
    again = full.turn(QUESTION, session_id=SESSION, prior=[first.as_prior()])
    again.begin()
    step = again.receive(first.reply)
    answer = step.answer  # type: ignore[union-attr]
    assert answer.report.repetition_level.value == "SEVERE"
    assert answer.headers["CRP-Quality-Repetition"].startswith("SEVERE; overlap=")
    assert float(answer.headers["CRP-Quality-Score"]) < 1.0
    assert first.as_prior().answer == first.text
    assert first.as_prior().window_id == first.window_id


def test_a_prior_window_of_which_nothing_is_known_is_flagged(full: Relay) -> None:
    first = ask(full)
    report = ask(full, prior=[first.envelope.as_prior()]).report
    assert "prior-not-read=1" in report.flags
    summary = ask(full, prior=[first.envelope.as_prior("The reactor delivers 412 megawatts.")])
    assert "prior-summaries=1" in summary.report.flags


@pytest.mark.requirement("003-8.3-5", "005-18.4-1")
def test_the_cap_comes_last_and_headers_and_answer_show_it(full: Relay) -> None:
    needs = ["Tulips on Mars", "Whales in Bern", "Quarks in Oslo"]
    answer = ask(full, sub_queries=needs)
    turn = full.turn(QUESTION, session_id=SESSION, sub_queries=needs)
    own = turn.preview().quality_tier
    assert answer.report.rqa_score == pytest.approx(0.65)
    shown = answer.envelope.quality_tier
    assert shown is own.capped(QualityTier.B)
    assert answer.headers["CRP-Context-Quality-Tier"] == shown.value


def test_a_capped_tier_is_that_of_its_answer_alone(open_relay: Opener) -> None:
    """The envelope that is used again has its own tier; a 304 repeats what was shown."""
    relay = open_relay(
        dpe={"quality": {"tier_s": 1.0, "tier_a": 1.0, "tier_b": 1.0, "tier_c": 1.0}}
    )
    relay.fabric.add(list(FACTS))
    needs = ["Tulips on Mars"]
    turn = relay.turn(QUESTION, session_id=SESSION, sub_queries=needs)
    own = turn.preview().quality_tier
    first = ask(relay, sub_queries=needs)
    assert first.envelope.quality_tier is QualityTier.D
    if own is not QualityTier.D:
        assert first.envelope.caps[-1].reason.startswith("rqa_score")
    again = relay.turn(
        QUESTION, session_id=SESSION, sub_queries=needs, if_match=first.envelope.etag
    )
    step = again.begin()
    assert isinstance(step, NotModified)
    assert step.envelope == first.envelope
    assert step.headers["CRP-Context-Quality-Tier"] == "D"


def test_the_door_takes_earlier_answers_and_needs() -> None:
    report = examine(
        "The reactor delivers 500 megawatts.",
        list(FACTS),
        QUESTION,
        prior=["The reactor delivers 412 megawatts."],
    )
    assert report.contradiction_scope in ("cross-window", "both")
    assert report.cross_window_contradictions[0].prior_window_id == "window-1"
    # What of a question is answered, a judge reads, or nobody.
    assert report.quality.completeness.level is None
    own = examine("Tulips.", list(FACTS), sub_queries=["Tulips in spring", "Roses"])
    assert own.completeness_score is None
    assert "sub-queries=0" in examine("Tulips.", list(FACTS)).flags
    window = PriorWindow("w7", 7, "The reactor delivers 412 megawatts.")
    told = examine("The reactor delivers 500 megawatts.", list(FACTS), prior=[window])
    assert told.cross_window_contradictions[0].prior_window_id == "w7"


def test_no_quality_header_for_a_window_without_an_answer(full: Relay) -> None:
    turn = full.turn(QUESTION, session_id=SESSION)
    turn.begin()
    refused = turn.fail(RuntimeError("x"))
    assert not any(name.startswith("CRP-Quality-") for name in refused.headers)  # type: ignore[union-attr]
