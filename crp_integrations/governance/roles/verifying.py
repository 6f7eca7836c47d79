"""The verifier: policy, provenance, citations, drops and tools, each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from crp_integrations.errors import CompactionRefused
from crp_integrations.governance.compaction.verify import check_pack
from crp_integrations.governance.exposure import Snippet
from crp_integrations.governance.packs import text_of
from crp_integrations.governance.roles.citing import holds, uncited
from crp_integrations.governance.roles.handing import given, labels_of
from crp_integrations.governance.roles.records import Check, Draft, Material, Verdict
from crp_integrations.governance.tool_checks import TOOL_ID, check_offered
from crp_integrations.governance.tools import ToolSpec
from crp_integrations.guard.decisions import Decision, Guard, LabelFilter, Subject


@dataclass(frozen=True, slots=True)
class PackVerifier:
    """Looks at what was shown and written; takes no other role's word for anything.

    Spec: Summit §Isolation Strategy

    Attributes:
        subject: the run's, with the verifier's own role.
        tools: the registry, for the tools in a pack.
        tags: safety tags that policy requires and shuts out.
    """

    subject: Subject
    guard: Guard
    tools: tuple[ToolSpec, ...] = ()
    tags: LabelFilter = field(default_factory=LabelFilter)

    def verify(
        self,
        before: Material,
        shown: Material,
        snippets: Sequence[Snippet],
        draft: Draft,
    ) -> Verdict:
        """Look at a draft; one failed check withholds it."""
        checks = (
            self.policy(shown, snippets),
            provenance(shown),
            citations(draft, snippets),
            drops(before, shown),
            self.offered(shown),
        )
        return Verdict(passed=all(one.passed for one in checks), checks=checks)

    def policy(self, shown: Material, snippets: Sequence[Snippet]) -> Check:
        """Whether the guard lets every item be read, and every snippet is an item's."""
        stored = [item for item in shown.pack.items if not given(item)]
        denied = [item.id for item in stored if not self._decide(labels_of(item)).allowed]
        known = {item.id for item in shown.pack.items}
        strange = [one.id for one in snippets if one.id not in known]
        return _check("policy", (*denied, *strange), "the guard denies it, or it is in no pack")

    def offered(self, shown: Material) -> Check:
        """Whether the tools of the pack are those of the registry, and policy lets them in."""
        faults = check_offered(shown.pack, self.tools, self._decide, self.tags)
        names = tuple(f"{TOOL_ID}{fault.name}" for fault in faults)
        return _check("tools", names, "; ".join(dict.fromkeys(fault.reason for fault in faults)))

    def _decide(self, labels: tuple[str, ...]) -> Decision:
        return self.guard.decide(self.subject, "read", labels)


def provenance(shown: Material) -> Check:
    """Whether each item names its source and the checksum of its text."""
    refs = {ref.item_id: ref for ref in shown.pack.provenance_refs}
    bad = []
    for item in shown.pack.items:
        if item.source_type == "tool":
            continue
        ref = refs.get(item.id)
        summed_up = item.summary_ref is not None
        if ref is None or not ref.source or not (summed_up or ref.checksum == item.content_ref):
            bad.append(item.id)
    return _check("provenance", tuple(bad), "no source or no checksum is known of it")


def citations(draft: Draft, snippets: Sequence[Snippet]) -> Check:
    """Whether every stretch of an answer cites what was shown, and what is cited says it."""
    if draft.abstains:
        return _check("citations", (), "")
    texts = {one.id: one.text for one in snippets}
    bad = [
        item_id
        for one in draft.cited
        for item_id in one.item_ids
        if item_id not in texts or not holds(draft.text[one.start : one.end], texts[item_id])
    ]
    if bad:
        return _check("citations", tuple(bad), "what is cited was not shown, or does not say it")
    missing = uncited(draft) or not draft.cited
    return Check(
        rule="citations",
        passed=not missing,
        reason="a stretch of the answer cites nothing" if missing else "",
    )


def drops(before: Material, shown: Material) -> Check:
    """Whether everything that is not shown as it was is named in a report.

    Spec: Summit §Failure Modes & Mitigations
    """
    if shown.compact is not None:
        try:
            check_pack(before.pack, shown.compact, before.texts)
        except CompactionRefused:
            return Check(rule="drops", passed=False, reason="the reports do not name all that went")
    named = {name.partition("#")[0] for report in shown.reports for name in report.dropped_item_ids}
    there = {item.id for item in shown.pack.items}
    lost = tuple(i.id for i in before.pack.items if i.id not in there and i.id not in named)
    return _check("drops", lost, "it is gone, and no report names it")


def shown_texts(material: Material) -> dict[str, str]:
    """The text that is shown of each item, by the item's id."""
    return {item.id: text_of(item, item.shown_ref, material.texts) for item in material.pack.items}


def _check(rule: str, item_ids: tuple[str, ...], reason: str) -> Check:
    return Check(
        rule=rule, passed=not item_ids, item_ids=item_ids, reason=reason if item_ids else ""
    )
