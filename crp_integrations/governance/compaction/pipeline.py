"""One compaction from the triggers to the account, the same for histories and for packs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from crp_integrations.errors import ModelError
from crp_integrations.governance.compaction import stages
from crp_integrations.governance.compaction.records import (
    ArtifactRef,
    ArtifactStore,
    Citation,
    Summariser,
    Summary,
    Trigger,
    budget_share,
)
from crp_integrations.governance.compaction.relevance import RELEVANCE
from crp_integrations.governance.compaction.stages import Firmness, LossReason, WorkingContext
from crp_integrations.governance.compaction.summaries import (
    EXTRACTIVE,
    LayeredSummary,
    Line,
    build_summary,
)
from crp_integrations.governance.compaction.verification import find_unsupported
from crp_integrations.governance.context_pack import DropReport
from crp_integrations.governance.settings import CompactionSettings

COMPACTION: Final = "compaction@1"
ALGORITHMS: Final = (COMPACTION, RELEVANCE, EXTRACTIVE)
_WHOLE_SHELVES: Final = 1


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """What a compaction works with besides the context.

    Attributes:
        head: first line of a summary; empty for none.
        line: writes a line of a summary.
        in_place: an equal result gives way to a note, as in a history.
        order: units that may be summed up, first to go first.
        fewer: there are too many items, so that a summary is worth its tokens anyway.
    """

    settings: CompactionSettings
    question: str
    head: str
    line: Line
    in_place: bool
    order: Sequence[int]
    fewer: bool = False
    artifacts: ArtifactStore | None = None
    summariser: Summariser | None = None


@dataclass(slots=True)
class CompactionOutcome:
    """What a run leaves beside the context.

    Attributes:
        shown: the summary that is shown for each shelf.
    """

    artifacts: list[ArtifactRef] = field(default_factory=list)
    shown: dict[str, Summary] = field(default_factory=dict)
    summaries: list[Summary] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)


def run_compaction(
    make: Callable[[], WorkingContext],
    budget: int,
    fired: Sequence[Trigger],
    options: CompactionOptions,
    slack: int = 0,
) -> tuple[WorkingContext, CompactionOutcome]:
    """Compact as far as the triggers ask for.

    Spec: Summit §Compression Strategy
    """
    context, outcome = make(), CompactionOutcome()
    settings = options.settings
    limit = budget - slack
    aim = min(limit, budget_share(budget, settings.target_share) - slack)
    if Trigger.TOOL_CALL in fired:
        _shorten_results(context, budget_share(budget, settings.blob_share), options, outcome)
    if set(fired) - {Trigger.TOOL_CALL}:
        room = budget_share(budget, settings.summary_share)
        _reduce_loose(context, aim, room, options, outcome)
        if context.total + (room if context.folded else 0) > limit:
            _reduce_firm(context, limit, room, options, outcome)
    elif context.total > limit:
        # The switch of a tool call alone fires below the share, so this is a budget just passed.
        _reduce_firm(context, limit, budget_share(budget, settings.summary_share), options, outcome)
    _make_summaries(context, limit, budget, options, outcome)
    _record_shortened(context, outcome)
    return context, outcome


def make_loss_reports(context: WorkingContext, now: datetime) -> tuple[DropReport, ...]:
    """One for each reason by which something has gone.

    Spec: Summit §Context Assembly Data Contracts
    """
    return tuple(
        DropReport.of(reason.value, names, max(0, context.savings.get(reason, 0)), now)
        for reason, names in context.losses().items()
    )


def _shorten_results(
    context: WorkingContext, most: int, options: CompactionOptions, outcome: CompactionOutcome
) -> None:
    """Shorten the results of the last call, each kind in its own way."""
    at = [n for n, entry in enumerate(context.entries) if entry.firmness is Firmness.OPEN]
    at = [n for n in at if context.entries[n].cuttable]
    cost = sum(context.cost[n] for n in at)
    if cost <= most:
        return
    aim = context.total - (cost - most)
    _offload(context, aim, Firmness.OPEN, options, outcome, least_firmness=Firmness.OPEN)
    stages.prune(context, aim, Firmness.OPEN, reason=LossReason.TARGETED, only=at, keep=0.0)


def _reduce_loose(
    context: WorkingContext,
    aim: int,
    room: int,
    options: CompactionOptions,
    outcome: CompactionOutcome,
) -> None:
    """Everything that may go without asking whether the budget itself is too small."""
    settings = options.settings
    stages.deduplicate(context, in_place=options.in_place)
    stages.drop(context, aim, settings.drop_below, Firmness.FREE)
    _offload(context, aim, Firmness.FREE, options, outcome)
    stages.prune(context, aim, Firmness.FREE, keep=settings.prune_to)
    loose = [unit for unit in options.order if context.firmness(unit) is Firmness.FREE]
    stages.fold(context, aim, settings.max_items, loose, room)


def _reduce_firm(
    context: WorkingContext,
    limit: int,
    room: int,
    options: CompactionOptions,
    outcome: CompactionOutcome,
) -> None:
    """What is recent, and at last the results that the model has not seen."""
    settings = options.settings
    _offload(context, limit - room, Firmness.OPEN, options, outcome)
    stages.prune(context, limit - room, Firmness.RECENT, keep=settings.prune_to)
    recent = [unit for unit in options.order if context.firmness(unit) <= Firmness.RECENT]
    stages.fold(context, limit, settings.max_items, recent, room)
    for keep in (settings.prune_to, 0.0):
        stages.prune(context, limit - (room if context.folded else 0), Firmness.OPEN, keep=keep)


def _offload(
    context: WorkingContext,
    aim: int,
    firmness: Firmness,
    options: CompactionOptions,
    outcome: CompactionOutcome,
    least_firmness: Firmness = Firmness.FREE,
) -> None:
    found = stages.offload(
        context,
        aim,
        options.artifacts,
        least=options.settings.offload_tokens,
        extract=options.settings.extract_tokens,
        firmness_range=(least_firmness, firmness),
    )
    outcome.artifacts += [ref for _, ref in found]


def _make_summaries(
    context: WorkingContext,
    limit: int,
    budget: int,
    options: CompactionOptions,
    outcome: CompactionOutcome,
) -> None:
    """Sum up what was folded, each shelf with its part of the room."""
    room = min(budget_share(budget, options.settings.summary_share), limit - context.total)
    weights = {
        shelf: sum(len(cut.text) for cut in cuts.values()) for shelf, cuts in context.folded.items()
    }
    total = max(_WHOLE_SHELVES, sum(weights.values()))
    for shelf in sorted(weights):
        own = room * weights[shelf] // total
        built = build_summary(context, shelf, own, options.head, options.line)
        if built is None:
            context.forgo(shelf)
            continue
        summary, levels, tokens = built.summary, list(built.levels), built.tokens
        if tokens >= context.folded_tokens(shelf) and not options.fewer:
            context.unfold(shelf)
            continue
        written = _model_summary(context, built, own, options, outcome)
        if written is not None:
            summary, tokens = written
            levels.append(summary)
        context.charge(LossReason.SUMMARISED, tokens)
        outcome.shown[shelf] = summary
        outcome.summaries += levels
        if options.artifacts is not None:
            for level in levels:
                sources = [citation.item_id for citation in level.citations]
                outcome.artifacts.append(
                    options.artifacts.put(level.text, kind="summary", sources=sources)
                )


def _model_summary(
    context: WorkingContext,
    built: LayeredSummary,
    room: int,
    options: CompactionOptions,
    outcome: CompactionOutcome,
) -> tuple[Summary, int] | None:
    """A summary by a model, if there is one and everything in it has a source."""
    if options.summariser is None:
        return None
    try:
        said = options.summariser.summarise(built.passages, options.question, room)
    except ModelError as error:
        outcome.fallbacks.append(f"{options.summariser.identity}: {type(error).__name__}")
        return None
    text = f"{options.head}\n{said.strip()}" if options.head else said.strip()
    fault = find_unsupported(said, built.passages)
    (tokens,) = context.costs.summaries([text])
    if not fault and tokens > room:
        fault = f"it has {tokens} tokens, at most {room} were asked for"
    if fault:
        outcome.fallbacks.append(f"{options.summariser.identity}: {fault}")
        return None
    citations = [
        Citation(mark=mark, item_id=context.entries[at].id)
        for mark, at in enumerate(built.sources, start=1)
    ]
    return (
        Summary.of(
            "session",
            text,
            citations,
            kind=built.summary.kind,
            method=options.summariser.identity,
            children=[one.id for one in built.levels if one.level == "cluster"],
            dropped_fields=built.summary.dropped_fields,
        ),
        tokens,
    )


def _record_shortened(context: WorkingContext, outcome: CompactionOutcome) -> None:
    """The records of texts that are shown in part in their place."""
    for at, cut in enumerate(context.cuts):
        if cut is None or context.is_whole(at) or not (cut.spans or at in context.frames):
            continue
        outcome.summaries.append(
            Summary.of(
                "targeted",
                cut.text,
                [Citation(item_id=context.entries[at].id, spans=cut.spans)],
                kind=context.relevance.reading(at).kind,
                method=EXTRACTIVE,
                dropped_fields=cut.fields,
            )
        )
