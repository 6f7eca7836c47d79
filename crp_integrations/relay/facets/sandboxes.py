"""The artifacts of a region, for the subject that a relay was opened for; access is journalled."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events
from crp_integrations.audit.keys import journal_key
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.governance.artifacts.records import ObjectStore
from crp_integrations.governance.artifacts.sandbox import ArtifactErasure, Sandbox
from crp_integrations.ports import KeyRing
from crp_integrations.relay.world import World
from crp_integrations.seals import iso


def sandbox_of(
    world: World,
    residency: str,
    *,
    session_id: str = "",
    labels: tuple[str, ...] = (),
    keep: bool = True,
) -> Sandbox:
    """The artifacts of a region for the subject that a relay was opened for.

    Args:
        keep: whether anything may be written; else they are in the sandbox's own memory, and the
            journal is told nothing.
    """
    namespace = world.namespace_in(residency)

    def labels_of(ids: Sequence[str]) -> set[str]:
        # Also of facts that the subject may not see: a copy must not lose a label by that.
        with namespace.begin(write=False) as transaction:
            own = transaction.facts.get(list(ids))
        return {label for fact in (*own, *namespace.facts(list(ids))) for label in fact.labels}

    return Sandbox(
        objects=world.objects[residency.lower()] if keep else world.fleeting(),
        subject=namespace.subject,
        guard=namespace.guard,
        clock=world.clock,
        ids=world.ids,
        keyring=world.keyring,
        tell=lambda draft: _told(namespace, world, draft) if keep else None,
        redactor=namespace.redactor,
        labels=labels,
        labels_of=labels_of,
        withdrawn=namespace.withdrawn,
        session_id=session_id,
        residency=residency.lower(),
        settings=world.settings.artifacts,
    )


def erasing_in(store: Store, objects: ObjectStore, keyring: KeyRing) -> ArtifactErasure:
    """Erases artifacts together with the facts of a store."""

    def tell(namespace: str, draft: EventDraft, now: datetime) -> None:
        key = journal_key(keyring, namespace)
        with store.begin(namespace, write=True) as transaction:
            append_events(transaction.journal, key, [draft], iso(now))

    return ArtifactErasure(objects, tell)


def _told(namespace: Namespace, world: World, draft: EventDraft) -> None:
    key = journal_key(world.keyring, namespace.subject.tenant)
    with namespace.begin(write=True) as transaction:
        append_events(transaction.journal, key, [draft], iso(world.clock.now()))
