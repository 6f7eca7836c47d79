"""Earlier windows: what a new window receives of them, and which ones its subject may see.

The stored answers of earlier windows are passed on whole if they fit. Otherwise a model is asked
for a summary, which is used only if it is faithful to the answers.

A session belongs to a tenant. Its users may have different rights, and these may change, so they
are checked again for each window.

Spec: CRP-SPEC-009 §4.5
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.records import EarlierWindow, window_name
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Fact
from crp_integrations.messages import Reply
from crp_integrations.ports import without_keeping
from crp_integrations.relay import prompt
from crp_integrations.relay.records import Request
from crp_integrations.relay.steps import Dispatch
from crp_integrations.relay.world import World
from crp_integrations.session import transfer
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import WindowNode
from crp_integrations.session.transfer import Transfer
from crp_integrations.session.window_graph import seen_windows
from crp_integrations.vocabulary import FactStatus, TransferType


class CarriedContext:
    """What one window receives of the windows that it continues. Used by one Turn only.

    Spec: CRP-SPEC-003 §14.1; related facts §5

    Attributes:
        request: the request, whose prior windows have the texts to be passed on.
        waiting: whether a model was asked for a summary and has not replied.
    """

    def __init__(self, request: Request, world: World) -> None:
        self.request = request
        self.transfer: Transfer | None = None
        self.waiting = False
        self._world = world
        self._answers = "\n\n".join(window.answer for window in request.prior if window.answer)
        self._counter = world.engines.counter_for(request.model)
        limit = world.engines.limit_for(request.model)[0]
        self._available = prompt.reckon_room(
            request, self._counter, limit, world.settings.envelope
        ).tokens

    def asking(self) -> Dispatch | None:
        """The call for a summary; None if none is needed, and `request` is final then."""
        if self.transfer is not None:
            return None
        settings = self._world.settings.sessions.transfer
        answer_tokens = self._counter.count(self._answers) if self._answers else 0
        # Deferred facts count 0: they are candidates like others, packed as far as they fit.
        chosen = transfer.choose_transfer(
            answer_tokens, 0, self._available, settings, summarised=settings.summaries
        )
        if not self._answers:
            chosen = TransferType.FACTS_ONLY
        if chosen is not TransferType.SUMMARY:
            self._settle(chosen)
            return None
        self.waiting = True
        tokens = transfer.summary_tokens(answer_tokens, self._available, settings)
        model = self.request.model
        return Dispatch(
            transfer.summary_call(
                self._answers, tokens, model=model, settings=settings, seed=self.request.seed
            )
        )

    def read(self, reply: Reply) -> None:
        """Use a summary if it is faithful to the answers."""
        self.waiting = False
        self._settle(TransferType.SUMMARY, reply.text, self._fidelity(reply.text))

    def _fidelity(self, summary: str) -> float:
        """Fidelity of a summary to the answers, [0, 1]; claims that it invents lower it."""
        world = self._world
        report = examine(
            Dossier(
                question=self.request.query,
                answer=summary,
                passages=(("prior", self._answers),),
                vectors=None,
                grounding=self.request.grounding,
            ),
            embedder=without_keeping(world.places.namespace.embedder),
            verifier=world.engines.verifier,
            settings=world.settings.dpe,
            tracer=world.tracer,
        )
        # A number or name that is in no answer was invented by the summary.
        stated = report.claim_counts.total
        invented = sum(bool(claim.hints) for claim in report.claims)
        return min(report.fidelity_score, 1.0 - invented / stated if stated else 1.0)

    def _settle(
        self, chosen: TransferType, summary: str = "", fidelity: float | None = None
    ) -> None:
        """Put one text for all earlier answers into the last window, and none into the others."""
        self.transfer = transfer.make_transfer(
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
        self.request = self.request.changed(
            prior=(*silent, last.changed(summary=self.transfer.text))
        )


def hidden_windows(
    namespace: Namespace, windows: Sequence[WindowNode], earlier: Mapping[str, EarlierWindow]
) -> set[str]:
    """Ids of windows that showed a fact the subject may not read, and of those that follow them.

    Spec: CRP-SPEC-003 §14.2, §16.1
    """
    shown = {id_: [seen.fact_id for seen in window.facts_seen] for id_, window in earlier.items()}
    ids = {id_ for shown_here in shown.values() for id_ in shown_here}
    seen_now = namespace.facts(sorted(ids)) if ids else []
    hidden = denied_facts(namespace, ids, seen_now)
    redacted = redacted_hashes(namespace, seen_now)
    showed_other_text = {
        id_
        for id_, window in earlier.items()
        if any(
            redacted.get(seen.fact_id, seen.content_hash) != seen.content_hash
            for seen in window.facts_seen
        )
    }
    window_ids: set[str] = set()
    for window in windows if hidden or showed_other_text else ():
        shown_here = shown.get(window.window_id, ())
        if (
            window.window_id in showed_other_text
            or not hidden.isdisjoint(shown_here)
            or not window_ids.isdisjoint(window.parents)
        ):
            window_ids.add(window.window_id)
    return window_ids


def window_report(namespace: Namespace, window_id: str) -> Report | None:
    """The stored report on a window; None if there is none or the subject may not read it.

    Spec: CRP-SPEC-005 §15.4
    """
    with namespace.begin(write=False) as transaction:
        sessions = sessions_of(transaction)
        stored = sessions.report(window_id)
        if stored is None:
            return None
        report = Report.model_validate_json(stored)
        windows = sessions.windows(report.session_id)
        priors = sessions.priors(seen_windows(windows, [window_id]))
    # For a window that was not released, only its report says which facts it was shown.
    shown = {evidence.fact_id for claim in report.claims for evidence in claim.evidence}
    if denied_facts(namespace, shown) or window_id in hidden_windows(namespace, windows, priors):
        return None
    if window_id not in priors and redacted_hashes(namespace, namespace.facts(sorted(shown))):
        # The window may have been shown more of a fact than the subject may see.
        return None
    return report


def denied_facts(
    namespace: Namespace, fact_ids: Collection[str], seen: Sequence[Fact] | None = None
) -> set[str]:
    """The facts that exist but that the subject may not read.

    A withdrawn fact is not denied: the answers given with it were deleted with it.
    """
    if seen is None:
        seen = namespace.facts(sorted(fact_ids)) if fact_ids else []
    missing = {*fact_ids} - {fact.fact_id for fact in seen}
    if not missing:
        return set()
    with namespace.begin(write=False) as transaction:
        in_namespace = {fact.fact_id: fact for fact in transaction.facts.get(sorted(missing))}
    elsewhere = sorted(missing - in_namespace.keys())
    shared = namespace.stored(elsewhere) if elsewhere else set()
    return {id_ for id_, fact in in_namespace.items() if fact.retrievable} | shared


def redacted_hashes(namespace: Namespace, seen: Sequence[Fact]) -> dict[str, str]:
    """Hashes of the redacted texts that the subject may see, for facts that the guard redacts.

    A window that showed another text of such a fact may have shown more.
    """
    return {
        fact.fact_id: fact.content_hash for fact in seen if namespace.decision(fact.labels).redact
    }


def outdated_windows(
    namespace: Namespace, prior: Sequence[EarlierWindow], nodes: Sequence[WindowNode]
) -> tuple[str, ...]:
    """Names of windows that showed a fact whose text has changed, or that has become stale since.

    Windows with a deleted fact need no check: their answers were deleted with it.
    """
    ids = sorted({seen.fact_id for window in prior for seen in window.facts_seen})
    if not ids:
        return ()
    now = {fact.fact_id: fact for fact in namespace.facts(ids)}
    sealed = {node.window_id: node.timestamp for node in nodes}
    return tuple(
        window_name(window)
        for window in prior
        if any(
            seen.fact_id in now
            and _has_changed(now[seen.fact_id], seen.content_hash, sealed.get(window.window_id, ""))
            for seen in window.facts_seen
        )
    )


def _has_changed(fact: Fact, shown: str, sealed: str) -> bool:
    if fact.content_hash != shown:
        return True
    if fact.status is not FactStatus.STALE or not sealed or fact.modified_at is None:
        return False
    # A fact that was already stale when it was shown has not changed since.
    return fact.modified_at > datetime.fromisoformat(sealed)
