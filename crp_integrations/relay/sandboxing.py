"""The artifacts of a relay: bulky texts beside the prompt, under its subject, guard and journal."""

from __future__ import annotations

from collections.abc import Iterable

from crp_integrations.governance.artifacts.sandbox import Sandbox
from crp_integrations.ports import KeyRing
from crp_integrations.relay.asks import Asks
from crp_integrations.relay.sandboxes import sandbox_of


class Sandboxing(Asks):
    """The part of a relay that keeps bulky texts out of prompts."""

    @property
    def keyring(self) -> KeyRing:
        """The store's keys, for whoever checks a signed address; printing it shows none."""
        return self._world.keyring

    def sandbox(
        self, *, session_id: str = "", labels: Iterable[str] = (), residency: str | None = None
    ) -> Sandbox:
        """The artifacts that the relay's subject may use.

        What is put carries the labels of the stored facts that it comes from. It is written to
        the object store whatever a session's cache directive says: under `no-store` keep none.

        Spec: Summit §Isolation Strategy

        Args:
            session_id: named in the journal's events; empty for none.
            labels: access labels of everything that is put.
            residency: region whose artifacts they are; None for the relay's own.

        Raises:
            RequestError: there is no such region.
        """
        region = self._residency if residency is None else residency
        return sandbox_of(self._world, region, session_id=session_id, labels=tuple(labels))
