"""What a judge is asked: one call where everything fits, as few as needed where it does not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.judge.inquiry import (
    MOST_CLAIMS,
    Inquiry,
    JudgeReply,
    JudgeTerms,
    estimated,
)
from crp_integrations.dpe.judge.messages import (
    ID_DIGITS,
    INSTRUCTIONS,
    RESPONSE_FORMAT,
    STATUSES,
    JudgePrompt,
)
from crp_integrations.engines.tokens.counters import counter_for
from crp_integrations.messages import ModelCall
from crp_integrations.vocabulary import Purpose
from tests.dpe.judging import Case, Rule, asked, claims_of, quoted, statuses, supported, unsupported

CASE = Case("It is 40 m tall. It is red.", ["It is 40 m tall."], question="How tall is it?")
ANSWER = "The bridge is 312 metres long. The toll is 4 euros."
FILLER = "Nothing of interest is said in this line of the survey, which goes on. "


def _long(count: int, **at: str) -> list[str]:
    """Passages of some 300 tokens, of which some begin with words of their own."""
    return [f"Page {n}. {at.get(f'p{n}', '')} {FILLER * 15}" for n in range(1, count + 1)]


def _terms(**how: Any) -> JudgeTerms:
    return replace(JudgeTerms("test/judge"), **how)


def _read(data: dict[str, Any]) -> str:
    return json.dumps(data["passages"])


def finding(**words: str) -> Rule:
    """A judge that supports claim n where its passages hold the words, and else says so."""

    def rule(data: dict[str, Any]) -> dict[str, Any]:
        verdicts = []
        for number, _ in claims_of(data):
            wanted = words.get(f"c{number}", "nowhere")
            holding = [name for name, text in data["passages"] if wanted in text]
            verdicts.append(
                supported(number, (holding[0], wanted)) if holding else unsupported(number)
            )
        return {"id": data["id"], "claims": verdicts, "unnumbered": []}

    return rule


BOTH = finding(c1="312 metres", c2="4 euros")


# --- one call ------------------------------------------------------------------------------------


def test_one_call_holds_all_there_is_to_read() -> None:
    case = replace(
        CASE,
        conversation=(("user", "Tell me of the mast."), ("assistant", "Gladly.")),
        system="You guide visitors.",
    )
    _, calls = case.played(finding())
    (call,) = calls
    assert (call.model, call.purpose, call.temperature) == ("test/judge", Purpose.JUDGE, 0.0)
    assert [str(one.role) for one in call.messages] == ["system", "user"]
    assert call.response_format == RESPONSE_FORMAT
    data = asked(call)
    assert data.pop("id")
    assert data == {
        "earlier": [["user", "Tell me of the mast."], ["assistant", "Gladly."]],
        "question": "How tall is it?",
        "system": "You guide visitors.",
        "passages": [["1", "It is 40 m tall."]],
        "answer": [[1, "It is 40 m tall."], [2, "It is red."]],
    }


def test_the_id_is_a_hash_of_everything_that_is_asked() -> None:
    ids = {
        case.material["id"]
        for case in (
            CASE,
            replace(CASE, question="How high is it?"),
            replace(CASE, passages=["It is 41 m tall."]),
            replace(CASE, answer="It is 40 m tall. It is blue."),
            replace(CASE, system="x"),
            replace(CASE, conversation=(("user", "x"),)),
        )
    }
    assert len(ids) == 6
    assert {len(one) for one in ids} == {ID_DIGITS}


def test_the_same_case_is_asked_in_the_same_bytes() -> None:
    first, second = (CASE.inquiry().call() for _ in range(2))
    assert first == second


def test_the_parts_of_an_answer_are_sent_in_order_and_whole() -> None:
    case = Case("Facts:\n\n1. It is red.\n2. It is tall, and it was built in 1998.\n", ["x"])
    data = case.material
    told = [one[1] if isinstance(one, list) else one for one in data["answer"]]
    assert "".join("".join(told).split()) == "".join(case.answer.split())
    assert [number for number, _ in claims_of(data)] == [1, 2, 3, 4]


def test_earlier_messages_and_system_prompt_are_shown_in_short() -> None:
    case = replace(
        CASE,
        conversation=tuple(("user", f"{n} " + "x" * 2000) for n in range(9)),
        system="y" * 50_000,
    )
    data = case.material
    assert [text[0] for _, text in data["earlier"]] == ["5", "6", "7", "8"]
    assert max(len(text) for _, text in data["earlier"]) == 600
    assert len(data["system"]) == 20_000


def test_own_instructions_and_a_rubric_are_told_and_named() -> None:
    shipped, own, more = (
        JudgePrompt(),
        JudgePrompt(instructions="Judge."),
        JudgePrompt(rubric="Prices are net."),
    )
    assert shipped.text.startswith(INSTRUCTIONS[:40])
    assert own.text == "Judge."
    assert more.text == f"{shipped.text}\n\nPrices are net."
    assert [one.identity.split("+")[0] for one in (shipped, own, more)] == [
        "judge@1",
        "own",
        "judge@1",
    ]
    assert len({one.identity for one in (shipped, own, more)}) == 3
    run, calls = replace(CASE, terms=_terms(prompt=more)).played(finding())
    assert calls[0].messages[0].content == more.text
    assert run.prompt == more.identity


@pytest.mark.parametrize(
    ("language", "name"), [("de", "German"), ("fr", "French"), ("es", "Spanish")]
)
def test_reasons_are_asked_for_in_the_language(language: str, name: str) -> None:
    assert f"in {name}" in JudgePrompt(language=language).text
    assert name not in JudgePrompt().text


def test_the_form_of_a_reply_allows_what_the_instructions_ask_for() -> None:
    schema = RESPONSE_FORMAT["json_schema"]["schema"]
    item = schema["properties"]["claims"]["items"]
    assert item["properties"]["status"]["enum"] == list(STATUSES)
    for status in STATUSES:
        assert f"{status}:" in INSTRUCTIONS
    assert "NOT_CHECKED" not in INSTRUCTIONS


def test_input_tokens_are_at_most_1_4_times_the_texts() -> None:
    counter = counter_for("gpt-4o")
    # Eight passages of some 300 tokens, and ten claims, as people write.
    places = "bridge school harbour library station market mill tower inn ferry".split()
    passages = [
        " ".join(
            f"The {place} of district {n}{k} was renewed in {1990 + n + k} for {n * k + 3}.{k} "
            f"million euros, and {k * 7 + n} people work there today."
            for k, place in enumerate(places)
        )
        for n in range(1, 9)
    ]
    answer = " ".join(
        f"The {place} of district {n}{n} was renewed in {1990 + 2 * n}."
        for n, place in enumerate(places, 1)
    )
    question = "Which buildings were renewed, and when was that?"
    case = Case(answer, passages, question=question)
    assert len(case.screened.claims) == 10
    assert all(280 <= counter.count(text) <= 330 for text in passages)
    _, calls = case.played(finding())
    (call,) = calls
    read = sum(counter.count(one.content) for one in call.messages)
    told = sum(counter.count(text) for text in (question, *passages, answer))
    assert read <= 1.4 * told, f"{read / told:.2f}"


# --- several calls -------------------------------------------------------------------------------


def test_passages_go_in_as_few_calls_as_needed() -> None:
    passages = _long(30, p3="It is 312 metres long.", p29="The toll is 4 euros.")
    whole = Case(ANSWER, passages)
    assert len(whole.played(BOTH)[1]) == 1
    case = Case(ANSWER, passages, terms=_terms(window=6000, most_calls=20))
    run, calls = case.played(BOTH)
    texts = sum(estimated(text) for text in passages)
    assert texts // 6000 < len(calls) <= texts // 4000 + 1
    assert run.left_out == ()
    for call in calls:
        assert sum(estimated(one.content) for one in call.messages) <= 6000
        assert claims_of(asked(call)) == [
            (n, c.text) for n, c in enumerate(case.screened.claims, 1)
        ]
        assert asked(call)["note"].endswith("of 30 passages; others are read separately")
    shown = [int(number) for call in calls for number, _ in asked(call)["passages"]]
    assert sorted(shown) == list(range(1, 31))
    # What matters for the claims comes first.
    assert {3, 29} <= set(run.calls[0].passages)


def test_what_one_call_finds_counts_whatever_the_others_say() -> None:
    passages = _long(30, p3="It is 312 metres long.", p29="The toll is 4 euros.")
    case = Case(ANSWER, passages, terms=_terms(window=6000, most_calls=20))
    assert statuses(case.judged(BOTH)) == ["SUPPORTED", "SUPPORTED"]
    report = case.judged(finding(c1="312 metres"))
    # Every passage was read, and none says it.
    assert statuses(report) == ["SUPPORTED", "UNSUPPORTED"]
    assert report.judge is not None
    assert len(report.judge.calls) > 1


def test_passages_that_no_call_shows_are_named_and_may_say_it() -> None:
    passages = _long(30, p3="It is 312 metres long.")
    case = Case(ANSWER, passages, terms=_terms(window=6000, most_calls=2))
    report = case.judged(BOTH)
    assert report.judge is not None
    assert len(report.judge.calls) == 2
    read = {number for call in report.judge.calls for number in call.passages}
    unread = [f"f{n}" for n in range(1, 31) if n not in read]
    assert [(one.fact_id, one.reason) for one in report.judge.left_out] == [
        (one, "length") for one in unread
    ]
    assert f"judge-passages-left-out={len(unread)}" in report.flags
    assert statuses(report) == ["SUPPORTED", "NOT_CHECKED"]


def test_a_provider_that_must_not_get_a_passage_does_not() -> None:
    passages = ["It is 312 metres long.", "The toll is 4 euros. SECRET", "A lake."]
    case = Case(ANSWER, passages, terms=_terms(left_out=(("f2", "no-store"),)))
    run, calls = case.played(BOTH)
    assert "SECRET" not in calls[0].messages[1].content
    # The others keep their numbers.
    assert [number for number, _ in asked(calls[0])["passages"]] == ["1", "3"]
    assert [(one.fact_id, one.reason) for one in run.left_out] == [("f2", "no-store")]
    report = case.judged(BOTH)
    assert statuses(report) == ["SUPPORTED", "NOT_CHECKED"]
    # Nor is it quoted without having been shown.
    unseen = case.judged(lambda data: {"id": data["id"], "claims": [supported(2, (2, "4 euros"))]})
    assert statuses(unseen) == ["NOT_CHECKED", "NOT_CHECKED"]


def test_a_passage_longer_than_a_call_is_read_in_pieces() -> None:
    words = [f"Row {n} has {n * 3}.{n % 10} litres." for n in range(1500)]
    passage = " ".join(words)
    case = Case("Row 1490 has 4470.0 litres.", [passage], terms=_terms(window=5000, most_calls=50))
    run, calls = case.played(finding(c1="Row 1490 has 4470.0 litres"))
    pieces = [text for call in calls for _, text in asked(call)["passages"]]
    assert "".join(pieces) == passage
    # Cut between sentences: half a figure would be another one.
    assert all(piece.endswith(". ") for piece in pieces[:-1])
    assert run.left_out == ()
    report = case.judged(finding(c1="Row 1490 has 4470.0 litres"))
    (quotation,) = report.claims[0].quotations
    assert passage[quotation.start : quotation.end] == "Row 1490 has 4470.0 litres"


def test_a_piece_that_was_not_read_leaves_its_passage_unread() -> None:
    passage = " ".join(f"Row {n} has {n * 3} litres." for n in range(1500))
    case = Case("Row 7 has a lid.", [passage], terms=_terms(window=5000, most_calls=2))
    report = case.judged(finding())
    assert report.judge is not None
    assert [one.fact_id for one in report.judge.left_out] == ["f1"]
    assert statuses(report) == ["NOT_CHECKED"]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_call_that_fails_behind_others_leaves_its_passages_unread(failing: int) -> None:
    case = Case(ANSWER, _long(30, p3="312 metres"), terms=_terms(window=6000, most_calls=20))
    made = 0

    def rule(data: dict[str, Any]) -> Any:
        nonlocal made
        made += 1
        return JudgeReply(error="ModelTimeout") if made > failing else BOTH(data)

    report = case.judged(rule)
    assert report.judge is not None
    assert [call.error for call in report.judge.calls] == [*[""] * failing, "ModelTimeout"]
    read = {n for call in report.judge.calls[:failing] for n in call.passages}
    assert [(one.fact_id, one.reason) for one in report.judge.left_out] == [
        (f"f{n}", "failed") for n in range(1, 31) if n not in read
    ]
    assert "judge-calls-failed=1" in report.flags
    assert statuses(report) == ["SUPPORTED", "NOT_CHECKED"]


def test_a_piece_whose_call_failed_leaves_its_passage_unread() -> None:
    passage = " ".join(f"Row {n} has {n * 3} litres." for n in range(1500))
    case = Case("Row 7 has a lid.", [passage], terms=_terms(window=5000, most_calls=50))
    replies = iter([None])

    def rule(data: dict[str, Any]) -> Any:
        return finding()(data) if next(replies, "no") is None else JudgeReply(error="ModelError")

    assert statuses(case.judged(rule)) == ["NOT_CHECKED"]


def test_many_claims_are_asked_about_in_groups_with_their_surroundings() -> None:
    count = MOST_CLAIMS * 2 + 5
    answer = "".join(f"Row {n} has {n * 3} litres.\n" for n in range(1, count + 1))
    case = Case(answer, ["Each row has three litres for each number."])
    run, calls = case.played(
        lambda data: {
            "id": data["id"],
            "claims": [supported(n, (1, "three litres")) for n, _ in claims_of(data)],
        }
    )
    # In front of a later group stand the two claims before it, as text.
    assert asked(calls[1])["answer"][0].startswith(f"Row {run.calls[0].last - 1} has")
    asked_for = [n for call in calls for n, _ in claims_of(asked(call))]
    assert asked_for == list(range(1, len(case.screened.claims) + 1))
    assert max(len(claims_of(asked(call))) for call in calls) <= MOST_CLAIMS


def test_an_assertion_without_a_number_is_merged_too() -> None:
    passages = _long(30, p3="312 metres", p29="There is a museum.")
    case = Case(
        "A museum\n\nlength = 312 metres",
        passages,
        terms=_terms(window=6000, most_calls=20),
        missed="A museum",
    )

    def rule(data: dict[str, Any]) -> dict[str, Any]:
        found = finding(c1="312 metres")(data)
        there = [name for name, text in data["passages"] if "is a museum" in text]
        verdict = {"text": "A museum", "status": "UNSUPPORTED", "quotes": []}
        if there:
            verdict |= {"status": "SUPPORTED", "quotes": quoted((there[0], "is a museum"))}
        return {**found, "unnumbered": [verdict]}

    assert statuses(case.judged(rule)) == ["SUPPORTED", "SUPPORTED"]

    def once(data: dict[str, Any]) -> dict[str, Any]:
        found = rule(data)
        return found if "Page 3." in _read(data) else {**found, "unnumbered": []}

    # The call that mentions it did not see everything.
    assert statuses(replace(case, passages=_long(30, p3="312 metres")).judged(once)) == [
        "NOT_CHECKED",
        "SUPPORTED",
    ]


@given(
    st.integers(1, 60),
    st.integers(0, 40),
    st.integers(2000, 20_000),
    st.integers(1, 9),
    st.integers(5, 4000),
)
def test_whatever_is_asked_every_passage_is_shown_or_named(
    claims: int, passages: int, window: int, most: int, size: int
) -> None:
    answer = "".join(f"Row {n} has {n} litres.\n" for n in range(claims))
    found = Case(answer, []).screened.claims
    texts = tuple((f"f{n}", f"{n} " + "word " * (size // 5)) for n in range(1, passages + 1))
    dossier = Dossier(question="", answer=answer, passages=texts)
    inquiry = Inquiry(dossier, found, _terms(window=window, most_calls=most))
    calls: list[ModelCall] = []
    shown: dict[str, str] = {}
    while (call := inquiry.call()) is not None:
        calls.append(call)
        data = asked(call)
        inquiry.take(JudgeReply(text=json.dumps({"id": data["id"], "claims": []})))
    run = inquiry.run()
    assert len(calls) <= most
    for call in calls:
        for number, text in asked(call)["passages"]:
            shown[number] = shown.get(number, "") + text
    left = {one.fact_id for one in run.left_out}
    for number, (fact_id, text) in enumerate(texts, 1):
        assert fact_id in left or len(shown.get(str(number), "")) >= len(text)


@pytest.mark.parametrize(
    "text", ["", "abc", "plain words and more of them", "12345678", "東京" * 9]
)
def test_the_estimate_of_tokens_is_an_upper_bound_for_prose(text: str) -> None:
    assert estimated(text) >= counter_for("gpt-4o").count(text)
