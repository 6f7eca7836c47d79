"""The fabric: regions (each a store with its engines) and the namespaces in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crp_integrations.errors import AccessDenied, RequestError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import (
    CommunityEngine,
    DerivedContent,
    GraphEngine,
    Notify,
    Store,
)
from crp_integrations.fabric.region import (
    FabricRegion,
    check_configured,
    refuse_reserved,
    stored_name,
)
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.guard.decisions import LOCAL, Guard, Subject
from crp_integrations.guard.ports import Redactor
from crp_integrations.ports import Clock, Embedder, KeyRing, TokenCounter, Tracer


class Fabric(FabricRegion):
    """Knowledge of many tenants: one unnamed default region, and others by name.

    A fabric reads and writes nothing by itself: `bind` returns the namespace that does.

    Args:
        regions: stores by name of their region (§7.2).
        elsewhere: content derived from facts outside of the store, by region; `""` is the default.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        counter: TokenCounter,
        clock: Clock,
        keyring: KeyRing,
        settings: FabricSettings | None = None,
        tracer: Tracer | None = None,
        regions: Mapping[str, Store] | None = None,
        graphs: GraphEngine | None = None,
        notify: Notify | None = None,
        leiden: CommunityEngine | None = None,
        elsewhere: Mapping[str, DerivedContent] | None = None,
        guard: Guard | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        engines: dict[str, Any] = {
            "embedder": embedder,
            "counter": counter,
            "clock": clock,
            "keyring": keyring,
            "settings": settings,
            "tracer": tracer,
            "graphs": graphs,
            "notify": notify,
            "leiden": leiden,
            "guard": guard,
            "redactor": redactor,
        }
        derived = elsewhere or {}
        super().__init__(store, elsewhere=derived.get(""), **engines)
        self._regions = {
            name.lower(): FabricRegion(
                place, elsewhere=derived.get(name), residency=name.lower(), **engines
            )
            for name, place in (regions or {}).items()
        }

    def bind(
        self, subject: Subject = LOCAL, guard: Guard | None = None, *, residency: str = ""
    ) -> Namespace:
        """Return the subject's namespace (own and shared facts), the only way to read.

        Spec: CRP-SPEC-009 §7.2, §9.1, §9.2
        """
        if not subject.tenant.strip():
            raise AccessDenied(f"subject {subject.name!r} names no tenant, so access is denied")
        refuse_reserved(subject.tenant)
        return self._bound(self.region(residency), subject, guard, self.settings.shared)

    def bind_shared(
        self, name: str, guard: Guard | None = None, *, residency: str = ""
    ) -> Namespace:
        """Return a shared namespace in writable form, for the operator.

        Code that has the fabric acts as the operator; tenants receive namespaces only.

        Spec: CRP-SPEC-009 §9.2
        """
        check_configured(name, self.settings.shared)
        operator = Subject(tenant=stored_name(name), name="operator")
        return self._bound(self.region(residency), operator, guard, ())

    def region(self, residency: str) -> FabricRegion:
        """Return the region of this name; the default region for an empty name.

        Spec: CRP-SPEC-009 §7.2
        """
        if not residency:
            return self
        region = self._regions.get(residency.lower())
        if region is None:
            raise RequestError(
                f"residency {residency!r:.40} is not one of the regions {self.regions}"
            )
        return region

    @property
    def regions(self) -> list[str]:
        """Names of the regions, ascending."""
        return sorted(self._regions)

    def _bound(
        self, region: FabricRegion, subject: Subject, guard: Guard | None, shared: Sequence[str]
    ) -> Namespace:
        with region.begin(subject.tenant, write=False) as transaction:
            region.check_embedder(transaction.facts)
            region.check_key(subject.tenant, transaction.journal)
        names = [stored_name(name) for name in shared]
        for name in names:
            with region.begin(name, write=False) as transaction:
                region.check_embedder(transaction.facts, name)
        return Namespace(region, subject, guard or region.guard, names)
