"""The context assembler: selects items, divides the budget, warns, and accounts for everything.

A pack presents an envelope with sections. Knowledge and memory are assembled as ordinary envelopes;
the sections of the caller's texts are placed around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime

from crp_integrations.dpe.pii.recognisers import find_personal_data
from crp_integrations.envelope.assemble import assemble
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.layout import SectionRun, build_sections
from crp_integrations.envelope.records import Drop, Envelope, PackedFact
from crp_integrations.errors import RequestError
from crp_integrations.fabric.view import FabricView
from crp_integrations.governance.context_pack import (
    AssembleRequest,
    ComposedPack,
    ContextPack,
    PackWarning,
    pack_of,
    texts_of,
)
from crp_integrations.governance.memory_writer import PolicyContext, check_subject
from crp_integrations.governance.pack_selection import (
    AssemblerParts,
    FilledSection,
    MemoryCache,
    MemoryTraits,
    PackSelection,
    SectionEntry,
    collect_evidence,
    fill_section,
    make_drop_reports,
    make_entry,
    select_candidates,
    warn_of_items,
)
from crp_integrations.governance.tools import TOOL_RAG, ToolSelection
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.validation import of_kind
from crp_integrations.vocabulary import DropReason, GroundingMode

REQUEST = "crp:request"


@dataclass(frozen=True, slots=True)
class _FittedSections:
    """Sections that fit the budget together.

    Attributes:
        dropped: drops of all sections.
    """

    envelope: Envelope
    dropped: tuple[Drop, ...] = ()
    warnings: tuple[PackWarning, ...] = ()
    minimal: bool = False


class ContextAssembler:
    """Makes context packs of one namespace. Thread-safe.

    Spec: Summit §Key APIs
    """

    def __init__(self, parts: AssemblerParts) -> None:
        """Keep the parts that the assembler works with; `Relay.assembler` creates one."""
        self._parts = parts
        self._memories = MemoryCache()

    def assemble(self, request: AssembleRequest, context: PolicyContext) -> ContextPack:
        """The pack for a message, under the active policies.

        Spec: Summit §Key APIs, §Context Assembly Pipeline
        """
        return self.compose(request, context).pack

    def compose(self, request: AssembleRequest, context: PolicyContext) -> ComposedPack:
        """The pack with its text for the model, drop reports, evidence and warnings.

        Spec: Summit §Context Assembly Pipeline
        """
        wanted = "an AssembleRequest, such as AssembleRequest(message=question, budget_tokens=8000)"
        of_kind(request, AssembleRequest, "request", wanted)
        parts, now = self._parts, self._parts.clock.now()
        namespace = parts.namespace
        check_subject(context, namespace.subject, "reading for a pack")
        session = request.session_id or context.session_id
        view = namespace.view(session) if session else namespace
        query = request.query or request.message
        tools = None
        if request.tools:
            tools = parts.selector.select(query, request.tools, view.decision, context.tool_tags)
        sections = self._given(request, tools)
        selected = select_candidates(view, query, parts, context.labels, self._memories)
        fitted = self._fitted(request.budget_tokens, sections, selected, session, now)
        composed = self._composed(fitted, selected, tools, view, context, now)
        if parts.log is not None:
            parts.log(composed)
        return composed

    # --- the caller's texts ------------------------------------------------------------

    def _given(
        self, request: AssembleRequest, tools: ToolSelection | None
    ) -> dict[str, FilledSection]:
        """The sections of the caller's texts; each is within its share except for firm entries."""
        counter, budgets = self._parts.counter, self._parts.settings.budgets(request.budget_tokens)
        preamble, task = [request.preamble], [request.task]
        state = [make_entry("state", entry.text, entry.source) for entry in request.state]

        def firm(kind: str, texts: Iterable[str]) -> list[SectionEntry]:
            return [make_entry(kind, text, REQUEST, firm=True) for text in texts if text]

        sections: dict[str, list[SectionEntry]] = {
            "user": [
                *firm("preamble", preamble),
                *firm("user", [request.message]),
                *self._screened(state),
            ],
            "task": firm("task", task),
            "tools": self._screened(_tool_entries(request, tools)),
            "policy": firm("policy", request.policies),
        }
        return {
            name: fill_section(name, entries, budgets[name], counter)
            for name, entries in sections.items()
        }

    def _screened(self, entries: Sequence[SectionEntry]) -> list[SectionEntry]:
        """Refuse entries that contain an injection; tools and earlier turns may contain one too."""
        reports = self._parts.detector.reports([entry.text for entry in entries])
        return [
            replace(entry, refused=DropReason.INJECTION) if report.injected else entry
            for entry, report in zip(entries, reports, strict=True)
        ]

    # --- fitting -----------------------------------------------------------------------

    def _fitted(
        self,
        budget: int,
        sections: dict[str, FilledSection],
        selected: PackSelection,
        session: str,
        now: datetime,
    ) -> _FittedSections:
        """Sections that fit: complete, with less knowledge, or the minimal policy-safe pack."""
        if not selected.minimal:
            room = budget - sum(section.tokens for section in sections.values())
            while room >= 0:
                fitted, over = self._within(budget, room, sections, selected, session, now)
                if over <= 0:
                    return fitted
                # The counts of the parts need not add up to the count of the whole.
                room -= over
        for names in (("user", "task", "policy"), ("user", "policy")):
            least = {name: _firm_part(sections[name]) for name in names}
            fitted, over = self._within(budget, 0, least, selected, session, now)
            if over <= 0:
                why = "no fact is safe" if selected.minimal else "the budget has no room for more"
                note = PackWarning(word="minimal", reason=f"the minimal pack is shown: {why}")
                shown = {fact.fact_id for fact in fitted.envelope.facts}
                return replace(
                    fitted,
                    minimal=True,
                    warnings=(note,),
                    dropped=_minimal_drops(sections, selected, shown),
                )
        raise RequestError(
            f"message and policies need {fitted.envelope.token_count} tokens, and the budget has "
            f"{budget}; give more, or a shorter message"
        )

    def _within(
        self,
        budget: int,
        room: int,
        sections: dict[str, FilledSection],
        selected: PackSelection,
        session: str,
        now: datetime,
    ) -> tuple[_FittedSections, int]:
        """Sections with this many tokens for knowledge and memory, and the excess of the whole."""
        settings = self._parts.settings
        share = to_fixed(settings.memory_share) * room // SCALE
        # Most fabrics have no memories, and nothing is packed for them.
        stored = selected.memory if selected.memory.facts else None
        memory = self._packed(stored, share, session, now) if stored else None
        knowledge = self._packed(selected.knowledge, room - _item_tokens(memory), session, now)
        left = room - _item_tokens(memory) - _item_tokens(knowledge)
        lost = memory.dropped if memory else ()
        # Give memories the rest, unless it is too small for an item to fit.
        if stored and left * 20 > room and any(drop.reason is DropReason.BUDGET for drop in lost):
            share = _item_tokens(memory) + left
            memory = self._packed(stored, share, session, now)
        remembered = memory.facts if memory else ()
        before = [sections[name] for name in ("user", "task", "tools") if name in sections]
        place = 1 + sum(len(section.facts) for section in before)
        notes, warnings = warn_of_items(
            [*knowledge.facts, *remembered],
            place,
            selected.memories,
            settings,
            self._parts.counter,
        )
        policy = sections["policy"]
        runs = [
            *(
                SectionRun(section.name, section.facts, max(section.budget, section.tokens))
                for section in before
            ),
            SectionRun("knowledge", knowledge.facts, room - _item_tokens(memory)),
            SectionRun("memory", remembered, share),
            SectionRun(
                "policy",
                (*policy.facts, *notes),
                max(policy.budget, policy.tokens + sum(note.token_count for note in notes)),
            ),
        ]
        dropped = (*knowledge.dropped, *(memory.dropped if memory else ()))
        shown = sum(len(run.facts) for run in runs)
        envelope = build_sections(
            knowledge,
            runs,
            dropped=(
                *dropped,
                *(drop for section in sections.values() for drop in section.dropped),
            ),
            available=shown + len(dropped),
            budget_tokens=budget,
            counter=self._parts.counter,
            settings=self._parts.envelope,
        )
        overs = tuple(
            PackWarning(
                word="overflow",
                reason=f"section {section.name} is {section.over} tokens over its share",
            )
            for section in sections.values()
            if section.over
        )
        fitted = _FittedSections(envelope, tuple(envelope.dropped), (*warnings, *overs))
        return fitted, envelope.token_count - budget

    def _packed(self, candidates: Candidates, budget: int, session: str, now: datetime) -> Envelope:
        """An envelope whose items fit the budget, including their markers."""
        parts, room = self._parts, max(0, budget)
        while True:
            made = assemble(
                candidates,
                budget_tokens=room,
                counter=parts.counter,
                grounding=GroundingMode.PREFERRED,
                settings=parts.envelope,
                now=now,
                session_id=session,
            )
            over = _item_tokens(made) - max(0, budget)
            if over <= 0 or not made.facts:
                return made
            room = max(0, room - over)

    # --- the account -------------------------------------------------------------------

    def _composed(
        self,
        fitted: _FittedSections,
        selected: PackSelection,
        tools: ToolSelection | None,
        view: FabricView,
        context: PolicyContext,
        now: datetime,
    ) -> ComposedPack:
        every = (*selected.knowledge.facts, *selected.memory.facts)
        dropped = (*fitted.dropped, *selected.refused)
        envelope = fitted.envelope.model_copy(update={"dropped": dropped})
        reranker = self._parts.reranker.identity if self._parts.reranker else ""
        beside = collect_evidence(
            envelope, every, selected.sightings, tools, view, context, reranker
        )
        flags = {
            fact.fact_id: _personal_data(fact, selected.memories.get(fact.fact_id))
            for fact in envelope.facts
        }
        pack = pack_of(
            envelope,
            labels=beside.labels,
            evidence=beside.evidence,
            decisions=beside.decisions,
            pii_flags=flags,
            reasons=_selection_reasons(envelope, fitted.minimal),
        )
        return ComposedPack(
            pack=pack,
            envelope=envelope,
            texts=texts_of(envelope),
            drop_reports=make_drop_reports(
                dropped, envelope.facts, {fact.fact_id: fact for fact in every}, now
            ),
            evidence={item.id: beside.sightings.get(item.id, ()) for item in pack.items},
            warnings=fitted.warnings,
            tools=tools,
            minimal=fitted.minimal,
        )


def _item_tokens(envelope: Envelope | None) -> int:
    """Tokens of an envelope's items with their markers and separators."""
    return sum(fact.token_count for fact in envelope.facts) if envelope is not None else 0


def _firm_part(section: FilledSection) -> FilledSection:
    """The part of a section that is always shown: message, preamble, task, policies."""
    firm = tuple(fact for fact in section.facts if fact.fact_id in section.firm)
    return replace(section, facts=firm, dropped=(), tokens=sum(fact.token_count for fact in firm))


def _minimal_drops(
    sections: dict[str, FilledSection], selected: PackSelection, shown: Set[str]
) -> tuple[Drop, ...]:
    """The drops of the minimal pack; items that were refused before keep their reason."""
    refused = [drop for section in sections.values() for drop in section.dropped]
    left = [
        (fact.fact_id, fact.token_count)
        for section in sections.values()
        for fact in section.facts
        if fact.fact_id not in shown
    ]
    left += [
        (fact.fact_id, fact.tokens) for fact in (*selected.knowledge.facts, *selected.memory.facts)
    ]
    minimal = [Drop(fact_id=id_, reason=DropReason.MINIMAL, tokens=n) for id_, n in left]
    return (*refused, *minimal)


def _tool_entries(request: AssembleRequest, tools: ToolSelection | None) -> list[SectionEntry]:
    """The chosen tools by score, then the authorised ones that are not offered."""
    if tools is None:
        return []
    known = {tool.name: tool for tool in request.tools}
    entries = [
        SectionEntry(f"tool:{choice.tool.name}", choice.tool.shown, TOOL_RAG, score=choice.score)
        for choice in tools.chosen
    ]
    for names, reason in ((tools.over, DropReason.K), (tools.irrelevant, DropReason.OFF_TOPIC)):
        entries += [
            SectionEntry(f"tool:{name}", known[name].shown, TOOL_RAG, refused=reason)
            for name in names
        ]
    return entries


def _selection_reasons(envelope: Envelope, minimal: bool) -> dict[str, str]:
    """Why each section contains its items."""
    made = ", ".join(name for name in envelope.algorithms if not name.startswith("etag"))
    reason = "the minimal pack: nothing else is shown" if minimal else "given by the caller"
    return {
        **dict.fromkeys(("user", "task", "policy"), reason),
        "tools": f"authorised tools that the message has a use for, by {TOOL_RAG}",
        "knowledge": f"keyword, vector and graph: {made}",
        "memory": f"keyword, vector and graph, memories fading by their decay: {made}",
    }


def _personal_data(fact: PackedFact, memory: MemoryTraits | None) -> tuple[str, ...]:
    """The flags of a memory's writer, then the categories that are recognised in the text.

    Spec: Summit §Context Assembly Data Contracts
    """
    categories = [f"content:{span.category.value}" for span in find_personal_data(fact.content)]
    return tuple(dict.fromkeys((*(memory.pii if memory else ()), *categories)))
