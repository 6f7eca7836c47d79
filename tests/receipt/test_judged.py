"""A judge in a receipt: statuses and level are computed again from the recorded replies."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from crp_integrations.dpe.judge.messages import JudgePrompt
from crp_integrations.dpe.records import Claim, Report
from crp_integrations.errors import ReceiptBroken, SafetyHalt
from crp_integrations.messages import Message
from crp_integrations.receipt import outline
from crp_integrations.receipt.records import Receipt, write
from crp_integrations.receipt.redaction import erased, redact
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.replay_records import DIFFERS, EQUAL, NOT_RUN
from crp_integrations.receipt.verify import verify
from crp_integrations.receipt.whatif import Supposition, whatif
from tests.receipt.judging import failing, judged, lenient, misquoting, nonsense, place_of, right
from tests.receipt.relayed import ANSWER, changed
from tests.relay.conftest import FACTS

# Fields of a report that are texts, or are told in a way of their own or elsewhere.
ELSEWHERE = (
    "claims", "quality", "uncovered_sub_queries", "cross_window_contradictions", "thresholds",
    "response_content_hash", "report_hash", "hmac", "settings_digest", "session_id",
    "window_id", "window_number", "timestamp", "omissions", "personal", "classification",
    "stages", "reasons", "judge",
)  # fmt: skip
SECRET = "The walruszq of Quimperley weighs 4711 kilograms."


def states(receipt: Receipt) -> dict[str, str]:
    return {one.name: one.state for one in replay(receipt).parts}


def claims(receipt: Receipt) -> list[tuple[str, Any]]:
    told = receipt.content["report"]["claims"]
    return [(one["status"], one.get("error")) for one in told]


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ((right,), ["SUPPORTED", "CONTRADICTED", "UNSUPPORTED"]),
        ((lenient,), ["SUPPORTED"] * 3),
        ((nonsense,), None),
        ((nonsense, right), ["SUPPORTED", "CONTRADICTED", "UNSUPPORTED"]),
        ((failing,), None),
    ],
)
def test_a_judged_answer_replays_from_the_recorded_reply(says: Any, found: Any) -> None:
    receipt, judge, answer = judged(*says)
    assert verify(write(receipt)).ok
    again = replay(receipt)
    assert (again.same, again.whole) == (True, True), again.parts
    assert again.part("judge").state == EQUAL
    told = receipt.content["report"]
    if found is not None:
        assert [status for status, _ in claims(receipt)] == found
        assert told["checked_by"] == "judge any/judge"
    else:
        assert told["checked_by"] == "exact comparison"
    assert told["verification"] == answer.report.verification.value
    score = answer.report.risk_score
    assert told["risk_score"] == (None if score is None else round(score * 1_000_000))
    calls = receipt.content["examined"]["judged"]["calls"]
    assert len(calls) == (1 if failing in says else len(says) + (says == (nonsense,)))
    assert failing in says or len(calls) == len(judge.asked)


def test_of_a_claim_that_is_not_believed_nothing_is_told_but_that() -> None:
    receipt, _, answer = judged(misquoting)
    claim = answer.report.claims[1]
    assert (claim.status.value, claim.error, claim.wrong, claim.quotations) == (
        ("NOT_CHECKED", None, None, ())
    )
    assert answer.report.verification.value == "PARTIAL"
    assert replay(receipt).whole


def test_no_text_of_a_reply_stands_in_what_is_signed() -> None:
    receipt, _, answer = judged()
    payload = receipt.signed.payload.decode()
    for words in ("412 megawatts", "512 megawatts", "97 million", "It is 412.", "says"):
        assert words not in payload
    assert receipt.text(receipt.number("judge/1")) == answer.report.judge.calls[0].reply
    assert answer.report.reasons[0] == (
        "The answer says 512 megawatts; passage 5 says 412 megawatts."
    )


def test_every_field_of_a_report_is_told_or_left_out_on_purpose() -> None:
    assert {*outline.OF_REPORT, *ELSEWHERE} == set(Report.model_fields)
    assert not {*outline.OF_REPORT} & {*ELSEWHERE}
    receipt, _, _ = judged()
    told = {name for one in receipt.content["report"]["claims"] for name in one}
    left = {"text", "reads_as", "entities", "reason", "fix", "unfounded", "judge", "hints"}
    assert told == set(Claim.model_fields) - left


def _claim(number: int, **new: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["report"]["claims"][number].update(new)


def _quotation(**new: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["report"]["claims"][1]["quotations"][0].update(new)


def _report(**new: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["report"].update(new)


def _judged(**new: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["examined"]["judged"].update(new)


def _call(**new: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["examined"]["judged"]["calls"][0].update(new)


CHANGES = {
    "status": _claim(1, status="SUPPORTED"),
    "error": _claim(1, error="DATE"),
    "wrong": _claim(1, wrong=[67, 79]),
    "quotation start": _quotation(start=1),
    "quotation passage": _quotation(passage=1),
    "quotation fact": _quotation(fact_id="another"),
    "level": _report(risk_level="LOW"),
    "score": _report(risk_score=1),
    "verification": _report(verification="SCREENED"),
    "checked by": _report(checked_by="judge a/nother"),
    "flagged": _report(flagged=False),
    "model": _judged(model="a/nother"),
    "prompt": _judged(prompt="judge@1+000000000000"),
    "own answer": _judged(own_answer=True),
    "language": _judged(language="de"),
    "passages": _judged(passages=9),
    "left out": _judged(left_out=[["another", "label"]]),
    "skipped": _judged(skipped="budget"),
    "no judge": lambda content: content["examined"].update(judged=None),
    "call's model": _call(model="a/nother"),
    "call's id": _call(id="0" * 16),
    "call's hash": _call(prompt_hash="0" * 64),
    "call's passages": _call(passages=[1, 2]),
    "call's error": _call(error="Unreadable"),
    "call's tokens": _call(prompt_tokens=1),
    "call's cost": _call(cost="0.5"),
    "call's time": _call(milliseconds=99_999),
}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_is_changed_of_a_judge_is_found(name: str) -> None:
    receipt, _, _ = judged()
    forged = changed(receipt, CHANGES[name])
    assert verify(write(forged)).word == DIFFERS
    found = replay(forged)
    assert not found.same, found.parts


@pytest.mark.parametrize("name", ["language", "call's hash", "call's id"])
def test_another_prompt_is_named(name: str) -> None:
    receipt, _, _ = judged()
    one = replay(changed(receipt, CHANGES[name])).part("judge")
    if name == "language":
        assert (one.state, "the operator's own" in one.why) == (EQUAL, True)
    else:
        wanted = {"call's hash": "prompt_hash", "call's id": "id"}[name]
        assert (one.state, one.place) == (DIFFERS, f"examined.judged.calls[0].{wanted}")


BREAKDOWN = "report.attribution_breakdown"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda text: text.replace("CONTRADICTED", "SUPPORTED"), f"{BREAKDOWN}.PARAMETRIC"),
        (lambda text: text.replace("412 megawatts", "412 megawatt"), f"{BREAKDOWN}.PARAMETRIC"),
        (lambda text: text.replace("512 megawatts", "512"), "report.claims[1].wrong[1]"),
        (lambda text: text.replace("NUMBER", "DATE"), "report.claims[1].error"),
        (lambda text: text.replace("It is 412.", "It is 413."), "seal.report_hash"),
        (lambda text: text + " ", "seal.report_hash"),
    ],
)
def test_another_reply_is_found(change: Callable[[str], str], place: str) -> None:
    receipt, _, _ = judged()
    text = receipt.text(receipt.number("judge/1")) or ""
    assert change(text) != text
    file = write(receipt)
    broken = file.replace(b"CONTRADICTED", b"C0NTRADICTED")
    assert broken != file
    assert verify(broken).place.startswith("texts[")
    one = replay(changed(receipt, texts={"judge/1": change(text)})).part("examination")
    assert (one.state, one.place) == (DIFFERS, place)


def test_a_reply_to_another_question_is_found() -> None:
    receipt, _, _ = judged()
    text = receipt.text(receipt.number("judge/1")) or ""
    id_ = receipt.content["examined"]["judged"]["calls"][0]["id"]
    found = replay(changed(receipt, texts={"judge/1": text.replace(id_, "f" * 16)}))
    assert found.part("judge").place == "examined.judged.calls[0].error"
    assert found.part("examination").state == DIFFERS


@pytest.mark.parametrize(
    "change",
    [
        _call(passages=[99]),
        _call(first=2, last=1),
        _call(last=99),
        _call(pieces=[[9, 0, 1]]),
        _call(passages=[1, 1]),
        _call(leaf=999),
        _call(cost="much"),
        _judged(instructions=999),
        _judged(system=999),
        _judged(conversation=[{"role": "user", "leaf": 999}]),
    ],
)
def test_a_judge_that_cannot_be_is_refused(change: Callable[[dict[str, Any]], None]) -> None:
    receipt, _, _ = judged()
    with pytest.raises(ReceiptBroken) as refused:
        replay(changed(receipt, change))
    assert refused.value.place


def test_a_language_of_no_sentences_is_refused() -> None:
    receipt, _, _ = judged()
    with pytest.raises(ReceiptBroken, match="language"):
        replay(changed(receipt, _judged(language="tlh")))


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_shipped_prompt_is_hashed_again(language: str) -> None:
    receipt, _, answer = judged(fields={"language": language})
    told = receipt.content["examined"]["judged"]
    assert (told["language"], told["prompt"]) == (language, JudgePrompt(language=language).identity)
    assert answer.report.reasons[0].startswith({"en": "The answer", "de": "In der"}[language])
    found = replay(receipt)
    assert (found.whole, found.part("judge").why) == (True, "")
    assert replay(changed(receipt, _call(prompt_hash="0" * 64))).part("judge").state == DIFFERS


def test_an_own_prompt_is_compared_by_its_text_and_not_run_without_it() -> None:
    receipt, judge, _ = judged(fields={"rubric": "Be kind."})
    assert "Be kind." not in receipt.signed.payload.decode()
    assert (receipt.text(receipt.number("judge-prompt")) or "").endswith("Be kind.")
    one = replay(receipt).part("judge")
    assert (one.state, "the operator's own" in one.why) == (EQUAL, True)
    for change in (_call(id="0" * 16), _call(prompt_hash="0" * 64)):
        assert replay(changed(receipt, change)).part("judge").state == DIFFERS
    other = replay(changed(receipt, texts={"judge-prompt": "Be unkind."})).part("judge")
    assert (other.state, other.place) == (DIFFERS, "examined.judged.prompt")
    copy = redact(receipt, names=["judge-prompt"])
    states_of_copy = states(copy)
    assert (states_of_copy["judge"], states_of_copy["answer"]) == (NOT_RUN, EQUAL)
    forged = changed(copy, _call(id="0" * 16))
    assert replay(forged).part("judge").state == DIFFERS
    assert len(judge.asked) == 1


def test_long_passages_go_in_pieces_that_are_told() -> None:
    receipt, judge, _ = judged(
        lambda asked: json.dumps(
            {
                "id": asked["id"],
                "claims": [
                    {"n": n, "status": "UNSUPPORTED"}
                    if n > 1 or not any("4 March" in text for _, text in asked["passages"])
                    else {
                        "n": 1,
                        "status": "SUPPORTED",
                        "quotes": [{"in": place_of(asked, "4 March"), "text": "4 March 2019"}],
                    }
                    for n in (1, 2, 3)
                ],
            }
        ),
        facts=[
            " ".join(f"Pump {n} of the Meridian reactor is grey." for n in range(160)),
            " ".join(f"Valve {n} of the Larkspur dam is blue." for n in range(140)),
        ],
        fields={"window_tokens": 2_500, "most_calls": 12},
        budget_tokens=20_000,
    )
    told = receipt.content["examined"]["judged"]
    assert len(told["calls"]) > 1
    assert len(judge.asked) == len(told["calls"])
    assert any(one.get("pieces") for one in told["calls"])
    found = replay(receipt)
    assert (found.same, found.whole) == (True, True), found.parts
    assert claims(receipt)[0][0] == "SUPPORTED"


def test_what_the_question_and_the_system_prompt_say_is_evidence() -> None:
    def say(asked: dict[str, Any]) -> str:
        quotes = (
            ("q", "weighs 4711"),
            ("s", "walruszq is grey"),
            ("question", "lives in Quimperley"),
        )
        return json.dumps(
            {
                "id": asked["id"],
                "claims": [
                    {"n": n, "status": "SUPPORTED", "quotes": [{"in": place, "text": text}]}
                    for n, (place, text) in enumerate(quotes, start=1)
                ],
            }
        )

    receipt, _, answer = judged(
        say,
        question="The walruszq weighs 4711 kg. How heavy is it, and of what colour?",
        script=("It weighs 4711 kg. The walruszq is grey. It lives in Quimperley.",),
        system_prompt="You are kind. The walruszq is grey.",
        history=[
            Message(role="user", content="A walruszq lives in Quimperley."),
            Message(role="assistant", content="I see."),
        ],
    )
    told = receipt.content["examined"]["judged"]
    names = [receipt.leaves[one["leaf"]].name for one in told["conversation"]]
    assert names == ["history/1", "history/2"]
    assert receipt.leaves[told["instructions"]].name == "system-prompt"
    quoted = [one["quotations"][0] for one in receipt.content["report"]["claims"]]
    assert [one["fact_id"] for one in quoted] == ["question", "system", "question"]
    assert answer.report.claims[2].quotations[0].text == "lives in Quimperley"
    found = replay(receipt)
    assert (found.same, found.whole) == (True, True), found.parts
    for name in ("request", "answer", "system-prompt", "history/1"):
        copy = redact(receipt, names=[name])
        assert copy.text(copy.number("judge/1")) is None
        assert verify(write(copy)).ok


def test_a_reply_that_was_left_out_leaves_statuses_that_are_told() -> None:
    receipt, _, _ = judged()
    copy = redact(receipt, names=["judge/1"])
    assert verify(write(copy)).ok
    found = replay(copy)
    for name in ("examination", "judge", "policy"):
        one = found.part(name)
        assert (one.state, one.why) == (NOT_RUN, "the text 'judge/1' is redacted in this copy")
    assert (found.same, found.whole) == (True, False)
    assert claims(copy) == claims(receipt)


def test_a_reply_goes_with_the_facts_that_it_may_quote() -> None:
    receipt, _, _ = judged()
    fact = receipt.content["candidates"][receipt.content["envelope"]["facts"][0]["at"]]["id"]
    for copy in (
        erased(receipt, {fact}),
        redact(receipt, facts=[fact]),
        redact(receipt, facts=[fact], quoting=False),
        erased(receipt, set(), answers=True),
    ):
        assert copy.text(copy.number("judge/1")) is None
        assert verify(write(copy)).ok
        assert replay(copy).same
    unknown = erased(receipt, {"another"})
    assert unknown.text(unknown.number("judge/1")) is not None


@pytest.mark.parametrize(
    ("options", "script", "skipped"),
    [
        ({"judge_when": "doubt"}, (FACTS[2],), "no doubt"),
        ({"judge_when": "sample:0"}, (ANSWER,), "sample"),
        ({"judge_budget": 0}, (ANSWER,), "budget"),
        ({"judge_mode": "background", "on_report": lambda report: None}, (ANSWER,), "background"),
    ],
)
def test_a_judge_that_was_not_asked_replays(options: Any, script: Any, skipped: str) -> None:
    receipt, judge, _ = judged(options=options, script=script)
    told = receipt.content["examined"]["judged"]
    assert (told["skipped"], told["calls"]) == (skipped, [])
    assert skipped == "background" or not judge.asked
    found = replay(receipt)
    assert (found.same, found.whole) == (True, True), found.parts
    assert found.part("judge").why == f"the judge was not asked: {skipped}"
    assert not replay(changed(receipt, _judged(skipped="another"))).same


def test_an_answer_that_was_withheld_as_its_judge_failed_replays() -> None:
    receipt, _, error = judged(nonsense, options={"judge_failure": "halt"})
    assert isinstance(error, SafetyHalt)
    assert receipt.chain.outcome == "halted"
    assert receipt.content["policy"]["reason"] == "JUDGE_FAILED"
    found = replay(receipt)
    assert (found.same, found.whole) == (True, True), found.parts
    fine, _, _ = judged()
    forged = changed(fine, lambda content: content["policy"].update(reason="JUDGE_FAILED"))
    assert replay(forged).part("policy").place == "policy.reason"


def test_the_level_of_the_judge_is_the_level_that_policies_see() -> None:
    receipt, _, error = judged(policy="halt-on HIGH")
    assert isinstance(error, SafetyHalt)
    assert states(receipt)["policy"] == EQUAL
    receipt, _, answer = judged(lenient, policy="halt-on HIGH")
    assert answer.report.risk_level.value == "LOW"
    assert replay(receipt).whole


def test_a_judge_beside_the_documents_composite_replays() -> None:
    receipt, _, answer = judged(
        lenient, opening={"dpe": {"decides": "composite", "verifier": "alignment"}}
    )
    assert [status for status, _ in claims(receipt)] == ["SUPPORTED"] * 3
    assert answer.report.risk_score == answer.report.composite_score
    assert replay(receipt).whole


def test_flags_of_a_judge_are_made_again_and_others_are_told() -> None:
    receipt, _, answer = judged(nonsense)
    flags = list(answer.report.flags)
    assert "judge-failed=Unreadable" in flags
    told = receipt.content["examined"]["flags"]
    assert [one for one in told if one.startswith("judge")] == ["judge-failed=Unreadable"]

    def without(content: dict[str, Any]) -> None:
        for listed in (content["examined"]["flags"], content["report"]["flags"]):
            listed.remove("judge-failed=Unreadable")

    assert replay(changed(receipt, without)).part("examination").place.startswith("report.flags")

    def more(content: dict[str, Any]) -> None:
        for listed in (content["examined"]["flags"], content["report"]["flags"]):
            listed.append("judge-own-answer")

    assert replay(changed(receipt, more)).part("examination").place.startswith("report.flags")


def test_what_if_keeps_the_word_of_the_judge() -> None:
    receipt, _, answer = judged(lenient)
    assert answer.report.risk_level == "LOW"
    supposed = whatif(receipt, Supposition(policy="halt-on MEDIUM"))
    assert supposed.verdict is not None
    assert supposed.verdict.decision_after == "deliver"


def test_a_remedy_quotes_the_claims_that_the_judge_flagged() -> None:
    """What the embedded stages found of the others is a hint, and no reason to ask again."""

    def only_the_third(asked: dict[str, Any]) -> str:
        found = json.loads(right(asked))
        found["claims"][1] = {**found["claims"][0], "n": 2}
        return json.dumps(found)

    receipt, judge, answer = judged(
        only_the_third,
        lenient,
        script=(ANSWER, ANSWER.replace("512", "412")),
        policy="halt-on HIGH; upgrade-on-risk reflexive",
    )
    assert answer.report.risk_level.value == "LOW"
    assert len(judge.asked) == 2
    words = receipt.text(receipt.number("instruction/1")) or ""
    assert "Larkspur" in words
    assert "512 megawatts" not in words
    assert replay(receipt).same
