"""Facts into a session's memory: checked and embedded as those that are stored, never written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from crp_integrations.errors import RequestError
from crp_integrations.fabric.ingest.embedding import embedded
from crp_integrations.fabric.ingest.given import given_facts
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.search.hot import HotTier
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.ports import Clock, Embedder, TokenCounter, Tracer
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import SourceKind


@dataclass(frozen=True, slots=True)
class Holding:
    """Puts facts into the memory of one tenant's sessions, on behalf of one subject.

    Attributes:
        allow: raises AccessDenied when things with these labels may not be written.
        own: those of some ids that the namespace stores, whatever their status.
        stored: the same, and those that a shared namespace stores.
        check_shared: as in `Ingestion`.
    """

    tenant: str
    hot: HotTier
    embedder: Embedder
    counter: TokenCounter
    clock: Clock
    settings: FabricSettings
    tracer: Tracer
    allow: Callable[[tuple[str, ...]], None]
    own: Callable[[Sequence[str]], set[str]]
    stored: Callable[[Sequence[str]], set[str]]
    check_shared: Callable[[Iterable[Fact], Iterable[Fact]], None]

    def hold(
        self, session_id: str, facts: Sequence[Fact | str], *, kind: SourceKind | None
    ) -> tuple[list[str], list[str]]:
        """Hold facts for a session, all of them or none.

        Spec: CRP-SPEC-009 §7.2

        Returns:
            Ids of the new ones, and of those that are stored or were held before.

        Raises:
            RequestError: the session has no name.
            FactRejected, AccessDenied: a fact may not be stored, so it may not be held either.
            LimitReached: it would be too much.
        """
        if not session_id:
            raise RequestError("facts are held for a session; give its session_id")
        now = self.clock.now()
        given = given_facts(
            facts,
            namespace=self.tenant,
            kind=kind,
            now=now,
            counter=self.counter,
            settings=self.settings,
            allow=self.allow,
        )
        before = self.hot.held(self.tenant, session_id, now)
        own = self.own([fact.fact_id for fact in given])
        self.check_shared([fact for fact in given if fact.fact_id not in own], ())
        there = self.stored([fact.fact_id for fact in given]) | set(before.facts if before else ())
        fresh = [fact for fact in given if fact.fact_id not in there]
        # Before the dear part, so that too many facts cost nothing.
        self.hot.check_room(self.tenant, session_id, len(fresh))
        new = []
        if fresh:
            rows = self._rows(fresh)
            new = self.hot.hold(self.tenant, session_id, fresh, rows, now)
        held = set(new)
        return new, [fact.fact_id for fact in given if fact.fact_id not in held]

    def _rows(self, facts: Sequence[Fact]) -> FloatRows:
        """Unit vectors of the facts, shape (len(facts), dimensions)."""
        step = self.settings.embed_slice
        pairs = [(fact.content_hash, fact.content) for fact in facts]
        slices = [pairs[start : start + step] for start in range(0, len(pairs), step)]
        with self.tracer.step("fabric.embed"):
            workers = self.settings.embed_workers
            return np.vstack([rows for _, rows in embedded(self.embedder, slices, workers=workers)])
