"""Records of a compaction, its triggers, and its port for storing texts."""

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
    """The reason to compact a working context.

    Spec: Summit §Compression Strategy
    """

    BUDGET = "budget"
    ITEMS = "items"
    TOOL_CALL = "tool-call"


def find_triggers(
    tokens: int, budget: int, items: int, settings: CompactionSettings, *, after_tool_call: bool
) -> tuple[Trigger, ...]:
    """The triggers that fire; none if compaction is switched off.

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
    """A share of the budget in whole tokens, without floating-point error."""
    return int(Fraction(str(part)) * budget)


EXTRACTIVE: Final = "extractive@1"
SummaryLevel = Literal["source", "cluster", "session", "targeted"]


class Citation(Part):
    """The parts of an item that a summary quotes.

    Attributes:
        mark: number in the summary's text, from 1; 0 if the text has no marks.
        spans: quoted characters of the item's text, half-open.
    """

    mark: int = Field(default=0, ge=0)
    item_id: str
    spans: tuple[tuple[int, int], ...] = ()


class Summary(Record):
    """A shorter text instead of longer ones, with the origin of each of its parts.

    Spec: Summit §Compression Strategy

    Attributes:
        level: `targeted` for one text shortened in place; else the level that it summarises.
        kind: how the text was read, `prose`, `log`, `search` or `data`; `mixed` for several.
        dropped_fields: fields, or kinds of lines, that are incomplete or missing.
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
    """A reference to a text that is kept outside of the prompt.

    Spec: Summit §Isolation Strategy

    Attributes:
        ref: the handle, as the model sees it; it contains no address and no permission.
    """

    SCHEMA = "artifact-ref/1"

    ref: str = Field(min_length=1)
    checksum: str
    kind: str
    sources: tuple[str, ...] = ()


class CompactionAccount(Part):
    """The account of one compaction.

    Attributes:
        triggers: triggers that fired; if there are none, nothing was changed.
        reports: one report per reason; together they name everything that is not shown unchanged.
        summaries: the summaries shown, those they were made from, and texts shown in part.
        tokens_before, tokens_after: tokens of the whole context by the caller's counter.
        why_not: if it does not fit, what takes the tokens that cannot be removed.
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
        ids: ids of the messages, in their order; a summary's message has the summary's id.
    """

    SCHEMA = "compact-history/1"

    messages: tuple[Message, ...]
    ids: tuple[str, ...]
    account: CompactionAccount


class CompactPack(Record):
    """A pack after compaction.

    Spec: Summit §Key APIs

    Attributes:
        texts: the texts that are shown instead of others, by `summary_ref`.
    """

    SCHEMA = "compact-pack/1"

    compacted: ContextPack
    texts: dict[str, str]
    account: CompactionAccount

    @property
    def drop_reports(self) -> tuple[DropReport, ...]:
        """One report for each reason."""
        return self.account.reports


class ArtifactStore(Protocol):
    """Keeps texts out of the prompt; equal texts get equal references."""

    def put(self, text: str, *, kind: str, sources: Sequence[str]) -> ArtifactRef:
        """Keep a text."""
        ...
