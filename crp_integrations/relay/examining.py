"""What the examination of an answer is told besides its text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, TypedDict

import numpy as np

from crp_integrations.dpe.catalogue import catalogue
from crp_integrations.dpe.dossier import Dossier, PriorWindow, System
from crp_integrations.dpe.engine_signals import Live
from crp_integrations.dpe.examination import Engines, Examination
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.continuation import SUMMARY_SOURCE, next_window_number
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import StoreError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.view import FabricView
from crp_integrations.messages import Message
from crp_integrations.relay.earlier.outdating import named
from crp_integrations.relay.records import Request
from crp_integrations.relay.settings import Settings
from crp_integrations.relay.world import World
from crp_integrations.vectors import FloatRows

# What the relay keeps of every window, as evidence for the control catalogue.
KEPT: Final = ("window-sealed", "events-chained", "settings-recorded")
VERIFIED: Final = "engine-verified"

# The reason that a 451 body gives for a use that the EU AI Act forbids (related facts §3).
UNACCEPTABLE: Final = "UNACCEPTABLE_EU_AI_ACT"


def may_be_forbidden(settings: Settings) -> bool:
    """Whether the registered use is one that the EU AI Act forbids, so that no answer is shown.

    Spec: CRP-SPEC-005 §14.2
    """
    domain = settings.system.domain
    data = catalogue().data
    found = data["domains"].get(domain.value, {}) if domain else {}
    return not set(data["forbidden"]).isdisjoint(found.values())


def spoken(messages: Sequence[Message]) -> tuple[tuple[str, str], ...]:
    """Role and text of what user and assistant said; tools' results are evidence, not talk."""
    return tuple(
        (str(message.role), message.content)
        for message in messages
        if message.role in ("user", "assistant") and message.content.strip()
    )


class Asked(TypedDict):
    """Fields of a `Dossier` that follow from the request and the settings."""

    prompt: str
    system: System
    loop_depth: int
    no_store: bool
    conversation: tuple[tuple[str, str], ...]
    instructions: str


def asked(request: Request, settings: Settings, *, code_verified: bool) -> Asked:
    """What the compliance stages are told of a request.

    Spec: CRP-SPEC-005 §13.1, §14.1, §17

    Returns:
        With the prompt as the caller gave it: system prompt, history and question, with an empty
        line between them. The facts are no part of it.
    """
    history = (message.content for message in request.history)
    said = (request.system_prompt, *history, request.query)
    return Asked(
        prompt="\n\n".join(part for part in said if part),
        system=settings.system.system((*KEPT, VERIFIED) if code_verified else KEPT),
        loop_depth=request.loop_depth,
        no_store=request.cache.no_store,
        conversation=spoken(request.history),
        instructions=request.system_prompt,
    )


def examined(
    request: Request,
    world: World,
    namespace: Namespace,
    reads: Callable[[], FabricView],
    envelope: Envelope | None,
    text: str,
    *,
    needs: Sequence[str] = (),
    outdated: Collection[str] = (),
) -> tuple[Report, Examination]:
    """The report on a reply, beside the envelope that the model had, and how it came about.

    Spec: CRP-SPEC-005 §1.2

    Args:
        reads: opens what the window reads; called only when there are facts.
        envelope: None when the window ended before there was one.
        needs: that the session's answers are to cover.
        outdated: names of earlier windows whose sources have changed since.
    """
    facts = envelope.facts if envelope else ()
    dossier = Dossier(
        question=request.query,
        answer=text,
        passages=tuple([(fact.fact_id, fact.content) for fact in facts]),
        vectors=vectors_of(envelope, reads()) if envelope and facts else None,
        grounding=request.grounding,
        importances=tuple([fact.importance_weight for fact in facts]),
        sub_queries=tuple(needs),
        prior=earlier(request, outdated),
        windows_left=max(0, world.settings.max_windows - next_window_number(request.prior)),
        **asked(request, world.settings, code_verified=world.code_verified),
    )
    signals, embedder = Live(), namespace.embedder
    report = examine(
        dossier,
        embedder=embedder,
        verifier=world.verifier,
        settings=world.settings.dpe,
        tracer=world.tracer,
        policy=world.policy,
        recognisers=world.recognisers,
        signals=signals,
    )
    engines = Engines.of(embedder, world.verifier, world.policy, world.recognisers)
    return report, Examination(dossier, tuple(signals.entries), engines)


def earlier(request: Request, outdated: Collection[str] = ()) -> tuple[PriorWindow, ...]:
    """The session's earlier answers, oldest first: the text where it was handed over, else the
    summary.

    Spec: CRP-SPEC-005 §8.2

    A window of which there is neither stays among them, so that the report can say so.
    """
    return tuple(
        PriorWindow(
            named(window),
            window.window_number,
            window.answer or window.summary,
            summarised=not window.answer,
            outdated=named(window) in outdated,
        )
        for window in sorted(request.prior, key=lambda window: window.window_number)
    )


def vectors_of(envelope: Envelope, view: FabricView) -> FloatRows | None:
    """Unit rows of an envelope's facts in their order, shape (facts, dimensions).

    Args:
        envelope: with one fact at least.

    Returns:
        None when a fact was withdrawn during the call. The model saw it all the same; without
        stored vectors its text is embedded again, to equal ones.
    """
    # The summary of an earlier window is in no store, and a part of a fact is not all it says.
    told = [
        fact for fact in envelope.facts if fact.spans or fact.source_id.startswith(SUMMARY_SOURCE)
    ]
    made = {fact.fact_id for fact in told}
    stored = [fact.fact_id for fact in envelope.facts if fact.fact_id not in made]
    try:
        rows = view.vectors(stored)
    except StoreError:
        return None
    if not told:
        return rows
    new = view.embedder.embed_passages([fact.content for fact in told])
    ids = [*stored, *(fact.fact_id for fact in told)]
    row = dict(zip(ids, [*rows, *new], strict=True))
    return np.stack([row[fact.fact_id] for fact in envelope.facts])
