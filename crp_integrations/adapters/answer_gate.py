"""Examines answers that other code requested, acts on flagged ones, and withholds by a policy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, ValidationError

from crp_integrations.adapters.arguments import check_callables, check_count, judge_for
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.remedies import MOST_REDISPATCHES, against_unsupported
from crp_integrations.dpe.repair import Repair, repair
from crp_integrations.dpe.stages.report import finish
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import RequestError, SafetyHalt
from crp_integrations.fabric.records import Fact
from crp_integrations.messages import Reply
from crp_integrations.policy.demands import acts
from crp_integrations.policy.inheritance import combine_strictest, flag_actions, with_actions
from crp_integrations.policy.policy_text import parse_policy, render_policy
from crp_integrations.policy.verdict import (
    AnswerTerms,
    is_approved,
    judge_answer,
    unreachable,
    unread_note,
    withholding,
)
from crp_integrations.relay.defaults import EmbedderSource, chosen_embedder, chosen_settings
from crp_integrations.relay.judge import BACKGROUND, JudgeOptions, JudgeSource, call_receivers
from crp_integrations.relay.records import Repaired
from crp_integrations.relay.repaired_answer import NOT_REPAIRED, is_better, is_worse
from crp_integrations.relay.session_admission import require_reader_of
from crp_integrations.relay.settings import Settings
from crp_integrations.relay.storeless_functions import aexamine, examine
from crp_integrations.relay.world import check_components
from crp_integrations.vocabulary.context import GroundingMode
from crp_integrations.vocabulary.safety import FlagAction, HaltReason

Context = Envelope | Sequence[Fact | str]
# Asks a person whether an answer may be shown, given its report and its text.
Reviewer = Callable[[Report, str], bool]
OnFlag: TypeAlias = FlagAction | str | Sequence[FlagAction | str]
# Key of what a repair changed, beside that of the report.
REPAIRED_KEY: Final = "crp_repaired"


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """An answer that may be shown.

    Attributes:
        output: the framework's object with the text that `report` is on.
        repaired: the original; None if the text is as it was.
    """

    output: Any
    report: Report
    repaired: Repaired | None = None


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """An answer as the framework's object, its text, and what it is checked against."""

    output: Any
    text: str
    context: Context
    question: str = ""


# Asks once more, with instructions added to the question; None where nothing can be asked.
Again: TypeAlias = Callable[[str], GivenAnswer] | None
AsyncAgain: TypeAlias = Callable[[str], Awaitable[GivenAnswer]] | None
# The object with a repaired text; None if its form permits none.
Replace: TypeAlias = Callable[[Any, Repair], Any]
# What an answer's course waits for: instructions to ask again with, or an answer to examine.
_Wanted: TypeAlias = str | GivenAnswer


class AnswerGate:
    """Decides on answers by a policy, for the gates of the frameworks. Safe under threads.

    Args:
        taker: name of the gate, for errors.
    """

    def __init__(
        self,
        taker: str,
        policy: str,
        *,
        grounding: GroundingMode | str,
        reviewer: Reviewer | None,
        embedder: EmbedderSource | None,
        settings: Settings | None,
        on_flag: OnFlag,
        on_flag_level: str | None,
        most_again: int,
        judge: JudgeSource,
        options: JudgeOptions,
    ) -> None:
        if grounding not in tuple(GroundingMode):
            wanted = ", ".join(GroundingMode)
            raise RequestError(f"grounding {grounding!r:.40} is not one of {wanted}")
        check_components(reviewer=reviewer, settings=settings)
        chosen = chosen_settings(settings)
        stated, above = parse_policy(policy), chosen.policy
        stated = combine_strictest(parse_policy(above), stated) if above else stated
        actions = flag_actions(on_flag)
        check_count("most_again", most_again, least=0, most=MOST_REDISPATCHES)
        self._most_again = most_again
        self.policy = with_actions(stated, actions, on_flag_level, most_again)
        self._reviewer = reviewer
        check_callables(on_report=options.get("on_report"))
        embedding = embedder and chosen_embedder(embedder, chosen)
        made = judge_for(taker, judge, options, settings)
        fields = {"policy": render_policy(self.policy)}
        require_reader_of(taker, fields, made, chosen)
        self._on_report = options.get("on_report")
        if made is not None:
            # A judge in the background calls it itself; else one report of several is given to it.
            later = made.settings.mode == BACKGROUND
            self._on_report = None if later else made.on_report
            made = made if later else made.altered(on_report=lambda report: None)
        self._examination: dict[str, Any] = {
            "grounding": GroundingMode(grounding),
            "embedder": embedding,
            "settings": settings,
            "judge": made,
        }

    def check(self, answer: GivenAnswer) -> Report:
        """Examine an answer as it is, and return its report if it may be shown."""
        return self._decide(self._examine(answer), answer)

    async def acheck(self, answer: GivenAnswer) -> Report:
        """The asynchronous twin of `check`; examines in a worker thread."""
        return await asyncio.to_thread(self._decide, await self._aexamine(answer), answer)

    def act(self, answer: GivenAnswer, replace: Replace, again: Again = None) -> CheckedAnswer:
        """Examine an answer, act on it if it is flagged, and return it if it may be shown.

        Raises:
            SafetyHalt: the answer is withheld; the report is on the error.
            QualityUnreachable: the answer is below the quality that the policy demands.
        """
        course = self._course(answer, replace, asks=again is not None)
        sent: GivenAnswer | Report | None = None
        while True:
            try:
                wanted = course.send(sent)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(wanted, str):
                assert again is not None
                sent = again(wanted)
            else:
                sent = self._examine(wanted)

    async def aact(
        self, answer: GivenAnswer, replace: Replace, again: AsyncAgain = None
    ) -> CheckedAnswer:
        """The asynchronous twin of `act`; examines in a worker thread."""
        course = self._course(answer, replace, asks=again is not None)
        sent: GivenAnswer | Report | None = None
        while True:
            wanted = await asyncio.to_thread(_next_step, course, sent)
            if isinstance(wanted, CheckedAnswer):
                return wanted
            if isinstance(wanted, str):
                assert again is not None
                sent = await again(wanted)
            else:
                sent = await self._aexamine(wanted)

    def _course(
        self, answer: GivenAnswer, replace: Replace, *, asks: bool
    ) -> Generator[_Wanted, Any, CheckedAnswer]:
        """Ask again, repair and decide; yields what has to be done, and is sent its result."""
        report: Report = yield answer
        for _ in range(self._most_again if asks else 0):
            if not acts(self.policy.ask_again_on, report):
                break
            flagged = [claim for claim in report.claims if claim.flagged or claim.disputed]
            asked: GivenAnswer = yield against_unsupported(flagged)
            read: Report = yield asked
            if not is_worse(Reply(text=asked.text), read, report):
                answer, report = asked, read
        if acts(self.policy.repair_on, report) and not report.classification.halts:
            made = repair(report, answer.text)
            output = replace(answer.output, made) if made.edits else None
            if made.edits and output is None:
                report = _with_flag(report, NOT_REPAIRED)
            elif output is not None:
                mended = GivenAnswer(output, made.text, answer.context, answer.question)
                after: Report = yield mended
                if is_better(after, report):
                    after = _with_flag(after, f"repaired={len(made.edits)}")
                    before = Repaired(
                        reply=Reply(text=answer.text),
                        report=report,
                        edits=made.edits,
                        unrepaired=made.unrepaired,
                    )
                    return CheckedAnswer(output, self._decide(after, mended), before)
        return CheckedAnswer(answer.output, self._decide(report, answer))

    def _examine(self, answer: GivenAnswer) -> Report:
        question = answer.question or None
        with self._failed_judge():
            return examine(answer.text, answer.context, question, **self._examination)

    async def _aexamine(self, answer: GivenAnswer) -> Report:
        question = answer.question or None
        with self._failed_judge():
            return await aexamine(answer.text, answer.context, question, **self._examination)

    @contextmanager
    def _failed_judge(self) -> Iterator[None]:
        """Pass on the report of an answer that is withheld because its judge failed."""
        try:
            yield
        except SafetyHalt as halt:
            if isinstance(halt.report, Report):
                call_receivers(halt.report, self._on_report)
            raise

    def _decide(self, report: Report, answer: GivenAnswer) -> Report:
        call_receivers(report, self._on_report)
        context = answer.context
        tier = context.quality_tier if isinstance(context, Envelope) else None
        judgement = judge_answer(self.policy, report, tier=tier)
        reason = judgement.halt
        if reason is None and judgement.needs_review:
            reviewer = self._reviewer
            approved = reviewer is not None and is_approved(reviewer(report, answer.text))
            reason = None if approved else HaltReason.OVERSIGHT
        if reason is not None:
            named = reason.value
            directive, value = withholding(judgement, reason, report, AnswerTerms())
            unread = unread_note(self.policy, report, reason)
            raise SafetyHalt(
                f"an answer was withheld: {named}" + (f"; {unread}" if unread else ""),
                report=report,
                reason=named,
                directive=directive,
                value=value,
            )
        if judgement.unreachable:
            listed = self.policy.require_quality
            raise unreachable(judgement, report, tier, listed=listed)
        return report


def _with_flag(report: Report, flag: str) -> Report:
    made = report.changed(flags=(*report.flags, flag))
    return finish(made, settings_digest=report.settings_digest)


def _next_step(
    course: Generator[_Wanted, Any, CheckedAnswer], sent: Any
) -> _Wanted | CheckedAnswer:
    # A `StopIteration` cannot leave a thread's future.
    try:
        return course.send(sent)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def repair_metadata(checked: CheckedAnswer) -> dict[str, Any]:
    """The original text and the edits, for the metadata of a repaired answer; else nothing."""
    if checked.repaired is None:
        return {}
    changed = checked.repaired.model_dump(mode="json", include={"edits", "unrepaired"})
    return {REPAIRED_KEY: {"original": checked.repaired.text, **changed}}


def with_repaired_text(output: Any, repair: Repair) -> Any:
    """A text or a structured answer with a repaired text; None if its type does not accept it."""
    text = repair.text
    if isinstance(output, str):
        return text
    try:
        if isinstance(output, BaseModel):
            return type(output).model_validate_json(text)
        if isinstance(output, Mapping | list):
            return json.loads(text)
    except (ValidationError, ValueError):
        pass
    return None
