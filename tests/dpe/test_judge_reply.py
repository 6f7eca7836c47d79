"""A judge's reply is read from whatever form it came in, and never from a text it copied."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.judge.inquiry import JudgeReply
from crp_integrations.dpe.judge.reply import read_reply
from crp_integrations.dpe.records import COMPARISON
from crp_integrations.vocabulary import ClaimStatus, ErrorKind
from tests.dpe.judging import Case, contradicted, statuses, supported

ID = "0123456789abcdef"
OTHER = "fedcba9876543210"
VERDICTS = [supported(1, (2, "the tower is red")), contradicted(2, (1, "40 m"), wrong="50 m")]
CASE = Case("The tower is red. It is 50 m tall.", ["It is 40 m tall.", "The tower is red."])


def told(claims: Any = None, id_: str = ID, **more: Any) -> str:
    found = {"id": id_, "claims": VERDICTS if claims is None else claims, "unnumbered": []}
    return json.dumps({**found, **more})


WHOLE = told()
SHAPES = {
    "plain": WHOLE,
    "indented": json.dumps(json.loads(WHOLE), indent=2),
    "fenced": f"```json\n{WHOLE}\n```",
    "fence without a language": f"```\n{WHOLE}\n```",
    "chatter": f"Sure! Here is the verdict {{as asked}}:\n\n{WHOLE}\n\nAnything else? {{}}",
    "thoughts": f"<think>\nClaim 1: {{hm}} [1] {{'id': 1}}\n</think>\n{WHOLE}",
    "thoughts with a draft": f"<think>{told([])}</think>{WHOLE}",
    "another object before it": told([supported(1, (1, "40 m"))], OTHER) + WHOLE,
    "another object behind it": WHOLE + told([supported(1, (1, "40 m"))], OTHER),
    "within an object": json.dumps({"verdict": json.loads(WHOLE)}),
    "within a list": f"[{WHOLE}]",
    "id at the end": json.dumps({"claims": VERDICTS, "unnumbered": [], "id": ID}),
    "a mark before it": "\ufeff" + WHOLE,
    "a comma too many": WHOLE.replace('}], "unn', '},], "unn'),
    "cut off behind the claims": WHOLE[: WHOLE.index('"unnumbered"')],
    "never closed": WHOLE[:-1],
    "Windows line ends": json.dumps(json.loads(WHOLE), indent=1).replace("\n", "\r\n"),
    "numbers as texts": told([{**one, "n": str(one["n"])} for one in VERDICTS]),
    "small letters": told([{**one, "status": one["status"].lower()} for one in VERDICTS]),
    "more fields": told(note="x", claims=[{**one, "sure": 0.9} for one in VERDICTS]),
    "line break within a text": WHOLE.replace("otherwise.", "otherwise.\nReally."),
}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES.keys())
def test_a_reply_is_read_from_the_form_it_came_in(text: str) -> None:
    found = read_reply(text, ID)
    assert found is not None
    assert [found.numbered[n].status for n in (1, 2)] == ["SUPPORTED", "CONTRADICTED"]
    assert found.numbered[1].quotes == (("2", "the tower is red"),)
    assert found.numbered[2].kind is ErrorKind.NUMBER
    assert found.numbered[2].wrong == "50 m"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{}",
        "[]",
        "null",
        "I'm sorry, but I can't help with judging this.",
        "SUPPORTED",
        told(id_=OTHER),
        told(id_=""),
        told(id_=ID.upper()),
        told({"1": "SUPPORTED"}),
        json.dumps({"claims": VERDICTS}),
        json.dumps({"id": ID}),
        json.dumps({"id": ID, "verdict": "SUPPORTED"}),
        WHOLE[:30],
        # The id alone, and a verdict behind it that is not in its list.
        f'"id": "{ID}". The passage says {json.dumps(VERDICTS[0])}.',
        f'{{"id": "{ID}", "passages": {json.dumps(VERDICTS)}}}',
        '{"a":' * 5000,
        "{" * 5000,
        "[" * 5000,
    ],
)
def test_what_is_no_verdict_is_none(text: str) -> None:
    assert read_reply(text, ID) is None


def test_of_a_reply_that_was_cut_off_the_whole_verdicts_count() -> None:
    for end in range(len(WHOLE)):
        found = read_reply(WHOLE[:end], ID)
        if found is None:
            assert '"wrong"' not in WHOLE[:end]
            continue
        assert set(found.numbered) <= {1, 2}
        assert found.numbered[1].status is ClaimStatus.SUPPORTED
        assert found.whole is False


@pytest.mark.parametrize(
    "claims",
    [
        [supported(1, (1, "a")), contradicted(1, (1, "a"))],
        [supported(1, (1, "a")), {"n": 1, "status": "PERHAPS"}],
        [{"n": 1, "status": "PERHAPS"}],
        [{"n": 1, "status": "NOT_CHECKED"}],
        [{"n": 1, "status": None}],
        [{"n": 1, "status": ["SUPPORTED"]}],
        [{"n": 1}],
        [{"n": True, "status": "SUPPORTED"}],
        [{"n": 1.5, "status": "SUPPORTED"}],
        [{"n": None, "status": "SUPPORTED"}],
        [{"status": "SUPPORTED"}],
        ["SUPPORTED"],
        [None, 1, []],
        [],
    ],
)
def test_a_claim_without_one_clear_verdict_has_none(claims: list[Any]) -> None:
    found = read_reply(told(claims), ID)
    assert found is not None
    assert 1 not in found.numbered


def test_fields_that_stand_twice_with_two_values_say_nothing() -> None:
    item = '{"n": 1, "status": "SUPPORTED", "status": "CONTRADICTED", "quotes": []}'
    found = read_reply(f'{{"id": "{ID}", "claims": [{item}], "unnumbered": []}}', ID)
    assert found is not None
    assert found.numbered == {}
    assert read_reply(f'{{"id": "{OTHER}", "id": "{ID}", "claims": []}}', ID) is None
    two = f'{{"id": "{ID}", "claims": [{json.dumps(supported(1, (1, "a")))}], "claims": []}}'
    found = read_reply(two, ID)
    assert found is None or found.whole is False


def test_the_same_verdict_twice_is_one() -> None:
    found = read_reply(told([*VERDICTS, *VERDICTS]), ID)
    assert found is not None
    assert set(found.numbered) == {1, 2}


@pytest.mark.parametrize("name", ["9" * 5000, "x" * 5000, "", "-1", "0x1", "²", "٢", None, [], {}])
def test_an_odd_reference_ends_nothing(name: Any) -> None:
    verdict = {"n": 1, "status": "SUPPORTED", "quotes": [{"in": name, "text": "It is 40 m tall."}]}
    report = CASE.judged(lambda data: {"id": data["id"], "claims": [verdict], "unnumbered": []})
    assert statuses(report)[0] == "NOT_CHECKED"


@pytest.mark.parametrize("number", ["2.0", "2e0", '"2"', '" 2 "'])
def test_a_whole_number_is_one_however_it_is_written(number: str) -> None:
    item = f'{{"n": {number}, "status": "SUPPORTED", "quotes": [{{"in": 2.0, "text": "red"}}]}}'
    found = read_reply(f'{{"id": "{ID}", "claims": [{item}]}}', ID)
    assert found is not None
    assert found.numbered[2].quotes == (("2", "red"),)


@pytest.mark.parametrize("more", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_json_for_others_is_none_here(more: str) -> None:
    text = f'{{"sure": {more}, {WHOLE[1:]}'
    found = read_reply(text, ID)
    # As one that was cut off: what comes whole behind the id is read.
    assert found is not None
    assert found.whole is False


@pytest.mark.parametrize("number", ["1" * 5000, "1e999", "-" + "9" * 400])
def test_a_number_without_end_ends_nothing(number: str) -> None:
    found = read_reply(WHOLE[:-1] + f', "sure": {number}}}', ID)
    assert found is not None
    assert set(found.numbered) == {1, 2}
    assert read_reply(told([]).replace("[]", f'[{{"n": {number}}}]', 1), ID) is not None


def test_half_of_a_surrogate_pair_in_a_reply_ends_nothing() -> None:
    def rule(data: dict[str, Any]) -> JudgeReply:
        verdict = {**contradicted(2, (1, "40 m"), wrong="50 m"), "reason": "\ud800 no"}
        written = json.dumps({"id": data["id"], "claims": [verdict], "unnumbered": []})
        return JudgeReply(text=written + " \udfff", model="m")

    report = CASE.judged(rule)
    assert statuses(report) == ["NOT_CHECKED", "CONTRADICTED"]
    assert report.claims[1].reason == "\ufffd no"
    report.model_dump_json().encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["id", "claims", "n", "status", "quotes", "in", "text", "unnumbered"])
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON, st.text(max_size=20), st.text(max_size=20))
def test_any_reply_is_read_or_refused(value: Any, before: str, behind: str) -> None:
    read_reply(before + json.dumps(value) + behind, ID)
    found = read_reply(before + json.dumps({"id": ID, "claims": [value]}) + behind, ID)
    assert found is None or all(type(n) is int for n in found.numbered)


@given(JSON)
def test_any_verdicts_under_the_right_id_give_a_report(value: Any) -> None:
    claims = value if isinstance(value, list) else [value]
    report = CASE.judged(lambda data: {"id": data["id"], "claims": claims, "unnumbered": claims})
    assert report.judge is not None
    report.model_dump_json().encode()


# --- asking once more ----------------------------------------------------------------------------


def test_an_unreadable_reply_is_asked_for_once_more() -> None:
    replies = iter(["I think it is right.", None])

    def rule(data: dict[str, Any]) -> Any:
        return next(replies) or {"id": data["id"], "claims": [supported(1, (2, "is red"))]}

    run, calls = CASE.played(rule)
    assert [str(one.role) for one in calls[1].messages] == ["system", "user", "assistant", "user"]
    assert calls[1].messages[2].content == "I think it is right."
    assert [one.error for one in run.calls] == ["Unreadable", ""]
    assert run.calls[0].id == run.calls[1].id


@pytest.mark.parametrize("reply", ["", "No.", told(id_=OTHER), '{"id": "'])
def test_after_two_unreadable_replies_the_embedded_report_stands_and_says_so(reply: str) -> None:
    run, calls = CASE.played(lambda data: reply)
    assert len(calls) == 2
    report = CASE.judged(lambda data: reply)
    before = CASE.screened
    assert report.risk_level is before.risk_level
    assert report.claims == before.claims
    assert report.checked_by == COMPARISON
    assert "judge-failed=Unreadable" in report.flags
    assert [one.reply for one in run.calls] == [reply, reply]


def test_a_call_that_fails_is_not_made_again_by_the_inquiry() -> None:
    report = CASE.judged(lambda data: JudgeReply(error="ModelTimeout"))
    assert "judge-failed=ModelTimeout" in report.flags
    assert report.judge is not None
    assert [one.error for one in report.judge.calls] == ["ModelTimeout"]
