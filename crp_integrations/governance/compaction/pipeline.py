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
)
from crp_integrations.governance.compaction.relevance import RELEVANCE
from crp_integrations.governance.compaction.settings import (
    CompactionSettings,
    Trigger,
    budget_share,
)
from crp_integrations.governance.compaction.summaries import (
    EXTRACTIVE,
    LayeredSummary,
    Line,
    build_summary,
)
from crp_integrations.governance.compaction.verification import find_unsupported
from crp_integrations.governance.compaction.working_context import (
    Firmness,
    LossReason,
    WorkingContext,
)
from crp_integrations.governance.context_pack import DropReport

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
    """What a run leaves beside the board.

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
    means: CompactionOptions,
    slack: int = 0,
) -> tuple[WorkingContext, CompactionOutcome]:
    """Compact as far as the triggers ask for.

    Spec: Summit §Compression Strategy
    """
    board, outcome = make(), CompactionOutcome()
    settings = means.settings
    limit = budget - slack
    aim = min(limit, budget_share(budget, settings.target_share) - slack)
    if Trigger.TOOL_CALL in fired:
        _shorten_results(board, budget_share(budget, settings.blob_share), means, outcome)
    if set(fired) - {Trigger.TOOL_CALL}:
        room = budget_share(budget, settings.summary_share)
        _reduce_loose(board, aim, room, means, outcome)
        if board.total + (room if board.folded else 0) > limit:
            _reduce_firm(board, limit, room, means, outcome)
    elif board.total > limit:
        # The switch of a tool call alone fires below the share, so this is a budget just passed.
        _reduce_firm(board, limit, budget_share(budget, settings.summary_share), means, outcome)
    _make_summaries(board, limit, budget, means, outcome)
    _record_shortened(board, outcome)
    return board, outcome


def make_loss_reports(board: WorkingContext, now: datetime) -> tuple[DropReport, ...]:
    """One for each reason by which something has gone.

    Spec: Summit §Context Assembly Data Contracts
    """
    return tuple(
        DropReport.of(reason.value, names, max(0, board.savings.get(reason, 0)), now)
        for reason, names in board.losses().items()
    )


def _shorten_results(
    board: WorkingContext, most: int, means: CompactionOptions, outcome: CompactionOutcome
) -> None:
    """Shorten the results of the last call, each kind in its own way."""
    at = [n for n, entry in enumerate(board.entries) if entry.standing is Firmness.OPEN]
    at = [n for n in at if board.entries[n].cuttable]
    cost = sum(board.cost[n] for n in at)
    if cost <= most:
        return
    aim = board.total - (cost - most)
    _offload(board, aim, Firmness.OPEN, means, outcome, least_standing=Firmness.OPEN)
    stages.prune(board, aim, Firmness.OPEN, reason=LossReason.TARGETED, only=at, keep=0.0)


def _reduce_loose(
    board: WorkingContext, aim: int, room: int, means: CompactionOptions, outcome: CompactionOutcome
) -> None:
    """Everything that may go without asking whether the budget itself is too small."""
    settings = means.settings
    stages.deduplicate(board, in_place=means.in_place)
    stages.drop(board, aim, settings.drop_below, Firmness.FREE)
    _offload(board, aim, Firmness.FREE, means, outcome)
    stages.prune(board, aim, Firmness.FREE, keep=settings.prune_to)
    loose = [unit for unit in means.order if board.standing(unit) is Firmness.FREE]
    stages.fold(board, aim, settings.max_items, loose, room)


def _reduce_firm(
    board: WorkingContext,
    limit: int,
    room: int,
    means: CompactionOptions,
    outcome: CompactionOutcome,
) -> None:
    """What is recent, and at last the results that the model has not seen."""
    settings = means.settings
    _offload(board, limit - room, Firmness.OPEN, means, outcome)
    stages.prune(board, limit - room, Firmness.RECENT, keep=settings.prune_to)
    recent = [unit for unit in means.order if board.standing(unit) <= Firmness.RECENT]
    stages.fold(board, limit, settings.max_items, recent, room)
    for keep in (settings.prune_to, 0.0):
        stages.prune(board, limit - (room if board.folded else 0), Firmness.OPEN, keep=keep)


def _offload(
    board: WorkingContext,
    aim: int,
    standing: Firmness,
    means: CompactionOptions,
    outcome: CompactionOutcome,
    least_standing: Firmness = Firmness.FREE,
) -> None:
    found = stages.offload(
        board,
        aim,
        means.artifacts,
        least=means.settings.offload_tokens,
        extract=means.settings.extract_tokens,
        standings=(least_standing, standing),
    )
    outcome.artifacts += [ref for _, ref in found]


def _make_summaries(
    board: WorkingContext,
    limit: int,
    budget: int,
    means: CompactionOptions,
    outcome: CompactionOutcome,
) -> None:
    """Sum up what was folded, each shelf with its part of the room."""
    room = min(budget_share(budget, means.settings.summary_share), limit - board.total)
    weights = {
        shelf: sum(len(cut.text) for cut in cuts.values()) for shelf, cuts in board.folded.items()
    }
    total = max(_WHOLE_SHELVES, sum(weights.values()))
    for shelf in sorted(weights):
        own = room * weights[shelf] // total
        built = build_summary(board, shelf, own, means.head, means.line)
        if built is None:
            board.forgo(shelf)
            continue
        summary, levels, tokens = built.summary, list(built.levels), built.tokens
        if tokens >= board.folded_tokens(shelf) and not means.fewer:
            board.unfold(shelf)
            continue
        written = _model_summary(board, built, own, means, outcome)
        if written is not None:
            summary, tokens = written
            levels.append(summary)
        board.charge(LossReason.SUMMARISED, tokens)
        outcome.shown[shelf] = summary
        outcome.summaries += levels
        if means.artifacts is not None:
            for level in levels:
                sources = [citation.item_id for citation in level.citations]
                outcome.artifacts.append(
                    means.artifacts.put(level.text, kind="summary", sources=sources)
                )


def _model_summary(
    board: WorkingContext,
    built: LayeredSummary,
    room: int,
    means: CompactionOptions,
    outcome: CompactionOutcome,
) -> tuple[Summary, int] | None:
    """A summary by a model, if there is one and everything in it has a source."""
    if means.summariser is None:
        return None
    try:
        said = means.summariser.summarise(built.passages, means.question, room)
    except ModelError as error:
        outcome.fallbacks.append(f"{means.summariser.identity}: {type(error).__name__}")
        return None
    text = f"{means.head}\n{said.strip()}" if means.head else said.strip()
    fault = find_unsupported(said, built.passages)
    (tokens,) = board.costs.summaries([text])
    if not fault and tokens > room:
        fault = f"it has {tokens} tokens, at most {room} were asked for"
    if fault:
        outcome.fallbacks.append(f"{means.summariser.identity}: {fault}")
        return None
    citations = [
        Citation(mark=mark, item_id=board.entries[at].id)
        for mark, at in enumerate(built.sources, start=1)
    ]
    return (
        Summary.of(
            "session",
            text,
            citations,
            kind=built.summary.kind,
            method=means.summariser.identity,
            children=[one.id for one in built.levels if one.level == "cluster"],
            dropped_fields=built.summary.dropped_fields,
        ),
        tokens,
    )


def _record_shortened(board: WorkingContext, outcome: CompactionOutcome) -> None:
    """The records of texts that are shown in part in their place."""
    for at, cut in enumerate(board.cuts):
        if cut is None or board.is_whole(at) or not (cut.spans or at in board.frames):
            continue
        outcome.summaries.append(
            Summary.of(
                "targeted",
                cut.text,
                [Citation(item_id=board.entries[at].id, spans=cut.spans)],
                kind=board.relevance.reading(at).kind,
                method=EXTRACTIVE,
                dropped_fields=cut.fields,
            )
        )
