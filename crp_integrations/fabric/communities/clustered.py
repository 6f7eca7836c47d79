"""The part of a namespace that finds communities and shows them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from crp_integrations.errors import ConfigError, EngineError, StoreBusy
from crp_integrations.fabric.coming import NEXT_SETTING
from crp_integrations.fabric.communities.clustering import Clustering
from crp_integrations.fabric.communities.clusters import ClusterReport, Community, FactGraph
from crp_integrations.fabric.communities.schedule import due, due_after_ingestion
from crp_integrations.fabric.life.writing import Writing
from crp_integrations.fabric.ports import FactsFacet, alone_in
from crp_integrations.fabric.reading import Reading
from crp_integrations.fabric.records import IngestReport
from crp_integrations.guard.decisions import NAMESPACE, Guard, Subject, require

if TYPE_CHECKING:
    from crp_integrations.fabric.fabric import Fabric

_log = logging.getLogger(__name__)


class Clustered:
    """Communities of the tenant's own facts; a base of `Operations`.

    Communities are found per namespace and never across two, so the shared namespaces that a tenant
    reads have their own.

    Spec: CRP-SPEC-009 §5, §9.1
    """

    _fabric: Fabric
    _guard: Guard
    _own: Reading
    subject: Subject
    # Of the class that this is a base of.
    _writing: Callable[[], Writing]

    def recluster(self, *, afresh: bool = False) -> ClusterReport:
        """Find the communities anew, beginning with those that there are.

        It covers what the subject may not read, too, and makes every ETag invalid.

        Spec: CRP-SPEC-009 §5.5

        Args:
            afresh: begin with nothing, so that equal facts give equal communities and labels
                whatever was there before.

        Raises:
            AccessDenied: the guard denies writing.
            ConfigError: the fabric has no engine for it, or the stored vectors are of another
                embedder.
            EngineError: the engine failed; nothing was changed.
            StoreBusy: another process does the same or did it meanwhile, or held the write lock
                for too long; nothing was changed.
        """
        require(self._guard, self.subject, "write", NAMESPACE)
        report = self._clustering().run(afresh=afresh)
        # Many facts are others now by the log, of which the next process would compare each.
        self._fabric.live(self._own.name).settle()
        return report

    def communities(self) -> list[Community]:
        """The communities of the facts that the subject may read, the largest first, then by label.

        Spec: CRP-SPEC-009 §5
        """
        return self._clustering().communities()

    def graph(self) -> FactGraph:
        """The similarity graph of the facts that the subject may read, for export.

        Spec: CRP-SPEC-009 §5.2
        """
        return self._clustering().graph()

    # --- within ------------------------------------------------------------------------

    def _clustering(self) -> Clustering:
        fabric = self._fabric
        return Clustering(
            writing=self._writing(),
            engine=fabric.leiden,
            embedder=fabric.embedder,
            index=lambda facts: fabric.live(self._own.name).picture(facts).index,
            kept=fabric.similarities,
            alone=lambda: alone_in(fabric.store, self._own.name, "recluster"),
        )

    def _recluster_due(self, facts: FactsFacet, now: datetime) -> bool:
        fabric = self._fabric
        # On the way to this fabric's embedder they are found with the vectors still in use.
        if fabric.leiden is None or facts.setting(NEXT_SETTING) == fabric.embedder.identity:
            return False
        return due(facts, fabric.settings.communities, now)

    def _grouped(self, report: IngestReport) -> IngestReport:
        """What was ingested, after the communities were found anew if that was due.

        The facts are stored by now, so a failure here is told in the log and tried again later.

        Spec: CRP-SPEC-009 §5.5
        """
        fabric = self._fabric
        if fabric.leiden is None or not report.facts:
            return report
        with fabric.begin(self._own.name, write=False) as transaction:
            if not due_after_ingestion(transaction.facts, fabric.settings.communities):
                return report
        try:
            after = self._clustering().run().state_hash
        except (ConfigError, EngineError, StoreBusy) as error:
            _log.warning("communities were not found anew: %s", error)
            return report
        return report.model_copy(update={"state_hash": after})
