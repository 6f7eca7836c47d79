"""A pack's items as context entries, and the pack that a compaction leaves.

The user's message, the task and the policy stay whole. A summary joins items of one section and one
security label, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from crp_integrations.envelope.prompt import marker_text, render
from crp_integrations.errors import RequestError
from crp_integrations.governance.compaction.records import Summary
from crp_integrations.governance.compaction.working_context import (
    ContextEntry,
    Firmness,
    WorkingContext,
)
from crp_integrations.governance.context_pack import (
    ContextItem,
    ContextPack,
    ContextSection,
    ProvenanceRef,
    RetrievalEvidence,
    section_tokens,
    text_of,
)
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import digest, sha256

HEAD: Final = ""
_KEPT: Final = frozenset({"user", "task", "policy"})
# Between a section's number and a label, which may hold anything else.
_PARTED: Final = "\u241f"


def pack_line(mark: int, speaker: str, quoted: str) -> str:
    """One line of a summary; its citation holds the id."""
    gap = "\n" if quoted.startswith(("```", "~~~")) else " "
    return f"- {speaker}".rstrip() + gap + quoted


def make_pack_entries(pack: ContextPack, texts: Mapping[str, str]) -> list[ContextEntry]:
    """The items as entries, as they are shown now."""
    sources = {ref.item_id: ref.source for ref in pack.provenance_refs}
    found: list[ContextEntry] = []
    seen: set[str] = set()
    for number, section in enumerate(pack.sections):
        pinned = section.type in _KEPT
        for item in section.items:
            if item.id in seen:
                raise RequestError(f"item {item.id!r:.80} stands twice in pack {pack.id!r:.60}")
            seen.add(item.id)
            found.append(
                ContextEntry(
                    id=item.id,
                    text=text_of(item, item.shown_ref, texts),
                    unit=len(found),
                    firmness=Firmness.PINNED if pinned else Firmness.FREE,
                    cuttable=not pinned and section.type != "tools",
                    droppable=not pinned,
                    shelf=f"{number}{_PARTED}{item.security_label}",
                    cluster=sources.get(item.id, item.id),
                )
            )
    return found


class ItemCosts:
    """Tokens of items with their markers and separators, as an envelope counts them."""

    base = 0

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    def entries(self, at: Sequence[int], texts: Sequence[str]) -> list[int]:
        """Tokens of items with these texts."""
        return self.summaries(texts)

    def summaries(self, texts: Sequence[str]) -> list[int]:
        """Tokens of summaries, each as an item."""
        return [max(0, n) for n in self._counter.count_many([marker_text(t) for t in texts])]


def write_pack(
    pack: ContextPack,
    budget: int,
    context: WorkingContext,
    shown: Mapping[str, Summary],
    counter: TokenCounter,
) -> tuple[ContextPack, dict[str, str]]:
    """The pack that is left, and the texts that it shows in place of others."""
    texts: dict[str, str] = {}
    place = 0
    sections: list[ContextSection] = []
    every: list[str] = []
    refs: list[ProvenanceRef] = []
    for number, section in enumerate(pack.sections):
        items: list[ContextItem] = []
        contents: list[str] = []
        for item in section.items:
            cut = context.cuts[place]
            whole = context.is_whole(place)
            place += 1
            if cut is None:
                continue
            if not whole:
                ref = sha256(cut.text)
                texts[ref] = cut.text
                item = item.changed(summary_ref=ref)
            items.append(item)
            contents.append(cut.text)
        for shelf, summary in sorted(shown.items()):
            if shelf.partition(_PARTED)[0] != str(number):
                continue
            summed = [context.entries[at].id for at in context.folded[shelf]]
            texts[summary.checksum] = summary.text
            items.append(_summary_item(section, summary, summed))
            contents.append(summary.text)
            refs.append(
                ProvenanceRef(item_id=summary.id, source=pack.id, checksum=summary.checksum)
            )
        every += contents
        sections.append(
            section.changed(items=tuple(items), token_actual=section_tokens(contents, counter))
        )
    stay = {item.id for section in sections for item in section.items}
    made = pack.changed(
        id="pack:" + digest([pack.id, budget, every]).removeprefix("sha256:")[:24],
        token_budget=budget,
        token_actual=counter.count(render(every)) if every else 0,
        sections=tuple(sections),
        provenance_refs=(*(ref for ref in pack.provenance_refs if ref.item_id in stay), *refs),
    )
    return made, texts


def _summary_item(section: ContextSection, summary: Summary, ids: Sequence[str]) -> ContextItem:
    """A summary as an item: the best evidence and all the flags of what it sums up."""
    members = set(ids)
    items = [item for item in section.items if item.id in members]
    best = max(items, key=lambda item: item.score)
    flags = dict.fromkeys(flag for item in items for flag in item.pii_flags)
    return ContextItem(
        id=summary.id,
        source_type=best.source_type,
        content_ref=summary.checksum,
        summary_ref=summary.checksum,
        score=best.score,
        security_label=best.security_label,
        pii_flags=tuple(flags),
        evidence=RetrievalEvidence(
            retriever=best.evidence.retriever,
            query=best.evidence.query,
            filters=best.evidence.filters,
            reranker=summary.method,
            score=best.score,
            policy_decision_id=best.evidence.policy_decision_id,
        ),
    )
