"""One answer over several windows: an incomplete answer is continued, and the texts are joined.

Spec: CRP-SPEC-005 §10.3, §11.5, §18.5; related facts §7
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from crp_integrations.dpe import remedies
from crp_integrations.envelope.candidates import is_summary
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import EngineError, QualityUnreachable
from crp_integrations.headers import names
from crp_integrations.headers.codec import write_response
from crp_integrations.headers.records import FlowValue, ResponseHeaders
from crp_integrations.messages import Message, ModelCall, Reply, Usage
from crp_integrations.policy.demands import NOT_READ, read_completeness, uncounted_reason
from crp_integrations.policy.directives import write_threshold
from crp_integrations.policy.records import Policy
from crp_integrations.relay.judge import OnReport, call_receivers
from crp_integrations.relay.records import Answer, Piece, Request
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
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import (
    CompletenessLevel,
    EventType,
    Purpose,
    QualityTier,
    RiskLevel,
)

# Values from best to worst.
_RANKED_VALUES: Final = {
    names.RISK: tuple(str(word) for word in RiskLevel),
    names.QUALITY_TIER: tuple(str(word) for word in QualityTier),
}
_LOWEST_IS_WORST: Final = (
    names.GROUNDING_PCT,
    names.ENTAILMENT,
    names.FIDELITY,
    names.ATTRIBUTION_SCORE,
    names.QUALITY_SCORE,
    names.SAFETY_BUDGET,
)
_HIGHEST_IS_WORST: Final = (names.RISK_SCORE,)
_SUMMED: Final = (names.FABRICATIONS, names.CLAIM_COUNT)
# Headers about envelopes: combined for a batch, but not for one answer of several windows.
_ENVELOPE_HIGHEST: Final = (names.SATURATION,)
_ENVELOPE_SUMMED: Final = (names.TOKENS_USED,)


def worst_headers(
    headers: Iterable[Mapping[str, str]], *, envelopes: bool = True
) -> dict[str, str]:
    """Combine the headers of several windows: the worst value of each header, the sum of counts."""
    all_headers = list(headers)
    combined: dict[str, str] = {}
    for name, ranks in _RANKED_VALUES.items():
        values = [fields[name] for fields in all_headers if name in fields]
        if values:
            combined[name] = max(values, key=ranks.index)
    highest = (*_HIGHEST_IS_WORST, *_ENVELOPE_HIGHEST) if envelopes else _HIGHEST_IS_WORST
    for name in (*_LOWEST_IS_WORST, *highest):
        values = [fields[name] for fields in all_headers if name in fields]
        if values:
            combined[name] = (min if name in _LOWEST_IS_WORST else max)(values, key=float)
    if combined.get(names.RISK) == RiskLevel.UNKNOWN:
        # The scores of judged windows say nothing about an unjudged one.
        combined.pop(names.RISK_SCORE, None)
    for name in (*_SUMMED, *_ENVELOPE_SUMMED) if envelopes else _SUMMED:
        values = [fields[name] for fields in all_headers if name in fields]
        if values:
            combined[name] = str(sum(map(int, values)))
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
    order, unaltered, with a report on the whole text and the last window's headers; safety and
    quality headers have the worst value of all windows. A bridge between two windows is a separate
    piece and part of neither window's text.
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
        self._bridges: list[str] = []
        # Usage of bridges and of a continuation without an answer.
        self._further_usage: list[Usage] = []
        self._awaiting_bridge: Answer | None = None

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
        continued = self._settings.continue_incomplete or self._settings.continue_partial
        return not continued and self._turn.show_unless_mended()

    def fit(self, model: str, *, input_limit: int | None = None) -> FittedDispatch:
        """Pack the window in progress for a model; the last fit is used.

        Spec: CRP-SPEC-003 §10.1
        """
        return self._turn.fit(model, input_limit=input_limit)

    def _receive(self, result: Result) -> Step:
        """The step after a reply to a window's call or to a bridge's."""
        if self._awaiting_bridge is not None and isinstance(result, Reply):
            last, self._awaiting_bridge = self._awaiting_bridge, None
            self._further_usage.append(result.usage)
            self._add_bridge(result.text)
            return self._after(last)
        try:
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
        demand = f"require-completeness {write_threshold(least)} is not met"
        if read_completeness(last.report) is None:
            if policy.allows_unread:
                return release
            error = QualityUnreachable(
                f"{demand}, it is {NOT_READ}: {uncounted_reason(last.report)}",
                tier=last.envelope.quality_tier,
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
        error = QualityUnreachable(
            f"{demand}: {needs - missing} of {needs} needs are answered in "
            f"{len(self._answers)} windows",
            tier=last.envelope.quality_tier,
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

    def _add_bridge(self, bridge: str) -> None:
        """Put a bridge before the last window, unless the policy would withhold the bridge."""
        if not bridge.strip():
            return
        before, after = self._answers[-2:]
        if self._turn.permits_bridge(bridge, before, after):
            self._bridges[-1] = bridge
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
        self._bridges.append("")
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
        if completeness.level is CompletenessLevel.INCOMPLETE:
            return self._settings.continue_incomplete
        admission = self._turn.admission
        demanded = admission is not None and admission.policy.require_completeness is not None
        permitted = self._settings.continue_partial or demanded
        return completeness.level is CompletenessLevel.PARTIAL and permitted

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
        for answer, bridge in zip(self._answers, self._bridges, strict=True):
            if bridge.strip():
                pieces.append(Piece(text=bridge))
            pieces.append(Piece(text=answer.text, window_id=answer.window_id))
        text = PART_SEPARATOR.join(piece.text for piece in pieces)
        report = self._first.examine_whole(self._answers, text)
        return self._ended(
            Release(
                last.changed(
                    text=text,
                    report=report,
                    window_reports=tuple(answer.report for answer in self._answers),
                    reply=last.reply.changed(text=text, usage=usage),
                    pieces=tuple(pieces),
                    headers=self._headers(last),
                )
            )
        )

    def _headers(self, last: Answer) -> dict[str, str]:
        """The last window's headers, with the worst values of all windows and any bridge."""
        all_headers = [answer.headers for answer in self._answers]
        headers = {**last.headers, **worst_headers(all_headers, envelopes=False)}
        if headers.get(names.RISK) == RiskLevel.UNKNOWN:
            headers.pop(names.RISK_SCORE, None)
        if self._bridges[-1] and names.FLOW in headers:
            flow = FlowValue(score=last.report.flow_score, remediation="stitched")
            headers |= write_response(ResponseHeaders(flow=flow))
        return headers


def _shows_facts(envelope: Envelope) -> bool:
    """Whether an envelope contains a fact other than summaries of earlier windows."""
    return any(not is_summary(fact.source_id) for fact in envelope.facts)
