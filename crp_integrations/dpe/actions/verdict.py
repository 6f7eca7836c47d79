"""Turns rules and a judge's reply into the report on a tool call.

No verdict is accepted without a check. GROUNDED needs a quotation that occurs in the text that it
names and tells something (`_Sources.counts`). CONTRADICTED needs a quotation that occurs. The same
reply always gives the same report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from crp_integrations.dpe.actions.prompt import DEFINITION, action_call, definition_text, material
from crp_integrations.dpe.actions.records import (
    NO_TOOL,
    NOT_JSON,
    RIGHT,
    WRONG,
    ActionReport,
    Argument,
    ArgumentStatus,
    EvidencePassage,
    ProposedAction,
)
from crp_integrations.dpe.actions.rules import decide, quotation_at
from crp_integrations.dpe.actions.values import place_of
from crp_integrations.dpe.judge.belief import (
    LEAST_WORDS,
    is_cell,
    is_verdict,
    matter_of,
    sentence_around,
)
from crp_integrations.dpe.judge.inquiry import JudgeReply, JudgeTerms
from crp_integrations.dpe.judge.messages import prompt_hash
from crp_integrations.dpe.judge.reply import ActionVerdicts, read_action_reply, readable
from crp_integrations.dpe.report_parts import JudgeExchange, Quotation
from crp_integrations.language.folded_text import Folded, locate
from crp_integrations.messages import ModelCall

NO_REPLY: Final = "no judge read the call"


@dataclass(frozen=True)
class ActionCheck:
    """One action, its rules, and the texts of it that a judge is shown.

    Attributes:
        rules: rules for the tool's arguments; None if the user gave none for this tool.
        shown: the action without texts for which the judge has no room.
    """

    action: ProposedAction
    rules: Mapping[str, str] | None
    shown: ProposedAction
    terms: JudgeTerms | None = None

    @property
    def problem(self) -> str:
        """Why the action cannot be checked at all; empty if it can."""
        if self.action.arguments is None:
            return NOT_JSON
        return NO_TOOL if self.action.definition is None else ""

    @cached_property
    def decided(self) -> tuple[Argument, ...]:
        """The arguments as the rules decide them; no judge changes a refusal of theirs."""
        return tuple(decide(self.action, self.rules or {}))

    @cached_property
    def call(self) -> ModelCall | None:
        """The call to the judge; None without one, or if nothing is to be asked."""
        if self.terms is None or self.problem:
            return None
        return action_call(self.shown, self.rules or {}, self.terms)

    def report(self, reply: JudgeReply | None = None) -> ActionReport:
        """The report, from the rules and the judge's reply."""
        action, terms = self.action, self.terms
        common = {"tool": readable(action.tool), "call_id": readable(action.call_id)}
        if action.arguments is None:
            whole = Argument(path="", value=readable(action.written), status=ArgumentStatus.UNREAD)
            return ActionReport(**common, arguments=(whole,), reason=NOT_JSON)
        arguments = self.decided
        call = self.call
        if reply is None or call is None or terms is None:
            runs = None if self.problem else self._runs(arguments, "", None, asked=False)
            reason = self.problem or (NO_REPLY if runs is None else "")
            return ActionReport(**common, arguments=arguments, may_run=runs, reason=reason)
        exchange = self._exchange(reply, call)
        verdicts = None if exchange.error else read_action_reply(exchange.reply, exchange.id)
        if verdicts is None:
            verdicts = ActionVerdicts({}, reason=exchange.error or "Unreadable")
            exchange = exchange.model_copy(update={"error": verdicts.reason})
        arguments = tuple(self._judged(arguments, verdicts))
        return ActionReport(
            **common,
            arguments=arguments,
            missing=verdicts.missing,
            may_run=self._runs(arguments, verdicts.missing, verdicts.run, asked=True),
            reason=verdicts.reason,
            judge=terms.model,
            exchange=exchange,
            left_out=self.shown.left_out,
        )

    def _runs(
        self, arguments: Sequence[Argument], missing: str, run: bool | None, *, asked: bool
    ) -> bool | None:
        if missing or run is False or any(argument.status in WRONG for argument in arguments):
            return False
        read = run is True if asked else self.rules is not None
        return True if read and all(argument.status in RIGHT for argument in arguments) else None

    def _exchange(self, reply: JudgeReply, call: ModelCall) -> JudgeExchange:
        return JudgeExchange(
            id=material(self.shown, self.rules or {})[0],
            first=1,
            last=len(self.shown.leaves),
            passages=(),
            prompt_hash=prompt_hash(call.messages),
            model=reply.model,
            reply=readable(reply.text),
            error=reply.error,
            cached=reply.cached,
            milliseconds=reply.milliseconds,
            prompt_tokens=reply.usage.prompt_tokens,
            completion_tokens=reply.usage.completion_tokens,
            cost_usd=reply.usage.cost_usd,
        )

    def _judged(
        self, arguments: Sequence[Argument], verdicts: ActionVerdicts
    ) -> Iterator[Argument]:
        """The arguments with the judge's verdicts, where a rule leaves them to it."""
        sources = _Sources(self.shown)
        for number, argument in enumerate(arguments, 1):
            verdict = verdicts.arguments.get(number)
            if argument.status in (*WRONG, ArgumentStatus.FREE) or verdict is None:
                yield argument
                continue
            word, quotes, reason = verdict
            quotations = tuple(
                quotation
                for name, words in quotes
                if (quotation := sources.quotation(name, words)) is not None
            )
            status = _believed(word, argument, quotations, sources)
            if status is ArgumentStatus.UNGROUNDED and self.shown.left_out:
                # A text that was not shown may have the value.
                status = ArgumentStatus.UNREAD
            if status is ArgumentStatus.UNREAD:
                yield argument
                continue
            yield argument.model_copy(
                update={
                    "status": status,
                    "reason": reason,
                    "quotations": quotations,
                    "source": quotations[0].fact_id if quotations else "",
                }
            )


def _believed(
    word: str, argument: Argument, quotations: Sequence[Quotation], sources: _Sources
) -> ArgumentStatus:
    if word == ArgumentStatus.GROUNDED:
        counts = any(sources.counts(argument, quotation) for quotation in quotations)
        return ArgumentStatus.GROUNDED if counts else ArgumentStatus.UNREAD
    if word == ArgumentStatus.CONTRADICTED and quotations:
        return ArgumentStatus.CONTRADICTED
    return ArgumentStatus.UNGROUNDED if word == ArgumentStatus.UNGROUNDED else ArgumentStatus.UNREAD


class _Sources:
    """The texts that a judge may quote."""

    def __init__(self, action: ProposedAction) -> None:
        defined = EvidencePassage(DEFINITION, "definition", "definition", definition_text(action))
        self._passages = {passage.key: passage for passage in (*action.passages, defined)}
        self._by_name = {passage.name: passage for passage in self._passages.values()}
        self._folded: dict[str, Folded] = {}

    def quotation(self, key: str, words: str) -> Quotation | None:
        """The quotation in the passage that it names; None if it does not occur there."""
        passage = self._passages.get(key.strip(" []#()."))
        if passage is None:
            return None
        if passage.key not in self._folded:
            self._folded[passage.key] = Folded(passage.text)
        place = locate(words, self._folded[passage.key])
        return None if place is None else quotation_at(passage, *place)

    def counts(self, argument: Argument, quotation: Quotation) -> bool:
        """Whether a quotation can ground an argument.

        Words of a tool or fact count if they are three, a figure, a name or a whole cell, or share
        something with the value; a sentence of theirs that is a verdict counts only by the last.
        """
        passage = self._by_name[quotation.fact_id]
        if passage.kind in ("user", "system", "approval"):
            return True
        value = "" if argument.value is None else str(argument.value)
        own, quoted = matter_of(value), matter_of(quotation.text)
        if passage.kind == "definition":
            stated = place_of(argument.value, passage.text) is not None
            return stated or not own.values or quoted.count >= LEAST_WORDS
        if passage.kind == "assistant":
            return False
        start, end = quotation.start, quotation.end
        if own.values & quoted.values or own.shares_word(quoted):
            return True
        telling = quoted.count >= LEAST_WORDS or quoted.values or quoted.names
        verdict = is_verdict(sentence_around(passage.text, start, end))
        return not verdict and (bool(telling) or is_cell(passage.text, start, end))
