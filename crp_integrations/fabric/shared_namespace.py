"""Shared namespaces: what the operator keeps and every tenant may read.

Spec: CRP-SPEC-009 §9.2
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime

from crp_integrations.errors import AccessDenied, ConfigError, StoreError
from crp_integrations.fabric.namespace_reader import NamespaceReader
from crp_integrations.fabric.ports.store import FaultCounts, fault_counts_of
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.fabric.search.vector_index import Hit
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import RETRIEVABLE, FactStatus

# No tenant's name begins like this, so no tenant's namespace is ever a shared one.
PREFIX = "shared:"


def stored_name(name: str) -> str:
    """The name under which a shared namespace is kept in the store."""
    return PREFIX + name


def refuse_reserved(tenant: str) -> None:
    """Refuse a tenant named like a shared namespace, also in letters that only look like it."""
    if unicodedata.normalize("NFKC", tenant).strip().casefold().startswith(PREFIX):
        raise AccessDenied(
            f"tenant {tenant!r:.60} begins with {PREFIX!r}, which is kept for shared namespaces, "
            "so access is denied"
        )


def check_configured(name: str, names: Iterable[str]) -> None:
    """Refuse a shared namespace that no tenant would read."""
    known = list(names)
    if name not in known:
        raise ConfigError(
            f"shared namespace {name!r:.60} is not one of {known} (setting fabric.shared)"
        )


class SharedNamespaceReader(NamespaceReader):
    """A shared namespace as a tenant sees it: without any trace of how others use it."""

    def nearest(self, vector: FloatRows, k: int, where: Where | None = None) -> list[Hit]:
        """As of any namespace; the filter sees no use."""
        return super().nearest(vector, k, where and _for_tenants(where))

    def search_text(self, query: str, k: int, where: Where | None = None) -> list[Hit]:
        """As of any namespace; the filter sees no use."""
        return super().search_text(query, k, where and _for_tenants(where))

    def find(self, where: Where) -> list[str]:
        """Ids of retrievable facts; the filter sees no use."""
        return super().find(_for_tenants(where))

    def facts(self, ids: Sequence[str]) -> list[Fact]:
        """Facts in the order asked for, as if they had never been used."""
        return [
            fact.model_copy(update={"access_count": 0, "last_accessed_at": None})
            for fact in super().facts(ids)
        ]

    def said(self, ids: Sequence[str]) -> dict[str, str]:
        """Content hashes of those that are not deleted, by id, whoever may see them."""
        with self._begun() as transaction:
            return {
                fact.fact_id: fact.content_hash
                for fact in transaction.facts.get(ids)
                if fact.status is not FactStatus.DELETED
            }

    def note_use(self, ids: Sequence[str], now: datetime) -> None:
        """Record for the operator that an envelope held facts; ids of others do nothing."""
        try:
            with self._fabric.begin(self.name, write=True) as transaction:
                transaction.facts.touch(ids, now)
        except StoreError:
            return

    def note_findings(self, ids: Sequence[str]) -> dict[str, FaultCounts]:
        """Count for the operator that an answer went wrong with facts; ids of others do nothing.

        Spec: CRP-SPEC-009 §8.4
        """
        try:
            with self._fabric.begin(self.name, write=True) as transaction:
                facet = fault_counts_of(transaction)
                return facet.count(ids) if facet is not None else {}
        except StoreError:
            return {}


def refuse_shared(
    shared: Iterable[SharedNamespaceReader], ids: Sequence[str], source_id: str
) -> None:
    """Refuse a tenant's write to what a shared namespace has, as far as the tenant may see it."""
    for reading in shared:
        what = [f"fact {fact.fact_id}" for fact in reading.facts(ids)]
        what += [f"source {s.source_id!r}" for s in reading.sources() if s.source_id == source_id]
        if what:
            raise AccessDenied(
                f"{what[0]} is of shared namespace {reading.name.removeprefix(PREFIX)!r}, which "
                "only the operator changes; nothing was changed"
            )


def refuse_other_text(
    shared: Sequence[SharedNamespaceReader], given: Iterable[Fact], own: Iterable[Fact]
) -> None:
    """Refuse a tenant's fact that would say something else than the shared one of its id.

    Spec: CRP-SPEC-009 §9.2
    """
    if not shared:
        return
    wanted = {fact.fact_id: fact.content_hash for fact in given}
    before = {f.fact_id: f.content_hash for f in own if f.status is not FactStatus.DELETED}
    for reading in shared:
        for id_, content_hash in reading.said(sorted(wanted)).items():
            if wanted[id_] != content_hash and before.get(id_, content_hash) == content_hash:
                raise AccessDenied(
                    f"fact {id_} is of shared namespace {reading.name.removeprefix(PREFIX)!r} and "
                    "says something else there, which only the operator changes; give the text "
                    "another id; nothing was changed"
                )


def _for_tenants(where: Where) -> Where:
    """The filter as it holds for a fact that nobody has used and that can be retrieved."""
    fields: dict[str, object] = {"unused_since": None}
    if where.unused_since is not None:
        # A fact never used is unused since any moment after its ingestion.
        bounds = [at for at in (where.ingested_before, where.unused_since) if at is not None]
        fields["ingested_before"] = min(bounds)
    if where.statuses is not None:
        fields["statuses"] = tuple(status for status in where.statuses if status in RETRIEVABLE)
        fields["archived"] = False
    return where.model_copy(update=fields)
