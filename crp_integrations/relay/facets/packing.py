"""Context packs of a relay: its namespace, tokenizers, engines and journal behind an assembler."""

from __future__ import annotations

from crp_integrations.audit.drafts import EventDraft, name_or_hash
from crp_integrations.audit.journal import append_events
from crp_integrations.audit.keys import journal_key
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.governance.context_assembler import AssemblerParts, ContextAssembler
from crp_integrations.governance.context_pack import ComposedPack
from crp_integrations.governance.tools import ToolSelector
from crp_integrations.relay.asks import Asks
from crp_integrations.relay.world import World
from crp_integrations.seals import iso, sha256
from crp_integrations.vocabulary import EventType


class Packing(Asks):
    """The part of a relay that makes context packs."""

    def assembler(
        self, *, model: str | None = None, residency: str | None = None, log: bool = True
    ) -> ContextAssembler:
        """Makes context packs with sections of the relay's fabric; no model is called.

        Keep it as long as the same registry of tools is asked: it remembers their vectors.

        Spec: Summit §Key APIs

        Args:
            model: whose tokens are counted; None takes the settings' model.
            residency: region whose data are read; None for the relay's own.
            log: write what each pack shows into the journal, by ids and hashes; false where nothing
                may be kept.

        Raises:
            RequestError: there is no such region.
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
                log=(lambda composed: logged(composed, namespace, world)) if log else None,
            )
        )


def logged(composed: ComposedPack, namespace: Namespace, world: World) -> None:
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
            "decisions": [name_or_hash(one.id) for one in pack.policy_decisions],
            "reports": [report.id for report in composed.drop_reports],
            "minimal": composed.minimal,
        },
        session_id=pack.session_id,
    )
    key = journal_key(world.keyring, namespace.subject.tenant)
    with namespace.begin(write=True) as transaction:
        append_events(transaction.journal, key, [draft], iso(world.clock.now()))
