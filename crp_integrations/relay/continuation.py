"""One answer over several windows: an incomplete answer is continued, and the texts are joined.

Spec: CRP-SPEC-005 §10.3, §11.5, §18.5; related facts §7
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from crp_integrations.dpe import remedies
from crp_integrations.dpe.judge.inquiry import JudgeReply
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.candidates import is_summary
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import EngineError, QualityUnreachable
from crp_integrations.headers import names
from crp_integrations.headers.codec import parse_response
from crp_integrations.headers.response_headers import answer_headers
from crp_integrations.markup import counted
from crp_integrations.messages import Message, ModelCall, Reply, Usage
from crp_integrations.policy.demands import NOT_READ, read_completeness, uncounted_reason
from crp_integrations.policy.directives import write_threshold
from crp_integrations.policy.records import Policy
from crp_integrations.relay.judge import OnReport, call_receivers
from crp_integrations.relay.judged_answer import JudgedAnswer
from crp_integrations.relay.records import Answer, Piece, Request
from crp_integrations.relay.repaired_answer import joined_repairs, repair_header
from crp_integrations.relay.settings import DispatchSettings
from crp_integrations.relay.steps import (
    Dispatch,
    FittedDispatch,
    Halt,
    Outcome,
    Refusal,
    Release,
    Result,
    Step,
    total_usage,
)
from crp_integrations.relay.turn import AUGMENTED, Turn
from crp_integrations.relay.verdict import permits_bridge
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import (
    CompletenessLevel,
    EventType,
    Purpose,
    QualityTier,
    RepetitionLevel,
    RiskLevel,
)


def _ranked(words: Iterable[str]) -> Callable[[str], object]:
    """How bad a value is that begins with one of these words, from best to worst."""
    places = {str(word): place for place, word in enumerate(words)}
    return lambda value: places[value.partition(";")[0]]


def _high(value: str) -> object:
    return [float(number) for number in _NUMBER.findall(value.partition(";")[0])]


def _low(value: str) -> object:
    return -float(value.partition(";")[0])


_NUMBER: Final = re.compile(r"\d[\d.]*")
# How bad a value is; of several answers the worst one is sent.
_BADNESS: Final[Mapping[str, Callable[[str], Any]]] = {
    names.RISK: _ranked(RiskLevel),
    names.QUALITY_TIER: _ranked(QualityTier),
    names.REPETITION: _ranked(RepetitionLevel),
    names.COMPLETENESS: _ranked(CompletenessLevel),
    names.PERSONAL: _ranked(("false", "true")),
    **dict.fromkeys((names.GROUNDING_PCT, names.ENTAILMENT, names.FIDELITY, names.FLOW), _low),
    **dict.fromkeys((names.ATTRIBUTION_SCORE, names.QUALITY_SCORE, names.SAFETY_BUDGET), _low),
    **dict.fromkeys((names.RISK_SCORE, names.SATURATION, names.DISTORTIONS), _high),
    **dict.fromkeys((names.CONTRADICTIONS, names.OMISSIONS), _high),
}
_SUMMED: Final = (names.FABRICATIONS, names.CLAIM_COUNT, names.TOKENS_USED)
# Sent where every answer has the same value, as these have no order.
_SHARED: Final = (
    *(names.ATTRIBUTION, names.AI_ACT, names.NIST_TIER),
    *(names.ISO_CONTROLS, names.CONTROLS_MET),
)
# Values of other answers say nothing of one whose completeness was not read.
_OF_ALL: Final = (names.COMPLETENESS, names.QUALITY_SCORE)


def worst_headers(headers: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Combine the headers of several answers: the worst value of each header, the sum of counts."""
    all_headers = list(headers)
    combined: dict[str, str] = {}
    for name in (*_BADNESS, *_SUMMED, *_SHARED):
        values = [fields[name] for fields in all_headers if name in fields]
        if not values or (name in _OF_ALL and len(values) < len(all_headers)):
            continue
        if name in _BADNESS:
            combined[name] = max(values, key=_BADNESS[name])
        elif name in _SUMMED:
            combined[name] = str(sum(map(int, values)))
        elif len({*values}) == 1:
            combined[name] = values[0]
    if combined.get(names.RISK) == RiskLevel.UNKNOWN:
        # The scores of judged windows say nothing about an unjudged one.
        combined.pop(names.RISK_SCORE, None)
    if all_headers:
        combined[names.PROTOCOL] = names.PROTOCOL_VERSION
    return combined


PART_SEPARATOR: Final = "\n\n"


class ReportedQuestion:
    """The windows of a question, with one report that is passed on when all have ended.

    Attributes:
        on_report: called with that report; None for no receiver.
    """

    on_report: OnReport | None = None

    def begin(self) -> Step:
        """The first step."""
        return self._handed(self._begin())

    def receive(self, result: Result) -> Step:
        """The step after the result of the last one."""
        return self._handed(self._receive(result))

    def fail(self, error: BaseException) -> Outcome:
        """End the question after a failed call."""
        outcome = self._fail(error)
        self._handed(outcome)
        return outcome

    def _begin(self) -> Step:
        raise NotImplementedError

    def _receive(self, result: Result) -> Step:
        raise NotImplementedError

    def _fail(self, error: BaseException) -> Outcome:
        raise NotImplementedError

    def _handed(self, step: Step) -> Step:
        if isinstance(step, Release | Halt):
            reply = step.answer.reply
            if step.answer.text.strip() or not reply.tool_calls:
                call_receivers(step.answer.report, self.on_report)
        return step


class ContinuedAnswer(ReportedQuestion):
    """A window, and further ones while its answer is incomplete.

    Each window is sealed on its own. The caller gets one answer: the windows' texts in their
    order, unaltered, with a report on the whole text, its headers, and the last window's other
    ones; the quality tier and the safety budget are the worst of all windows. A bridge between two
    windows is examined like an answer; it is a separate piece and part of neither window's text.
    """

    def __init__(
        self,
        request: Request,
        window: Callable[[Request], Turn],
        settings: DispatchSettings,
        most_windows: int,
    ) -> None:
        """Create the first window; `most_windows` is the maximum number of windows."""
        self._request = request
        self._window = window
        self._settings = settings
        self._max_windows = most_windows
        self._turn = self._new_turn(request)
        self._first = self._turn
        self._answers: list[Answer] = []
        # Text and report of each bridge, by the number of the answer after it.
        self._bridges: dict[int, tuple[str, Report]] = {}
        # Usage of bridges and of a continuation without an answer.
        self._further_usage: list[Usage] = []
        self._awaiting_bridge: Answer | None = None
        # The bridge that a judge reads.
        self._judged_bridge: tuple[str, JudgedAnswer] | None = None

    @property
    def session_id(self) -> str:
        """The session that all windows belong to."""
        return self._turn.session_id

    @property
    def request(self) -> Request:
        """The request of the first window."""
        return self._request

    def _begin(self) -> Step:
        """The first window's first step."""
        return self._seen(self._turn.begin())

    def preview_window(self) -> Turn:
        """The window whose envelope is the question's preview."""
        return self._turn

    def show_at_once(self) -> bool:
        """Whether text may be streamed before the verdict: it is neither revised nor continued."""
        # A policy that demands completeness may withhold, and is so a reason to wait.
        continued = self._settings.continue_incomplete or self._settings.continue_partial
        return not (continued and self._max_windows > 1) and self._turn.show_at_once()

    def fit(self, model: str, *, input_limit: int | None = None) -> FittedDispatch:
        """Pack the window in progress for a model; the last fit is used.

        Spec: CRP-SPEC-003 §10.1
        """
        return self._turn.fit(model, input_limit=input_limit)

    def _receive(self, result: Result) -> Step:
        """The step after a reply to a window's call or to a bridge's."""
        try:
            if self._awaiting_bridge is not None:
                return self._bridged(self._awaiting_bridge, result)
            return self._seen(self._turn.receive(result))
        except EngineError as error:
            # A continuation that cannot be examined does not affect the earlier answers.
            if not self._answers:
                raise
            return self._fail(error)

    def _fail(self, error: BaseException) -> Outcome:
        """End the window in progress. The answers of earlier windows are delivered.

        A bridge whose call fails is left out.
        """
        if self._awaiting_bridge is not None:
            self._awaiting_bridge = None
            return self._combined()
        outcome = self._turn.fail(error)
        return self._without_last() if self._answers else outcome

    def _new_turn(self, request: Request) -> Turn:
        turn = self._window(request)
        turn.part = True
        return turn

    def _ended(self, release: Release) -> Release | Refusal:
        """The whole answer, unless it is less complete than the policy demands."""
        policy = self._first.admission.policy if self._first.admission else Policy()
        least, last = policy.require_completeness, release.answer
        if least is None or last.reply.tool_calls:
            return release
        directive = f"require-completeness {write_threshold(least)}"
        demand = f"{directive} is not met"
        if read_completeness(last.report) is None:
            if policy.allows_unread:
                return release
            error = QualityUnreachable(
                f"{demand}, it is {NOT_READ}: {uncounted_reason(last.report)}",
                tier=last.envelope.quality_tier,
                directive=directive,
                value=NOT_READ,
            )
            return Refusal(error, last.headers, last.envelope)
        first = self._answers[0].report.quality.completeness
        needs = len(first.covered) + len(first.uncovered)
        # A window that was not judged covers nothing.
        read = [
            answer.report.quality.completeness
            for answer in self._answers
            if answer.report.quality.completeness.level is not None
        ]
        missing = len(read[-1].uncovered) if read else 0
        if not needs or 1.0 - missing / needs >= least:
            return release
        windows = counted(len(self._answers), "window")
        value = f"{needs - missing} of {counted(needs, 'need')} answered in {windows}"
        error = QualityUnreachable(
            f"{demand}: {value}",
            tier=last.envelope.quality_tier,
            directive=directive,
            value=value,
        )
        return Refusal(error, last.headers, last.envelope)

    def _seen(self, step: Step) -> Step:
        if isinstance(step, Release):
            return self._released(step.answer)
        if not self._answers:
            return step
        if isinstance(step, FittedDispatch) and not _shows_facts(step.envelope):
            # All facts on the uncovered needs were shown before, so asking again is useless;
            # the window was not dispatched and is dropped.
            return self._without_last()
        if isinstance(step, Dispatch):
            # No summary is paid for if there are no facts to continue with.
            vain = step.purpose is Purpose.SUMMARISE and not _shows_facts(self._fitted(step.model))
            return self._without_last() if vain else step
        # A continuation that was refused or withheld does not affect the earlier answers.
        return self._without_last()

    def _fitted(self, model: str) -> Envelope:
        """The envelope that the continuation in progress would show."""
        return self._turn.fit(model).envelope

    def _without_last(self) -> Release | Refusal:
        """The combined earlier answers, with the usage of a continuation without an answer."""
        if self._turn.usage != Usage():
            self._further_usage.append(self._turn.usage)
        return self._combined()

    def _bridged(self, last: Answer, result: Result) -> Step:
        """The next call to the judge of a bridge, or the step after the bridge."""
        if isinstance(result, JudgeReply) and self._judged_bridge is not None:
            bridge, judging = self._judged_bridge
            judging.take(result)
            step = self._turn.judge_step(judging)
            if step is not None:
                return step
            withheld = judging.failed and judging.judge.settings.failure == "halt"
            self._add_bridge("" if withheld else bridge, judging.report)
        elif isinstance(result, Reply):
            self._further_usage.append(result.usage)
            if result.text.strip():
                report, judgement = self._turn.examine_bridge(result.text)
                step = self._turn.judge_step(judgement) if judgement is not None else None
                if judgement is not None and step is not None:
                    self._judged_bridge = result.text, judgement
                    return step
                self._add_bridge(result.text, judgement.report if judgement else report)
        self._awaiting_bridge, self._judged_bridge = None, None
        return self._after(last)

    def _add_bridge(self, bridge: str, report: Report) -> None:
        """Put a bridge before the last window, unless the policy would withhold the bridge."""
        admission = self._turn.admission
        policy = admission.policy if admission else Policy()
        if bridge and permits_bridge(report, policy, self._request):
            self._bridges[len(self._answers) - 1] = bridge, report
            before, after = self._answers[-2:]
            self._turn.journal(
                EventType.FLOW_STITCH,
                of=before.window_id,
                stitch_hash=sha256(bridge),
                flow=round(after.report.flow_score, 4),
                remedy="stitched",
            )

    def _released(self, answer: Answer) -> Step:
        before = self._answers[-1] if self._answers else None
        self._answers.append(answer)
        if before is not None and self._needs_bridge(answer):
            self._awaiting_bridge = answer
            return Dispatch(
                ModelCall(
                    model=answer.reply.model or self._request.model,
                    messages=(
                        Message(role="user", content=remedies.stitch(before.text, answer.text)),
                    ),
                    purpose=Purpose.STITCH,
                    temperature=remedies.STITCH_TEMPERATURE,
                    seed=self._request.seed,
                )
            )
        return self._after(answer)

    def _needs_bridge(self, answer: Answer) -> bool:
        """Whether a bridge is needed: the flow score asks for a remedy and `flow` is not `none`."""
        return bool(answer.report.flow_remediation) and self._settings.flow != "none"

    def _after(self, answer: Answer) -> Step:
        if not self._needs_window(answer):
            return self._combined()
        completeness = answer.report.quality.completeness
        uncovered = tuple(answer.report.uncovered_sub_queries)
        instructions = [remedies.towards_completeness(completeness.covered, uncovered)]
        if self._settings.flow == "augment":
            instructions.append(remedies.towards_flow(answer.text))
        self._turn = self._new_turn(
            self._request.changed(
                query="\n".join(uncovered),
                sub_queries=uncovered,
                session_id=answer.session_id,
                continuation_ids=(answer.continuation_id,),
                instructions=(*self._request.instructions, *instructions),
                if_match="",
                session_token="",
                prior=(),
            )
        )
        if self._settings.flow == "augment":
            self._turn.remedied(AUGMENTED)
        self._turn.note(
            EventType.COMPLETENESS_CONTINUATION,
            of=answer.window_id,
            uncovered=len(uncovered),
            completeness=round(completeness.score or 0.0, 4),
            level=str(completeness.level or ""),
        )
        return self._seen(self._turn.begin())

    def _needs_window(self, answer: Answer) -> bool:
        """Whether a further window is needed and permitted (decision D17)."""
        completeness = answer.report.quality.completeness
        if not answer.continuation_id or not completeness.uncovered or answer.reply.tool_calls:
            return False
        if not answer.text.strip():
            # An empty answer cannot be continued.
            return False
        if len(self._answers) >= self._max_windows or self._request.cache.no_cache:
            return False
        if len(self._answers) > 1 and not completeness.new:
            # After a window that covered nothing new, the next would not either.
            return False
        admission, level = self._turn.admission, completeness.level
        permitted = {
            CompletenessLevel.INCOMPLETE: self._settings.continue_incomplete,
            CompletenessLevel.PARTIAL: self._settings.continue_partial,
        }
        demanded = admission is not None and admission.policy.require_completeness is not None
        return level in permitted and (demanded or permitted[level])

    def _combined(self) -> Release | Refusal:
        """Combine all windows in one answer, with a report on the whole text."""
        last = self._answers[-1]
        usage = total_usage(
            [*(answer.reply.usage for answer in self._answers), *self._further_usage]
        )
        if len(self._answers) == 1:
            if self._further_usage:
                last = last.changed(reply=last.reply.changed(usage=usage))
            return self._ended(Release(last))
        pieces: list[Piece] = []
        reports: list[Report] = []
        for number, answer in enumerate(self._answers):
            if number in self._bridges:
                bridge, bridge_report = self._bridges[number]
                pieces.append(Piece(text=bridge))
                reports.append(bridge_report)
            pieces.append(Piece(text=answer.text, window_id=answer.window_id))
            reports.append(answer.report)
        texts = [piece.text for piece in pieces]
        text = PART_SEPARATOR.join(texts)
        parts = list(zip(texts, reports, strict=True))
        report = self._first.examine_whole(self._answers, text, parts)
        original = joined_repairs(
            self._answers, pieces, parts, PART_SEPARATOR, self._first.examine_whole
        )
        return self._ended(
            Release(
                last.changed(
                    text=text,
                    report=report,
                    window_reports=tuple(answer.report for answer in self._answers),
                    reply=last.reply.changed(text=text, usage=usage),
                    pieces=tuple(pieces),
                    headers=self._headers(last, report)
                    | (repair_header(original) if original else {}),
                    repaired=original,
                )
            )
        )

    def _headers(self, last: Answer, report: Report) -> dict[str, str]:
        """The report's headers, the last window's other ones, and the worst tier and budget."""
        flow = parse_response(last.headers).flow
        remedy = "stitched" if self._bridges else flow.remediation if flow else ""
        parent = last.headers.get(names.SESSION_PARENT, "")
        own = answer_headers(last.report, session_parent=parent)
        others = {name: last.headers[name] for name in last.headers if name not in own}
        worst = worst_headers(answer.headers for answer in self._answers)
        of_windows = (names.QUALITY_TIER, names.SAFETY_BUDGET)
        return {
            **others,
            **answer_headers(report, flow_remedy=remedy, session_parent=parent),
            **{name: worst[name] for name in of_windows if name in worst},
        }


def _shows_facts(envelope: Envelope) -> bool:
    """Whether an envelope contains a fact other than summaries of earlier windows."""
    return any(not is_summary(fact.source_id) for fact in envelope.facts)
