"""A Turn is one window: begin, fit, receive, fail. It does no I/O of its own.

The three places where the world is touched are ports of its `World`: reading candidates,
calling the model (the driver does), and closing. Between them everything is pure.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.ports import Verifier
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.assemble import assemble
from crp_integrations.envelope.gather import gather, recount
from crp_integrations.envelope.records import Candidates, Envelope
from crp_integrations.errors import CRPError, ModelError, RequestError, StoreError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.view import View
from crp_integrations.headers.render import render
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.ports import Clock, Ids, KeyRing, TokenCounter, Tracer
from crp_integrations.relay import prompt
from crp_integrations.relay.close import Closed, close
from crp_integrations.relay.records import Answer, Request
from crp_integrations.relay.settings import Settings
from crp_integrations.relay.steps import Dispatch, Outcome, Refusal, Release, Step
from crp_integrations.vectors import FloatRows


@dataclass(frozen=True, slots=True)
class World:
    """Everything that a Turn is handed from outside.

    Attributes:
        namespace: the only way to facts, bound to tenant, subject and guard.
        regions: the same by region, for requests that name one.
        counter_for: the token counter of a model.
        limit_for: a model's context limit in tokens and where the number is from.
        settings_digest: hash of the settings, computed once.
    """

    namespace: Namespace
    clock: Clock
    ids: Ids
    keyring: KeyRing
    tracer: Tracer
    verifier: Verifier
    counter_for: Callable[[str], TokenCounter]
    limit_for: Callable[[str], tuple[int, str]]
    settings: Settings
    settings_digest: str
    regions: Mapping[str, Namespace] = field(default_factory=dict)

    def namespace_in(self, residency: str) -> Namespace:
        """The namespace of a region; the one of no region for an empty name.

        Spec: CRP-SPEC-009 §7.2

        Raises:
            RequestError: there is no such region; names those that there are.
        """
        found = self.regions.get(residency.lower()) if residency else self.namespace
        if found is None:
            raise RequestError(
                f"residency {residency!r:.40} is not one of the regions {sorted(self.regions)}"
            )
        return found


class Turn:
    """One window's life. It has one owner and ends once.

    Spec: CRP-SPEC-003 §4
    """

    def __init__(self, request: Request, world: World) -> None:
        self.request = request
        self.session_id = request.session_id or world.ids.new("crp_sess_")
        self._world = world
        self._namespace = world.namespace_in(request.residency)
        self._view: View | None = None
        self._candidates: Candidates | None = None
        self._fitted: Dispatch | None = None
        self._outcome: Outcome | None = None
        self._ending = threading.Lock()

    def begin(self) -> Step:
        """Read the candidates and pack them for the request's model.

        Returns:
            A `Dispatch`, or a `Refusal` when the fabric refuses to be read.

        Raises:
            StoreError: the store cannot be read or the window cannot be sealed.
        """
        if self._candidates is not None or self._outcome is not None:
            raise RequestError("this turn has begun already; ask the relay for a new one")
        try:
            return self.fit(self.request.model)
        except CRPError as error:
            return self._end_without_answer("refused", error)
        except BaseException as error:
            try:
                self.fail(error)
            except StoreError as failure:
                error.add_note(f"the window could not be sealed: {type(failure).__name__}")
            raise

    def fit(self, model: str, *, context_limit: int | None = None) -> Dispatch:
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
        request, world = self.request, self._world
        counter = world.counter_for(model)
        with world.tracer.step("envelope"):
            self._candidates = self._select(counter)
            envelope = assemble(
                self._candidates,
                budget_tokens=prompt.room(
                    request,
                    counter,
                    context_limit or world.limit_for(model)[0],
                    world.settings.envelope,
                ),
                counter=counter,
                grounding=request.grounding,
                settings=world.settings.envelope,
                now=world.clock.now(),
                k=request.k,
                model=model,
                session_id=self.session_id,
                strategy=request.strategy,
                settings_digest=world.settings_digest,
                max_age_seconds=request.cache.max_age_seconds,
            )
        call = ModelCall(
            model=model,
            messages=prompt.messages(request, envelope.text),
            temperature=request.temperature,
            max_tokens=request.max_tokens,
            seed=request.seed,
            tools=request.tools,
        )
        self._fitted = Dispatch(call, envelope)
        return self._fitted

    def receive(self, result: Reply | tuple[Outcome, ...]) -> Step:
        """Examine a reply against the envelope last fitted, and seal the window.

        Spec: CRP-SPEC-005 §1.2

        Raises:
            RequestError: the turn has not begun, has ended, or is given a Fan's outcomes.
            EngineError: the reply could not be examined; `fail` seals the window.
            StoreError: the window could not be sealed; `receive` may be called again.
        """
        fitted = self._fitted
        if fitted is None or not isinstance(result, Reply):
            raise RequestError("receive takes a Reply, after begin and before the turn has ended")
        with self._ending:
            self._must_be_open()
            report = self._examine(fitted.envelope, result.text)
            closed = self._close("released", fitted.envelope, result.text, report)
            self._outcome = Release(self._answer(fitted.envelope, result, closed))
            return self._outcome

    def fail(self, error: BaseException) -> Outcome:
        """End the window because the model call failed or was cancelled; it is sealed too.

        Spec: CRP-SPEC-005 §15.1

        Returns:
            A `Refusal` with the error, or the outcome reached before, if there was one.
        """
        cancelled = isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit)
        own = error if isinstance(error, CRPError) else ModelError(_sentence(error))
        return self._end_without_answer("cancelled" if cancelled else "failed", own, error)

    def preview(self) -> Envelope:
        """The envelope that a dispatch would carry; nothing is called, sealed or written.

        Spec: CRP-SPEC-003 §12.1
        """
        return self.fit(self.request.model).envelope

    def _select(self, counter: TokenCounter) -> Candidates:
        world, request = self._world, self.request
        if self._candidates is not None:
            # The same candidates for every model that is tried; only their sizes differ.
            return recount(self._candidates, self._reads(), counter)
        with world.tracer.step("gather"):
            return gather(
                self._reads(),
                request.query,
                sub_queries=request.sub_queries,
                counter=counter,
                settings=world.settings.envelope,
            )

    def _reads(self) -> View:
        """What the window reads; what its session held at the first read stays within reach."""
        if self._view is None:
            keep = not self.request.cache.no_store
            self._view = self._namespace.view(self.session_id, keep_counts=keep)
        return self._view

    def _examine(self, envelope: Envelope | None, text: str) -> Report:
        world = self._world
        facts = envelope.facts if envelope else ()
        ids = [fact.fact_id for fact in facts]
        dossier = Dossier(
            question=self.request.query,
            answer=text,
            passages=tuple((fact.fact_id, fact.content) for fact in facts),
            vectors=self._vectors(ids) if ids else None,
            grounding=self.request.grounding,
        )
        report = examine(
            dossier,
            embedder=self._namespace.embedder,
            verifier=world.verifier,
            settings=world.settings.dpe,
            tracer=world.tracer,
        )
        return report.changed(flags=(*report.flags, *self._flags()))

    def _flags(self) -> list[str]:
        """How the fabric was read, as far as it is not the usual way."""
        flags = [f"guard={self._namespace.guard_name}"]
        if self._namespace.residency:
            flags.append(f"residency={self._namespace.residency}")
        if self.request.cache.text:
            flags.append(f"cache={self.request.cache.text}")
        return flags

    def _vectors(self, ids: list[str]) -> FloatRows | None:
        try:
            return self._reads().vectors(ids)
        except StoreError:
            # A fact that was withdrawn during the call. The model saw it all the same; without
            # stored vectors its text is embedded again, to equal ones.
            return None

    def _end_without_answer(
        self, outcome: str, error: CRPError, cause: BaseException | None = None
    ) -> Outcome:
        with self._ending:
            if self._outcome is not None:
                return self._outcome
            envelope = self._fitted.envelope if self._fitted else None
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
    ) -> Closed:
        world = self._world
        with world.tracer.step("close"):
            return close(
                self._namespace,
                clock=world.clock,
                keyring=world.keyring,
                session_id=self.session_id,
                envelope=envelope,
                response_text=text,
                report=report,
                outcome=outcome,
                settings_digest=world.settings_digest,
                model=self._fitted.model if self._fitted else self.request.model,
                error=type(error).__name__ if error else "",
                keep_use=not self.request.cache.no_store,
            )

    def _answer(self, envelope: Envelope, reply: Reply, closed: Closed) -> Answer:
        seal = closed.seal
        return Answer(
            text=reply.text,
            envelope=envelope.changed(window_number=seal.window_number),
            report=closed.report,
            headers=self._headers(envelope, closed),
            reply=reply,
            session_id=self.session_id,
            window_id=seal.window_id,
            window_number=seal.window_number,
        )

    def _headers(self, envelope: Envelope, closed: Closed) -> dict[str, str]:
        number = closed.seal.window_number
        return render(
            envelope,
            closed.report,
            session_id=self.session_id,
            window_number=number,
            window_total=max(number, self._world.settings.max_windows),
            seal=closed.seal,
            window_hmac=closed.window_hmac,
        )

    def _must_be_open(self) -> None:
        if self._outcome is not None:
            raise RequestError("this turn has ended; ask the relay for a new one")


def _sentence(error: BaseException) -> str:
    """A foreign error's name; its message could hold text of a prompt."""
    return f"the model call ended with {type(error).__name__}"
