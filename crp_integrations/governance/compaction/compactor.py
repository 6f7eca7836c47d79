"""Automatic compaction of agent histories and of context packs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from crp_integrations.envelope.prompt import marker_text, render
from crp_integrations.errors import RequestError
from crp_integrations.governance.compaction import history, pipeline
from crp_integrations.governance.compaction.history import check_bounds, check_messages, check_parts
from crp_integrations.governance.compaction.pipeline import (
    ALGORITHMS,
    CompactionOptions,
    CompactionOutcome,
)
from crp_integrations.governance.compaction.records import (
    ArtifactStore,
    CompactHistory,
    CompactionAccount,
    CompactPack,
    Summariser,
    Summary,
    Trigger,
    find_triggers,
)
from crp_integrations.governance.compaction.relevance import Relevance
from crp_integrations.governance.compaction.stages import ContextEntry, Firmness, WorkingContext
from crp_integrations.governance.compaction.verification import check_history, check_pack
from crp_integrations.governance.context_pack import (
    ContextItem,
    ContextPack,
    ContextSection,
    ProvenanceRef,
    RetrievalEvidence,
    render_pack,
    section_tokens,
    text_of,
)
from crp_integrations.governance.settings import CompactionSettings
from crp_integrations.messages import Message
from crp_integrations.ports import Embedder, TokenCounter
from crp_integrations.seals import digest, sha256
from crp_integrations.validation import of_kind

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


# Runs until the whole, counted at once, fits as the sum of its parts does.
_RUNS = 3


class AutoCompactor:
    """Shortens what a model would be shown, when there is a reason to, and accounts for it.

    It deduplicates, drops what says nothing to the question, puts large texts into a store, prunes
    by the question, and sums up last. Equal contexts give equal results; what comes out is checked
    before it is handed over.

    Spec: Summit §Compression Strategy

    Args:
        counter: the tokenizer of the model that will be asked.
        artifacts: where large texts and summaries are kept; None offloads nothing.
        summariser: a model that may write the last summary; None quotes.
        embedder: adds its cosine to the words of the question; None goes by the words.
    """

    def __init__(
        self,
        counter: TokenCounter,
        settings: CompactionSettings | None = None,
        *,
        artifacts: ArtifactStore | None = None,
        summariser: Summariser | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        check_parts(
            counter,
            settings=settings,
            artifacts=artifacts,
            summariser=summariser,
            embedder=embedder,
        )
        self._counter = counter
        self.settings = settings or CompactionSettings()
        self._artifacts = artifacts
        self._summariser = summariser
        self._embedder = embedder

    def compact_history(
        self,
        messages: Sequence[Message],
        budget: int,
        *,
        now: datetime,
        question: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        ids: Sequence[str] | None = None,
        pinned: Collection[str] = (),
    ) -> CompactHistory:
        """Compact an agent's messages, if there is a reason to.

        System messages and the last question stay whole, calls stay with their results, and what
        tools answered last is shortened only where it is too large.

        Spec: Summit §Compression Strategy

        Args:
            budget: tokens that messages and tool definitions may have together, above 0.
            now: moment of the drop reports.
            question: what the messages are looked at by; None for the last of the user's.
            tools: definitions that are sent along; they count, and stay.
            ids: of the messages, each once; None makes them from what the messages say.
            pinned: ids of messages that stay as they are, with the calls that they answer.

        Raises:
            RequestError: a call has no result, or a result no call; the budget is not above 0; or
                an argument is something else.
            CompactionRefused: the result does not account for what it left out.
        """
        given = check_messages(messages)
        check_bounds(budget, now)
        names = history.make_ids(given) if ids is None else history.check_ids(ids, given)
        made = history.make_history_entries(
            given, names, self.settings.keep_recent, frozenset(pinned)
        )
        defined = self._counter.count_tools(tools) if tools else 0
        before = self._counter.count_messages(given) + defined
        after_call = bool(given) and given[-1].role == "tool"
        fired = find_triggers(before, budget, len(given), self.settings, after_tool_call=after_call)
        if not fired:
            return CompactHistory(
                messages=given, ids=names, account=_unchanged_account(before, budget, made)
            )
        costs = history.MessageCosts(given, self._counter, defined)
        relevance = self._relevance(
            history.find_question(given) if question is None else question, made
        )
        options = CompactionOptions(
            settings=self.settings,
            question=history.find_question(given) if question is None else question,
            head=history.HEAD,
            line=history.history_line,
            in_place=True,
            order=_foldable_units(made, Firmness.RECENT),
            fewer=Trigger.ITEMS in fired,
            artifacts=self._artifacts,
            summariser=self._summariser,
        )
        slack = 0
        for _ in range(_RUNS):
            context, outcome = pipeline.run_compaction(
                lambda: WorkingContext(made, costs, relevance), budget, fired, options, slack
            )
            left, kept = history.write_history(given, context, outcome.shown)
            after = self._counter.count_messages(left) + defined
            if after <= budget or context.total > budget - slack:
                break
            slack += after - budget
        compact = CompactHistory(
            messages=tuple(left),
            ids=tuple(kept),
            account=_make_account(context, outcome, fired, before, after, budget, now),
        )
        check_history(given, compact, names)
        return compact

    def compact(
        self,
        pack: ContextPack,
        budget: int,
        *,
        texts: Mapping[str, str],
        now: datetime,
        question: str | None = None,
        after_tool_call: bool = False,
    ) -> CompactPack:
        """Compact a context pack, if there is a reason to.

        Spec: Summit §Key APIs

        Args:
            budget: tokens that the rendered pack may have, above 0.
            texts: those that the items refer to, by reference.
            now: moment of the drop reports.
            question: what the items are looked at by; None for the query of their evidence.
            after_tool_call: whether the pack follows a tool call.

        Raises:
            RequestError: a text is missing, an id stands twice, or the budget is not above 0.
            CompactionRefused: the result does not account for what it left out.
        """
        check_bounds(budget, now)
        of_kind(pack, ContextPack, "pack", "a ContextPack, such as pack_of(…)")
        made = make_pack_entries(pack, texts)
        rendered = render_pack(pack, texts)
        before = self._counter.count(rendered) if rendered else 0
        fired = find_triggers(
            before, budget, len(made), self.settings, after_tool_call=after_tool_call
        )
        if not fired:
            return CompactPack(
                compacted=pack, texts={}, account=_unchanged_account(before, budget, made)
            )
        asked = question
        if asked is None:
            asked = next((item.evidence.query for item in pack.items if item.evidence.query), "")
        scores = [item.score for item in pack.items]
        order = sorted(range(len(made)), key=lambda at: (scores[at], -at))
        options = CompactionOptions(
            settings=self.settings,
            question=asked,
            head=HEAD,
            line=pack_line,
            in_place=False,
            order=[made[at].unit for at in order if made[at].firmness < Firmness.PINNED],
            fewer=Trigger.ITEMS in fired,
            artifacts=self._artifacts,
            summariser=self._summariser,
        )
        relevance = self._relevance(asked, made, scores)
        costs = ItemCosts(self._counter)
        slack = 0
        for _ in range(_RUNS):
            context, outcome = pipeline.run_compaction(
                lambda: WorkingContext(made, costs, relevance), budget, fired, options, slack
            )
            left, own = write_pack(pack, budget, context, outcome.shown, self._counter)
            if left.token_actual <= budget or context.total > budget - slack:
                break
            slack += left.token_actual - budget
        compact = CompactPack(
            compacted=left,
            texts=own,
            account=_make_account(context, outcome, fired, before, left.token_actual, budget, now),
        )
        check_pack(pack, compact, texts)
        return compact

    def _relevance(
        self, question: str, made: Sequence[ContextEntry], scores: Sequence[float] | None = None
    ) -> Relevance:
        texts = [entry.text for entry in made]
        dense = scores
        if self._embedder is not None and scores is None and texts and question.strip():
            rows = self._embedder.embed_passages(texts)
            dense = [float(one) for one in rows @ self._embedder.embed_query(question)]
        return Relevance(question, texts, self.settings.protected_bonus, dense)


def _foldable_units(made: Sequence[ContextEntry], firmest: Firmness) -> list[int]:
    """Units that may go, in their order."""
    return list(dict.fromkeys(entry.unit for entry in made if entry.firmness <= firmest))


def _unchanged_account(tokens: int, budget: int, made: Sequence[ContextEntry]) -> CompactionAccount:
    fits = tokens <= budget
    return CompactionAccount(
        tokens_before=tokens,
        tokens_after=tokens,
        budget=budget,
        fits=fits,
        why_not=""
        if fits
        else f"{len(made)} items have {tokens} tokens, and nothing may be changed",
    )


def _make_account(
    context: WorkingContext,
    outcome: CompactionOutcome,
    fired: tuple[Trigger, ...],
    before: int,
    after: int,
    budget: int,
    now: datetime,
) -> CompactionAccount:
    fits = after <= budget
    stay = sum(1 for cut in context.cuts if cut is not None)
    firm = f"{stay} items that must stay have {after} of at most {budget} tokens"
    return CompactionAccount(
        triggers=fired,
        reports=pipeline.make_loss_reports(context, now),
        summaries=tuple(dict.fromkeys(outcome.summaries)),
        artifacts=tuple(outcome.artifacts),
        tokens_before=before,
        tokens_after=after,
        budget=budget,
        fits=fits,
        why_not="" if fits else firm,
        fallbacks=tuple(outcome.fallbacks),
        algorithms=ALGORITHMS,
    )
