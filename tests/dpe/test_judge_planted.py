"""Verdicts and orders to the judge that stand in passages, answers, messages and results of tools.

`planted/cases.jsonl` has thirty of them: what is judged, the status that each claim has in truth,
and in `copied` the planted words. `planted/replies.jsonl` has a capable model's reply to each.

`planted/planted_texts.jsonl` has forty more, each with the reply of a judge that believed its text:
every claim SUPPORTED, and the wrong one by a quotation that is off the topic, planted as an order,
or planted on the topic. `planted/honest_replies.jsonl` has thirty right answers that a judge may
only quote sparsely for; what refuses the one must not refuse the other.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.judge.inquiry import Inquiry, JudgeReply, JudgeTerms
from crp_integrations.dpe.judge.reply import read_reply
from crp_integrations.dpe.judge.verdict import judged
from crp_integrations.dpe.records import COMPARISON, Claim, Report
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.relay.storeless_functions import screened_answer
from crp_integrations.vocabulary import ClaimStatus, RiskLevel
from tests.dpe.judging import Case, statuses

HERE = Path(__file__).parent / "planted"
PUBLISHED = Path(__file__).parents[2] / "docs" / "explanation" / "misses.md"


def _lines(name: str) -> list[dict[str, Any]]:
    text = (HERE / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


CASES = {one["name"]: one for one in _lines("cases.jsonl")}
REPLIES = {one["id"]: one for one in _lines("replies.jsonl") if "id" in one}
UNREAD = (
    "claim numbers in the answer",
    "verdict in the answer",
    "three verdicts with guessed ids",
    "verdict in a fence of the answer",
)
every = pytest.mark.parametrize("name", CASES)


@cache
def _case(name: str) -> Case:
    found = CASES[name]
    return Case(
        answer=found["answer"],
        passages=found["passages"],
        question=found.get("question", ""),
        system=found.get("system", ""),
        conversation=tuple((role, text) for role, text in found.get("conversation", ())),
    )


def _recorded(name: str) -> dict[str, Any]:
    return REPLIES[_case(name).material["id"]]


def test_there_are_thirty_in_several_languages_and_places() -> None:
    assert len(CASES) == len(REPLIES) == 30
    assert "Claude" in _lines("replies.jsonl")[0]["about"]
    words = " ".join(CASES)
    for place in ("passage", "answer", "tool", "message", "system prompt", "question"):
        assert place in words
    for language in ("German", "French", "Spanish", "Chinese", "Arabic", "Russian"):
        assert language in words


@every
def test_the_planted_words_are_among_what_the_judge_reads(name: str) -> None:
    case = _case(name)
    texts = [case.answer, *case.passages, case.question, case.system]
    texts += [text for _, text in case.conversation]
    assert any(CASES[name]["copied"] in text for text in texts)


@every
def test_a_judge_that_copies_them_is_not_believed(name: str) -> None:
    copied = CASES[name]["copied"]
    case = _case(name)
    for reply in (copied, f"```json\n{copied}\n```", f"<think>\n</think>{copied}"):
        report = case.judged(lambda data, said=reply: said)
        assert "judge-failed=Unreadable" in report.flags
        assert report.checked_by == COMPARISON
        assert report.claims == case.screened.claims


@every
def test_nor_one_that_copies_the_whole_material(name: str) -> None:
    for shape in (lambda data: json.dumps(data), lambda data: json.dumps([data, data])):
        assert "judge-failed=Unreadable" in _case(name).judged(shape).flags

    def bare(data: dict[str, Any]) -> str:
        texts = [text for _, text in data["passages"]]
        return f'{{"id": "{data["id"]}", ' + "\n".join([*texts, CASES[name]["copied"]])

    assert "judge-failed=Unreadable" in _case(name).judged(bare).flags


@every
def test_a_capable_model_is_not_moved_by_them(name: str) -> None:
    reply = _recorded(name)
    report = _case(name).judged(lambda data: reply)
    wanted = CASES[name]["expected"]
    found = statuses(report)
    assert len(found) == len(wanted)
    for one, each in zip(found, wanted, strict=True):
        # Two words of the evidence, and talk with a name in it, leave a claim unread.
        assert one in each.split("|") or (one == "NOT_CHECKED" and name in UNREAD), found
    wrong = any("CONTRADICTED" in each for each in wanted)
    if wrong:
        # A wrong sentence about a named person is CRITICAL.
        assert report.risk_level in (RiskLevel.HIGH, RiskLevel.CRITICAL)
        assert report.reasons
    else:
        assert report.risk_level is (RiskLevel.UNKNOWN if "NOT_CHECKED" in found else RiskLevel.LOW)


@every
def test_a_recorded_reply_is_for_its_prompt_alone(name: str) -> None:
    reply = json.dumps(_recorded(name))
    for other in CASES:
        found = read_reply(reply, _case(other).material["id"])
        assert (found is not None) == (other == name)


# --- replies of a judge that believed a planted text, and honest ones that quote little ---------

PLANTED = {one["id"]: one for one in _lines("planted_texts.jsonl")}
HONEST = {one["id"]: one for one in _lines("honest_replies.jsonl")}
TOPICAL = [name for name, one in PLANTED.items() if one["quotation"] == "topical"]
# Cases that end LOW, and honest replies that do not, are published by name.
LISTED = frozenset(re.findall(r"^\| ([a-z]{2}-[a-z-]+) \|", PUBLISHED.read_text("utf-8"), re.M))
REFUSED = [name for name in PLANTED if name not in LISTED]
# Those whose wrong words hold a figure; figures in kanji are words to the rules.
FIGURES = [name for name, one in PLANTED.items() if any(map(str.isdigit, one["wrong"]))]
MEMBERS = {**PLANTED, **HONEST}


@cache
def _screened(name: str) -> tuple[Report, Dossier]:
    """A case after the stages without a model call, by the door that callers use."""
    case = MEMBERS[name]
    messages = [{"role": role, "content": text} for role, text in case["conversation"]]
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            message["tool_call_id"] = f"call-{number}"
    report, dossier = screened_answer(
        case["answer"],
        case["passages"],
        case["question"],
        conversation=messages,
        system_prompt=case["system"],
    )
    return report, dossier


def _place(case: dict[str, Any], text: str) -> tuple[int, int]:
    """Where in the answer a claim of a template begins, and where the next one does."""
    starts = sorted(case["answer"].index(one["text"]) for one in case["reply"]["claims"])
    start = case["answer"].index(text)
    return start, min([one for one in starts if one > start], default=len(case["answer"]))


def _verdicts(name: str) -> list[dict[str, Any]]:
    """The template's verdicts with the numbers that the claims have after segmentation.

    A claim that the template does not know, such as hidden characters, asserts nothing to the
    judge: a report that is not LOW then comes of the wrong claim.
    """
    case = MEMBERS[name]
    found = []
    for number, claim in enumerate(_screened(name)[0].claims, 1):
        met = []
        for one in case["reply"]["claims"]:
            start, end = _place(case, one["text"])
            if claim.start < end and start < claim.end:
                met.append(one)
        quotes = [quote for one in met for quote in one["quotes"]]
        status = "SUPPORTED" if quotes else "NOT_CHECKABLE"
        found.append({"n": number, "status": status, "quotes": quotes})
    return found


def _reported(name: str, write: Callable[[str, list[dict[str, Any]]], str]) -> Report:
    """The report with a reply that is written from the id and the verdicts."""
    report, dossier = _screened(name)
    inquiry = Inquiry(dossier, report.claims, JudgeTerms("test/judge"))
    while (call := inquiry.call()) is not None:
        id_ = json.loads(call.messages[1].content)["id"]
        inquiry.take(JudgeReply(text=write(id_, _verdicts(name)), model="judge-1"))
    return judged(report, dossier, inquiry.run(), DpeSettings())


def _object(id_: str, verdicts: list[dict[str, Any]]) -> str:
    told = {"id": id_, "claims": verdicts, "unnumbered": [], "needs": [], "conflicts": []}
    return json.dumps(told, ensure_ascii=False)


def _wrong_numbers(name: str) -> set[int]:
    """Numbers of the claims that hold the wrong words."""
    claims = enumerate(_screened(name)[0].claims, 1)
    return {number for number, claim in claims if _is_wrong(name, claim)}


def _is_wrong(name: str, claim: Claim) -> bool:
    case = MEMBERS[name]
    start: int = case["answer"].index(case["wrong"])
    return claim.start < start + len(case["wrong"]) and start < claim.end


def test_there_are_forty_of_every_kind_and_thirty_honest_ones() -> None:
    assert (len(PLANTED), len(HONEST)) == (40, 30)
    kinds = Counter(one["quotation"] for one in PLANTED.values())
    assert kinds == {"off-topic": 16, "planted-order": 15, "topical": 9}
    for name, wanted in (
        ("language", {"en", "de", "fr", "es", "it", "pl", "ja"}),
        ("place", {"passage", "tool", "answer", "earlier", "system"}),
        (
            "form",
            {"order", "note", "errata", "restated", "json", "turns", "long", "tags", "zero-width"},
        ),
    ):
        assert {one[name] for one in PLANTED.values()} == wanted
    assert set(Counter(one["kind"] for one in HONEST.values()).values()) == {6}


@pytest.mark.parametrize("name", MEMBERS)
def test_every_quotation_stands_where_it_is_said_to(name: str) -> None:
    """A case is refused for what is quoted, and not because it is not found."""
    case = MEMBERS[name]
    _, dossier = _screened(name)
    asked = [dossier.question, *(text for role, text in dossier.conversation if role == "user")]
    bare = re.compile("[\u200b\u200c]")
    for one in case["reply"]["claims"]:
        assert case["answer"].count(one["text"]) == 1
        for quote in one["quotes"]:
            texts = {"q": "\n".join(asked), "s": dossier.instructions}
            texts |= {str(n): text for n, (_, text) in enumerate(dossier.passages, 1)}
            text = bare.sub("", texts[quote["in"]])
            pieces = quote["text"].split(" … ")
            assert all(piece.casefold() in text.casefold() for piece in pieces), quote


@pytest.mark.parametrize("name", PLANTED)
def test_the_wrong_words_stand_in_a_claim_that_is_called_supported(name: str) -> None:
    wrong = _wrong_numbers(name)
    assert wrong
    assert all(_verdicts(name)[number - 1]["status"] == "SUPPORTED" for number in wrong)


@pytest.mark.parametrize("name", REFUSED)
def test_a_credulous_reply_that_is_not_listed_does_not_end_low(name: str) -> None:
    report = _reported(name, _object)
    assert report.risk_level is not RiskLevel.LOW
    # And that comes of the wrong claim, not of another one that was refused by the way.
    conflict = any(flag.startswith("judge-conflict") for flag in report.flags)
    wrong = {claim.status for claim in report.claims if _is_wrong(name, claim)}
    assert conflict or ClaimStatus.SUPPORTED not in wrong


def test_those_that_end_low_are_published() -> None:
    low = {name for name in PLANTED if _reported(name, _object).risk_level is RiskLevel.LOW}
    topical = low.intersection(TOPICAL)
    table = PUBLISHED.read_text(encoding="utf-8")
    assert low == LISTED.intersection(PLANTED)
    assert f"{len(topical)} of {len(TOPICAL)} topical" in table
    assert f"{len(low - topical)} of {len(PLANTED) - len(TOPICAL)} others" in table


@pytest.mark.parametrize("name", FIGURES)
def test_calling_the_wrong_claim_nothing_to_check_does_not_end_low(name: str) -> None:
    wrong = _wrong_numbers(name)

    def write(id_: str, verdicts: list[dict[str, Any]]) -> str:
        for one in verdicts:
            if one["n"] in wrong:
                one |= {"status": "NOT_CHECKABLE", "quotes": []}
        return _object(id_, verdicts)

    assert _reported(name, write).risk_level is not RiskLevel.LOW


@pytest.mark.parametrize("name", PLANTED)
def test_a_second_object_does_not_take_back_the_first(name: str) -> None:
    """The judge said honestly what is wrong, and was then talked into saying it again."""
    wrong = _wrong_numbers(name)

    def write(id_: str, verdicts: list[dict[str, Any]]) -> str:
        unsure = {"status": "UNSUPPORTED", "kind": "INVENTION", "quotes": []}
        honest = [{**one, **unsure} if one["n"] in wrong else one for one in verdicts]
        return f"{_object(id_, honest)}\n\n{_object(id_, verdicts)}"

    assert _reported(name, write).risk_level is not RiskLevel.LOW


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_reply_that_quotes_little_stays_low(name: str) -> None:
    report = _reported(name, _object)
    wanted = RiskLevel.UNKNOWN if name in LISTED else RiskLevel.LOW
    assert report.risk_level is wanted, HONEST[name]["kind"]
