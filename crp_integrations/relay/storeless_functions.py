"""Functions that need no store: `pack`, `examine`, `compact` messages, `count_tokens`.

Each function imports its dependencies when called, so that importing this module is fast.
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


# An answer given by a caller: a text, or structured data.
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
        model: model whose tokenizer counts.
        budget_tokens: cap on the text; `auto`, the default, is what the question needs, `window`
            is all that the model accepts; 0 gives an empty envelope of tier D.
        k: cap on the number of facts.
        now: time at which freshness is measured; None for the clock's.
        reranker: ranks the best candidates again; None for none.
        injections: injection model, used in addition to the rules if `envelope.screening` is on.
        settings: None reads `CRP_*` and the defaults.

    Returns:
        The envelope with text, facts in order, tier with its reasons, and all dropped facts.

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
    """Packs a caller's own facts for a question, repeatedly if more facts are found.

    Each text is split, counted and embedded once. Arguments are those of `pack`.
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
        """Check the arguments and prepare the decomposition of the question."""
        from crp_integrations.envelope.caller_candidates import CallerTexts
        from crp_integrations.relay.defaults import (
            chosen_embedder,
            chosen_reranker,
            chosen_settings,
            first_stage,
            tokenizers,
        )
        from crp_integrations.relay.prompt import InformationNeeds
        from crp_integrations.relay.question_fields import admit

        self._settings = chosen_settings(settings)
        self._request = admit(
            query=question, model=model, grounding=grounding, k=k, budget_tokens=budget_tokens
        )
        self._counter = tokenizers(self._settings)(model)
        self._needs = InformationNeeds(self._request, self._settings.envelope.decompose)
        self._now = now
        self._reranker = chosen_reranker(reranker, self._settings)
        self._injections = injections
        encoder = chosen_embedder(embedder, self._settings)
        self._texts = CallerTexts(
            embedder=encoder,
            first_stage=first_stage(encoder),
            counter=self._counter,
            settings=self._settings.envelope,
            chunking=self._settings.fabric.chunking,
        )

    def further_questions(self, facts: Sequence[Fact | str], most: int) -> tuple[str, ...]:
        """Up to `most` follow-up questions for the retriever that returned these facts."""
        return self._texts.further_questions(self._request.query, facts, most)

    def pack(self, facts: Sequence[Fact | str], budget: BudgetTokens | None = None) -> Envelope:
        """Rank these facts and pack them into the given budget, else that of the arguments."""
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
            request.query,
            facts,
            sub_queries=self._needs.sub_queries,
            # What `auto` takes is known only once the passages are scored.
            budget_tokens=0 if automatic else budget,
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
        question: the question, None when it is not known.
        no_store: nothing of the call is kept, so personal data in it needs no warning.
        sub_queries: information needs of the question; empty takes those of an envelope, else
            splits the question by rules.
        prior: earlier answers of the session, oldest first.
        conversation: messages before the question, in the format of this package or of OpenAI,
            which help a judge to understand it. Tool results in it are evidence, and may also
            come after the question.
        system_prompt: the model's system prompt; facts in it are evidence, as passage `system`.
        rejected: claims that a sub-agent's report flags; no text or tool result supports them.
        judge: a model that reads question, context and answer once and decides: a LiteLLM name, a
            mapping with `model` and LiteLLM's parameters, a model object of LangChain or
            LlamaIndex, or a `Judge`. None takes the settings' judge; by default there is none.
            Calls with the same judge and options share its cache and its budget.
        judge_options: see `JudgeOptions`; `on_report` is also allowed with a `Judge` or without.

    Returns:
        The report, with the status and the evidence of each claim. Nothing is sealed.

    Raises:
        RequestError: the answer, the context or the grounding mode has no usable value.
        SafetyHalt: the judge failed, and `judge_failure` is `halt`.
    """
    from crp_integrations.relay.defaults import chosen_settings
    from crp_integrations.relay.judged_answer import complete_report, resolve_judge

    # Read once, since each `load` scans the environment.
    settings = chosen_settings(settings)
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
    """The asynchronous twin of `examine`; the stages without a model call run in a thread.

    Args:
        how: the other arguments of `examine`.
    """
    import asyncio

    from crp_integrations.relay.defaults import chosen_settings
    from crp_integrations.relay.judge import JUDGE_OPTIONS
    from crp_integrations.relay.judged_answer import acomplete_report, resolve_judge

    options = cast("JudgeOptions", {n: how.pop(n) for n in JUDGE_OPTIONS if n in how})
    settings = chosen_settings(settings)
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
    """The report of the stages without a model call, and the examined dossier.

    Args:
        about: further arguments of `caller_dossier`.
    """
    from crp_integrations.dpe.pipeline import examine as run_stages
    from crp_integrations.ports import without_keeping
    from crp_integrations.relay.defaults import (
        chosen_embedder,
        chosen_settings,
        default_policy,
        default_verifier,
        verified_engine,
    )
    from crp_integrations.relay.evidence import answer_text
    from crp_integrations.relay.examination import VERIFIED, caller_dossier

    loaded = chosen_settings(settings)
    dossier = caller_dossier(
        answer_text(answer),
        context,
        question,
        loaded,
        controls=(VERIFIED,) if verified_engine() else (),
        **about,
    )
    # Claim statuses need no embeddings. Sentences are embedded only to compare them with earlier
    # answers, and for the composite score.
    embeds = bool(dossier.prior) or loaded.dpe.decides == "composite"
    # The caller's embedder is checked even if it is not needed.
    encoder = chosen_embedder(embedder, loaded) if embeds or embedder is not None else None
    if encoder is not None and dossier.no_store:
        encoder = without_keeping(encoder)
    report = run_stages(
        dossier,
        embedder=encoder if embeds else None,
        verifier=verifier or default_verifier(loaded.dpe.verifier),
        settings=loaded.dpe,
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
    """Count the tokens of a text or a conversation for a model, with the count's exactness.

    Spec: CRP-SPEC-003 §10.1 (decision E19)

    Args:
        what: a text, or messages in the format of this package or of OpenAI, with their framing.
        model: LiteLLM model string; its tokenizer counts, or the most similar one.
        tools: tool definitions in the OpenAI format, counted as the model's family encodes them.
        settings: None reads `CRP_*` and the defaults; `tokenizer_files` adds vocabularies.

    Raises:
        RequestError: `what` is neither a text nor messages of text.
        ConfigError: the model's tokenizer file cannot be read.
    """
    from crp_integrations.relay.defaults import chosen_settings, tokenizers
    from crp_integrations.relay.prompt import count_tokens_of
    from crp_integrations.relay.question_fields import check_model_name

    check_model_name(model)
    return count_tokens_of(what, tokenizers(chosen_settings(settings))(model), tools)


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
    """Shorten an agent's messages if a trigger fires, with an account of what is left out.

    Spec: Summit §Compression Strategy

    Args:
        messages: messages in the format of this package or of OpenAI, in the order sent.
        model: model whose tokenizer counts.
        budget_tokens: for messages and tools; None for the settings' share of the model's limit.
        question: decides which messages are relevant; None for the user's last message.
        tools: tool definitions in the OpenAI format; they are counted but not shortened.
        now: time of the drop reports; None for the clock's.
        settings: None reads `CRP_*` and the defaults; `enabled` is ignored.

    Returns:
        The messages and the account; the messages are unchanged if no trigger fires.

    Raises:
        RequestError: a call has no result, a result no call, or the budget is not above 0.
        CompactionRefused: the result does not account for everything that was left out.
    """
    from crp_integrations.governance.compaction.compactor import AutoCompactor
    from crp_integrations.governance.compaction.records import budget_share
    from crp_integrations.relay.defaults import chosen_settings, clock, limits, tokenizers
    from crp_integrations.relay.records import conversation_of

    chosen = chosen_settings(settings)
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
