"""The verifier: checks policy, provenance, citations (`citing@1`), drops and tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from crp_integrations.errors import CompactionRefused
from crp_integrations.governance.compaction.verification import check_pack, find_missing
from crp_integrations.governance.context_pack import ContextPack, text_of
from crp_integrations.governance.roles.records import (
    AnswerDraft,
    CitedSpan,
    DraftCheck,
    DraftVerdict,
    Material,
    is_given,
    labels_of,
)
from crp_integrations.governance.runtime_state import Snippet
from crp_integrations.governance.tools import Decide, ToolSpec
from crp_integrations.guard.decisions import Decision, Guard, LabelFilter, Subject
from crp_integrations.language.words import content_stems
from crp_integrations.messages import ToolCall
from crp_integrations.records import Part
from crp_integrations.seals import sha256

CITING: Final = "citing@1"
# Share of a stretch's content words that what it cites must have.
LEAST_SHARED: Final = 0.6
# Content words from which a stretch says something.
SAYS: Final = 3
# Marks that follow each other are one citation: [1][2], [1, 2].
_MARKS: Final = re.compile(r"(?:\s*\[\d{1,4}(?:\s?,\s?\d{1,4})*\])+")
_NUMBER: Final = re.compile(r"\d{1,4}")
_OPENING: Final = re.compile(r"\A[^\n:]{0,80}:\s*\n")


def find_cited(text: str, item_ids: Sequence[str]) -> tuple[CitedSpan, ...]:
    """The stretches of an answer that end in marks, with the items that the marks name.

    Args:
        item_ids: of what was shown; the first one's number is 1.

    >>> [one.item_ids for one in find_cited("Built in 1957 [2]. Run by N [1][3].", ["a", "b"])]
    [('b',), ('a', '')]
    """
    found, start = [], 0
    opening = _OPENING.match(text)
    if opening:
        start = opening.end()
    for match in _MARKS.finditer(text, start):
        named = (int(number) for number in _NUMBER.findall(match[0]))
        ids = [item_ids[n - 1] if 1 <= n <= len(item_ids) else "" for n in named]
        found.append(CitedSpan(start=start, end=match.start(), item_ids=tuple(dict.fromkeys(ids))))
        start = match.end()
    return tuple(found)


def is_supported(said: str, source: str) -> bool:
    """Whether a source has the figures, dates, ids and quotations of a stretch, and its words."""
    stems = set(content_stems(said))
    shared = len(stems & set(content_stems(source)))
    enough = not stems or shared >= LEAST_SHARED * len(stems)
    return enough and not any(True for _ in find_missing(said, source))


def find_uncited(draft: AnswerDraft) -> list[str]:
    """Stretches of an answer that say something and cite nothing."""
    left, start = [], 0
    opening = _OPENING.match(draft.text)
    if opening:
        start = opening.end()
    for one in draft.cited:
        start = max(start, one.end)
    rest = _MARKS.sub("", draft.text[start:])
    if len(content_stems(rest)) >= SAYS:
        left.append(rest)
    return left


FaultWord = Literal["unknown", "altered", "unauthorised", "unsafe", "not-offered"]
TOOL_ID = "tool:"


class ToolFault(Part):
    """What is wrong with a tool that is offered or called.

    Attributes:
        fault: `unknown` to the registry; `altered`, shown otherwise than the registry has it;
            `unauthorised` by the guard; `unsafe` by its tags; `not-offered` in the pack.
    """

    name: str
    fault: FaultWord
    reason: str


def check_offered(
    pack: ContextPack, registry: Iterable[ToolSpec], decide: Decide, tags: LabelFilter
) -> tuple[ToolFault, ...]:
    """What is wrong with the tools of a pack, in their order; nothing for a sound one.

    Spec: Summit §Failure Modes & Mitigations
    """
    known = {tool.name: tool for tool in registry}
    faults: list[ToolFault] = []
    for section in pack.sections:
        if section.type != "tools":
            continue
        for item in section.items:
            name = item.id.removeprefix(TOOL_ID)
            tool = known.get(name)
            if tool is not None and item.shown_ref != sha256(tool.shown):
                reason = "it is not shown as the registry has it"
                faults.append(ToolFault(name=name, fault="altered", reason=reason))
            else:
                faults += _tool_faults(name, tool, decide, tags)
    return tuple(faults)


def check_calls(
    calls: Sequence[ToolCall],
    pack: ContextPack,
    registry: Iterable[ToolSpec],
    decide: Decide,
    tags: LabelFilter,
) -> tuple[ToolFault, ...]:
    """What is wrong with the calls that a model asks for; call nothing that has a fault.

    Spec: Summit §Failure Modes & Mitigations
    """
    known: Mapping[str, ToolSpec] = {tool.name: tool for tool in registry}
    offered = {
        item.id.removeprefix(TOOL_ID)
        for section in pack.sections
        if section.type == "tools"
        for item in section.items
    }
    faults: list[ToolFault] = []
    for call in calls:
        found = _tool_faults(call.name, known.get(call.name), decide, tags)
        if not found and call.name not in offered:
            reason = "the model was not offered it"
            found = [ToolFault(name=call.name, fault="not-offered", reason=reason)]
        faults += found
    return tuple(faults)


def _tool_faults(
    name: str, tool: ToolSpec | None, decide: Decide, tags: LabelFilter
) -> list[ToolFault]:
    if tool is None:
        return [ToolFault(name=name, fault="unknown", reason="no such tool is registered")]
    decision = decide(tuple(sorted(tool.labels)))
    if not decision.allowed:
        return [ToolFault(name=name, fault="unauthorised", reason=decision.reason)]
    if not tags.passes(tool.safety_tags):
        said = ", ".join(tool.safety_tags)
        reason = f"its safety tags {said} are not what policy lets in"
        return [ToolFault(name=name, fault="unsafe", reason=reason)]
    return []


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
        draft: AnswerDraft,
    ) -> DraftVerdict:
        """Look at a draft; one failed check withholds it."""
        checks = (
            self.policy(shown, snippets),
            check_provenance(shown),
            check_citations(draft, snippets),
            check_drops(before, shown),
            self.offered(shown),
        )
        return DraftVerdict(passed=all(one.passed for one in checks), checks=checks)

    def policy(self, shown: Material, snippets: Sequence[Snippet]) -> DraftCheck:
        """Whether the guard lets every item be read, and every snippet is an item's."""
        stored = [item for item in shown.pack.items if not is_given(item)]
        denied = [item.id for item in stored if not self._decide(labels_of(item)).allowed]
        known = {item.id for item in shown.pack.items}
        strange = [one.id for one in snippets if one.id not in known]
        return _make_check(
            "policy", (*denied, *strange), "the guard denies it, or it is in no pack"
        )

    def offered(self, shown: Material) -> DraftCheck:
        """Whether the tools of the pack are those of the registry, and policy lets them in."""
        faults = check_offered(shown.pack, self.tools, self._decide, self.tags)
        names = tuple(f"{TOOL_ID}{fault.name}" for fault in faults)
        return _make_check(
            "tools", names, "; ".join(dict.fromkeys(fault.reason for fault in faults))
        )

    def _decide(self, labels: tuple[str, ...]) -> Decision:
        return self.guard.decide(self.subject, "read", labels)


def check_provenance(shown: Material) -> DraftCheck:
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
    return _make_check("provenance", tuple(bad), "no source or no checksum is known of it")


def check_citations(draft: AnswerDraft, snippets: Sequence[Snippet]) -> DraftCheck:
    """Whether every stretch of an answer cites what was shown, and what is cited says it."""
    if draft.abstains:
        return _make_check("citations", (), "")
    texts = {one.id: one.text for one in snippets}
    bad = [
        item_id
        for one in draft.cited
        for item_id in one.item_ids
        if item_id not in texts or not is_supported(draft.text[one.start : one.end], texts[item_id])
    ]
    if bad:
        return _make_check(
            "citations", tuple(bad), "what is cited was not shown, or does not say it"
        )
    missing = find_uncited(draft) or not draft.cited
    return DraftCheck(
        rule="citations",
        passed=not missing,
        reason="a stretch of the answer cites nothing" if missing else "",
    )


def check_drops(before: Material, shown: Material) -> DraftCheck:
    """Whether everything that is not shown as it was is named in a report.

    Spec: Summit §Failure Modes & Mitigations
    """
    if shown.compact is not None:
        try:
            check_pack(before.pack, shown.compact, before.texts)
        except CompactionRefused:
            return DraftCheck(
                rule="drops", passed=False, reason="the reports do not name all that went"
            )
    named = {name.partition("#")[0] for report in shown.reports for name in report.dropped_item_ids}
    there = {item.id for item in shown.pack.items}
    lost = tuple(i.id for i in before.pack.items if i.id not in there and i.id not in named)
    return _make_check("drops", lost, "it is gone, and no report names it")


def shown_texts(material: Material) -> dict[str, str]:
    """The text that is shown of each item, by the item's id."""
    return {item.id: text_of(item, item.shown_ref, material.texts) for item in material.pack.items}


def _make_check(rule: str, item_ids: tuple[str, ...], reason: str) -> DraftCheck:
    return DraftCheck(
        rule=rule, passed=not item_ids, item_ids=item_ids, reason=reason if item_ids else ""
    )
