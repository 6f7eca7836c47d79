"""The sentinel: counts anomalies and signs of context rot (`sentinel@1`)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from pydantic import Field

from crp_integrations.governance.roles.handover import is_given
from crp_integrations.governance.roles.records import (
    AnswerDraft,
    DraftVerdict,
    Material,
    RotFinding,
    SentinelReport,
)
from crp_integrations.governance.roles.verifier import shown_texts
from crp_integrations.guard.injection.detection import detect_many
from crp_integrations.records import Part
from crp_integrations.vocabulary import RotSignal

SENTINEL: Final = "sentinel@1"
# The verifier's failed checks, in the sentinel's words.
_FAILED: Final = {
    "policy": RotSignal.POLICY_DENIED,
    "tools": RotSignal.POLICY_DENIED,
    "citations": RotSignal.CITATION_BROKEN,
    "drops": RotSignal.UNREPORTED_DROP,
}


class SentinelSettings(Part):
    """From where on something counts; shares and scores are in [0, 1].

    Attributes:
        most_tokens: of a context before it is an overload, whatever its budget.
        relevant: score from which an item is relevant.
        least_relevant: share of relevant items below which confidence is low.
        drift_score: score of the best item below which retrieval has drifted.
        stale_share: share of stale items above which a context is stale.
        blocking: signals that stop a run. Orders in a text stop none: the text is withheld.
    """

    most_tokens: int = Field(default=32_000, ge=1)
    relevant: float = Field(default=0.25, ge=0.0, le=1.0)
    least_relevant: float = Field(default=0.3, ge=0.0, le=1.0)
    drift_score: float = Field(default=0.2, ge=0.0, le=1.0)
    stale_share: float = Field(default=0.5, ge=0.0, le=1.0)
    blocking: tuple[RotSignal, ...] = (
        RotSignal.BUDGET_EXCEEDED,
        RotSignal.UNREPORTED_DROP,
        RotSignal.POLICY_DENIED,
    )


@dataclass(frozen=True, slots=True)
class RotSentinel:
    """Counts what speaks of rot: overload, duplicates, staleness, drift, orders in texts.

    Spec: Summit §Isolation Strategy
    """

    settings: SentinelSettings = field(default_factory=SentinelSettings)

    def watch(
        self,
        material: Material,
        draft: AnswerDraft | None = None,
        verdict: DraftVerdict | None = None,
    ) -> SentinelReport:
        """Look at a run before its model is asked, or after its draft was verified."""
        found = [*self._rot(material), *self._orders(material)]
        if verdict is not None:
            found += [
                self._noticed(_FAILED[check.rule], 1.0, 0.0, check.item_ids)
                for check in verdict.checks
                if not check.passed and check.rule in _FAILED
            ]
        return SentinelReport(noticed=tuple(found))

    def _rot(self, material: Material) -> list[RotFinding]:
        pack, settings, found = material.pack, self.settings, []
        items = [
            item
            for section in pack.sections
            if section.type in ("knowledge", "memory")
            for item in section.items
        ]
        if pack.token_actual > pack.token_budget:
            found.append(
                self._noticed(RotSignal.BUDGET_EXCEEDED, pack.token_actual, pack.token_budget)
            )
        if pack.token_actual > settings.most_tokens:
            found.append(
                self._noticed(RotSignal.CONTEXT_OVERLOAD, pack.token_actual, settings.most_tokens)
            )
        counts = Counter(item.shown_ref for item in items)
        twice = tuple(item.id for item in items if counts[item.shown_ref] > 1)
        if twice:
            found.append(self._noticed(RotSignal.DUPLICATE_CONTEXT, len(twice), 0, twice))
        if not items:
            return found
        stale = tuple(item.id for item in items if item.id in material.stale)
        if len(stale) > settings.stale_share * len(items):
            share = len(stale) / len(items)
            found.append(self._noticed(RotSignal.STALE_CONTEXT, share, settings.stale_share, stale))
        best = max(item.score for item in items)
        if best < settings.drift_score:
            found.append(self._noticed(RotSignal.RETRIEVAL_DRIFT, best, settings.drift_score))
        weak = tuple(item.id for item in items if item.score < settings.relevant)
        share = 1.0 - len(weak) / len(items)
        if share < settings.least_relevant:
            found.append(
                self._noticed(RotSignal.LOW_CONFIDENCE, share, settings.least_relevant, weak)
            )
        return found

    def _orders(self, material: Material) -> list[RotFinding]:
        stored = {item.id for item in material.pack.items if not is_given(item)}
        texts = {id_: text for id_, text in shown_texts(material).items() if id_ in stored}
        reports = detect_many(list(texts.values()))
        injected = tuple(id_ for id_, report in zip(texts, reports, strict=True) if report.injected)
        if not injected:
            return []
        return [self._noticed(RotSignal.INJECTION, len(injected), 0, injected)]

    def _noticed(
        self, signal: RotSignal, value: float, limit: float, item_ids: tuple[str, ...] = ()
    ) -> RotFinding:
        return RotFinding(
            signal=signal,
            value=float(value),
            limit=float(limit),
            item_ids=item_ids,
            blocks=signal in self.settings.blocking,
        )
