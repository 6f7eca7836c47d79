"""Records and settings of a compaction, its triggers, and its ports."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final, Literal, Protocol

from pydantic import Field

from crp_integrations.errors import RequestError
from crp_integrations.governance.context_pack import ContextPack, DropReport
from crp_integrations.governance.settings import CompactionSettings
from crp_integrations.messages import Message
from crp_integrations.records import Part, Record
from crp_integrations.seals import digest, sha256


class Trigger(StrEnum):
    """Why a working context is compacted.

    Spec: Summit §Compression Strategy
    """

    BUDGET = "budget"
    ITEMS = "items"
    TOOL_CALL = "tool-call"


def find_triggers(
    tokens: int, budget: int, items: int, settings: CompactionSettings, *, after_tool_call: bool
) -> tuple[Trigger, ...]:
    """The triggers that fire; none when compaction is switched off.

    Spec: Summit §Compression Strategy
    """
    if budget <= 0:
        raise RequestError(f"a budget of {budget} tokens holds nothing; give one above 0")
    if not settings.enabled:
        return ()
    fired = []
    if tokens > budget_share(budget, settings.trigger_share):
        fired.append(Trigger.BUDGET)
    if items > settings.max_items:
        fired.append(Trigger.ITEMS)
    if after_tool_call and settings.after_tool_call:
        fired.append(Trigger.TOOL_CALL)
    return tuple(fired)


def budget_share(budget: int, part: float) -> int:
    """Whole tokens of a share of the budget, exactly."""
    return int(Fraction(str(part)) * budget)


EXTRACTIVE: Final = "extractive@1"
SummaryLevel = Literal["source", "cluster", "session", "targeted"]


class Citation(Part):
    """What of an item a summary quotes.

    Attributes:
        mark: number in the summary's text, from 1; 0 where the text has no marks.
        spans: characters of the item's text, half-open.
    """

    mark: int = Field(default=0, ge=0)
    item_id: str
    spans: tuple[tuple[int, int], ...] = ()


class Summary(Record):
    """A shorter text in the place of longer ones, with where each part of it comes from.

    Spec: Summit §Compression Strategy

    Attributes:
        level: `targeted` for one result of a tool in its place; else what it sums up.
        kind: how the text was read, `prose`, `log`, `search` or `data`; `mixed` for several.
        dropped_fields: fields, or kinds of lines, of which something was left out.
    """

    SCHEMA = "summary/1"

    id: str = Field(min_length=1)
    level: SummaryLevel
    kind: str
    text: str
    citations: tuple[Citation, ...]
    children: tuple[str, ...] = ()
    dropped_fields: tuple[str, ...] = ()
    method: str

    @property
    def checksum(self) -> str:
        """`sha256:…` of the text, as packs and artifacts refer to it."""
        return sha256(self.text)

    @classmethod
    def of(
        cls,
        level: SummaryLevel,
        text: str,
        citations: Sequence[Citation],
        **more: Any,
    ) -> Summary:
        """A summary whose id follows from its text and sources."""
        hashed = digest([level, text, [citation.model_dump(mode="json") for citation in citations]])
        id_ = "summary:" + hashed.removeprefix("sha256:")[:24]
        return cls(
            id=id_, level=level, text=text, citations=tuple(citations), method=EXTRACTIVE, **more
        )


class ArtifactRef(Record):
    """Where a text is kept that the prompt does not hold.

    Spec: Summit §Isolation Strategy

    Attributes:
        ref: the handle, as the model sees it; no address and no permission.
    """

    SCHEMA = "artifact-ref/1"

    ref: str = Field(min_length=1)
    checksum: str
    kind: str
    sources: tuple[str, ...] = ()


class CompactionAccount(Part):
    """What happened in one compaction.

    Attributes:
        triggers: what started it; none when nothing did, and then nothing is changed.
        reports: one for each reason; together they name everything that is not shown as it was.
        summaries: those shown, those they were made from, and texts that are shown in part.
        tokens_before, tokens_after: of the whole context by the caller's counter.
        why_not: where it is not, what holds the tokens that cannot go.
    """

    triggers: tuple[Trigger, ...] = ()
    reports: tuple[DropReport, ...] = ()
    summaries: tuple[Summary, ...] = ()
    artifacts: tuple[ArtifactRef, ...] = ()
    tokens_before: int = Field(ge=0)
    tokens_after: int = Field(ge=0)
    budget: int = Field(gt=0)
    fits: bool
    why_not: str = ""
    algorithms: tuple[str, ...] = ()


class CompactHistory(Record):
    """An agent's messages after compaction.

    Spec: Summit §Compression Strategy

    Attributes:
        ids: of the messages, in their order; a summary's message has the summary's id.
    """

    SCHEMA = "compact-history/1"

    messages: tuple[Message, ...]
    ids: tuple[str, ...]
    account: CompactionAccount


class CompactPack(Record):
    """A pack after compaction.

    Spec: Summit §Key APIs

    Attributes:
        texts: the texts that are shown in place of others, by `summary_ref`.
    """

    SCHEMA = "compact-pack/1"

    compacted: ContextPack
    texts: dict[str, str]
    account: CompactionAccount

    @property
    def drop_reports(self) -> tuple[DropReport, ...]:
        """One for each reason."""
        return self.account.reports


class ArtifactStore(Protocol):
    """Keeps texts out of the prompt; equal texts get equal references."""

    def put(self, text: str, *, kind: str, sources: Sequence[str]) -> ArtifactRef:
        """Keep a text."""
        ...
