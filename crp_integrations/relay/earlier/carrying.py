"""What a continuation is given of the windows before it: all, a summary, facts, or the result.

The answers of earlier windows that the store kept come whole where they fit. Where they do not, a
model is asked for a summary, which counts only when it says what the answers say.
"""

from __future__ import annotations

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import examine
from crp_integrations.messages import Reply
from crp_integrations.relay import prompt
from crp_integrations.relay.records import Request
from crp_integrations.relay.steps import Dispatch
from crp_integrations.relay.world import World
from crp_integrations.session import transfer
from crp_integrations.session.transfer import Transfer
from crp_integrations.vocabulary import TransferType


class Carrying:
    """What one window is given of those that it continues. For one Turn alone.

    Spec: CRP-SPEC-003 §14.1; related facts §5

    Attributes:
        request: the request, its prior windows with what is given of them.
        given: what that is; None before it is settled.
        waiting: a model was asked for a summary and has not replied.
    """

    def __init__(self, request: Request, world: World) -> None:
        self.request = request
        self.given: Transfer | None = None
        self.waiting = False
        self._world = world
        self._answers = "\n\n".join(window.answer for window in request.prior if window.answer)
        self._counter = world.counter_for(request.model)
        limit = world.limit_for(request.model)[0]
        self._available = prompt.room(request, self._counter, limit, world.settings.envelope)

    def asking(self) -> Dispatch | None:
        """The call for a summary; None when there is none to make, and `request` is settled."""
        if self.given is not None:
            return None
        settings = self._world.settings.sessions.transfer
        whole = self._counter.count(self._answers) if self._answers else 0
        # Deferred facts are candidates like others here, and are packed as far as they fit.
        chosen = transfer.choose_transfer(whole, 0, self._available, settings)
        if not self._answers:
            chosen = TransferType.FACTS_ONLY
        if chosen is not TransferType.SUMMARY:
            self._settle(chosen)
            return None
        self.waiting = True
        tokens = transfer.summary_tokens(whole, self._available, settings)
        model = self.request.model
        return Dispatch(
            transfer.summary_call(
                self._answers, tokens, model=model, settings=settings, seed=self.request.seed
            )
        )

    def read(self, reply: Reply) -> None:
        """Take a summary, if it is faithful to what it sums up."""
        self.waiting = False
        self._settle(TransferType.SUMMARY, reply.text, self._fidelity(reply.text))

    def _fidelity(self, summary: str) -> float:
        """Of a summary to the answers, [0, 1]: the least of what it keeps and what supports it."""
        world = self._world
        report = examine(
            Dossier(
                question=self.request.query,
                answer=summary,
                passages=(("prior", self._answers),),
                vectors=None,
                grounding=self.request.grounding,
            ),
            embedder=world.namespace.embedder,
            verifier=world.verifier,
            settings=world.settings.dpe,
            tracer=world.tracer,
        )
        return min(report.fidelity_score, report.grounding_pct)

    def _settle(
        self, chosen: TransferType, summary: str = "", fidelity: float | None = None
    ) -> None:
        """One account of all earlier answers, with the last of the windows."""
        self.given = transfer.make_transfer(
            chosen,
            self._answers,
            deferred_tokens=0,
            available_tokens=self._available,
            counter=self._counter,
            settings=self._world.settings.sessions.transfer,
            summary=summary,
            fidelity=fidelity,
        )
        *before, last = self.request.prior
        silent = [window.changed(summary="") for window in before]
        self.request = self.request.changed(prior=(*silent, self.given.into(last)))
