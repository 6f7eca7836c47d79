"""What judging, correcting and checking actions cost: `python -m tests.bench.judge_costs`.

Over the recorded replies to labelled answers (`conflicts.jsonl`) and tool calls (`actions.jsonl`).
Tokens are counted as cl100k does; milliseconds are processor time of this package, without a model.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from crp_integrations import count_tokens
from crp_integrations.dpe.judge.inquiry import JudgeTerms
from crp_integrations.evaluation.actions import read_actions, read_replies
from crp_integrations.evaluation.answers import read_cases, screened, verdict
from crp_integrations.evaluation.recorded_replies import recorded, replies

FOLDER = Path(__file__).parents[1] / "evaluation"
MODEL = "gpt-4"


def tokens(text: str) -> int:
    return count_tokens(text, MODEL).n


def milliseconds(work: Callable[[Any], object], items: Iterable[Any]) -> float:
    """The median processor time of the work for an item."""
    spent = []
    for item in items:
        began = time.process_time()
        work(item)
        spent.append((time.process_time() - began) * 1000)
    return statistics.median(spent)


def answers() -> dict[str, float]:
    """The costs of an answer's judgement, and the corrections' share of them."""
    known = replies(FOLDER / "replies" / "claude-2026-11-conflicts.jsonl")
    cases = [screened(case) for case in read_cases([FOLDER / "labelled" / "conflicts.jsonl"])]
    prompt, reply, fixes = [], [], []
    for case in cases:
        call = case.inquiry("judge").call()
        assert call is not None
        prompt.append(sum(tokens(str(message.content)) for message in call.messages))
        body = known[case.case.name]
        assert isinstance(body, dict)
        reply.append(tokens(json.dumps(body, ensure_ascii=False)))
        rows = [*body["claims"], *body.get("unnumbered", ())]
        bare = {
            **body,
            "claims": [{k: v for k, v in row.items() if k != "fix"} for row in body["claims"]],
            "unnumbered": [
                {k: v for k, v in row.items() if k != "fix"} for row in body.get("unnumbered", ())
            ],
        }
        if any("fix" in row for row in rows):
            fixes.append((reply[-1] - tokens(json.dumps(bare, ensure_ascii=False))) / prompt[-1])
    read = [verdict(case, recorded(case, known[case.case.name])).report for case in cases]
    return {
        "judge: prompt tokens": statistics.median(prompt),
        "judge: reply tokens": statistics.median(reply),
        "judge: corrections, per cent of the call": 100 * statistics.median(fixes),
        "judge: reading a reply, ms": milliseconds(
            lambda case: verdict(case, recorded(case, known[case.case.name])), cases
        ),
        "repair, ms": milliseconds(lambda report: report.repair(), read),
    }


def actions() -> dict[str, float]:
    """The costs of the check of one tool call."""
    path = FOLDER / "labelled" / "actions.jsonl"
    known = read_replies(FOLDER / "replies" / "claude-2026-11-actions.jsonl")
    began = time.process_time()
    cases = read_actions(path, terms=JudgeTerms("judge"))
    made = (time.process_time() - began) * 1000 / len(cases)
    calls = [case.check.call for case in cases]
    return {
        "action: prompt tokens": statistics.median(
            sum(tokens(str(message.content)) for message in call.messages) for call in calls if call
        ),
        "action: reply tokens": statistics.median(tokens(reply.text) for reply in known.values()),
        "action: making the prompt, ms": made,
        "action: reading a reply, ms": milliseconds(
            lambda case: case.check.report(known[case.name]), cases
        ),
    }


if __name__ == "__main__":
    for name, value in {**answers(), **actions()}.items():
        print(f"{name:45}{value:8.1f}")
