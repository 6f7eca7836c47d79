"""Build the input for the examination of an answer, from a window or from a caller, and run it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict

from crp_integrations.dpe.derivation import LEVELS, derive, with_completeness
from crp_integrations.dpe.dossier import Dossier, PriorWindow, System
from crp_integrations.dpe.engine_signals import Live
from crp_integrations.dpe.judge.reasons import reasons
from crp_integrations.dpe.pipeline import Engines, Examination, examine
from crp_integrations.dpe.records import Claim, RejectedClaim, Report
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.completeness import completeness_of
from crp_integrations.dpe.stages.report import finished
from crp_integrations.envelope.continuation import next_window_number
from crp_integrations.envelope.records import EarlierWindow, Envelope, window_name
from crp_integrations.errors import RequestError
from crp_integrations.fabric.records import Fact
from crp_integrations.messages import Message
from crp_integrations.ports import without_keeping
from crp_integrations.relay.evidence import (
    AnswerEvidence,
    earlier_facts,
    evidence_of,
    evidence_vectors,
)
from crp_integrations.relay.records import Answer, Request, conversation_of
from crp_integrations.relay.settings import Settings
from crp_integrations.vocabulary import GroundingMode

if TYPE_CHECKING:
    from crp_integrations.fabric.namespace import Namespace
    from crp_integrations.fabric.view import FabricView
    from crp_integrations.relay.world import World

# What the relay records of every window, as evidence for the control catalogue.
RECORDED: Final = ("window-sealed", "events-chained", "settings-recorded")
VERIFIED: Final = "engine-verified"

# The reason in a 451 body for a use that the EU AI Act forbids.
UNACCEPTABLE: Final = "UNACCEPTABLE_EU_AI_ACT"


def conversation_turns(messages: Sequence[Message]) -> tuple[tuple[str, str], ...]:
    """Role and text of user and assistant messages; tool results are evidence and left out."""
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


def examination_input(
    request: Request, settings: Settings, *, code_verified: bool
) -> ExaminationInput:
    """The parts of a request that the compliance stages read.

    Spec: CRP-SPEC-005 §13.1, §14.1, §17
    """
    history = (message.content for message in request.history)
    texts = (request.system_prompt, *history, request.query)
    return ExaminationInput(
        prompt="\n\n".join(part for part in texts if part),
        system=settings.system.system((*RECORDED, VERIFIED) if code_verified else RECORDED),
        loop_depth=request.loop_depth,
        no_store=request.cache.no_store,
        conversation=conversation_turns(request.history),
    )


def examine_answer(
    request: Request,
    world: World,
    namespace: Namespace,
    reads: Callable[[], FabricView],
    evidence: AnswerEvidence,
    text: str,
    *,
    needs: Sequence[str] = (),
    prior: Sequence[EarlierWindow] = (),
    outdated: Collection[str] = (),
    numbered: bool = True,
) -> tuple[Report, Examination]:
    """The report on a reply that is checked against its evidence, and the examination's record.

    Spec: CRP-SPEC-005 §1.2
    """
    # Claim statuses need no embeddings; those of shown parts would be the largest part of a call.
    embeds = world.settings.dpe.decides == "composite" and evidence.passages
    dossier = Dossier(
        question=request.query,
        answer=text,
        passages=evidence.passages,
        vectors=evidence_vectors(evidence, reads()) if embeds else None,
        grounding=request.grounding,
        importances=evidence.importances,
        sub_queries=tuple(needs),
        prior=earlier_answers(prior, outdated),
        numbered=numbered,
        windows_left=max(0, world.settings.max_windows - next_window_number(request.prior)),
        rejected=evidence.rejected,
        instructions=evidence.system,
        **examination_input(request, world.settings, code_verified=world.engines.code_verified),
    )
    return examine_dossier(dossier, world, namespace)


def examine_windows(
    request: Request,
    world: World,
    namespace: Namespace,
    reads: Callable[[], FabricView],
    answers: Sequence[Answer],
    text: str,
    parts: Sequence[tuple[str, Report]],
    prior: Sequence[EarlierWindow] = (),
    rejected: Sequence[RejectedClaim] = (),
) -> Report:
    """The report on the joined text of several windows, checked against the facts of all of them.

    It has the ids of the last window; the sealed reports are still those of each window. Its flow
    and repetition are the worst of the windows; if a judge read a part, the judge's status of each
    claim is kept. In `literal`, where true claims lower an average, the worst part decides.

    Spec: CRP-SPEC-005 §1.2, §10.1

    Args:
        parts: text and report of each window and each bridge, in the order of the text.
    """
    shown = {fact.fact_id: fact for answer in answers for fact in answer.envelope.facts}
    earlier = earlier_facts(namespace, prior)
    evidence = evidence_of(
        list(shown.values()), request.history, earlier, rejected, request.system_prompt
    )
    needs = answers[0].envelope.sub_queries
    report, examination = examine_answer(
        request, world, namespace, reads, evidence, text, needs=needs, prior=prior, numbered=False
    )
    followers = [answer.report for answer in answers[1:]]
    worst_flow = min(followers, key=lambda follower: follower.flow_score)
    most_repeated = max(followers, key=lambda follower: follower.repetition_overlap)
    quality = report.quality.model_copy(
        update={
            "flow": worst_flow.quality.flow,
            "repetition": most_repeated.quality.repetition,
        }
    )
    report = report.model_copy(
        update={
            "flow_score": worst_flow.flow_score,
            "flow_remediation": worst_flow.flow_remediation,
            "repetition_level": most_repeated.repetition_level,
            "repetition_overlap": most_repeated.repetition_overlap,
            "quality": quality,
        }
    )
    settings = world.settings.dpe
    report = _with_parts(report, examination.dossier, answers, parts, settings)
    last = answers[-1].report
    flags = dict.fromkeys((*report.flags, *(flag for a in answers for flag in a.report.flags)))
    edits = sum(len(answer.repaired.edits) for answer in answers if answer.repaired)
    if edits:
        # Each window has a count of its own.
        own = [flag for flag in flags if not flag.startswith("repaired=")]
        flags = dict.fromkeys([*own, f"repaired={edits}"])
    finished_report, _ = finished(
        report.changed(flags=(*flags, f"windows={len(answers)}")),
        session_id=last.session_id,
        window_id=last.window_id,
        window_number=last.window_number,
        timestamp=last.timestamp,
        settings_digest=last.settings_digest,
    )
    return finished_report


def _with_parts(
    report: Report,
    dossier: Dossier,
    answers: Sequence[Answer],
    parts: Sequence[tuple[str, Report]],
    settings: DpeSettings,
) -> Report:
    """A report with the judge's results on the claims of each part, and the windows' needs."""
    read_parts = [part for _, part in parts if part.was_read]
    if read_parts:
        judged: dict[tuple[int, int], Claim] = {}
        begins = 0
        for text, part in parts:
            begins = dossier.answer.index(text, begins)
            for claim in part.claims:
                wrong = claim.wrong and (begins + claim.wrong[0], begins + claim.wrong[1])
                place = (begins + claim.start, begins + claim.end)
                judged[place] = claim.model_copy(update={"wrong": wrong})
            begins += len(text)
        names = ("status", "error", "wrong", "quotations", "reason", "disputed", "fix", "unfounded")
        claims = [
            claim.model_copy(update={name: getattr(judged[at], name) for name in names})
            if (at := (claim.start, claim.end)) in judged
            else claim
            for claim in report.claims
        ]
        last = read_parts[-1]
        report = report.changed(claims=tuple(claims), checked_by=last.checked_by, judge=last.judge)
    completeness = report.quality.completeness
    if settings.decides != "claims":
        worst = max((report, *(part for _, part in parts)), key=_risk_rank)
        report = report.model_copy(
            update={
                "risk_level": worst.risk_level,
                "risk_score": worst.risk_score,
                "flagged": worst.flagged,
                "reasons": reasons(dossier.answer, report.claims) if worst.flagged else (),
            }
        )
    elif read_parts:
        report = derive(report, dossier, settings)
        counted = [answer.report.quality.completeness for answer in answers]
        completeness = report.quality.completeness
        if dossier.sub_queries and any(part.level is not None for part in counted):
            # Each window is asked only for the needs that the windows before it left open.
            covered = {need for part in counted for need in part.covered}
            here = [need in covered for need in dossier.sub_queries]
            completeness = completeness_of(
                dossier.sub_queries,
                [False] * len(here),
                here,
                settings.quality,
                dossier.windows_left,
            )
    return with_completeness(report, completeness, settings)


def _risk_rank(report: Report) -> tuple[int, float]:
    return LEVELS.index(report.risk_level), report.risk_score or 0.0


def examine_dossier(
    dossier: Dossier, world: World, namespace: Namespace
) -> tuple[Report, Examination]:
    """The report of a world's engines on a dossier, and the examination's record."""
    signals, embedder = Live(), namespace.embedder
    if dossier.no_store:
        embedder = without_keeping(embedder)
    report = examine(
        dossier,
        embedder=embedder,
        verifier=world.engines.verifier,
        settings=world.settings.dpe,
        tracer=world.tracer,
        policy=world.engines.policy,
        recognisers=world.engines.recognisers,
        signals=signals,
    )
    engines = Engines.of(
        embedder, world.engines.verifier, world.engines.policy, world.engines.recognisers
    )
    return report, Examination(dossier, tuple(signals.entries), engines)


def caller_dossier(
    answer: str,
    context: Envelope | Sequence[Fact | str],
    question: str | None,
    settings: Settings,
    *,
    controls: Sequence[str],
    grounding: GroundingMode | str = GroundingMode.PREFERRED,
    prior: Sequence[str | PriorWindow] = (),
    sub_queries: Sequence[str] = (),
    no_store: bool = False,
    conversation: Sequence[Message | Mapping[str, Any]] = (),
    system_prompt: str = "",
    rejected: Sequence[RejectedClaim] = (),
) -> Dossier:
    """The dossier of an answer with a context, question and earlier answers from the caller.

    Args:
        controls: controls of the catalogue for which evidence is recorded.
    """
    for name, text in (("question", question), ("system_prompt", system_prompt)):
        if text is not None and not isinstance(text, str):
            raise RequestError(f"{name} is {type(text).__name__}, wanted a text")
    if isinstance(context, str):
        raise RequestError("context is one string; give a list of texts, such as [context]")
    messages = conversation_of(conversation)
    system = [
        system_prompt or "",
        *(message.content for message in messages if message.role == "system"),
    ]
    evidence = evidence_of(
        context,
        messages,
        rejected=rejected,
        system="\n\n".join(text for text in system if text.strip()),
    )
    return Dossier(
        question=question or "",
        answer=answer,
        passages=evidence.passages,
        grounding=grounding_mode(grounding),
        importances=evidence.importances,
        system=settings.system.system(controls),
        no_store=no_store,
        sub_queries=needs_of(question or "", sub_queries, context, settings),
        prior=prior_answers(prior),
        windows_left=max(0, settings.max_windows - len(prior) - 1),
        conversation=conversation_turns(messages),
        instructions=evidence.system,
        rejected=evidence.rejected,
    )


def earlier_answers(
    prior: Sequence[EarlierWindow], outdated: Collection[str] = ()
) -> tuple[PriorWindow, ...]:
    """The session's earlier answers, oldest first: the text of each, else its summary.

    Spec: CRP-SPEC-005 §8.2

    A window with neither is included too, so that the report can say that it is missing.
    """
    return tuple(
        PriorWindow(
            window_name(window),
            window.window_number,
            window.answer or window.summary,
            summarised=not window.answer,
            outdated=window_name(window) in outdated,
        )
        for window in sorted(prior, key=lambda window: window.window_number)
    )


def needs_of(
    question: str,
    sub_queries: Sequence[str],
    context: Envelope | Sequence[Fact | str],
    settings: Settings,
) -> tuple[str, ...]:
    """The sub-queries: those given, else the envelope's, else the question's by the same rules."""
    if isinstance(sub_queries, str):
        raise RequestError("sub_queries is one string; give a list of texts, such as [need]")
    if sub_queries:
        return tuple(sub_queries)
    if isinstance(context, Envelope):
        return context.sub_queries
    if not question.strip():
        return ()
    from crp_integrations.envelope.decomposition import decompose

    return decompose(question, settings.envelope.decompose)


def prior_answers(prior: Sequence[str | PriorWindow]) -> tuple[PriorWindow, ...]:
    """Earlier answers of the session as `PriorWindow`; plain texts are numbered."""
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


def grounding_mode(grounding: GroundingMode | str) -> GroundingMode:
    """A grounding mode by its word."""
    try:
        return GroundingMode(grounding)
    except ValueError:
        wanted = ", ".join(GroundingMode)
        raise RequestError(f"grounding {grounding!r:.40} is not one of {wanted}") from None
