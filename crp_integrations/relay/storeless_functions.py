"""Verbs that need no store: `pack`, `examine`, `compact` messages, `count_tokens`.

What a verb works with is imported when it is first called, so that importing it costs little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, cast

from crp_integrations.errors import RequestError
from crp_integrations.vocabulary import GroundingMode

if TYPE_CHECKING:
    from pydantic import BaseModel

    from crp_integrations.dpe.dossier import Dossier, PriorWindow
    from crp_integrations.dpe.ports import Verifier
    from crp_integrations.dpe.records import RejectedClaim, Report
    from crp_integrations.envelope.records import Envelope
    from crp_integrations.fabric.records import Fact
    from crp_integrations.governance.compaction.records import CompactHistory
    from crp_integrations.guard.ports import InjectionModel
    from crp_integrations.messages import Message
    from crp_integrations.relay.defaults import EmbedderSource, RerankerSource
    from crp_integrations.relay.judge import JudgeOptions, JudgeSource
    from crp_integrations.relay.prompt import Conversation
    from crp_integrations.relay.records import TokenCount
    from crp_integrations.relay.settings import Settings
    from crp_integrations.vocabulary import BudgetTokens


# An answer as a caller has it: a text, or a structure with the values of its fields.
AnswerValue: TypeAlias = "str | Mapping[str, Any] | Sequence[Any] | BaseModel"


def pack(
    question: str,
    facts: Sequence[Fact | str],
    *,
    model: str,
    budget_tokens: BudgetTokens | None = None,
    grounding: GroundingMode | str = GroundingMode.PREFERRED,
    k: int | None = None,
    now: datetime | None = None,
    embedder: EmbedderSource | None = None,
    reranker: RerankerSource | None = None,
    injections: InjectionModel | None = None,
    settings: Settings | None = None,
) -> Envelope:
    """Rank facts for a question and pack them into a token budget, without any store.

    Spec: CRP-SPEC-003 §6, §7

    Args:
        facts: texts, or facts with importance, dates and sources; equal ids count once.
        model: whose tokenizer counts.
        budget_tokens: cap on the text; `auto`, the default, is what a question needs, `window`
            all that the model takes in; 0 gives an empty envelope of tier D.
        k: cap on the number of facts.
        now: the moment that freshness is counted to; None for the clock's.
        reranker: looks at the best candidates again; None for none.
        injections: asked beside the rules where `envelope.screening` is enabled.
        settings: None reads `CRP_*` and the defaults.

    Returns:
        The envelope with text, facts in order, tier with its reasons, and every drop.

    Raises:
        RequestError: the question is empty or an argument has no usable value.
    """
    return CallerSelection(
        question,
        model=model,
        budget_tokens=budget_tokens,
        grounding=grounding,
        k=k,
        now=now,
        embedder=embedder,
        reranker=reranker,
        injections=injections,
        settings=settings,
    ).pack(facts)


class CallerSelection:
    """A question to a caller's own facts, which may be packed again with more of them.

    Each text is cut, counted and embedded once. Arguments are those of `pack`.
    """

    def __init__(
        self,
        question: str,
        *,
        model: str,
        budget_tokens: BudgetTokens | None = None,
        grounding: GroundingMode | str = GroundingMode.PREFERRED,
        k: int | None = None,
        now: datetime | None = None,
        embedder: EmbedderSource | None = None,
        reranker: RerankerSource | None = None,
        injections: InjectionModel | None = None,
        settings: Settings | None = None,
    ) -> None:
        """Check the arguments and take the question apart."""
        from crp_integrations.envelope.caller_candidates import CallerTexts
        from crp_integrations.relay.defaults import chosen_embedder, chosen_reranker, tokenizers
        from crp_integrations.relay.prompt import InformationNeeds
        from crp_integrations.relay.question_fields import admit
        from crp_integrations.relay.settings import load

        self._settings = settings or load()
        self._request = admit(
            query=question, model=model, grounding=grounding, k=k, budget_tokens=budget_tokens
        )
        self._counter = tokenizers(self._settings)(model)
        self._needs = InformationNeeds(self._request, self._settings.envelope.decompose)
        self._now = now
        self._reranker = chosen_reranker(reranker, self._settings)
        self._injections = injections
        self._texts = CallerTexts(
            embedder=chosen_embedder(embedder, self._settings),
            counter=self._counter,
            settings=self._settings.envelope,
            chunking=self._settings.fabric.chunking,
        )

    def further_questions(self, facts: Sequence[Fact | str], most: int) -> tuple[str, ...]:
        """What the retriever behind these facts may be asked next, at most so many questions."""
        return self._texts.further_questions(self._request.query, facts, most)

    def pack(self, facts: Sequence[Fact | str], budget: BudgetTokens | None = None) -> Envelope:
        """Rank these facts and pack them into the budget, or into another one."""
        from crp_integrations.envelope.assemble import assemble
        from crp_integrations.envelope.screen import rerank_candidates, screen_candidates
        from crp_integrations.guard.injection.detection import InjectionDetector
        from crp_integrations.relay.defaults import clock, limits
        from crp_integrations.relay.prompt import reckon_room

        if isinstance(facts, str):
            raise RequestError("facts is one string; give a list of texts, such as [fact]")
        settings, request = self._settings, self._request
        if budget is not None:
            request = request.changed(budget_tokens=budget)
        budget, automatic = request.budget_tokens, False
        if budget is None or isinstance(budget, str):
            limit = limits(settings)(request.model)[0]
            room = reckon_room(request, self._counter, limit, settings.envelope)
            budget, automatic = room.tokens, room.automatic
        candidates = self._texts.candidates(
            request.query, facts, sub_queries=self._needs.sub_queries
        )
        screening = settings.envelope.screening
        candidates = screen_candidates(
            candidates, screening, InjectionDetector(screening.injection, self._injections)
        )
        if self._reranker is not None:
            candidates = rerank_candidates(candidates, self._reranker, settings.envelope)
        envelope = assemble(
            candidates,
            budget_tokens=budget,
            automatic=automatic,
            counter=self._counter,
            grounding=request.grounding,
            settings=settings.envelope,
            now=self._now or clock(settings).now(),
            k=request.k,
            model=request.model,
            settings_digest=settings.digest,
        )
        return self._needs.named(envelope)


def examine(
    answer: AnswerValue,
    context: Envelope | Sequence[Fact | str],
    question: str | None = None,
    *,
    grounding: GroundingMode | str = GroundingMode.PREFERRED,
    embedder: EmbedderSource | None = None,
    settings: Settings | None = None,
    no_store: bool = False,
    sub_queries: Sequence[str] = (),
    prior: Sequence[str | PriorWindow] = (),
    conversation: Sequence[Message | Mapping[str, Any]] = (),
    system_prompt: str = "",
    rejected: Sequence[RejectedClaim] = (),
    judge: JudgeSource = None,
    **judge_options: Unpack[JudgeOptions],
) -> Report:
    """Check an answer claim by claim against the context that the model had.

    Spec: CRP-SPEC-005 §3 to §14

    Args:
        answer: a text; or a structured answer (a mapping, a list, a dataclass, a pydantic object),
            whose canonical JSON is examined field by field.
        context: an envelope, facts, or texts; texts are named `context-1`, `context-2`, ….
        question: what was asked, None when it is not known.
        no_store: nothing of the call is kept, so personal data in it needs no warning.
        sub_queries: what the question asks for; empty takes those of an envelope, or takes the
            question apart by rules.
        prior: earlier answers of the session, oldest first.
        conversation: messages before the question, of this package or in the OpenAI shape, by
            which a judge understands it. What tools answered in it is evidence, and may follow
            the question.
        system_prompt: what the model was told; facts in it are evidence, the passage `system`.
        rejected: claims that a sub-agent's report flags; no text or tool's result bears one out.
        judge: a model that reads question, context and answer once and decides: a LiteLLM name, a
            mapping with `model` and LiteLLM's parameters, a model object of LangChain or
            LlamaIndex, or a `Judge`. None takes the settings' judge, which is none by default.
            Calls with the same judge and options share its cache and its budget.
        judge_options: see `JudgeOptions`; `on_report` may go with a `Judge` too, and without any.

    Returns:
        The report, with the status of each claim and what it rests on. Nothing is sealed.

    Raises:
        RequestError: the answer, the context or the grounding mode has no usable value.
        SafetyHalt: the judge failed, and `judge_failure` is `halt`.
    """
    from crp_integrations.relay.judged_answer import complete_report, resolve_judge
    from crp_integrations.relay.settings import load

    # Read once: the environment is looked through each time.
    settings = settings or load()
    judging, on_report = resolve_judge(judge, judge_options, settings)
    report, dossier = screened_answer(
        answer,
        context,
        question,
        embedder=embedder,
        settings=settings,
        grounding=grounding,
        no_store=no_store,
        sub_queries=sub_queries,
        prior=prior,
        conversation=conversation,
        system_prompt=system_prompt,
        rejected=rejected,
    )
    return complete_report(judging, report, dossier, settings, context, on_report)


async def aexamine(
    answer: AnswerValue,
    context: Envelope | Sequence[Fact | str],
    question: str | None = None,
    *,
    judge: JudgeSource = None,
    settings: Settings | None = None,
    **how: Any,
) -> Report:
    """The asynchronous twin of `examine`; the stages without a model call run beside the loop.

    Args:
        how: the other arguments of `examine`.
    """
    import asyncio

    from crp_integrations.relay.judge import JUDGE_OPTIONS
    from crp_integrations.relay.judged_answer import acomplete_report, resolve_judge
    from crp_integrations.relay.settings import load

    options = cast("JudgeOptions", {n: how.pop(n) for n in JUDGE_OPTIONS if n in how})
    settings = settings or load()
    judging, on_report = resolve_judge(judge, options, settings)
    report, dossier = await asyncio.to_thread(
        screened_answer, answer, context, question, settings=settings, **how
    )
    return await acomplete_report(judging, report, dossier, settings, context, on_report)


def screened_answer(
    answer: AnswerValue,
    context: Envelope | Sequence[Fact | str],
    question: str | None = None,
    *,
    embedder: EmbedderSource | None = None,
    settings: Settings | None = None,
    verifier: Verifier | None = None,
    **about: Any,
) -> tuple[Report, Dossier]:
    """The report of the stages without a model call, and what it is of.

    Args:
        about: further arguments of `caller_dossier`.
    """
    from crp_integrations.dpe.pipeline import examine as run_stages
    from crp_integrations.relay.defaults import (
        chosen_embedder,
        default_policy,
        default_verifier,
        verified_engine,
    )
    from crp_integrations.relay.evidence import answer_text
    from crp_integrations.relay.examination import VERIFIED, caller_dossier
    from crp_integrations.relay.settings import load

    chosen = settings or load()
    dossier = caller_dossier(
        answer_text(answer),
        context,
        question,
        chosen,
        controls=(VERIFIED,) if verified_engine() else (),
        **about,
    )
    # Statuses are read or compared word for word: sentences are embedded only beside those of an
    # earlier window, and for the document's arithmetic.
    embeds = bool(dossier.prior) or chosen.dpe.decides == "composite"
    # The caller's embedder is checked even where it is not needed.
    encoder = chosen_embedder(embedder, chosen) if embeds or embedder is not None else None
    report = run_stages(
        dossier,
        embedder=encoder if embeds else None,
        verifier=verifier or default_verifier(chosen.dpe.verifier),
        settings=chosen.dpe,
        policy=default_policy(registered=dossier.system.domain is not None),
    )
    return report, dossier


def count_tokens(
    what: str | Conversation,
    model: str,
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    settings: Settings | None = None,
) -> TokenCount:
    """How many tokens a model makes of a text or a conversation, and how sure that is.

    Spec: CRP-SPEC-003 §10.1 (decision E19)

    Args:
        what: a text; or messages, of this package or in the OpenAI shape, whose frames count too.
        model: provider string as LiteLLM takes it; its tokenizer counts, or the nearest to it.
        tools: tool definitions in the OpenAI shape, counted as the model's family is sent them.
        settings: None reads `CRP_*` and the defaults; `tokenizer_files` names own vocabularies.

    Raises:
        RequestError: what is given is neither a text nor messages of text.
        ConfigError: the model's tokenizer file cannot be read.
    """
    from crp_integrations.relay.defaults import tokenizers
    from crp_integrations.relay.prompt import count_tokens_of
    from crp_integrations.relay.question_fields import check_model_name
    from crp_integrations.relay.settings import load

    check_model_name(model)
    return count_tokens_of(what, tokenizers(settings or load())(model), tools)


def compact(
    messages: Conversation,
    *,
    model: str,
    budget_tokens: int | None = None,
    question: str | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
    now: datetime | None = None,
    settings: Settings | None = None,
) -> CompactHistory:
    """Shorten an agent's messages where there is a reason to, with an account of what is left out.

    Spec: Summit §Compression Strategy

    Args:
        messages: of this package or in the OpenAI shape, in the order that a model is sent.
        model: whose tokenizer counts.
        budget_tokens: for messages and tools; None for the settings' share of the model's limit.
        question: what they are looked at by; None for the user's last message.
        tools: definitions in the OpenAI shape that are sent beside them; they count, and stay.
        now: moment of the drop reports; None for the clock's.
        settings: None reads `CRP_*` and the defaults; `enabled` is not looked at.

    Returns:
        The same messages where no trigger fires.

    Raises:
        RequestError: a call has no result, a result no call, or the budget is not above 0.
        CompactionRefused: what came out does not account for what was left out.
    """
    from crp_integrations.governance.compaction.compactor import AutoCompactor
    from crp_integrations.governance.compaction.records import budget_share
    from crp_integrations.relay.defaults import clock, limits, tokenizers
    from crp_integrations.relay.records import conversation_of
    from crp_integrations.relay.settings import load

    chosen = settings or load()
    own = chosen.compaction.model_copy(update={"enabled": True})
    if budget_tokens is None:
        budget_tokens = budget_share(limits(chosen)(model)[0], own.limit_share)
    return AutoCompactor(tokenizers(chosen)(model), own).compact_history(
        conversation_of(messages),
        budget_tokens,
        now=now or clock(chosen).now(),
        question=question,
        tools=tools,
    )
