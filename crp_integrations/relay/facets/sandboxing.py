"""The artifacts of a relay: bulky texts beside the prompt, under its subject, guard and journal."""

from __future__ import annotations

from collections.abc import Iterable

from crp_integrations.errors import RequestError
from crp_integrations.fabric.records import access_labels
from crp_integrations.governance.artifacts.sandbox import Sandbox
from crp_integrations.headers.records import CacheDirectives
from crp_integrations.ports import KeyRing
from crp_integrations.relay.asks import Asks
from crp_integrations.relay.facets.sandboxes import sandbox_of


class Sandboxing(Asks):
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
        nothing is written: artifacts are in the memory of this sandbox alone and gone with it, so
        that its addresses open in it alone, and the journal is told of none. So it is for a
        session whose windows, or facts, are held in memory already.

        Spec: Summit §Isolation Strategy

        Args:
            session_id: named in the journal's events; empty for none.
            labels: access labels of everything that is put.
            residency: region whose artifacts they are; None for the relay's own.
            cache: `no-store`, or None for what the session says.

        Raises:
            RequestError: there is no such region, or a directive says nothing about artifacts.
        """
        world, region = self._world, self._residency if residency is None else residency
        directives = CacheDirectives.parse(cache) if isinstance(cache, str) else cache
        if directives not in (None, CacheDirectives(), CacheDirectives(no_store=True)):
            raise RequestError(
                f"cache {directives.text!r} is more than artifacts take; wanted no-store"
            )
        held = bool(session_id) and (
            world.remembered.of(session_id).session is not None
            or bool(world.namespace_in(region).view(session_id, keep_counts=False).held())
        )
        keep = not held and not (directives and directives.no_store)
        kept = access_labels(labels, RequestError)
        return sandbox_of(world, region, session_id=session_id, labels=kept, keep=keep)
