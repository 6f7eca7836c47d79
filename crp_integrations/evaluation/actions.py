"""Measures how often the verdict on labelled tool calls is right.

A row of the data is a conversation with candidate calls for the same moment: `id, domain, tools,
messages, calls: [{name, arguments, label, kind, path?}]`, where `label` is `right` or `wrong` and
`path` the JSONPath of the wrong argument.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, cast

from crp_integrations.dpe.actions.records import WRONG, ActionReport
from crp_integrations.dpe.actions.rules import ToolRules, check_rules, rule_of
from crp_integrations.dpe.actions.verdict import ActionCheck
from crp_integrations.dpe.judge.inquiry import JudgeReply, JudgeTerms
from crp_integrations.errors import RequestError
from crp_integrations.evaluation.data_sets import each
from crp_integrations.relay.actions import prepared_checks

FORM: Final = "id, tools, messages, and calls with name, arguments and label (right or wrong)"
REPLY_FORM: Final = "name and reply: a text, or an object with a list of arguments"
LABELS: Final = ("right", "wrong")
# Separates a trace's id from the number of a call, from 1.
PART: Final = "/"
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class ActionCase:
    """A candidate call of a conversation, and whether it is right.

    Attributes:
        path: JSON pointer of the wrong argument; empty for a right call, or if it is not known.
    """

    name: str
    domain: str
    kind: str
    wrong: bool
    path: str
    check: ActionCheck


def read_actions(
    path: Path, *, terms: JudgeTerms | None = None, rules: ToolRules | None = None
) -> list[ActionCase]:
    """The calls of a file; rules apply to the tools that a conversation has.

    Raises:
        RequestError: a row is malformed; names file and line.
    """
    traces = each(path, FORM, lambda row: list(_cases(row, terms, rules)))
    cases = [case for trace in traces for case in trace]
    if not cases:
        raise RequestError(f"{path} holds no calls, wanted one JSON object on each line")
    return cases


def _cases(
    row: dict[str, Any], terms: JudgeTerms | None, rules: ToolRules | None
) -> Iterator[ActionCase]:
    names = {tool.get("function", tool)["name"] for tool in row["tools"]}
    own = {tool: paths for tool, paths in (rules or {}).items() if tool in names}
    calls = row["calls"]
    checks = prepared_checks(calls, row["messages"], row["tools"], terms=terms, rules=own)
    for number, (call, check) in enumerate(zip(calls, checks, strict=True), 1):
        if call["label"] not in LABELS:
            raise ValueError(call["label"])
        yield ActionCase(
            name=f"{row['id']}{PART}{number}",
            domain=str(row.get("domain") or ""),
            kind=str(call.get("kind") or ""),
            wrong=call["label"] == "wrong",
            path=pointer(call.get("path") or ""),
            check=check,
        )


def pointer(path: str) -> str:
    """A JSONPath such as `$.lines[1].price` as a JSON pointer.

    >>> pointer("$.lines[1].unit_price")
    '/lines/1/unit_price'
    """
    return "".join(f"/{key or index}" for key, index in _STEP.findall(path))


def read_rules(path: Path) -> ToolRules:
    """The rules of a JSON file.

    Raises:
        RequestError: the file is not a JSON object.
        ConfigError: a rule is not known.
    """
    try:
        rules = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RequestError(f"{path} is no JSON file: {error}") from None
    check_rules(rules)
    return cast("ToolRules", rules)


def prompts(cases: Iterable[ActionCase], seed: int = 0) -> list[dict[str, Any]]:
    """The judge's prompt for each case, in random order and without labels."""
    made = [
        {
            "name": case.name,
            "messages": [{"role": str(m.role), "content": m.content} for m in call.messages],
        }
        for case in cases
        if (call := case.check.call) is not None
    ]
    Random(seed).shuffle(made)  # noqa: S311 - an order, no secret
    return made


def read_replies(path: Path) -> dict[str, JudgeReply]:
    """Replies to the prompts, by the name of their case.

    Raises:
        RequestError: a line is not an object with a name and a reply; names file and line.
    """
    return dict(each(path, REPLY_FORM, _named_reply))


def _named_reply(row: dict[str, Any]) -> tuple[str, JudgeReply]:
    reply = row["reply"]
    if isinstance(reply, dict) and isinstance(reply.get("arguments"), list):
        reply = json.dumps(reply)
    if not isinstance(reply, str):
        raise TypeError("not a reply")
    return str(row["name"]), JudgeReply(text=reply, model="recorded")


def score(cases: Iterable[ActionCase], replies: Mapping[str, JudgeReply]) -> dict[str, Any]:
    """Right calls that are paused, and wrong ones that are stopped, in all and by domain and kind.

    A call is stopped unless its report says that it may run. `unread` counts those of which
    nothing wrong was found, `named` the wrong ones whose wrong argument is flagged. `rules` counts
    the arguments that a rule other than `free` covers, in right calls and the labelled ones of
    wrong calls, and those of them that it flags.
    """
    counts: dict[str, dict[str, dict[str, int]]] = {"all": {}, "domain": {}, "kind": {}}
    ruled = dict.fromkeys(("right", "right_flagged", "wrong", "wrong_flagged"), 0)
    missed: list[str] = []
    for case in cases:
        reply = replies.get(case.name)
        report = case.check.report(reply)
        for group, name in (("all", "all"), ("domain", case.domain), ("kind", case.kind)):
            _count(counts[group].setdefault(name, {}), case, report, reply is not None)
        _count_rules(ruled, case)
        if (report.may_run is not True) != case.wrong:
            missed.append(case.name)
    return {**counts, "all": counts["all"].get("all", {}), "rules": ruled, "missed": missed}


def _count(row: dict[str, int], case: ActionCase, report: ActionReport, called: bool) -> None:
    label = LABELS[case.wrong]
    stopped = report.may_run is not True
    flagged = any(argument.path == case.path for argument in report.wrong)
    for name, counted in (
        ("calls", called),
        (label, True),
        (f"{label}_stopped", stopped),
        (f"{label}_unread", report.may_run is None),
        ("named", case.wrong and flagged),
    ):
        row[name] = row.get(name, 0) + counted


def _count_rules(ruled: dict[str, int], case: ActionCase) -> None:
    rules: Mapping[str, str] = case.check.rules or {}
    for argument in case.check.report().arguments:
        rule = rule_of(argument.path, rules)
        if rule in ("", "free") or (case.wrong and argument.path != case.path):
            continue
        label = LABELS[case.wrong]
        ruled[label] += 1
        ruled[f"{label}_flagged"] += argument.status in WRONG
