"""What the examination of an answer gets besides its text, from a window or from a caller."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, TypedDict

import numpy as np

from crp_integrations.dpe.catalogue import catalogue
from crp_integrations.dpe.dossier import Dossier, PriorWindow, System
from crp_integrations.dpe.engine_signals import Live
from crp_integrations.dpe.pipeline import Engines, Examination, examine
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.continuation import SUMMARY_SOURCE, next_window_number
from crp_integrations.envelope.decomposition import decompose
from crp_integrations.envelope.records import Envelope, PackedFact, window_name
from crp_integrations.errors import RequestError, StoreError
from crp_integrations.fabric.records import Fact
from crp_integrations.messages import Message
from crp_integrations.relay.records import Request
from crp_integrations.relay.settings import Settings
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import GroundingMode

if TYPE_CHECKING:
    from crp_integrations.fabric.namespace import Namespace
    from crp_integrations.fabric.view import FabricView
    from crp_integrations.relay.world import World

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


def conversation_turns(messages: Sequence[Message]) -> tuple[tuple[str, str], ...]:
    """Role and text of what user and assistant said; tools' results are evidence, not talk."""
    return tuple(
        (str(message.role), message.content)
        for message in messages
        if message.role in ("user", "assistant") and message.content.strip()
    )


class ExaminationInput(TypedDict):
    """Fields of a `Dossier` that follow from the request and the settings."""

    prompt: str
    system: System
    loop_depth: int
    no_store: bool
    conversation: tuple[tuple[str, str], ...]
    instructions: str


def examination_input(
    request: Request, settings: Settings, *, code_verified: bool
) -> ExaminationInput:
    """What the compliance stages are told of a request.

    Spec: CRP-SPEC-005 §13.1, §14.1, §17
    """
    history = (message.content for message in request.history)
    said = (request.system_prompt, *history, request.query)
    return ExaminationInput(
        prompt="\n\n".join(part for part in said if part),
        system=settings.system.system((*KEPT, VERIFIED) if code_verified else KEPT),
        loop_depth=request.loop_depth,
        no_store=request.cache.no_store,
        conversation=conversation_turns(request.history),
        instructions=request.system_prompt,
    )


def examine_answer(
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
        prior=earlier_answers(request, outdated),
        windows_left=max(0, world.settings.max_windows - next_window_number(request.prior)),
        **examination_input(request, world.settings, code_verified=world.code_verified),
    )
    return examine_dossier(dossier, world, namespace)


def examine_dossier(
    dossier: Dossier, world: World, namespace: Namespace
) -> tuple[Report, Examination]:
    """The report of a world's engines on a dossier, and how it came about."""
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


def caller_dossier(
    answer: str,
    context: Envelope | Sequence[Fact | str],
    question: str,
    settings: Settings,
    *,
    grounding: GroundingMode | str,
    kept: Sequence[str],
    prior: Sequence[str | PriorWindow] = (),
    sub_queries: Sequence[str] = (),
    no_store: bool = False,
    conversation: Sequence[Message] = (),
    instructions: str = "",
) -> Dossier:
    """The dossier of an answer whose context, question and earlier answers a caller has."""
    return Dossier(
        question=question,
        answer=answer,
        passages=tuple(passages_of(context)),
        grounding=grounding_mode(grounding),
        importances=importances_of(context),
        system=settings.system.system(kept),
        no_store=no_store,
        sub_queries=needs_of(question, sub_queries, context, settings),
        prior=prior_answers(prior),
        windows_left=max(0, settings.max_windows - len(prior) - 1),
        conversation=conversation_turns(conversation),
        instructions=instructions,
    )


def earlier_answers(request: Request, outdated: Collection[str] = ()) -> tuple[PriorWindow, ...]:
    """The session's earlier answers, oldest first: the text where it was handed over, else the
    summary.

    Spec: CRP-SPEC-005 §8.2

    A window of which there is neither stays among them, so that the report can say so.
    """
    return tuple(
        PriorWindow(
            window_name(window),
            window.window_number,
            window.answer or window.summary,
            summarised=not window.answer,
            outdated=window_name(window) in outdated,
        )
        for window in sorted(request.prior, key=lambda window: window.window_number)
    )


def vectors_of(envelope: Envelope, view: FabricView) -> FloatRows | None:
    """Unit rows of an envelope's facts in their order, shape (facts, dimensions)."""
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


def passages_of(context: Envelope | Sequence[Fact | str]) -> list[tuple[str, str]]:
    """Ids and texts of what the model had; texts are named `context-1`, `context-2`, …."""
    items = context.facts if isinstance(context, Envelope) else context
    passages = []
    for number, item in enumerate(items, 1):
        if isinstance(item, str):
            passages.append((f"context-{number}", item))
        elif isinstance(item, Fact | PackedFact):
            passages.append((item.fact_id, item.content))
        else:
            raise RequestError(f"context {number} is {type(item).__name__}, wanted a text or fact")
    return passages


def needs_of(
    question: str,
    given: Sequence[str],
    context: Envelope | Sequence[Fact | str],
    settings: Settings,
) -> tuple[str, ...]:
    """The sub-queries: those given, the envelope's own, or the question's by the same rules."""
    if isinstance(given, str):
        raise RequestError("sub_queries is one string; give a list of texts, such as [need]")
    if given:
        return tuple(given)
    if isinstance(context, Envelope):
        return context.sub_queries
    if not question.strip():
        return ()
    rules = settings.envelope.decompose
    return decompose(question, rules) if rules.rules else (question,)


def prior_answers(prior: Sequence[str | PriorWindow]) -> tuple[PriorWindow, ...]:
    """Earlier answers of the session; texts are numbered."""
    if isinstance(prior, str):
        raise RequestError("prior is one string; give a list of earlier answers, such as [answer]")
    windows = []
    for number, window in enumerate(prior, 1):
        if isinstance(window, str):
            windows.append(PriorWindow(f"window-{number}", number, window))
        elif isinstance(window, PriorWindow):
            windows.append(window)
        else:
            raise RequestError(
                f"prior {number} is {type(window).__name__}, wanted a text or PriorWindow"
            )
    return tuple(windows)


def importances_of(context: Envelope | Sequence[Fact | str]) -> tuple[float, ...]:
    """The importance of each fact; none at all as soon as one is a mere text."""
    items = context.facts if isinstance(context, Envelope) else context
    known = [item.importance_weight for item in items if isinstance(item, Fact | PackedFact)]
    return tuple(known) if len(known) == len(items) else ()


def grounding_mode(grounding: GroundingMode | str) -> GroundingMode:
    """A grounding mode by its word."""
    try:
        return GroundingMode(grounding)
    except ValueError:
        wanted = ", ".join(GroundingMode)
        raise RequestError(f"grounding {grounding!r:.40} is not one of {wanted}") from None
