"""Two verbs that need no store: `pack` facts for a model, `examine` an answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import examine as run_stages
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.stages.s13_report import finish
from crp_integrations.envelope.assemble import assemble
from crp_integrations.envelope.offered import offered
from crp_integrations.envelope.records import Envelope, PackedFact
from crp_integrations.errors import RequestError
from crp_integrations.fabric.records import Fact
from crp_integrations.ports import Embedder
from crp_integrations.relay import prompt
from crp_integrations.relay.admit import admit
from crp_integrations.relay.build import (
    clock,
    default_embedder,
    default_verifier,
    limits,
    tokenizers,
)
from crp_integrations.relay.settings import Settings, load
from crp_integrations.vocabulary import GroundingMode


def pack(
    question: str,
    facts: Sequence[Fact | str],
    *,
    model: str,
    budget_tokens: int | None = None,
    grounding: GroundingMode | str = GroundingMode.PREFERRED,
    k: int | None = None,
    now: datetime | None = None,
    embedder: Embedder | None = None,
    settings: Settings | None = None,
) -> Envelope:
    """Rank facts for a question and pack them into a token budget, without any store.

    Spec: CRP-SPEC-003 §6, §7

    Args:
        facts: texts, or facts with importance, dates and sources; equal ids count once.
        model: whose tokenizer counts.
        budget_tokens: cap on the rendered text; None derives it from the model's context
            limit; 0 or less gives an empty envelope of tier D.
        k: cap on the number of facts.
        now: the moment that freshness is counted to; None for the clock's.
        embedder: None for the one that ships.
        settings: None reads `CRP_*` and the defaults.

    Returns:
        The envelope with text, facts in order, tier with its reasons, and every drop.

    Raises:
        RequestError: the question is empty or an argument has no usable value.
    """
    if isinstance(facts, str):
        raise RequestError("facts is one string; give a list of texts, such as [fact]")
    chosen = settings or load()
    request = admit(
        query=question, model=model, grounding=grounding, k=k, budget_tokens=budget_tokens
    )
    counter = tokenizers(chosen)(model)
    if request.budget_tokens is None:
        budget = prompt.room(request, counter, limits(chosen)(model)[0], chosen.envelope)
    else:
        budget = max(0, request.budget_tokens)
    candidates = offered(
        request.query,
        facts,
        embedder=embedder or default_embedder(),
        counter=counter,
        settings=chosen.envelope,
    )
    return assemble(
        candidates,
        budget_tokens=budget,
        counter=counter,
        grounding=request.grounding,
        settings=chosen.envelope,
        now=now or clock(chosen).now(),
        k=request.k,
        model=model,
        settings_digest=chosen.digest,
    )


def examine(
    answer: str,
    context: Envelope | Sequence[Fact | str],
    question: str | None = None,
    *,
    grounding: GroundingMode | str = GroundingMode.PREFERRED,
    embedder: Embedder | None = None,
    settings: Settings | None = None,
) -> Report:
    """Check an answer claim by claim against the context that the model had.

    Spec: CRP-SPEC-005 §3 to §7

    Args:
        context: an envelope, facts, or texts; texts are named `context-1`, `context-2`, ….
        question: what was asked, None when it is not known.
        embedder: None for the one that ships.

    Returns:
        The report: risk, counts, and for each claim what it rests on. Nothing is sealed.

    Raises:
        RequestError: the answer is no text, or the context no list of texts and facts, or the
            grounding mode not one of the three.
    """
    if not isinstance(answer, str):
        raise RequestError(f"answer is {type(answer).__name__}, wanted a text")
    if isinstance(context, str):
        raise RequestError("context is one string; give a list of texts, such as [context]")
    chosen = settings or load()
    dossier = Dossier(
        question=question or "",
        answer=answer,
        passages=tuple(_passages(context)),
        vectors=None,
        grounding=_mode(grounding),
    )
    report = run_stages(
        dossier,
        embedder=embedder or default_embedder(),
        verifier=default_verifier(),
        settings=chosen.dpe,
    )
    return finish(report, settings_digest=chosen.digest)


def _passages(context: Envelope | Sequence[Fact | str]) -> list[tuple[str, str]]:
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


def _mode(grounding: GroundingMode | str) -> GroundingMode:
    try:
        return GroundingMode(grounding)
    except ValueError:
        wanted = ", ".join(GroundingMode)
        raise RequestError(f"grounding {grounding!r:.40} is not one of {wanted}") from None
