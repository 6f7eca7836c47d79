"""Check tool calls before they run: `check_call`, and `check_calls` for the calls of one step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic_core import to_jsonable_python

from crp_integrations.dpe.actions.prompt import KEYS, fitted
from crp_integrations.dpe.actions.records import (
    WRONG,
    ActionReport,
    EvidencePassage,
    ProposedAction,
    parse_arguments,
)
from crp_integrations.dpe.actions.rules import ToolRules, check_rules
from crp_integrations.dpe.actions.verdict import ActionCheck
from crp_integrations.dpe.judge.inquiry import JudgeReply, JudgeTerms
from crp_integrations.errors import RequestError
from crp_integrations.fabric.records import Fact
from crp_integrations.messages import Message, ModelCall, ToolCall
from crp_integrations.relay.budget import Payer, refuse_storeless
from crp_integrations.relay.evidence import TOOL_SOURCE, readable, results_in
from crp_integrations.relay.judge import Judge, JudgeSource, refuse_own
from crp_integrations.relay.judged_answer import barred_facts, judges_of
from crp_integrations.relay.records import conversation_of
from crp_integrations.relay.settings import load

Call = ToolCall | Mapping[str, Any]


def check_call(
    call: Call,
    messages: Sequence[Message | Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    *,
    judge: JudgeSource = None,
    rules: ToolRules | None = None,
    facts: Sequence[Fact | str] = (),
    approvals: Sequence[str] = (),
) -> ActionReport:
    """Check a tool call before it runs: does each argument rest on the conversation?

    A judge reads the whole action in one call; where it does not let it run, a second judge, if
    there is one (`judge=[cheap, strong]`), reads it again and decides. Without a judge, only rules
    decide; an argument without a rule is UNREAD.

    Args:
        call: the call in OpenAI's or LangChain's form; its arguments are a mapping or JSON text.
        messages: the conversation up to the call, in the format of this package or of OpenAI. The
            user's words, system texts and results of tools that did not fail are evidence.
        tools: the tools' definitions in OpenAI's or Anthropic's form.
        judge: as for `examine`; None takes the settings' judge, False takes none.
        rules: for each tool, rules by the path of an argument (`amount`, `items[].sku`): `exact`,
            `exact:user`, `exact:TOOL`, `enum` or `free`.
        facts: further evidence of the application.
        approvals: what a person approved, in words.

    Returns:
        The report with a status for each argument, and whether the call may run.

    Raises:
        RequestError: the call, a message or a tool is malformed.
        ConfigError: a rule, or its tool or path, is not known.

    >>> report = check_call(
    ...     {"name": "pay", "arguments": {"iban": "DE63370400440713948220"}},
    ...     [{"role": "user", "content": "Pay to DE63 3704 0044 0713 9482 20, please."}],
    ...     [{"name": "pay", "parameters": {"properties": {"iban": {"type": "string"}}}}],
    ...     judge=False,
    ...     rules={"pay": {"iban": "exact:user"}},
    ... )
    >>> report.may_run, report.arguments[0].source
    (True, 'user#1')
    """
    return check_calls(
        [call], messages, tools, judge=judge, rules=rules, facts=facts, approvals=approvals
    )[0]


async def acheck_call(
    call: Call,
    messages: Sequence[Message | Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    **how: Any,
) -> ActionReport:
    """The asynchronous twin of `check_call`.

    Args:
        how: the other arguments of `check_call`.
    """
    return (await acheck_calls([call], messages, tools, **how))[0]


def check_calls(
    calls: Sequence[Call],
    messages: Sequence[Message | Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    *,
    judge: JudgeSource = None,
    rules: ToolRules | None = None,
    facts: Sequence[Fact | str] = (),
    approvals: Sequence[str] = (),
    payer: Payer = Payer(),  # noqa: B008 - it is frozen
) -> tuple[ActionReport, ...]:
    """Check the parallel calls of one step; a judge reads each once, at the same time.

    Args:
        calls: calls as `check_call` takes them; equal ones are judged once.
        payer: session, and store if there is one, whose budget the judge's calls count against.

    Returns:
        A report for each call, in order. The other arguments and errors are those of `check_call`.
    """
    chosen = _chosen_judge(judge, payer)
    terms, barred = _terms(chosen, facts)
    checks = prepared_checks(
        calls,
        messages,
        tools,
        rules=rules,
        facts=facts,
        approvals=approvals,
        terms=terms,
        barred=barred,
    )
    requests = _requests(checks)
    if chosen is None or not requests:
        return tuple(check.report() for check in checks)

    def ask(request: ModelCall) -> JudgeReply:
        return chosen.reply(request, None, payer)

    with ThreadPoolExecutor(min(len(requests), chosen.settings.concurrency)) as pool:
        replies = list(pool.map(ask, requests.values()))
    reports = _reports(checks, chosen, dict(zip(requests, replies, strict=True)))
    doubted = _doubted(reports, checks, chosen)
    if not doubted:
        return tuple(reports)
    again = check_calls(
        [calls[number] for number in doubted],
        messages,
        tools,
        judge=chosen.second,
        rules=rules,
        facts=facts,
        approvals=approvals,
        payer=payer,
    )
    return _settled(reports, doubted, again)


async def acheck_calls(
    calls: Sequence[Call],
    messages: Sequence[Message | Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    *,
    judge: JudgeSource = None,
    rules: ToolRules | None = None,
    facts: Sequence[Fact | str] = (),
    approvals: Sequence[str] = (),
    payer: Payer = Payer(),  # noqa: B008 - it is frozen
) -> tuple[ActionReport, ...]:
    """The asynchronous twin of `check_calls`; rules and replies are read in a thread."""
    chosen = _chosen_judge(judge, payer)
    terms, barred = _terms(chosen, facts)
    checks = await asyncio.to_thread(
        prepared_checks,
        calls,
        messages,
        tools,
        rules=rules,
        facts=facts,
        approvals=approvals,
        terms=terms,
        barred=barred,
    )
    requests = _requests(checks)
    replies: list[JudgeReply] = []
    if chosen is not None:
        replies = await asyncio.gather(
            *(chosen.areply(request, None, payer) for request in requests.values())
        )
    known = dict(zip(requests, replies, strict=bool(replies)))
    reports = await asyncio.to_thread(_reports, checks, chosen, known)
    doubted = _doubted(reports, checks, chosen)
    if chosen is None or not doubted:
        return tuple(reports)
    again = await acheck_calls(
        [calls[number] for number in doubted],
        messages,
        tools,
        judge=chosen.second,
        rules=rules,
        facts=facts,
        approvals=approvals,
        payer=payer,
    )
    return _settled(reports, doubted, again)


def _doubted(
    reports: Sequence[ActionReport], checks: Sequence[ActionCheck], judge: Judge | None
) -> list[int]:
    """Numbers of the calls that a second judge reads: those that the first one does not let run."""
    if judge is None or judge.second is None:
        return []
    return [
        n
        for n, (report, check) in enumerate(zip(reports, checks, strict=True))
        if report.exchange
        and report.may_run is not True
        and not any(argument.status in WRONG for argument in check.decided)
    ]


def _settled(
    reports: list[ActionReport], doubted: Sequence[int], again: Sequence[ActionReport]
) -> tuple[ActionReport, ...]:
    """The reports, with those of a second judge where it could read the call."""
    for number, second in zip(doubted, again, strict=True):
        if second.exchange is not None and not second.exchange.error:
            reports[number] = second.changed(first=reports[number].exchange)
    return tuple(reports)


def _chosen_judge(source: JudgeSource, payer: Payer) -> Judge | None:
    refuse_own(source, "check_call")
    judge = source if isinstance(source, Judge) else judges_of(load().judge).of(source, {})
    if judge is not None and payer.places is None:
        refuse_storeless(judge.settings)
    return judge


def _terms(
    judge: Judge | None, facts: Sequence[Fact | str]
) -> tuple[JudgeTerms | None, frozenset[str]]:
    """The judge's parameters, and ids of the facts that it must not be shown."""
    if judge is None:
        return None, frozenset()
    return judge.terms(), frozenset(name for name, _ in barred_facts(judge, facts))


def _requests(checks: Sequence[ActionCheck]) -> dict[str, ModelCall]:
    """The calls to the judge, each once, by the text of their request."""
    calls = [call for check in checks if (call := check.call) is not None]
    return {call.messages[1].content: call for call in calls}


def _reports(
    checks: Sequence[ActionCheck], judge: Judge | None, replies: Mapping[str, JudgeReply]
) -> list[ActionReport]:
    reports = []
    for check in checks:
        call = check.call
        reply = None if call is None else replies.get(call.messages[1].content)
        reports.append(report := check.report(reply))
        failed = report.exchange is not None and report.exchange.error
        if call and judge and reply and failed and not reply.error:
            # An unreadable reply leaves the cache, so that the judge is asked again next time.
            judge.forget(call)
    return reports


def prepared_checks(
    calls: Sequence[Call],
    messages: Sequence[Message | Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    *,
    rules: ToolRules | None = None,
    facts: Sequence[Fact | str] = (),
    approvals: Sequence[str] = (),
    terms: JudgeTerms | None = None,
    barred: Collection[str] = (),
) -> list[ActionCheck]:
    """The checks of calls, each with its request to a judge; nothing is asked yet.

    Args:
        terms: parameters of the judge; None for none.
        barred: ids of facts that the judge must not be shown.
    """
    if not isinstance(tools, Collection):
        raise RequestError(f"tools is {type(tools).__name__}; give a list of definitions")
    definitions = [definition_of(tool) for tool in tools]
    check_rules(rules or {}, definitions)
    by_name = {definition["name"]: definition for definition in definitions}
    passages = evidence_passages(messages, facts, approvals)
    hidden = [
        f"fact#{number}"
        for number, fact in enumerate(facts, 1)
        if isinstance(fact, Fact) and fact.fact_id in barred
    ]
    checks = []
    for call in calls:
        name, arguments, call_id = _call_parts(call)
        action = ProposedAction(
            tool=name,
            arguments=parse_arguments(arguments),
            written=arguments,
            # Without any definitions every tool may exist.
            definition=by_name.get(name, None if definitions else {}),
            passages=passages,
            call_id=call_id,
        )
        own = (rules or {}).get(name)
        shown = fitted(action.without(hidden), own or {}, terms) if terms else action
        checks.append(ActionCheck(action, own, shown, terms))
    return checks


def _call_parts(call: Call) -> tuple[str, str, str]:
    """Name, arguments as JSON text and id of a call in any form."""
    if isinstance(call, ToolCall):
        return call.name, call.arguments, call.id
    if not isinstance(call, Mapping):
        raise RequestError(f"call is {type(call).__name__}; give a name and arguments")
    function = call.get("function", call)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        raise RequestError("the call names no tool; give {'name': …, 'arguments': …}")
    arguments = function.get("arguments", function.get("args"))
    if not isinstance(arguments, str):
        plain = to_jsonable_python({} if arguments is None else arguments, fallback=str)
        arguments = json.dumps(plain, ensure_ascii=False)
    return name, arguments, str(call.get("id") or "")


def definition_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Name, description and parameters of a tool in OpenAI's or Anthropic's form.

    Raises:
        RequestError: the tool has no name.
    """
    known = tool.get("function", tool) if isinstance(tool, Mapping) else None
    if not isinstance(known, Mapping) or not isinstance(known.get("name"), str):
        raise RequestError("a tool has no name; give its name, description and parameters")
    parameters = known.get("parameters") or known.get("input_schema") or {}
    return {
        "name": known["name"],
        "description": str(known.get("description") or ""),
        "parameters": parameters,
    }


def evidence_passages(
    messages: Sequence[Message | Mapping[str, Any]],
    facts: Sequence[Fact | str] = (),
    approvals: Sequence[str] = (),
) -> tuple[EvidencePassage, ...]:
    """The texts of a conversation in order, with facts and approvals after them.

    Results of tools that failed are left out, as are parts that repeat their call's arguments.
    """
    for name, texts in (("facts", facts), ("approvals", approvals)):
        if isinstance(texts, str):
            raise RequestError(f"{name} is one string; give a list of texts, such as [text]")
    conversation = conversation_of(messages)
    results = {place: (name, text, call) for place, name, text, call in results_in(conversation)}
    passages: list[EvidencePassage] = []

    def add(kind: str, text: str, tool: str = "", called_with: str = "") -> None:
        number = 1 + sum(passage.kind == kind for passage in passages)
        name = f"{TOOL_SOURCE}{tool}" if kind == "tool" else kind
        passages.append(
            EvidencePassage(
                f"{KEYS[kind]}{number}",
                kind,
                f"{readable(name)}#{number}",
                readable(text),
                readable(tool),
                readable(called_with),
            )
        )

    for place, message in enumerate(conversation):
        if place in results:
            name, text, call = results[place]
            tool = name.removeprefix(TOOL_SOURCE).rpartition("#")[0]
            add("tool", text, tool, call.arguments if call else "")
        elif message.role != "tool" and not message.observation and message.content.strip():
            add(message.role, message.content)
    for fact in facts:
        add("fact", fact if isinstance(fact, str) else fact.content)
    for approval in approvals:
        add("approval", approval)
    return tuple(passages)
