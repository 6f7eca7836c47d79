"""A Turn is one window: begin, fit, receive, fail. It does no I/O of its own.

The three places where the world is touched are ports of its `World`: reading candidates,
calling the model (the driver does), and closing. Between them everything is pure.

A window may take several calls: one that takes the question apart, one that sums up the window
before, the passes of its strategy, and re-dispatches. `receive` answers with the next of them
until there is an outcome.
"""

from __future__ import annotations

from crp_integrations.dpe.judge.inquiry import JudgeReply
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.remedies import MOST_REDISPATCHES
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import RequestError
from crp_integrations.messages import Reply, Usage
from crp_integrations.policy.verdict import unread_note, withholding
from crp_integrations.relay.conditional_requests import cap_tier
from crp_integrations.relay.prior_windows import CarriedContext, outdated_windows
from crp_integrations.relay.records import Request
from crp_integrations.relay.session_admission import Admission, admit_window
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
)
from crp_integrations.relay.strategies.single_window import (
    AnswerPasses,
    FactSearches,
    wants_search,
    without_searches,
)
from crp_integrations.relay.verdict import (
    AnswerVerdict,
    AskAgain,
    Deliver,
    Unreachable,
    Withhold,
    may_ask_again,
    may_show_at_once,
    oversight_of,
)
from crp_integrations.relay.window import AUGMENTED, PLACE_TAKEN, OpenWindow
from crp_integrations.vocabulary import EventType, GroundingMode, Strategy


class Turn(OpenWindow):
    """One window's life. It has one owner and ends once.

    Spec: CRP-SPEC-003 §4
    """

    def begin(self) -> Step:
        """Find the window's place in its session, evaluate the condition, read and pack.

        Spec: CRP-SPEC-003 §5.3, §11.2
        """
        self._must_not_have_begun()
        ended = self._take_place()
        return self._seal_on_error(self._first) if ended is None else ended

    def fit(self, model: str, *, input_limit: int | None = None) -> FittedDispatch:
        """Pack for a model: its tokenizer, its context limit. The last fit is what counts.

        Spec: CRP-SPEC-003 §10.1

        Args:
            input_limit: tokens that its deployment takes without the answer, where that is known.
        """
        self._must_be_open()
        return self._packing.fit(model, input_limit)

    def receive(self, result: Result) -> Step:
        """Take a reply: the next call, or the examined and sealed outcome.

        The reply is examined against the envelope last fitted. What a remedy can mend is asked
        again, at most as often as the settings say; nothing is sealed before the last reply.

        Spec: CRP-SPEC-005 §1.2, §19
        """
        needs, carried = self._packing.needs, self._carried_context
        if isinstance(result, JudgeReply):
            return self._take_judged(result)
        if isinstance(result, Reply) and (needs.waiting or (carried and carried.waiting)):
            self._must_be_open()
            self._calls.add(result)
            if needs.waiting:
                needs.read(result)
            elif carried:
                carried.read(result)
            return self._seal_on_error(self._prepare)
        fitted = self._packing.last
        if fitted is None or self._admission is None or not isinstance(result, Reply):
            raise RequestError("receive takes a Reply, after begin and before the turn has ended")
        try:
            with self._end_lock:
                self._must_be_open()
                return self._received(fitted, result, self._admission)
        except PLACE_TAKEN as error:
            return self._end_without_answer("refused", error)

    @property
    def needs(self) -> tuple[str, ...]:
        """The question's information needs: given, by rules, or read of a model's reply."""
        return self._packing.needs.sub_queries

    @property
    def usage(self) -> Usage:
        """Usage of this window's calls so far, without a judge's, which is in the report."""
        return self._calls.usage

    def show_at_once(self) -> bool:
        """Whether the answer may be shown as it comes; from then on nothing is asked again.

        Spec: related facts §7
        """
        admission = self._admission
        if admission is None or self._outcome is not None or self._searches is not None:
            return False
        judge = self._world.judge
        if judge is not None and judge.settings.failure == "halt":
            return False
        strategy = self._packing.request.strategy
        self._shown = may_show_at_once(admission, self.request, strategy, self._world.settings)
        return self._shown

    def show_unless_mended(self) -> bool:
        """Whether the answer may be shown as it comes, and no remedy is given up for it."""
        admission = self._admission
        if admission is None or may_ask_again(admission.policy, self._world.settings.dispatch):
            return False
        return self.show_at_once()

    def survey(self) -> Dispatch | Outcome | None:
        """Begin a window that others are to hang from: find out what the question needs."""
        self._must_not_have_begun()
        return self._take_place() or self._decomposition()

    def surveyed(self, reply: Reply) -> None:
        """Take the reply to the call of `survey`."""
        self._must_be_open()
        self._calls.add(reply)
        self._packing.needs.read(reply)

    def plan(self, children: int) -> str | Outcome:
        """Seal this window as the one that others hang from; no answer is asked for in it.

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
        """The envelope that a dispatch would carry; nothing is called, sealed or written.

        Spec: CRP-SPEC-003 §12.1
        """
        self._dispatch_as(self.request)
        envelope = self.fit(self.request.model).envelope
        self._packing.remember(envelope)
        return envelope

    def _take_place(self) -> Outcome | None:
        """Take the window's place in its session; an outcome where no model may be asked."""
        self._began = None if self._world.observer is None else self._world.clock.now()
        # Checked before a model is paid; without write access, no refusal could be sealed either.
        self._packing.namespace.must_write()
        self._seal_on_error(self._enter)
        return self._outcome

    def _enter(self) -> None:
        admission = admit_window(
            self.request, self.session_id, self._packing.namespace, self._world, self._place
        )
        self._admission = admission
        if admission.barred is not None:
            self._barred(admission.barred, admission.safety_budget)
            return
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
        return self._unmodified() or self.fit(self.request.model)

    def _dispatch_as(self, request: Request) -> None:
        """Ask in another way from now on; the question stays the same."""
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
        """The end of a turn whose caller has the answer already.

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
        self._examined_reply = answered
        report = self._examine(fitted.envelope, answered.answer)
        self._judged_answer = self._judgement(fitted, answered, report)
        if self._judged_answer is None:
            return self._settled(fitted, answered, admission, report)
        return self._judge_on(fitted, answered, admission)

    def _take_judged(self, reply: JudgeReply) -> Step:
        """Take a judge's reply: the next call to it, or what becomes of the answer."""
        fitted, answered, admission = self._packing.last, self._examined_reply, self._admission
        judging = self._judged_answer
        if judging is None or fitted is None or answered is None or admission is None:
            raise RequestError("a judge's reply was handed over, and no judge was asked")
        try:
            with self._end_lock:
                self._must_be_open()
                judging.take(reply)
                return self._judge_on(fitted, answered, admission)
        except PLACE_TAKEN as error:
            return self._end_without_answer("refused", error)

    def _judge_on(self, fitted: FittedDispatch, answered: Reply, admission: Admission) -> Step:
        """The next call of the judge, or the decision on its report."""
        judging = self._judged_answer
        assert judging is not None
        call = judging.call()
        if call is not None:
            return JudgeDispatch(
                call, None, judging.judge, self.session_id, self._world.tracer, judging.keep
            )
        return self._settled(fitted, answered, admission, self._judged(judging))

    def _settled(
        self, fitted: FittedDispatch, answered: Reply, admission: Admission, report: Report
    ) -> Step:
        """What becomes of an examined answer: asked again, released, withheld or refused."""
        shown = cap_tier(fitted.envelope, report, self._world.settings.dpe.quality)
        verdict = AnswerVerdict.of(
            report,
            shown.quality_tier,
            request=self._packing.request,
            admission=admission,
            reply=answered,
            attempts=self._calls.redispatches if not self._shown else MOST_REDISPATCHES,
            world=self._world,
            part=self.part,
            judge_failed=self._judge_failed,
        )
        match verdict.decision:
            case AskAgain() as again:
                return self._again(again, fitted)
            case Deliver():
                unfinished = None if answered.tool_calls else self._unfinished(report, fitted)
                return unfinished or self._released(shown, report, answered, fitted, verdict)
            case Withhold(reason=reason):
                closed = self._close("halted", shown, answered.answer, report, verdict=verdict)
                withheld = self._answer(shown, answered, closed)
                unread = unread_note(admission.policy, report, reason, self.request.accept_risk)
                cause = withholding(verdict.judgement, reason)
                self._outcome = Halt(reason, withheld, *cause, unread=unread)
                self._hand_report(closed.report)
            case Unreachable(error=error):
                closed = self._close("refused", shown, "", report, error, verdict=verdict)
                self._outcome = Refusal(error, self._headers(shown, closed), shown)
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
        # A step that calls tools without a word says nothing to report.
        if reply.answer.strip() or not reply.tool_calls:
            self._hand_report(closed.report)
        self._packing.remember(answer.envelope, answer.headers, fitted.envelope.quality_tier)
        return self._outcome

    def _searched(self, fitted: FittedDispatch, reply: Reply) -> FittedDispatch | None:
        """The next call of an agentic answer that wants more to be looked up first."""
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
        """The next call of an agentic answer that leaves a part of the question open."""
        agent = self._searches
        words = agent.unfinished(report) if agent else ""
        return self._search_on(agent, fitted, words) if agent and words else None

    def _search_on(
        self, agent: FactSearches, fitted: FittedDispatch, *words: str
    ) -> FittedDispatch | None:
        """The next call, unless a limit was reached before."""
        stopped = agent.limit()
        if stopped is not None:
            self._calls.notes.append(stopped)
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
                # Those of an earlier attempt answered to another reply.
                instructions=(*self._carried(), *words.instructions),
                temperature=words.temperature,
                seed=words.seed,
                strategy=words.strategy,
            )
        )
        return self.fit(fitted.model)

    def _carried(self) -> tuple[str, ...]:
        """What stands before the words of a remedy: the caller's own, and what was searched for."""
        carried = self._carried_context.request if self._carried_context else self.request
        return (*carried.instructions, *(self._searches.instructions() if self._searches else ()))
