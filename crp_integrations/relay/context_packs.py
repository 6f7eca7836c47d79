"""A relay's context packs, artifacts and assembled contexts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pydantic import ValidationError

from crp_integrations.audit.drafts import EventDraft, name_or_hash
from crp_integrations.envelope.cfs.assembly import ContextCache, assemble_context
from crp_integrations.envelope.cfs.records import AssembledContext, AssemblySettings, TokenBudget
from crp_integrations.envelope.cfs.search import run_in_turn
from crp_integrations.envelope.cfs.tokens import ContextTokenizer, ModelTokenizer, SimpleTokenizer
from crp_integrations.envelope.screen import ResultScreen
from crp_integrations.errors import RequestError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import access_labels
from crp_integrations.governance.artifacts.sandbox import Sandbox
from crp_integrations.governance.context_assembler import ContextAssembler
from crp_integrations.governance.context_pack import ComposedPack
from crp_integrations.governance.pack_selection import AssemblerParts
from crp_integrations.governance.tools import ToolSelector
from crp_integrations.headers.records import CacheDirectives
from crp_integrations.ports import KeyRing
from crp_integrations.relay.ask_methods import Questions
from crp_integrations.relay.compaction import sandbox_of
from crp_integrations.relay.settings import first_problem
from crp_integrations.relay.world import World
from crp_integrations.seals import sha256
from crp_integrations.session.records import session_id_of
from crp_integrations.vocabulary import EventType


class ContextPacks(Questions):
    """The part of a relay that makes context packs."""

    def assembler(
        self, *, model: str | None = None, residency: str | None = None, log: bool = True
    ) -> ContextAssembler:
        """Makes context packs with sections of the relay's fabric; no model is called.

        Keep it as long as the same registry of tools is asked: it remembers their vectors.

        Spec: Summit §Key APIs
        """
        world = self._world
        namespace = world.namespace_in(self._residency if residency is None else residency)
        return ContextAssembler(
            AssemblerParts(
                namespace=namespace,
                counter=world.counter_for(model or world.settings.model),
                clock=world.clock,
                settings=world.settings.packs,
                envelope=world.settings.envelope,
                selector=ToolSelector(namespace.embedder, world.settings.packs.tools),
                detector=world.detector.under(world.settings.packs.screening.injection),
                walker=world.walker,
                reranker=world.reranker,
                log=(lambda composed: log_pack(composed, namespace, world)) if log else None,
            )
        )


def log_pack(composed: ComposedPack, namespace: Namespace, world: World) -> None:
    """Write down what a pack shows, item by item, in the order in which it is shown.

    Spec: Summit §Principles
    """
    pack = composed.pack
    draft = EventDraft(
        EventType.CONTEXT_PACKED,
        {
            "pack": pack.id,
            "shown_hash": sha256(composed.text),
            "sections": [section.type for section in pack.sections],
            "item_counts": [len(section.items) for section in pack.sections],
            "section_tokens": [section.token_actual for section in pack.sections],
            "items": [name_or_hash(item.id) for item in pack.items],
            "item_hashes": [item.shown_ref for item in pack.items],
            "budget": pack.token_budget,
            "tokens": pack.token_actual,
            "decisions": [name_or_hash(decision.id) for decision in pack.policy_decisions],
            "reports": [report.id for report in composed.drop_reports],
            "minimal": composed.minimal,
        },
        session_id=pack.session_id,
    )
    world.journal(namespace, [draft])


class ArtifactSandboxes(Questions):
    """The part of a relay that keeps bulky texts out of prompts."""

    @property
    def keyring(self) -> KeyRing:
        """The store's keys, for whoever checks a signed address; printing it shows none."""
        return self._world.keyring

    def sandbox(
        self,
        *,
        session_id: str = "",
        labels: Iterable[str] = (),
        residency: str | None = None,
        cache: CacheDirectives | str | None = None,
    ) -> Sandbox:
        """The artifacts that the relay's subject may use.

        What is put carries the labels of the stored facts that it comes from. Under `no-store`
        nothing is written: artifacts are in the memory of this sandbox alone and gone with it. Its
        addresses open only in it, and the journal records none. The same holds for a session whose
        windows, or facts, are held in memory already.

        Spec: Summit §Isolation Strategy
        """
        world, region = self._world, self._residency if residency is None else residency
        directives = CacheDirectives.parse(cache) if isinstance(cache, str) else cache
        if directives not in (None, CacheDirectives(), CacheDirectives(no_store=True)):
            raise RequestError(
                f"cache {directives.text!r} is more than artifacts take; wanted no-store"
            )
        held = bool(session_id) and (
            world.session_memories.of(session_id).session is not None
            or bool(world.namespace_in(region).view(session_id, keep_counts=False).held())
        )
        keep = not held and not (directives and directives.no_store)
        checked = access_labels(labels, RequestError)
        return sandbox_of(world, region, session_id=session_id, labels=checked, keep=keep)


Left = TypeVar("Left")
Right = TypeVar("Right")


def assemble_for(
    world: World,
    cache: ContextCache,
    query: str,
    *,
    budget: int | TokenBudget,
    model: str | None,
    session_id: str,
    residency: str,
    choices: Mapping[str, Any],
) -> AssembledContext:
    """Assemble a context of a relay's fabric.

    Spec: CFS-021 §11
    """
    settings = _assembly_settings(world.settings.envelope.assembly, choices)
    namespace = world.namespace_in(residency)
    view = namespace.view(session_id_of(session_id)) if session_id else namespace
    tokenizer: ContextTokenizer
    if model is None and settings.tokenizer == "simple":
        tokenizer = SimpleTokenizer()
    else:
        tokenizer = ModelTokenizer(world.counter_for(model or world.settings.model))
    subject, screening = namespace.subject, world.settings.envelope.screening
    with world.tracer.step("assemble"):
        return assemble_context(
            query,
            view,
            _token_budget(budget, settings),
            tokenizer,
            now=world.clock.now(),
            settings=settings,
            both=run_parallel if settings.parallel_search else run_in_turn,
            cache=None if session_id else cache,
            scope="\u241f".join((subject.tenant, subject.name, residency.lower())),
            screen=ResultScreen(screening, world.detector) if screening.enabled else None,
        )


def run_parallel(left: Callable[[], Left], right: Callable[[], Right], /) -> tuple[Left, Right]:
    """The left one in a thread of its own, the right one here.

    Spec: CFS-021 §Parallel
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        running = pool.submit(left)
        right_gave = right()
        return running.result(), right_gave


def _assembly_settings(settings: AssemblySettings, choices: Mapping[str, Any]) -> AssemblySettings:
    options = {name: value for name, value in choices.items() if value is not None}
    if not options:
        return settings
    try:
        return AssemblySettings.model_validate({**settings.model_dump(), **options})
    except ValidationError as error:
        field, problem = first_problem(error)
        value = options.get(field)
        raise RequestError(f"{field} {value!r:.60} is not usable: {problem}") from error


def _token_budget(budget: int | TokenBudget, settings: AssemblySettings) -> TokenBudget:
    if isinstance(budget, TokenBudget):
        return budget
    try:
        return TokenBudget.new(budget, settings)
    except ValidationError as error:
        raise RequestError(
            f"budget is {budget!r:.60}, wanted a TokenBudget or whole tokens from 0"
        ) from error
