"""A Turn is one window: begin, fit, receive, fail. It does no I/O of its own.

The three places where the world is touched are ports of its `World`: reading candidates,
calling the model (the driver does), and closing. Between them everything is pure.

A window may take several calls: one that takes the question apart, one that sums up the window
before, the passes of its strategy, and re-dispatches. `receive` answers with the next of them
until there is an outcome.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from crp_integrations.dpe.records import Report
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import CRPError, ModelError, RequestError, SafetyHalt, StoreError
from crp_integrations.messages import Reply
from crp_integrations.relay.attempts import Attempts
from crp_integrations.relay.carrying import Carrying
from crp_integrations.relay.close import Closed, close, journalled
from crp_integrations.relay.deciding import Again, Deliver, Unreachable, Withhold
from crp_integrations.relay.emitting import emitted
from crp_integrations.relay.ending import Ending
from crp_integrations.relay.entering import ALONE, Entered, Place, enter
from crp_integrations.relay.examining import examined
from crp_integrations.relay.fitting import Fitting
from crp_integrations.relay.passes import Passes
from crp_integrations.relay.records import Answer, Request
from crp_integrations.relay.saying import Said, said
from crp_integrations.relay.steps import (
    Dispatch,
    Fitted,
    Halt,
    NotModified,
    Outcome,
    Refusal,
    Release,
    Step,
)
from crp_integrations.relay.verdict import Verdict
from crp_integrations.relay.world import World
from crp_integrations.vocabulary import EventType, HaltReason


class Turn:
    """One window's life. It has one owner and ends once.

    Spec: CRP-SPEC-003 §4
    """

    def __init__(self, request: Request, world: World, place: Place = ALONE) -> None:
        """Make a window.

        Args:
            place: among the windows of a strategy; on its own by default.
        """
        self.request = request
        self.session_id = request.session_id or world.ids.new("crp_sess_")
        self._world = world
        self._place = place
        self._entered: Entered | None = None
        self._fitting = Fitting(request, self.session_id, world)
        self._carrying: Carrying | None = None
        self._attempts = Attempts()
        self._passes = Passes(request.strategy, world.settings.dispatch)
        self._closed: Closed | None = None
        self._outcome: Outcome | None = None
        self._ending = threading.Lock()

    # --- the four verbs ----------------------------------------------------------------

    def begin(self) -> Step:
        """Find the window's place in its session, evaluate the condition, read and pack.

        Spec: CRP-SPEC-003 §5.3, §11.2

        Returns:
            A `Dispatch`, with the purpose `decompose` or `summarise` when a model prepares the
            answer first; `NotModified` when the caller's envelope is still the right one and was
            answered; a `Refusal` when no model may be asked or the fabric refuses to be read.

        Raises:
            StoreError: the store cannot be read or the window cannot be sealed.
        """
        if self._fitting.begun or self._entered is not None or self._outcome is not None:
            raise RequestError("this turn has begun already; ask the relay for a new one")
        return self._guarded(self._enter)

    def fit(self, model: str, *, context_limit: int | None = None) -> Fitted:
        """Pack for a model: its tokenizer, its context limit. The last fit is what counts.

        Spec: CRP-SPEC-003 §10.1

        Args:
            model: the model that is really tried, which after a fallback is another one.
            context_limit: tokens that this deployment takes, None for what is known of the model.

        Returns:
            The call to make, with the envelope inside its messages.

        Raises:
            RequestError: the turn has ended.
            StoreError: the store cannot be read.
        """
        self._must_be_open()
        return self._fitting.fit(model, context_limit)

    def receive(self, result: Reply | tuple[Outcome, ...]) -> Step:
        """Take a reply: the next call, or the examined and sealed outcome.

        The reply is examined against the envelope last fitted. What a remedy can mend is asked
        again, at most as often as the settings say; nothing is sealed before the last reply.

        Spec: CRP-SPEC-005 §1.2, §19

        Raises:
            RequestError: the turn has not begun, has ended, or is given a Fan's outcomes.
            EngineError: the reply could not be examined; `fail` seals the window.
            StoreError: the window could not be sealed; `receive` may be called again.
        """
        needs, carrying = self._fitting.needs, self._carrying
        if isinstance(result, Reply) and (needs.waiting or (carrying and carrying.waiting)):
            self._must_be_open()
            self._attempts.add(result)
            if needs.waiting:
                needs.read(result)
            elif carrying:
                carrying.read(result)
            return self._guarded(self._prepare)
        fitted = self._fitting.last
        if fitted is None or self._entered is None or not isinstance(result, Reply):
            raise RequestError("receive takes a Reply, after begin and before the turn has ended")
        with self._ending:
            self._must_be_open()
            return self._received(fitted, result, self._entered)

    def fail(self, error: BaseException) -> Outcome:
        """End the window because the model call failed or was cancelled; it is sealed too.

        Spec: CRP-SPEC-005 §15.1

        Returns:
            A `Refusal` with the error, or the outcome reached before, if there was one.
        """
        cancelled = isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit)
        own = error if isinstance(error, CRPError) else _named(error)
        return self._end_without_answer("cancelled" if cancelled else "failed", own, error)

    def note(self, event_type: EventType, **data: object) -> None:
        """Add something to the window's events: ids, hashes, counts and closed words only."""
        self._attempts.note(event_type, **data)

    def journal(self, event_type: EventType, **data: object) -> None:
        """Journal something about the window after its end.

        Raises:
            StoreError: it could not be written.
        """
        if self._closed is not None:
            seal, namespace = self._closed.seal, self._fitting.namespace
            journalled(namespace, self._world, seal, ((event_type, data),))

    @property
    def entered(self) -> Entered | None:
        """The window's place in its session; None before it has begun."""
        return self._entered

    def preview(self) -> Envelope:
        """The envelope that a dispatch would carry; nothing is called, sealed or written.

        Spec: CRP-SPEC-003 §12.1
        """
        envelope = self.fit(self.request.model).envelope
        self._fitting.remember(envelope)
        return envelope

    # --- before the call ---------------------------------------------------------------

    def _enter(self) -> Step:
        entered = enter(
            self.request, self.session_id, self._fitting.namespace, self._world, self._place
        )
        self._entered = entered
        if entered.barred is not None:
            return self._barred(entered.barred)
        strategy = entered.strategy(self.request.strategy)
        if strategy is not self.request.strategy:
            self._attempts.note(EventType.STRATEGY_UPGRADE, to=strategy.value, why="circuit")
        self._dispatch_as(self.request.changed(strategy=strategy, prior=entered.prior))
        if not self.request.prior and entered.prior:
            self._carrying = Carrying(self._fitting.request, self._world)
        return self._fitting.needs.asking() or self._prepare()

    def _prepare(self) -> Step:
        if self._carrying is not None:
            asking = self._carrying.asking()
            if asking is not None:
                return asking
            self._dispatch_as(self._carrying.request)
        return self._unmodified() or self.fit(self.request.model)

    def _dispatch_as(self, request: Request) -> None:
        """Ask in another way from now on; the question stays the same."""
        self._fitting.request = request
        self._passes = Passes(request.strategy, self._world.settings.dispatch)

    def _unmodified(self) -> NotModified | None:
        """The end of a turn whose caller has the answer already.

        Spec: CRP-SPEC-003 §11.2
        """
        self._fitting.match()
        ended = self._fitting.conditional.unmodified()
        with self._ending:
            self._outcome = ended or self._outcome
        return ended

    # --- after the call ----------------------------------------------------------------

    def _received(self, fitted: Fitted, reply: Reply, entered: Entered) -> Step:
        self._attempts.add(reply)
        further = self._passes.after(fitted.call, reply)
        if further is not None:
            return Dispatch(further, fitted.envelope)
        answered = self._passes.answer or reply
        report = self._examine(fitted.envelope, answered.text)
        shown = emitted(fitted.envelope, report, self._world.settings.dpe.quality)
        verdict = Verdict.of(
            report,
            shown.quality_tier,
            request=self._fitting.request,
            entered=entered,
            reply=answered,
            attempts=self._attempts.redispatches,
            world=self._world,
        )
        match verdict.decision:
            case Again() as again:
                return self._again(again, fitted)
            case Deliver():
                return self._released(shown, report, answered, fitted, verdict)
            case Withhold(reason=reason):
                closed = self._close("halted", shown, answered.text, report, verdict=verdict)
                self._outcome = Halt(reason, self._answer(shown, answered, closed))
            case Unreachable(error=error):
                closed = self._close("refused", shown, "", report, error, verdict=verdict)
                self._outcome = Refusal(error, self._headers(shown, closed))
        return self._outcome

    def _released(
        self,
        shown: Envelope,
        report: Report,
        reply: Reply,
        fitted: Fitted,
        verdict: Verdict,
    ) -> Outcome:
        closed = self._close("released", shown, reply.text, report, verdict=verdict)
        answer = self._answer(shown, reply, closed)
        self._outcome = Release(answer)
        self._fitting.remember(answer.envelope, answer.headers, fitted.envelope.quality_tier)
        return self._outcome

    def _again(self, again: Again, fitted: Fitted) -> Step:
        """Ask the same question again within this window.

        Spec: CRP-SPEC-005 §19.2
        """
        words, request = again.redispatch, self._fitting.request
        self._attempts.redispatches += 1
        self._attempts.note(
            EventType.RE_DISPATCH,
            attempt=self._attempts.redispatches,
            triggers=list(again.triggers),
        )
        if again.upgraded:
            self._attempts.note(EventType.STRATEGY_UPGRADE, to=words.strategy.value, why="risk")
        if "flow" in again.triggers:
            self._attempts.remedies.append("prompt-augmented")
            self._attempts.note(EventType.FLOW_REMEDIATION, remedy="prompt-augmented")
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
        return self._carrying.request.instructions if self._carrying else self.request.instructions

    def _examine(self, envelope: Envelope | None, text: str) -> Report:
        fitting = self._fitting
        report = examined(
            fitting.request, self._world, fitting.namespace, fitting.reads, envelope, text
        )
        return report.changed(flags=(*report.flags, *self._flags()))

    def _flags(self) -> list[str]:
        """How the fabric was read, as far as it is not the usual way."""
        namespace = self._fitting.namespace
        flags = [f"guard={namespace.guard_name}"]
        if not self._world.code_verified:
            flags.append("engine-code-not-checked")
        if namespace.residency:
            flags.append(f"residency={namespace.residency}")
        if self.request.cache.text:
            flags.append(f"cache={self.request.cache.text}")
        if self._attempts.redispatches:
            flags.append(f"re-dispatches={self._attempts.redispatches}")
        return [*flags, *self._fitting.conditional.flags]

    # --- the end -----------------------------------------------------------------------

    def _guarded(self, going_on: Callable[[], Step]) -> Step:
        """Whatever is in the way before the call, the window is sealed as refused or failed."""
        try:
            return going_on()
        except CRPError as error:
            return self._end_without_answer("refused", error)
        except BaseException as error:
            try:
                self.fail(error)
            except StoreError as failure:
                error.add_note(f"the window could not be sealed: {type(failure).__name__}")
            raise

    def _barred(self, reason: HaltReason) -> Outcome:
        self._attempts.note(EventType.SAFETY_HALT, reason=reason.value)
        error = SafetyHalt(f"no model was asked: {reason}", report=None, trail=self.session_id)
        error.reason = reason
        return self._end_without_answer("refused", error)

    def _end_without_answer(
        self, outcome: str, error: CRPError, cause: BaseException | None = None
    ) -> Outcome:
        with self._ending:
            if self._outcome is not None:
                return self._outcome
            fitted = self._fitting.last
            envelope = fitted.envelope if fitted else None
            report = self._examine(envelope, "")
            report = report.changed(flags=(*report.flags, f"window-{outcome}"))
            closed = self._close(outcome, envelope, "", report, cause or error)
            headers = self._headers(envelope, closed) if envelope else {}
            self._outcome = Refusal(error, headers)
            return self._outcome

    def _close(
        self,
        outcome: str,
        envelope: Envelope | None,
        text: str,
        report: Report,
        error: BaseException | None = None,
        *,
        verdict: Verdict | None = None,
    ) -> Closed:
        world, attempts, fitted = self._world, self._attempts, self._fitting.last
        notes = (*attempts.notes, *(verdict.notes if verdict else ()))
        ending = Ending(
            outcome=outcome,
            envelope=envelope,
            text=text,
            report=report,
            model=fitted.model if fitted else self.request.model,
            strategy=self._fitting.request.strategy,
            tokens=attempts.usage.total_tokens,
            error=type(error).__name__ if error else "",
            notes=notes,
            sibling=self._place.sibling,
            keep=not self.request.cache.no_store,
            transfer=self._carrying.given if self._carrying else None,
            born={
                "parent_session": self.request.parent_session,
                "loop_depth": self.request.loop_depth,
                "agent_id": self.request.agent_id,
            },
        )
        with world.tracer.step("close"):
            closed = close(self._fitting.namespace, world, self.session_id, self._entered, ending)
        self._closed = closed
        if verdict is not None:
            verdict.post(world, closed.report)
        return closed

    def _answer(self, envelope: Envelope, reply: Reply, closed: Closed) -> Answer:
        seal = closed.seal
        return Answer(
            text=reply.text,
            envelope=envelope.changed(window_number=seal.window_number),
            report=closed.report,
            headers=self._headers(envelope, closed),
            reply=reply.changed(usage=self._attempts.usage),
            session_id=self.session_id,
            window_id=seal.window_id,
            window_number=seal.window_number,
            continuation_id=closed.left.node.continuation_id,
        )

    def _headers(self, envelope: Envelope, closed: Closed) -> dict[str, str]:
        return said(
            Said(
                envelope=envelope,
                closed=closed,
                entered=self._entered,
                request=self._fitting.request,
                attempts=self._attempts,
                passes=self._passes,
                cache_status=self._fitting.conditional.outcome,
            ),
            self._world,
        )

    def _must_be_open(self) -> None:
        if self._outcome is not None:
            raise RequestError("this turn has ended; ask the relay for a new one")


def _named(error: BaseException) -> ModelError:
    """A foreign error by its name; its message could hold text of a prompt."""
    return ModelError(f"the model call ended with {type(error).__name__}")
