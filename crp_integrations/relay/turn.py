"""A Turn is one window: begin, fit, receive, fail. It does no I/O of its own.

Side effects go through the ports of its `World`: reading candidates and closing the window. The
driver calls the model. Everything else is pure.

A window may need several calls: one that decomposes the question, one that summarises earlier
windows, the passes of its strategy, and re-dispatches. `receive` returns the next of them until
there is an outcome.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeVar

from crp_integrations.audit.drafts import DIRECTIVES
from crp_integrations.dpe.judge.inquiry import JudgeReply
from crp_integrations.dpe.pipeline import Examination
from crp_integrations.dpe.records import RejectedClaim, Report
from crp_integrations.dpe.rejections import unique_claims
from crp_integrations.envelope.records import EarlierWindow, Envelope
from crp_integrations.errors import (
    CRPError,
    LimitReached,
    PolicyRelaxed,
    RequestError,
    StaleTip,
    StoreError,
)
from crp_integrations.governance.compaction.records import CompactionAccount
from crp_integrations.governance.window_trace import invocation_hash
from crp_integrations.messages import Message, Reply, Usage
from crp_integrations.policy.policy_text import render_policy
from crp_integrations.policy.verdict import unread_note
from crp_integrations.relay import compaction
from crp_integrations.relay.budget import Payer
from crp_integrations.relay.conditional_requests import cap_tier
from crp_integrations.relay.evidence import AnswerEvidence, earlier_facts, evidence_of
from crp_integrations.relay.examination import examine_answer, examine_windows
from crp_integrations.relay.judge import call_receivers
from crp_integrations.relay.judged_answer import JudgedAnswer
from crp_integrations.relay.prior_windows import CarriedContext, outdated_windows
from crp_integrations.relay.receipts import draft_maker, receipt_contents
from crp_integrations.relay.records import Answer, Request
from crp_integrations.relay.repaired_answer import OriginalAnswer, is_better, is_worse
from crp_integrations.relay.session_admission import (
    ALONE,
    Admission,
    Place,
    admit_window,
    session_of,
)
from crp_integrations.relay.single_window import (
    AnswerPasses,
    FactSearches,
    wants_search,
    without_searches,
)
from crp_integrations.relay.steps import (
    Dispatch,
    FittedDispatch,
    Halt,
    JudgeDispatch,
    NotModified,
    Outcome,
    Refusal,
    Release,
    Result,
    Step,
    own_error,
)
from crp_integrations.relay.verdict import (
    AnswerVerdict,
    AskAgain,
    Deliver,
    Mend,
    Unreachable,
    Withhold,
    may_show_at_once,
    note_form,
    oversight_of,
)
from crp_integrations.relay.window_envelope import WindowEnvelope
from crp_integrations.relay.window_headers import (
    WindowHeaders,
    barred_error,
    refusal_headers,
    window_headers,
)
from crp_integrations.relay.window_records import DraftMaker, WindowCalls, WindowEnd
from crp_integrations.relay.window_seal import ClosedWindow, close, journal_events
from crp_integrations.relay.world import World
from crp_integrations.vocabulary import EventType, GroundingMode, Strategy

T = TypeVar("T")
# Name of the remedy whose prompt quotes the text to continue from.
AUGMENTED: Final = "prompt-augmented"
# What belongs to an examined answer, beside its reply's call.
_OF_ANSWER: Final = "_examined_reply _examined _judged_answer _evidence _passes _hashes".split()
# Errors of closing a window if a concurrent answer has taken its place in the session.
PLACE_TAKEN: Final = (StaleTip, LimitReached)


class Turn:
    """One window from its beginning to its only outcome. It has a single owner.

    Spec: CRP-SPEC-003 §4

    Attributes:
        agent_turn: number of this model call in an agent's run; 0 outside of one.
        part: whether other windows may continue the answer.
        awaits: what `begin` does before it packs and a preview cannot do: the purposes of model
            calls, or `parts` for windows that answer parts of the question first.
    """

    def __init__(self, request: Request, world: World, place: Place = ALONE) -> None:
        self.request = request
        self.session_id = session_of(request, world)
        self.agent_turn = 0
        self._world = world
        self._began: datetime | None = None
        self._place = place
        self._admission: Admission | None = None
        self._packing = WindowEnvelope(request, self.session_id, world)
        self._carried_context: CarriedContext | None = None
        self._calls = WindowCalls()
        self._searches: FactSearches | None = None
        # System prompt and messages as sent to the model; None for those of the request.
        self._sent: tuple[str, tuple[Message, ...]] | None = None
        # What was left out of the conversation; None before it was checked.
        self._compaction: CompactionAccount | None = None
        self.part = False
        # False for a preview.
        self._writes = True
        self.awaits: list[str] = []
        self._passes = AnswerPasses(request.strategy, world.settings.dispatch)
        self._outdated: tuple[str, ...] = ()
        self._closed: ClosedWindow | None = None
        self._verdict: AnswerVerdict | None = None
        # The last report's examination, and the number of flags that the examination set.
        self._examined: tuple[Examination, int] | None = None
        # Hashes of the envelope's facts that were searched for personal data, by id.
        self._hashes: Mapping[str, str] = {}
        # The evidence that the answer was checked against.
        self._evidence = AnswerEvidence(())
        # The examined reply, and its judgement.
        self._examined_reply: Reply | None = None
        self._judged_answer: JudgedAnswer | None = None
        # The model's own answer, while a repaired one is examined and if it is released.
        self._original: OriginalAnswer | None = None
        # The answer before the model was asked again: its call, request, report, and the rest.
        self._before: tuple[FittedDispatch, Request, Report, dict[str, Any]] | None = None
        self._outcome: Outcome | None = None
        self._end_lock = threading.Lock()

    @property
    def admission(self) -> Admission | None:
        """The window's place in its session; None before it has begun."""
        return self._admission

    def note(self, event_type: EventType, **data: object) -> None:
        """Add an event to the window's journal: only ids, hashes, counts and enum values."""
        self._calls.note(event_type, **data)

    def flag(self, word: str) -> None:
        """Add a word to the report's flags."""
        self._calls.flags.append(word)

    def note_sent(self, system: str, messages: Sequence[Message]) -> None:
        """Record what the model was actually sent, if the caller may have changed it.

        Args:
            system: the system prompt without the parts that the turn added.
        """
        self._sent = (system, tuple(messages))

    def remedied(self, remedy: str) -> None:
        """Record that a remedy for a broken flow was used, for the journal and the header.

        Spec: CRP-SPEC-005 §11.6
        """
        self._calls.remedies.append(remedy)
        self.note(EventType.FLOW_REMEDIATION, remedy=remedy)

    def begin(self) -> Step:
        """Admit the window to its session, evaluate `If-Match`, read candidates and pack them.

        Spec: CRP-SPEC-003 §5.3, §11.2
        """
        self._must_not_have_begun()
        ended = self._admit()
        return self._seal_on_error(self._first) if ended is None else ended

    def fit(self, model: str, *, input_limit: int | None = None) -> FittedDispatch:
        """Pack for a model by its tokenizer and its context limit. The last fit is used.

        Spec: CRP-SPEC-003 §10.1

        Args:
            input_limit: maximum input tokens of the model's deployment, if known.
        """
        self._must_be_open()
        return self._packing.fit(model, input_limit)

    def receive(self, result: Result) -> Step:
        """Take a reply; returns the next call, or the examined and sealed outcome.

        Where a remedy may improve the reply, the model is asked again; only the last is sealed.

        Spec: CRP-SPEC-005 §1.2, §19
        """
        needs, carried = self._packing.needs, self._carried_context
        if isinstance(result, Reply) and (needs.waiting or (carried and carried.waiting)):
            self._must_be_open()
            self._calls.add(result)
            if needs.waiting:
                needs.read(result)
            elif carried:
                carried.read(result)
            return self._seal_on_error(self._prepare)
        fitted = self._packing.last
        if fitted is None or self._admission is None or isinstance(result, tuple):
            raise RequestError("receive takes a Reply, after begin and before the turn has ended")
        try:
            with self._end_lock:
                self._must_be_open()
                if isinstance(result, Reply):
                    return self._received(fitted, result, self._admission)
                return self._judge_on(fitted, self._admission, result)
        except PLACE_TAKEN as error:
            return self._end_without_answer("refused", error)

    @property
    def needs(self) -> tuple[str, ...]:
        """The question's information needs: given, by rules, or from a model's reply."""
        return self._packing.needs.sub_queries

    @property
    def usage(self) -> Usage:
        """Usage of this window's calls so far, without the judge's, which is in the report."""
        return self._calls.usage

    def show_at_once(self) -> bool:
        """Whether nothing may withhold or repeat the answer, so that it may be shown at once.

        Spec: related facts §7
        """
        admission, judge = self._admission, self._world.engines.judge
        if admission is None or self._outcome is not None or self._searches is not None:
            return False
        if judge is not None and judge.settings.failure == "halt":
            return False
        strategy = self._packing.request.strategy
        return may_show_at_once(admission, self.request, strategy, self._world)

    def survey(self) -> Dispatch | Outcome | None:
        """Begin a window that will be the parent of others: determine the question's needs."""
        self._must_not_have_begun()
        return self._admit() or self._decomposition()

    def surveyed(self, reply: Reply) -> None:
        """Take the reply to the call of `survey`."""
        self._must_be_open()
        self._calls.add(reply)
        self._packing.needs.read(reply)

    def plan(self, children: int) -> str | Outcome:
        """Seal this window as the parent of others, without an answer; returns its id.

        Spec: related facts §5
        """
        self._must_be_open()
        self.note(EventType.FAN_OUT_CREATED, children=children)
        try:
            with self._end_lock:
                closed = self._close("released", None, "", self._examine(None, ""))
                self._outcome = Refusal(RequestError("a plan has no answer"), {})
        except PLACE_TAKEN as error:
            return self._end_without_answer("refused", error)
        return closed.seal.window_id

    def preview(self) -> Envelope:
        """The envelope that `begin` would dispatch; nothing is called, sealed or written.

        Spec: CRP-SPEC-003 §12.1

        Raises:
            CRPError: the question would be refused for the same reason.
        """
        self._writes = False
        step = self.begin()
        while not isinstance(step, FittedDispatch):
            assert isinstance(step, Dispatch)
            self.awaits.append(step.purpose)
            # Without a usable reply, rules decompose and the end of an answer is its summary.
            step = self.receive(Reply(text=""))
        self._packing.remember(step.envelope)
        return step.envelope

    def retrieve(self) -> Envelope:
        """The envelope of the question alone, for a caller that has it answered elsewhere."""
        self._writes = False
        self._dispatch_as(self.request)
        envelope = self.fit(self.request.model).envelope
        self._packing.remember(envelope)
        return envelope

    def _admit(self) -> Outcome | None:
        """Admit the window to its session; returns an outcome if no model may be asked."""
        self._began = None if self._world.listeners.observer is None else self._world.clock.now()
        if self._writes:
            # Checked before a model call is paid for: without write access nothing can be sealed.
            self._packing.namespace.must_write()
        self._seal_on_error(self._enter)
        return self._outcome

    def _enter(self) -> None:
        admission = admit_window(
            self.request, self.session_id, self._packing.namespace, self._world, self._place
        )
        self._admission = admission
        self._packing.policy = render_policy(admission.policy)
        if admission.barred is not None:
            self.note(EventType.SAFETY_HALT, reason=admission.barred.value)
            left, region = admission.safety_budget, self.request.residency
            raise barred_error(admission.barred, left, self.session_id, region)
        strategy = admission.strategy(self.request.strategy)
        if strategy is not self.request.strategy:
            self.note(
                EventType.STRATEGY_UPGRADE,
                before=self.request.strategy.value,
                to=strategy.value,
                why="circuit",
            )
        self._dispatch_as(
            self.request.changed(
                strategy=strategy, prior=admission.prior, loop_depth=admission.depth
            )
        )
        nodes = admission.windows
        known = admission.prior or admission.earlier
        self._outdated = outdated_windows(self._packing.namespace, known, nodes)
        if not self.request.prior and admission.prior:
            self._carried_context = CarriedContext(self._packing.request, self._world)

    def _first(self) -> Step:
        return self._decomposition() or self._prepare()

    def _decomposition(self) -> Dispatch | None:
        call = self._packing.needs.asking()
        return None if call is None else Dispatch(call)

    def _prepare(self) -> Step:
        if self._carried_context is not None:
            asking = self._carried_context.asking()
            if asking is not None:
                return asking
            self._dispatch_as(self._carried_context.request)
        self._packing.later_step = self.agent_turn > 1
        return (self._unmodified() if self._writes else None) or self.fit(self.request.model)

    def _dispatch_as(self, request: Request) -> None:
        """Use a changed request with the same question from now on."""
        request = self._compacted(request)
        if request.strategy is Strategy.PULL:
            settings = self._world.settings
            widest = max(settings.dispatch.pull_k, settings.envelope.k_nearest)
            request = request.changed(
                grounding=GroundingMode.STRICT, k_nearest=request.k_nearest or widest
            )
        if request.strategy is Strategy.AGENTIC and self._searches is None:
            left = self._admission.safety_budget if self._admission else 1.0
            self._searches = FactSearches(self._world.settings.dispatch, left)
            request = request.changed(tools=(*request.tools, *self._searches.tools))
        self._packing.request = request
        self._passes = AnswerPasses(request.strategy, self._world.settings.dispatch)

    def _unmodified(self) -> NotModified | None:
        """The 304 outcome, if the caller already has the answer; else None.

        Spec: CRP-SPEC-003 §11.2
        """
        self._packing.match()
        admission = self._admission
        mode = oversight_of(self.request, admission, self._world.settings)
        ended = self._packing.conditional.unmodified(admission.policy, mode) if admission else None
        with self._end_lock:
            self._outcome = ended or self._outcome
        return ended

    def _received(self, fitted: FittedDispatch, reply: Reply, admission: Admission) -> Step:
        self._calls.add(reply)
        looked_up = self._searched(fitted, reply)
        if looked_up is not None:
            return looked_up
        further = self._passes.after(fitted.call, reply)
        if further is not None:
            return Dispatch(further, fitted.envelope)
        answered = self._passes.answer or reply
        if self._searches is not None:
            answered = without_searches(answered)
        return self._examine_reply(fitted, answered, admission)

    def _examine_reply(self, fitted: FittedDispatch, reply: Reply, admission: Admission) -> Step:
        """Examine a reply; returns the first call to the judge, or the decision."""
        self._examined_reply = reply
        report = self._examine(fitted.envelope, reply.answer)
        self._judged_answer = self._judgement(fitted, reply, report)
        if self._judged_answer is None:
            return self._settled(fitted, reply, admission, report)
        return self._judge_on(fitted, admission)

    def _judge_on(
        self, fitted: FittedDispatch, admission: Admission, reply: JudgeReply | None = None
    ) -> Step:
        """Take a judge's reply, if any; returns the next call to the judge, or the decision."""
        judging, answered = self._judged_answer, self._examined_reply
        if judging is None or answered is None:
            raise RequestError("a judge's reply was given, but no judge was asked")
        if reply is not None:
            judging.take(reply)
        asking = self.judge_step(judging)
        return asking or self._settled(fitted, answered, admission, self._judged(judging))

    def _settled(
        self, fitted: FittedDispatch, answered: Reply, admission: Admission, report: Report
    ) -> Step:
        """Decide on an examined answer: ask again, release, withhold or refuse it."""
        final, original = self._original is not None, self._original
        halts = self._judged_answer is not None and self._judged_answer.halts
        if original is not None and is_better(report, original.report):
            self.note(EventType.ANSWER_REPAIRED, **original.event(self._world.settings_digest))
            report = report.changed(flags=(*report.flags, original.flag))
        elif original is not None and not halts:  # else it is withheld as it is
            self._examined_reply, answered, report = original.reply, original.reply, original.report
            self._examined, self._judged_answer = original.examined, original.judged
            self._original = None
            report = report.changed(flags=(*report.flags, "repair-discarded"))
        elif not final and self._before and is_worse(answered, report, self._before[2]):
            fitted, self._packing.request, report, fields = self._before
            self._packing.last = fitted
            vars(self).update(fields)
            answered = fields["_examined_reply"]
            words = (f"re-dispatches={self._calls.redispatches}", "ask-again-discarded")
            others = (flag for flag in report.flags if not flag.startswith(("re-dis", words[1])))
            report = report.changed(flags=(*others, *words))
        report = note_form(report, admission.policy, answered)
        shown = cap_tier(fitted.envelope, report, self._world.settings.dpe.quality)
        verdict = AnswerVerdict.of(
            report,
            shown,
            session_id=self.session_id,
            request=self._packing.request,
            admission=admission,
            reply=answered,
            attempts=self._calls.redispatches,
            world=self._world,
            part=self.part,
            judge_failed=halts,
            repaired=final,
        )
        match verdict.decision:
            case AskAgain() as again:
                if "flagged" in again.triggers:
                    fields = {name: getattr(self, name) for name in _OF_ANSWER}
                    self._before = fitted, self._packing.request, report, fields
                return self._again(again, fitted)
            case Mend() | Deliver() if not (final or answered.tool_calls) and (
                more := self._unfinished(report, fitted)
            ):
                return more
            case Mend(repair=repair, reply=mended):
                self._original = OriginalAnswer(
                    answered, report, repair, self._examined, self._judged_answer
                )
                return self._examine_reply(fitted, mended, admission)
            case Deliver():
                return self._released(shown, report, answered, fitted, verdict)
            case Withhold(reason=reason):
                closed = self._close("halted", shown, answered.answer, report, verdict=verdict)
                withheld = self._answer(shown, answered, closed)
                unread = unread_note(admission.policy, report, reason, self.request.accept_risk)
                self._outcome = Halt(reason, withheld, *verdict.cause(report), unread=unread)
                self._hand_report(closed.report)
            case Unreachable(error=error):
                closed = self._close("refused", shown, "", report, error, verdict=verdict)
                self._outcome = Refusal(error, self._headers(shown, closed), shown)
        assert self._outcome is not None
        return self._outcome

    def _released(
        self,
        shown: Envelope,
        report: Report,
        reply: Reply,
        fitted: FittedDispatch,
        verdict: AnswerVerdict,
    ) -> Outcome:
        closed = self._close("released", shown, reply.answer, report, verdict=verdict)
        answer = self._answer(shown, reply, closed)
        self._outcome = Release(answer)
        # A reply with only tool calls has no text to report on.
        if reply.answer.strip() or not reply.tool_calls:
            self._hand_report(closed.report)
        self._packing.remember(answer.envelope, answer.headers, fitted.envelope.quality_tier)
        return self._outcome

    def _searched(self, fitted: FittedDispatch, reply: Reply) -> FittedDispatch | None:
        """The next call of an agentic answer after the searches in a reply; None without any."""
        agent = self._searches
        checks = self._passes.strategy is Strategy.REFLEXIVE and self._passes.done
        if agent is None or checks:
            return None
        agent.iterations += 1
        stopped_before = agent.stopped
        queries, notes = agent.searches(reply)
        self._calls.notes += notes
        self.note(
            EventType.AGENT_LOOP_ITERATION, iteration=agent.iterations, tool_calls=agent.tool_calls
        )
        if not wants_search(reply) or stopped_before:
            return None
        self._packing.widen(queries)
        return self._search_on(agent, fitted)

    def _unfinished(self, report: Report, fitted: FittedDispatch) -> FittedDispatch | None:
        """The next call of an agentic answer that leaves needs uncovered; None if none may be."""
        agent = self._searches
        words = agent.unfinished(report) if agent else ""
        return self._search_on(agent, fitted, words) if agent and words else None

    def _search_on(
        self, agent: FactSearches, fitted: FittedDispatch, *words: str
    ) -> FittedDispatch | None:
        """The next call of an agentic answer; None if a limit was reached."""
        limit_note = agent.limit()
        if limit_note is not None:
            self._calls.notes.append(limit_note)
        if not agent.open:
            return None
        self._packing.request = self._packing.request.changed(
            instructions=(*self._carried(), *words), tools=(*self.request.tools, *agent.tools)
        )
        return self.fit(fitted.model)

    def _again(self, again: AskAgain, fitted: FittedDispatch) -> Step:
        """Ask the same question again within this window.

        Spec: CRP-SPEC-005 §19.2
        """
        words, request = again.redispatch, self._packing.request
        self._calls.redispatches += 1
        self.note(
            EventType.RE_DISPATCH, attempt=self._calls.redispatches, triggers=list(again.triggers)
        )
        if again.upgraded:
            self.note(
                EventType.STRATEGY_UPGRADE,
                before=request.strategy.value,
                to=words.strategy.value,
                why=again.triggers[0],
            )
        if "flow" in again.triggers:
            self.remedied(AUGMENTED)
        self._dispatch_as(
            request.changed(
                # Instructions of an earlier attempt are dropped: they concerned another reply.
                instructions=(*self._carried(), *words.instructions),
                temperature=words.temperature,
                seed=words.seed,
                strategy=words.strategy,
            )
        )
        return self.fit(fitted.model)

    def _carried(self) -> tuple[str, ...]:
        """Instructions before those of a remedy: the caller's own, and those of searches."""
        carried = self._carried_context.request if self._carried_context else self.request
        return (*carried.instructions, *(self._searches.instructions() if self._searches else ()))

    def _compacted(self, request: Request) -> Request:
        """The request with its conversation shortened, if enabled and a trigger fires."""
        if self._compaction is not None:
            return request
        world = self._world
        # Without a session no artifact is written.
        session = self.session_id if self._writes and not request.cache.no_store else ""
        if request.compaction is None and compaction.wants_compaction(request, world):
            with world.tracer.step("compact"):
                request = compaction.compact_request(request, world, session)
        self._compaction = request.compaction
        if self._compaction is not None:
            signer = self._packing.namespace.subject.name
            self._calls.notes += compaction.compaction_events(self._compaction, signer)
        return request

    def journal(self, event_type: EventType, **data: object) -> None:
        """Journal an event about the window after its end."""
        if self._closed is not None:
            seal, namespace = self._closed.seal, self._packing.namespace
            journal_events(namespace, self._world, seal, ((event_type, data),))

    def examine_bridge(self, bridge: str) -> tuple[Report, JudgedAnswer | None]:
        """The report on a bridge before this window's answer, and its judgement with a judge."""
        fitted = self._packing.last
        assert fitted is not None
        report = self._examine(fitted.envelope, bridge, needs=False)
        return report, self._judgement(fitted, Reply(text=bridge), report)

    def judge_step(self, judging: JudgedAnswer) -> JudgeDispatch | None:
        """The next call of a judgement; None when nothing is left to ask."""
        call = judging.call()
        if call is None:
            return None
        return JudgeDispatch(
            call, None, judging.asked, judging.payer, self._world.tracer, judging.keep
        )

    def _examine(self, envelope: Envelope | None, text: str, *, needs: bool = True) -> Report:
        packing = self._packing
        report, examination = examine_answer(
            packing.request,
            self._world,
            packing.namespace,
            packing.reads,
            self._evidence_of(envelope),
            text,
            needs=packing.needs.own(envelope.sub_queries if envelope else ()) if needs else (),
            prior=self._known(),
            outdated=self._outdated,
        )
        self._examined = (examination, len(report.flags))
        flags = (*report.flags, *self._packing.flags(self._calls), *self._personal(envelope))
        return report.model_copy(update={"flags": flags})

    def _evidence_of(self, envelope: Envelope | None) -> AnswerEvidence:
        """The evidence for an answer: an envelope, tool results, earlier facts, system prompt."""
        request = self._packing.request
        earlier = earlier_facts(self._packing.namespace, self._known()) if envelope else []
        self._evidence = evidence_of(
            envelope,
            request.history if self._sent is None else self._sent[1],
            earlier,
            self._rejected(),
            request.system_prompt if self._sent is None else self._sent[0],
        )
        return self._evidence

    def examine_whole(
        self, answers: Sequence[Answer], text: str, parts: Sequence[tuple[str, Report]]
    ) -> Report:
        """The report on the joined text of several windows, including this one."""
        packing = self._packing
        prior = self._admission.earlier if self._admission and not self.request.prior else ()
        return examine_windows(
            self.request,
            self._world,
            packing.namespace,
            packing.reads,
            answers,
            text,
            parts,
            self.request.prior or prior,
            self._rejected(),
        )

    def _rejected(self) -> tuple[RejectedClaim, ...]:
        """Claims that sub-agents' reports flag: those of the request and of the session."""
        of_session = self._world.memory.sessions.of(self.session_id).rejected
        return unique_claims(self.request.rejected, of_session)

    def _known(self) -> tuple[EarlierWindow, ...]:
        """The known earlier windows of the session, whether or not this one continues them."""
        prior = self._packing.request.prior
        return prior or (self._admission.earlier if self._admission else ())

    def _judgement(
        self, fitted: FittedDispatch, reply: Reply, report: Report
    ) -> JudgedAnswer | None:
        """The judgement of the answer; None without a judge or without text to judge."""
        world, judge = self._world, self._world.engines.judge
        if judge is None or self._examined is None or not reply.answer.strip():
            return None
        return JudgedAnswer(
            judge,
            report,
            self._examined[0].dossier,
            world.settings.dpe,
            payer=Payer(self.session_id, world.budgets),
            own_model=fitted.model,
            own_window=world.engines.limit_for(fitted.model)[0],
            left_out=self._packing.withheld_facts(judge, self._evidence, fitted.envelope),
            again=self._original is not None,
        )

    def _judged(self, judging: JudgedAnswer) -> Report:
        """The judged report; the judge's record is added to the examination for the receipt."""
        report = judging.report
        assert self._examined is not None
        examination, _ = self._examined
        self._examined = (replace(examination, judged=report.judge), self._examined[1])
        return report

    def _hand_report(self, report: Report) -> None:
        """Pass the report to its receivers, or have the answer judged in the background."""
        judging, judge = self._judged_answer, self._world.engines.judge
        if judge is not None and judging is not None and judging.later:
            judge.later(lambda: judge.hand(judging.now(report).play()))
            return
        owner = judge.on_report if judge is not None and judging is not None else None
        call_receivers(report, owner, self._world.listeners.on_report)

    def _personal(self, envelope: Envelope | None) -> list[str]:
        """The compliance warning for facts with personal data that are not under `no-store`.

        Spec: CRP-SPEC-003 §16.1
        """
        if envelope is None or self.request.cache.no_store:
            return []
        settings, world = self._world.settings, self._world
        most = settings.dispatch.searched_characters
        personal = world.memory.personal.of(envelope.facts, settings.dpe.personal, most)
        self._hashes = personal.hashes
        return personal.flags

    def fail(self, error: BaseException) -> Outcome:
        """End and seal the window because the model call failed or was cancelled.

        Spec: CRP-SPEC-005 §15.1
        """
        cancelled = isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit)
        word = "cancelled" if cancelled else "failed"
        return self._end_without_answer(word, own_error(error), error)

    def _seal_on_error(self, work: Callable[[], T]) -> T | Outcome:
        """Run work that precedes the call; on an error, seal the window as refused or failed."""
        if not self._writes:
            return work()
        try:
            return work()
        except CRPError as error:
            return self._end_without_answer("refused", error)
        except BaseException as error:
            try:
                self.fail(error)
            except StoreError as failure:
                error.add_note(f"the window could not be sealed: {type(failure).__name__}")
            raise

    def _end_without_answer(
        self, outcome: str, error: CRPError, cause: BaseException | None = None
    ) -> Outcome:
        with self._end_lock:
            if self._outcome is not None:
                return self._outcome
            fitted = self._packing.last
            envelope = fitted.envelope if fitted else None
            if self._closed is not None:
                # The error came after sealing, and a window is sealed only once.
                self._outcome = Refusal(error, {}, envelope)
                return self._outcome
            if isinstance(error, PolicyRelaxed) and error.directive in DIRECTIVES:
                self.note(EventType.POLICY_VIOLATION, directives=[error.directive])
            report = self._examine(envelope, "")
            report = report.changed(flags=(*report.flags, f"window-{outcome}"))
            closed = self._close(outcome, envelope, "", report, cause or error)
            headers = (
                self._headers(envelope, closed)
                if envelope
                else refusal_headers(error, closed, self._world, self.request.residency)
            )
            self._outcome = Refusal(error, headers, envelope)
            return self._outcome

    def _close(
        self,
        outcome: str,
        envelope: Envelope | None,
        text: str,
        report: Report,
        error: BaseException | None = None,
        *,
        verdict: AnswerVerdict | None = None,
    ) -> ClosedWindow:
        world, calls, fitted = self._world, self._calls, self._packing.last
        notes = (*calls.notes, *(verdict.notes if verdict else ()))
        end = WindowEnd(
            outcome=outcome,
            envelope=envelope,
            text=text,
            report=report,
            model=fitted.model if fitted else self.request.model,
            strategy=self._packing.request.strategy,
            tool_calls=calls.tool_calls,
            error=type(error).__name__ if error else "",
            reason=(verdict.reason or "") if verdict else "",
            notes=notes,
            sibling=self._place.sibling,
            keep=not self.request.cache.no_store,
            memory_only=self.agent_turn > 0
            and any(message.role == "tool" for message in self.request.history),
            outdated=self._outdated,
            draft=self._draft(envelope, text, report, verdict),
            candidates=(*self._packing.candidates, *self._evidence.sources)
            if world.settings.receipts
            else (),
            labels=self._packing.labels(envelope),
            hashes=self._hashes,
            decisions=self._packing.decisions,
            invocation_hash=invocation_hash(fitted.call) if fitted else "",
            assembly_us=self._packing.assembly_us,
            usage=calls.usage,
            steps=self._packing.steps,
            depth=self._packing.request.loop_depth,
            turn=self.agent_turn,
            began=self._began,
            transfer=self._carried_context.transfer if self._carried_context else None,
            new_session_fields={
                "parent_session": self.request.parent_session,
                "loop_depth": self.request.loop_depth,
                "agent_id": self.request.agent_id,
            },
        )
        closed = close(self._packing.namespace, world, self.session_id, self._admission, end)
        self._closed, self._verdict = closed, verdict
        if verdict is not None:
            verdict.post(world, closed.report)
        if end.keep and world.listeners.receiver is not None:
            # The answer is delivered whether or not this report arrives.
            world.listeners.receiver(closed.report)
        return closed

    def _draft(
        self, envelope: Envelope | None, text: str, report: Report, verdict: AnswerVerdict | None
    ) -> DraftMaker | None:
        packing = self._packing
        if not self._world.settings.receipts:
            return None
        contents = receipt_contents(
            packing.request,
            self._world,
            packing,
            self._passes.further,
            envelope=envelope,
            text=text,
            reply=self._examined_reply,
            report=report,
            examined=self._examined,
            sources=self._evidence.sources,
            admission=self._admission,
            verdict=verdict,
            original=self._original.values(self._world.settings_digest) if self._original else None,
        )
        return draft_maker(contents)

    def _answer(self, envelope: Envelope, reply: Reply, closed: ClosedWindow) -> Answer:
        seal = closed.seal
        return Answer(
            text=reply.text,
            # Skips validation: these are the engine's own values.
            envelope=envelope.model_copy(update={"window_number": seal.window_number}),
            report=closed.report,
            headers=self._headers(envelope, closed)
            | (self._original.header if self._original else {}),
            reply=reply.model_copy(update={"usage": self._calls.usage}),
            session_id=self.session_id,
            window_id=seal.window_id,
            window_number=seal.window_number,
            continuation_id=closed.update.node.continuation_id,
            receipt_id=closed.receipt_id,
            compaction=self._compaction,
            repaired=self._original.record(self._world.settings_digest) if self._original else None,
        )

    def _headers(self, envelope: Envelope, closed: ClosedWindow) -> dict[str, str]:
        return window_headers(
            WindowHeaders(
                envelope=envelope,
                closed=closed,
                admission=self._admission,
                request=self._packing.request,
                calls=self._calls,
                passes=self._passes,
                cache_status=self._packing.conditional.outcome,
                verdict=self._verdict,
            ),
            self._world,
        )

    def _must_not_have_begun(self) -> None:
        if self._packing.begun or self._admission is not None or self._outcome is not None:
            raise RequestError("this turn has begun already; ask the relay for a new one")

    def _must_be_open(self) -> None:
        if self._outcome is not None:
            raise RequestError("this turn has ended; ask the relay for a new one")
