"""Automatic compaction of agent histories and of context packs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from crp_integrations.envelope.prompt import marker_text, render
from crp_integrations.errors import RequestError
from crp_integrations.governance.compaction import history
from crp_integrations.governance.compaction.pipeline import ALGORITHMS, CompactionRun
from crp_integrations.governance.compaction.records import (
    ArtifactStore,
    CompactHistory,
    CompactionAccount,
    CompactPack,
    Summary,
    find_triggers,
)
from crp_integrations.governance.compaction.stages import (
    ContextEntry,
    Firmness,
    Relevance,
    TokenCosts,
    WorkingContext,
)
from crp_integrations.governance.compaction.verification import check_history, check_pack
from crp_integrations.governance.context_pack import (
    ContextItem,
    ContextPack,
    ContextSection,
    ProvenanceRef,
    render_pack,
    section_tokens,
    text_of,
)
from crp_integrations.governance.settings import CompactionSettings
from crp_integrations.messages import Message
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import digest, sha256
from crp_integrations.validation import Wanted, aware_moment, of_kind, refuse_part, require_settings

# For each argument: an attribute that identifies it, and what an error asks for instead.
_PARTS: Final[Mapping[str, Wanted]] = {
    "counter": Wanted("count_messages", "a TokenCounter, such as counter_for('gpt-4o')"),
    "artifacts": Wanted("put", "a store of artifacts, such as relay.sandbox(session_id='s1')"),
}
_PINNED_SECTIONS: Final = frozenset({"user", "task", "policy"})
# Separates a section's number from a label, which may contain any other character.
_SEPARATOR: Final = "\u241f"


def make_pack_entries(pack: ContextPack, texts: Mapping[str, str]) -> list[ContextEntry]:
    """The items of a pack as entries, each with the text that is shown now."""
    sources = {ref.item_id: ref.source for ref in pack.provenance_refs}
    entries: list[ContextEntry] = []
    seen: set[str] = set()
    for number, section in enumerate(pack.sections):
        pinned = section.type in _PINNED_SECTIONS
        for item in section.items:
            if item.id in seen:
                raise RequestError(f"item {item.id!r:.80} occurs twice in pack {pack.id!r:.60}")
            seen.add(item.id)
            entries.append(
                ContextEntry(
                    id=item.id,
                    text=text_of(item, item.shown_ref, texts),
                    unit=len(entries),
                    firmness=Firmness.PINNED if pinned else Firmness.FREE,
                    cuttable=not pinned and section.type != "tools",
                    droppable=not pinned,
                    shelf=f"{number}{_SEPARATOR}{item.security_label}",
                    cluster=sources.get(item.id, item.id),
                )
            )
    return entries


def write_pack(
    pack: ContextPack, budget: int, run: CompactionRun, counter: TokenCounter
) -> tuple[ContextPack, dict[str, str]]:
    """The compacted pack, and the texts that it shows instead of others."""
    context = run.context
    texts: dict[str, str] = {}
    place = 0
    sections: list[ContextSection] = []
    every: list[str] = []
    refs: list[ProvenanceRef] = []
    for number, section in enumerate(pack.sections):
        items: list[ContextItem] = []
        contents: list[str] = []
        for item in section.items:
            cut, whole = context.cuts[place], context.is_whole(place)
            place += 1
            if cut is None:
                continue
            if not whole:
                ref = sha256(cut.text)
                texts[ref] = cut.text
                item = item.changed(summary_ref=ref)
            items.append(item)
            contents.append(cut.text)
        for shelf, summary in sorted(run.shown.items()):
            if shelf.partition(_SEPARATOR)[0] != str(number):
                continue
            members = {context.entries[at].id for at in context.folded[shelf]}
            texts[summary.checksum] = summary.text
            items.append(
                _summary_item([item for item in section.items if item.id in members], summary)
            )
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


def _summary_item(items: Sequence[ContextItem], summary: Summary) -> ContextItem:
    """A summary as an item, with the best evidence and all flags of the items it summarises."""
    best = max(items, key=lambda item: item.score)
    return best.changed(
        id=summary.id,
        content_ref=summary.checksum,
        summary_ref=summary.checksum,
        pii_flags=tuple(dict.fromkeys(flag for item in items for flag in item.pii_flags)),
        evidence=best.evidence.changed(reranker=summary.method, score=best.score),
    )


def line_of(opening: str, quoted: str) -> str:
    """One line of a summary; quoted fenced code starts on a new line."""
    return opening + ("\n" if quoted.startswith(("```", "~~~")) else " ") + quoted


# Maximum runs: a result that fits by the sum of its parts may not fit when counted as a whole.
_MAX_RUNS = 3
T = TypeVar("T")


class AutoCompactor:
    """Shortens a model's context when a trigger fires, and accounts for what it leaves out.

    It deduplicates, drops what is irrelevant to the question, puts large texts into a store, prunes
    by the question, and summarises last. Equal contexts give equal results; each result is checked
    before it is returned.

    Spec: Summit §Compression Strategy

    Args:
        artifacts: store for large texts and summaries; None offloads nothing.
    """

    def __init__(
        self,
        counter: TokenCounter,
        settings: CompactionSettings | None = None,
        *,
        artifacts: ArtifactStore | None = None,
    ) -> None:
        for name, part in {
            "counter": counter,
            "artifacts": artifacts,
        }.items():
            if part is not None or name == "counter":
                refuse_part(name, part, _PARTS[name])
        self._counter = counter
        self.settings = require_settings(settings, CompactionSettings)
        self._artifacts = artifacts

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
        """Compact an agent's messages if a trigger fires.

        System messages and the last question stay whole, calls stay with their results, and the
        latest results of tools are shortened only if they are too large.

        Spec: Summit §Compression Strategy

        Args:
            question: question by which messages are scored; None for the user's last message.
            tools: definitions that are sent along; they are counted but not changed.
            ids: ids of the messages, each once; None derives them from the messages.
            pinned: ids of messages that stay unchanged, with the calls that they answer.

        Raises:
            RequestError: a call has no result, or a result no call; the budget is not above 0; or
                an argument is of the wrong type.
            CompactionRefused: the result does not account for what it left out.
        """
        before = history.check_messages(messages)
        _check_bounds(budget, now)
        names = history.make_ids(before) if ids is None else history.check_ids(ids, before)
        entries = history.make_history_entries(
            before, names, self.settings.keep_recent, frozenset(pinned)
        )
        defined = self._counter.count_tools(tools) if tools else 0
        asked = history.find_question(before) if question is None else question
        foldable = (entry.unit for entry in entries if entry.firmness <= Firmness.RECENT)

        def write(run: CompactionRun) -> tuple[tuple[list[Message], list[str]], int]:
            left = history.write_history(before, run.context, run.shown.get(""))
            return left, self._counter.count_messages(left[0]) + defined

        written, account = self._compacted(
            entries,
            write,
            budget,
            now,
            tokens=self._counter.count_messages(before) + defined,
            after_tool_call=bool(before) and before[-1].role == "tool",
            scored=lambda: Relevance(
                asked, [m.content for m in before], self.settings.protected_bonus
            ),
            costs=history.message_costs(before, self._counter, defined),
            head=history.HEAD,
            line=lambda mark, speaker, quoted: line_of(f"[{mark}] {speaker}:", quoted),
            in_place=True,
            order=list(dict.fromkeys(foldable)),
        )
        if written is None:
            return CompactHistory(messages=before, ids=names, account=account)
        left, stay = written
        compact = CompactHistory(messages=tuple(left), ids=tuple(stay), account=account)
        check_history(before, compact, names)
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
        """Compact a context pack if a trigger fires.

        Spec: Summit §Key APIs

        Args:
            question: question by which items are scored; None for the query of their evidence.

        Raises:
            RequestError: a text is missing, an id occurs twice, or the budget is not above 0.
            CompactionRefused: the result does not account for what it left out.
        """
        _check_bounds(budget, now)
        of_kind(pack, ContextPack, "pack", "a ContextPack, such as pack_of(…)")
        entries = make_pack_entries(pack, texts)
        rendered = render_pack(pack, texts)
        queries = (item.evidence.query for item in pack.items if item.evidence.query)
        asked = next(queries, "") if question is None else question
        scores = [item.score for item in pack.items]
        order = sorted(range(len(entries)), key=lambda at: (scores[at], -at))

        def write(run: CompactionRun) -> tuple[tuple[ContextPack, dict[str, str]], int]:
            left = write_pack(pack, budget, run, self._counter)
            return left, left[0].token_actual

        def count(shown: Sequence[str]) -> list[int]:
            # Items with their markers and separators, as an envelope counts them.
            return [max(0, n) for n in self._counter.count_many([marker_text(t) for t in shown])]

        written, account = self._compacted(
            entries,
            write,
            budget,
            now,
            tokens=self._counter.count(rendered) if rendered else 0,
            after_tool_call=after_tool_call,
            scored=lambda: Relevance(
                asked, [e.text for e in entries], self.settings.protected_bonus, scores
            ),
            costs=TokenCosts(lambda at, shown: count(shown), count),
            head="",
            line=lambda mark, speaker, quoted: line_of(f"- {speaker}".rstrip(), quoted),
            in_place=False,
            order=[entries[at].unit for at in order if entries[at].firmness < Firmness.PINNED],
        )
        if written is None:
            return CompactPack(compacted=pack, texts={}, account=account)
        compact = CompactPack(compacted=written[0], texts=written[1], account=account)
        check_pack(pack, compact, texts)
        return compact

    def _compacted(
        self,
        entries: Sequence[ContextEntry],
        write: Callable[[CompactionRun], tuple[T, int]],
        budget: int,
        now: datetime,
        *,
        tokens: int,
        after_tool_call: bool,
        scored: Callable[[], Relevance],
        costs: TokenCosts,
        **manner: Any,
    ) -> tuple[T | None, CompactionAccount]:
        """The result of a compaction and its account; the result is None if no trigger fires."""
        triggers = find_triggers(
            tokens, budget, len(entries), self.settings, after_tool_call=after_tool_call
        )
        if not triggers:
            fits = tokens <= budget
            why_not = f"{len(entries)} items have {tokens} tokens, and nothing may be changed"
            return None, CompactionAccount(
                tokens_before=tokens,
                tokens_after=tokens,
                budget=budget,
                fits=fits,
                why_not="" if fits else why_not,
            )
        slack, relevance = 0, scored()
        for _ in range(_MAX_RUNS):
            run = CompactionRun(
                WorkingContext(entries, costs, relevance),
                self.settings,
                budget,
                slack,
                triggers,
                artifacts=self._artifacts,
                **manner,
            )
            run.go()
            written, after = write(run)
            if after <= budget or run.context.total > run.limit:
                break
            slack += after - budget
        fits = after <= budget
        stay = sum(1 for cut in run.context.cuts if cut is not None)
        return written, CompactionAccount(
            triggers=triggers,
            reports=run.reports(now),
            summaries=tuple(dict.fromkeys(run.summaries)),
            artifacts=tuple(run.offloaded),
            tokens_before=tokens,
            tokens_after=after,
            budget=budget,
            fits=fits,
            why_not=""
            if fits
            else f"{stay} items that must stay have {after} of at most {budget} tokens",
            algorithms=ALGORITHMS,
        )


def _check_bounds(budget: Any, now: Any) -> None:
    """Refuse a budget that is not a whole number, and a time without a time zone."""
    if isinstance(budget, bool) or not isinstance(budget, int):
        raise RequestError(f"budget is of type {type(budget).__name__}, wanted whole tokens")
    aware_moment(now, "now")
