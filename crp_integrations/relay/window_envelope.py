"""First half of a window: candidates are read once, and packed for each model that is tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from crp_integrations.audit.window_seals import etag_salt
from crp_integrations.envelope.assemble import assemble
from crp_integrations.envelope.budget import BudgetRoom, EnvelopeInputs, RecordingCounter
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.continuation import (
    deferred_ids,
    evolve,
    next_window_number,
    seen_hashes,
)
from crp_integrations.envelope.layout import PreviousEnvelope
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.retrieval import gather, recount_stored
from crp_integrations.envelope.retriever_hits import count_tier_hits
from crp_integrations.envelope.reuse import ReuseMatch, Validators
from crp_integrations.envelope.screen import rerank_candidates, screen_candidates
from crp_integrations.errors import StoreError
from crp_integrations.fabric.records import Source
from crp_integrations.fabric.view import FabricView
from crp_integrations.governance.settings import RunStep, StepMeasurement
from crp_integrations.governance.window_trace import check_guardrails
from crp_integrations.messages import ModelCall
from crp_integrations.policy.demands import UNFITTED
from crp_integrations.ports import TokenCounter
from crp_integrations.relay import prompt
from crp_integrations.relay.conditional_requests import ConditionalRequest
from crp_integrations.relay.evidence import TOOL_SOURCE, AnswerEvidence
from crp_integrations.relay.judge import Judge
from crp_integrations.relay.prompt import InformationNeeds
from crp_integrations.relay.records import Request
from crp_integrations.relay.steps import FittedDispatch
from crp_integrations.relay.window_records import WindowCalls, microseconds_between
from crp_integrations.relay.world import World
from crp_integrations.vocabulary import DropReason, QualityTier, Strategy


def measure_steps(
    asked: Request, sent: Request, made: EnvelopeInputs | None, envelope: Envelope, view: FabricView
) -> tuple[StepMeasurement, ...]:
    """Items and tokens before and after each step (write, select, …) of a packed call.

    Spec: Summit §Principles
    """
    facts = made.candidates.facts if made is not None else ()
    shown = len(envelope.facts)
    offered = sum([fact.tokens for fact in facts]) if facts else envelope.token_count
    room = made.room if made is not None else None
    around = room.around + room.question if room is not None else 0
    account = sent.compaction
    before, after = len(asked.history), len(sent.history)
    tokens = (account.tokens_before, account.tokens_after) if account else (around, around)
    return (
        StepMeasurement(step=RunStep.WRITE, items_after=len(view.held())),
        StepMeasurement(
            step=RunStep.SELECT,
            items_before=len(facts) or shown,
            items_after=shown,
            tokens_before=offered,
            tokens_after=envelope.token_count,
        ),
        StepMeasurement(
            step=RunStep.COMPRESS,
            items_before=before,
            items_after=after,
            tokens_before=tokens[0],
            tokens_after=tokens[1],
        ),
        StepMeasurement(
            step=RunStep.ISOLATE,
            items_before=(len(facts) or shown) + before,
            items_after=shown + after,
            tokens_before=offered + tokens[0],
            tokens_after=envelope.token_count + around,
        ),
    )


class WindowEnvelope:
    """Reads a window's candidates and packs its calls. Used by one Turn only.

    Attributes:
        request: the request; it may be replaced by one with the same question, for example for a
            re-dispatch with further instructions.
        policy: the safety policy in force; empty without one.
        steps: measurements of write, select, compress and isolate for the last call.
        later_step: whether it is a later step of an agent, which reuses the candidates while
            question and fabric are unchanged.
    """

    def __init__(self, request: Request, session_id: str, world: World) -> None:
        self.request = self._asked = request
        self.policy = ""
        self.steps: tuple[StepMeasurement, ...] = ()
        self.later_step = False
        self.last: FittedDispatch | None = None
        self.made: EnvelopeInputs | None = None
        self.assembly_us = 0
        self.namespace = world.places.of(request.residency)
        self.conditional = ConditionalRequest(request, session_id, self.namespace, world)
        self.needs = InformationNeeds(request, world.settings.envelope.decompose)
        self._session_id = session_id
        self._world = world
        self._view: FabricView | None = None
        self._candidates: Candidates | None = None
        self._packed_for = ("", "", 0)
        # The request as admitted; remedies and searches change only `request`.
        self._admitted: Request | None = None

    @property
    def begun(self) -> bool:
        """Whether anything was read, or a model was asked to decompose the question."""
        return self._candidates is not None or self.needs.waiting

    @property
    def candidates(self) -> tuple[str, ...]:
        """Ids of the facts that were candidates for the envelope, shown or not."""
        return tuple([fact.fact_id for fact in self.made.candidates.facts]) if self.made else ()

    def flags(self, calls: WindowCalls) -> list[str]:
        """Report flags on how the window was read and dispatched."""
        namespace, cache = self.namespace, self._asked.cache
        flags = [f"guard={namespace.guard_name}"]
        if not self._world.engines.code_verified:
            flags.append("engine-code-not-checked")
        if namespace.residency:
            flags.append(f"residency={namespace.residency}")
        if cache.text:
            flags.append(f"cache={cache.text}")
        if self.unfitted:
            flags.append(f"{UNFITTED}{self.unfitted}")
        if calls.redispatches:
            flags.append(f"re-dispatches={calls.redispatches}")
        return [*flags, *calls.flags, *self.conditional.flags]

    @property
    def unfitted(self) -> int:
        """Number of facts found if none of them fitted; 0 if some did or none were wanted."""
        envelope = self.last.envelope if self.last else None
        if envelope is None or envelope.facts or self.request.budget_tokens == 0:
            return 0
        return sum(drop.reason is DropReason.BUDGET for drop in envelope.dropped)

    @property
    def decisions(self) -> dict[str, str]:
        """Ids of the guard's decisions that permitted the candidates, by fact id, if it has ids."""
        facts = self.made.candidates.facts if self.made else ()
        return {fact.fact_id: fact.decision for fact in facts if fact.decision}

    def labels(self, envelope: Envelope | None) -> dict[str, tuple[str, ...]]:
        """Access labels of an envelope's facts, by id."""
        if envelope is None or self.made is None:
            return {}
        shown = {fact.fact_id for fact in envelope.facts}
        return {
            fact.fact_id: fact.labels
            for fact in self.made.candidates.facts
            if fact.fact_id in shown
        }

    def withheld_facts(
        self, judge: Judge, evidence: AnswerEvidence, envelope: Envelope
    ) -> list[tuple[str, str]]:
        """Ids of facts that must not be sent to a judge's provider, with the reason."""
        labels = {**evidence.labels, **self.labels(envelope)}
        barred = set(judge.settings.withhold_labels)
        in_memory = set() if judge.own else set(self.reads().held())
        withheld = []
        shown = {fact.fact_id: fact.source_id for fact in envelope.facts}
        for id_, source_id in {**evidence.sources, **shown}.items():
            if barred.intersection(labels.get(id_, ())):
                withheld.append((id_, "label"))
            elif id_ in in_memory and not source_id.startswith(TOOL_SOURCE):
                withheld.append((id_, "no-store"))
        return withheld

    def documents(self, envelope: Envelope | None, further: Iterable[str]) -> tuple[Source, ...]:
        """Registry entries of an envelope's sources and of further ones."""
        shown = {fact.source_id for fact in envelope.facts} if envelope else set[str]()
        wanted = {*shown, *further} - {""}
        return tuple(self.reads().sources(wanted)) if wanted else ()

    def reads(self) -> FabricView:
        """The view of the fabric, created at the first call with the session's facts in memory."""
        if self._view is None:
            keep = not self.request.cache.no_store
            self._view = self.namespace.view(self._session_id, keep_counts=keep)
        return self._view

    def fit(self, model: str, input_limit: int | None = None) -> FittedDispatch:
        """Pack for a model: its tokenizer, its context limit, its deployment's input limit.

        Spec: CRP-SPEC-003 §10.1
        """
        request, world = self.request, self._world
        counter = world.engines.counter_for(model)
        limit, source = world.engines.limit_for(model)
        if input_limit is not None and source == "default":
            limit = 0  # The default is a guess; the deployment's own limit is better.
        room = prompt.reckon_room(
            request, counter, limit, world.settings.envelope, model=model, input_limit=input_limit
        )
        self._packed_for = (model, counter.identity, room.tokens)
        began = world.clock.now()
        with world.tracer.step("envelope"):
            packed = self._earlier() or self._assembled(model, counter, room)
            envelope = self.needs.named(packed)
        self.assembly_us = microseconds_between(began, world.clock.now())
        call = ModelCall(
            model=model,
            messages=prompt.prompt_messages(request, envelope.text),
            temperature=self._temperature(),
            max_tokens=request.max_tokens,
            seed=request.seed,
            tools=request.tools,
        )
        self.last = FittedDispatch(call, envelope, self._crowded_out(room))
        self.steps = measure_steps(self._asked, request, self.made, envelope, self.reads())
        check_guardrails(self.steps, world.settings.steps)
        return self.last

    def _crowded_out(self, room: BudgetRoom) -> bool:
        """Whether the model's context limit, not the request's cap, leaves too little context."""
        least = self._world.settings.envelope.least_context_tokens
        capped = room.asked is not None and room.asked <= room.tokens
        if room.tokens >= least or capped or self.made is None:
            return False
        return room.tokens < sum([fact.tokens for fact in self.made.candidates.facts])

    def match(self) -> ReuseMatch:
        """The result of `If-Match` for the request's own model; evaluated once."""
        request, world = self.request, self._world
        self._admitted = self._admitted or request
        if request.if_match and self.conditional.match.status is None:
            counter = world.engines.counter_for(request.model)
            limit = world.engines.limit_for(request.model)[0]
            budget = prompt.reckon_room(request, counter, limit, world.settings.envelope).tokens
            validators = self._validators((request.model, counter.identity, budget))
            self.conditional.evaluate(self.reads(), validators, world.clock.now())
        return self.conditional.match

    def remember(
        self,
        envelope: Envelope,
        headers: Mapping[str, str] | None = None,
        tier: QualityTier | None = None,
    ) -> None:
        """Remember an envelope for later conditional requests."""
        chosen = self._candidates
        if chosen is None:
            return
        # An error here must not affect the sealed window.
        with suppress(StoreError), self.reads().moment() as view:
            validators = self._validators(self._packed_for, chosen.state_hash, view)
            now = self._world.clock.now()
            self.conditional.remember(
                view, validators, envelope, chosen, now, headers, tier, self.made
            )

    def widen(self, queries: Sequence[str]) -> None:
        """Search again with further queries in addition to the question's own needs."""
        if queries:
            self.needs.add(queries)
            self._candidates = None

    def _temperature(self) -> float | None:
        """The request's temperature, else the settings' one for a draft to be verified."""
        asked = self.request.temperature
        if asked is None and self.request.strategy is Strategy.REFLEXIVE:
            return self._world.settings.dispatch.draft_temperature
        return asked

    def _earlier(self) -> Envelope | None:
        """The earlier envelope, if it may be reused for the current model and budget."""
        known = self.match().known
        if known is None or known.candidates is None:
            return None
        envelope = self.conditional.envelope(self._validators(self._packed_for))
        if envelope is not None:
            self._candidates, self.made = known.candidates, known.made
        return envelope

    def _assembled(self, model: str, counter: TokenCounter, room: BudgetRoom) -> Envelope:
        world, request = self._world, self.request
        selected = self._candidates = self._select(counter)
        self.conditional.require_relevant(selected, self.reads())
        settings = world.settings.envelope
        evolved = evolve(selected, request.prior, counter=counter, settings=settings)
        ordered = sorted(request.prior, key=lambda window: window.window_number)
        salted = settings.reuse.salt_etags
        candidates = count_tier_hits(evolved, self.reads(), selected)
        now, tiers = world.clock.now(), tuple(window.quality_tier for window in ordered)
        remembering = RecordingCounter(counter)
        envelope = assemble(
            candidates,
            budget_tokens=room.tokens,
            automatic=room.automatic,
            counter=remembering,
            grounding=request.grounding,
            settings=settings,
            now=now,
            k=request.k,
            model=model,
            session_id=self._session_id,
            window_number=next_window_number(request.prior),
            strategy=request.strategy,
            settings_digest=world.settings_digest,
            max_age_seconds=request.cache.max_age_seconds,
            tiers_before=tiers,
            salt=etag_salt(world.keyring, self._session_id) if salted else "",
            pinned=request.pinned,
            previous=request.previous,
        )
        self.made = EnvelopeInputs(
            candidates=candidates,
            room=room,
            budget_tokens=room.tokens,
            tokenizer=counter.identity,
            exactness=counter.exactness,
            source=counter.source,
            counts=tuple(remembering.asked),
            grounding=request.grounding,
            strategy=request.strategy,
            now=now,
            model=model,
            k=request.k,
            max_age_seconds=request.cache.max_age_seconds,
            window_number=next_window_number(request.prior),
            tiers_before=tiers,
            salted=salted,
            pinned=tuple(request.pinned),
            previous=PreviousEnvelope.of(request.previous).ids,
        )
        return envelope

    def _select(self, counter: TokenCounter) -> Candidates:
        world, request = self._world, self.request
        if self._candidates is not None:
            # All models that are tried share the candidates; only token counts differ.
            return recount_stored(self._candidates, self.reads(), counter)
        if self.later_step or self.conditional.match.known is not None:
            validators = self._validators(self._packed_for)
            if self.conditional.match.status is None:
                self.conditional.recall(self.reads(), validators, world.clock.now())
            earlier = self.conditional.candidates(validators)
            if earlier is not None:
                return recount_stored(earlier, self.reads(), counter)
        more = len(seen_hashes(request.prior))
        with world.tracer.step("gather"):
            gathered = gather(
                self.reads(),
                request.query,
                sub_queries=self.needs.sub_queries,
                counter=counter,
                settings=world.settings.envelope,
                # Facts seen before are dropped later, so as many more are searched for.
                k_nearest=(request.k_nearest or world.settings.envelope.k_nearest) + more,
                also=deferred_ids(request.prior),
                walker=world.engines.walker,
            )
        if world.settings.envelope.screening.enabled:
            with world.tracer.step("screen"):
                gathered = screen_candidates(
                    gathered, world.settings.envelope.screening, world.engines.detector
                )
        if world.engines.reranker is None:
            return gathered
        with world.tracer.step("rerank"):
            return rerank_candidates(gathered, world.engines.reranker, world.settings.envelope)

    def _validators(
        self,
        packed_for: tuple[str, str, int],
        state_hash: str | None = None,
        view: FabricView | None = None,
    ) -> Validators:
        return self.conditional.validators(
            view or self.reads(),
            self._admitted or self.request,
            policy=self.policy,
            packed_for=packed_for,
            needs=self.needs.sub_queries,
            state_hash=state_hash,
        )
