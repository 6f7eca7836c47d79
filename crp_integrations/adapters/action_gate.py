"""Checks an agent's tool calls before the tools run: the arguments `ground_tools` and others.

The evidence is the conversation as the application has it, and the facts that the model saw. Text
of flagged claims of sub-agents is removed from tool results. One step's calls are checked together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from crp_integrations.adapters.arguments import check_callables
from crp_integrations.audit.drafts import EventDraft
from crp_integrations.dpe.actions.records import ActionReport
from crp_integrations.dpe.actions.rules import check_rules
from crp_integrations.dpe.records import RejectedClaim, Report
from crp_integrations.dpe.rejections import without_rejected
from crp_integrations.envelope.candidates import is_summary
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import ConfigError
from crp_integrations.headers.records import CacheDirectives
from crp_integrations.messages import Message, ToolCall
from crp_integrations.relay.actions import check_calls, definition_of
from crp_integrations.relay.budget import Payer
from crp_integrations.relay.judge import JUDGE_OPTIONS, Judge, call_receivers
from crp_integrations.relay.judged_answer import barred_facts
from crp_integrations.relay.relay import Relay
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import EventType

# True for all tools, names of tools, or the rules of each tool's arguments; None for no tool.
GroundTools: TypeAlias = bool | Collection[str] | Mapping[str, Mapping[str, str]] | None
OnUngrounded = Literal["report", "pause", "return"]
OnAction: TypeAlias = Callable[[ActionReport], None]
# Key of the reports on tool calls in the metadata of the message that contains the calls.
ACTIONS_KEY: Final = "crp_actions"
REPORT, PAUSE, RETURN, WITHHOLD = "report", "pause", "return", "withhold"
NOT_CHECKED: Final = "The call was not checked, so the tool did not run."
_VERDICTS: Final = {True: "runs", False: "stopped", None: "unread"}
_JUDGING: Final = ("judge", *JUDGE_OPTIONS)


@dataclass(frozen=True, slots=True)
class ActionGate:
    """The tools whose calls are checked, and what happens to a call that may not run.

    Attributes:
        names: names of the tools; None for all.
        rules: rules of arguments by tool, as in `check_call`.
        on_ungrounded: `report`, or an action of the component.
        on_action: called with the report on each call.
    """

    relay: Relay
    names: frozenset[str] | None
    rules: Mapping[str, Mapping[str, str]]
    on_ungrounded: str
    on_action: OnAction | None

    @classmethod
    def of(
        cls,
        ground_tools: GroundTools,
        relay: Relay,
        asking: Mapping[str, Any],
        *,
        on_ungrounded: str,
        on_action: OnAction | None,
        actions: Sequence[str] = (REPORT, PAUSE, RETURN),
    ) -> ActionGate | None:
        """The gate for a component's arguments; None if no tool is checked.

        Args:
            asking: the component's question fields, with its judge.
            actions: the values of `on_ungrounded` that the component has.

        Raises:
            ConfigError: an argument has no usable value, or nothing can check the calls.
        """
        check_callables(on_action=on_action)
        if on_ungrounded not in actions:
            wanted = ", ".join(actions)
            raise ConfigError(f"on_ungrounded {on_ungrounded!r:.40} is not one of {wanted}")
        if isinstance(ground_tools, str) or not (
            ground_tools is None or isinstance(ground_tools, bool | Collection)
        ):
            raise ConfigError(
                f"ground_tools is {ground_tools!r:.60}; give True, a list of names of tools, or a "
                "mapping of rules by tool"
            )
        if not ground_tools:
            if on_ungrounded != REPORT:
                raise ConfigError(
                    f"on_ungrounded {on_ungrounded!r} needs ground_tools; give True or names"
                )
            return None
        rules = dict(ground_tools) if isinstance(ground_tools, Mapping) else {}
        check_rules(rules)
        names = () if isinstance(ground_tools, bool) else tuple(ground_tools)
        for name in names:
            if not isinstance(name, str) or not name:
                raise ConfigError(f"ground_tools names {name!r:.40}; give names of tools")
        covered = None if ground_tools is True else frozenset(names)
        gate = cls(relay, covered, rules, on_ungrounded, on_action)
        judge = _answer_judge(relay, asking)
        if judge is not None and judge.own:
            raise ConfigError(
                "judge is True, and a model does not check its own tool calls; give a model, such "
                "as judge='openai/gpt-4o-mini'"
            )
        if judge is None and on_ungrounded != REPORT and not any(rules.values()):
            raise ConfigError(
                f"on_ungrounded is {on_ungrounded!r} and nothing reads the calls; give judge=…, or "
                "rules such as ground_tools={'pay': {'iban': 'exact'}}"
            )
        return gate

    def judge(self, asking: Mapping[str, Any]) -> Judge | None:
        """The judge for these question fields, with its cache and budget; None for none.

        A component's own model is none: it does not check its own tool calls.
        """
        judge = _answer_judge(self.relay, asking)
        return None if judge is None or judge.own else judge

    @property
    def stops(self) -> bool:
        """Whether a call that may not run is stopped."""
        return self.on_ungrounded != REPORT

    def covers(self, name: str) -> bool:
        """Whether calls of this tool are checked."""
        return self.names is None or name in self.names

    def require(self, tools: Iterable[Mapping[str, Any]]) -> None:
        """Check that the agent has every tool that is named, and the rules' arguments.

        Args:
            tools: the tools in the OpenAI format; a provider's own may have no name.

        Raises:
            ConfigError: it lacks one.
        """
        definitions = _definitions(tools)
        known = sorted(str(definition["name"]) for definition in definitions)
        for name in sorted((self.names or frozenset()).difference(known)):
            raise ConfigError(
                f"ground_tools names {name!r:.60}, which is not one of the agent's tools: "
                f"{', '.join(known) or 'none':.300}"
            )
        check_rules(self.rules, definitions)

    def check(
        self,
        calls: Iterable[ToolCall],
        messages: Sequence[Message],
        tools: Iterable[Mapping[str, Any]],
        asking: Mapping[str, Any],
        *,
        envelope: Envelope | None = None,
        rejected: Sequence[RejectedClaim] = (),
        approvals: Sequence[str] = (),
        session_id: str = "",
    ) -> list[dict[str, Any]]:
        """Check the calls of one step.

        Args:
            asking: the question fields of the step, with its judge and its region.

        Returns:
            One entry of plain JSON for each call that is covered: the report, `call_hash`,
            `report_hash` and `error_text`; and `no_store` where it is set.
        """
        covered = [call for call in calls if self.covers(call.name)]
        if not covered:
            return []
        judge = self.judge(asking)
        reports = check_calls(
            covered,
            [_without_flagged(message, rejected) for message in messages],
            _definitions(tools),
            judge=judge or False,
            rules={call.name: self.rules[call.name] for call in covered if call.name in self.rules},
            facts=self._facts(envelope, judge, session_id, asking.get("residency")),
            approvals=approvals,
            payer=Payer(session_id, self.relay._world.budgets),
        )
        for report in reports:
            call_receivers(report, self.on_action, name="on_action")
        cache = asking.get("cache") or CacheDirectives()
        cache = CacheDirectives.parse(cache) if isinstance(cache, str) else cache
        return [
            {
                # Without the judge's call, which repeats the conversation.
                **report.changed(exchange=None).to_dict(),
                "call_hash": call_hash(call.name, call.arguments),
                "report_hash": sha256(report.changed(exchange=None).model_dump_json()),
                "error_text": report.error_text(),
                **({"no_store": True} if cache.no_store else {}),
            }
            for call, report in zip(covered, reports, strict=True)
        ]

    def notes(self, entries: Iterable[Mapping[str, Any]]) -> list[tuple[EventType, dict[str, Any]]]:
        """The events of the audit trail about checked calls."""
        return [
            (
                EventType.ACTION_CHECKED,
                {
                    # A guess at the arguments could be confirmed by it.
                    **({} if "no_store" in entry else {"arguments_hash": entry["call_hash"]}),
                    "report_hash": entry["report_hash"],
                    "verdict": _VERDICTS[entry["may_run"]],
                    "action": self.on_ungrounded,
                },
            )
            for entry in entries
        ]

    def seal(
        self, entries: Iterable[Mapping[str, Any]], report: Report, asking: Mapping[str, Any]
    ) -> None:
        """Add events about checked calls to the trail of the window that the report is on."""
        ids = {"session_id": report.session_id, "window_id": report.window_id}
        drafts = [EventDraft(event, data, **ids) for event, data in self.notes(entries)]
        if drafts:
            self.relay._world.journal(self.relay.region(asking.get("residency")), drafts)

    def _facts(
        self, envelope: Envelope | None, judge: Judge | None, session_id: str, residency: str | None
    ) -> list[str]:
        """Texts of the facts that the model saw and the judge's provider may see."""
        packed = envelope.facts if envelope is not None else ()
        namespace, barred = self.relay.region(residency), set()
        if judge is not None and packed and session_id:
            barred = set(namespace.view(session_id, keep_counts=False).held())
        if judge is not None and packed and judge.settings.withhold_labels:
            stored = namespace.facts([fact.fact_id for fact in packed])
            barred |= {id_ for id_, _ in barred_facts(judge, [fact for fact in stored if fact])}
        return [
            fact.content
            for fact in packed
            if fact.fact_id not in barred and not is_summary(fact.source_id or "")
        ]

    def refusal(
        self, entries: Iterable[Mapping[str, Any]], name: str, arguments: str | Mapping[str, Any]
    ) -> str | None:
        """The text for the model if a call may not run; None if it may.

        A call without an entry, or with other arguments than those that were checked, may not run.
        """
        if not self.stops or not self.covers(name):
            return None
        hashed = call_hash(name, arguments)
        for entry in entries:
            if entry["call_hash"] == hashed:
                return None if entry["may_run"] is True else entry["error_text"]
        return NOT_CHECKED


def call_hash(name: str, arguments: str | Mapping[str, Any]) -> str:
    """The hash of a call's name and arguments, the same for equal JSON."""
    value: Any = arguments
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments or "{}")
        except ValueError:
            value = arguments
    return sha256(json.dumps([name, value], sort_keys=True, default=str))


def approval_of(name: str, arguments: Mapping[str, Any]) -> str:
    """A person's approval of a call, as a text for the evidence."""
    return f"Approved: {name} {json.dumps(arguments, ensure_ascii=False, default=str)}"


def rejection_of(name: str, reason: object) -> str:
    """A person's rejection of a call, as a text for the model."""
    return f"A person refused the call of {name:.80}, which did not run: {reason or 'no reason'}"


def _answer_judge(relay: Relay, asking: Mapping[str, Any]) -> Judge | None:
    fields: Any = {name: asking[name] for name in _JUDGING if asking.get(name) is not None}
    return relay._judging(fields).engines.judge


def _definitions(tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The definitions of tools that have a name; a provider's own tools have none."""
    return [definition_of(tool) for tool in tools if tool.get("function", tool).get("name")]


def _without_flagged(message: Message, rejected: Sequence[RejectedClaim]) -> Message:
    if not rejected or not (message.role == "tool" or message.observation):
        return message
    return message.changed(
        content=without_rejected(message.content, rejected),
        observation=without_rejected(message.observation, rejected),
    )
