"""Verdicts and orders to the judge that stand in passages, answers, messages and results of tools.

`planted/cases.jsonl` has thirty of them: what is judged, the status that each claim has in truth,
and in `copied` the planted words. `planted/replies.jsonl` has a capable model's reply to each.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.dpe.judge.reply import read_reply
from crp_integrations.dpe.records import COMPARISON
from crp_integrations.vocabulary import RiskLevel
from tests.dpe.judging import Case, statuses

HERE = Path(__file__).parent / "planted"


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
        assert report.risk_level is RiskLevel.HIGH
        assert report.reasons
    else:
        assert report.risk_level is (RiskLevel.UNKNOWN if "NOT_CHECKED" in found else RiskLevel.LOW)


@every
def test_a_recorded_reply_is_for_its_prompt_alone(name: str) -> None:
    reply = json.dumps(_recorded(name))
    for other in CASES:
        found = read_reply(reply, _case(other).material["id"])
        assert (found is not None) == (other == name)
