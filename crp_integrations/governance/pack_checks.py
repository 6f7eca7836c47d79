"""Checks of an answer's citations against what was shown, and of tools against their registry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from crp_integrations.governance.compaction.verification import find_missing
from crp_integrations.governance.context_pack import ContextPack
from crp_integrations.governance.runtime_state import Snippet
from crp_integrations.governance.tools import Decide, ToolSpec
from crp_integrations.guard.decisions import LabelFilter
from crp_integrations.language.words import content_stems
from crp_integrations.messages import ToolCall
from crp_integrations.records import Part
from crp_integrations.seals import sha256

# Share of a stretch's content words that what it cites must have.
LEAST_SHARED: Final = 0.6
# Content words from which a stretch says something.
SAYS: Final = 3
# Marks that follow each other are one citation: [1][2], [1, 2].
_MARKS: Final = re.compile(r"(?:\s*\[\d{1,4}(?:\s?,\s?\d{1,4})*\])+")
_NUMBER: Final = re.compile(r"\d{1,4}")
_OPENING: Final = re.compile(r"\A[^\n:]{0,80}:\s*\n")
_TOOL_ID: Final = "tool:"

FaultWord = Literal["unknown", "altered", "unauthorised", "unsafe", "not-offered"]


class ToolFault(Part):
    """What is wrong with a tool that is offered or called.

    Attributes:
        fault: `unknown` to the registry; `altered`, shown otherwise than the registry has it;
            `unauthorised` by the guard; `unsafe` by its tags; `not-offered` in the pack.
    """

    name: str
    fault: FaultWord
    reason: str


class CitedSpan(Part):
    """A stretch of an answer and the items that it names; a mark that names none is `""`."""

    start: int
    end: int
    item_ids: tuple[str, ...]


def find_cited(text: str, item_ids: Sequence[str]) -> tuple[CitedSpan, ...]:
    """The stretches of an answer that end in marks, with the items that the marks name.

    Args:
        item_ids: of what was shown; the first one's number is 1.

    >>> [span.item_ids for span in find_cited("Built in 1957 [2]. Run by N [1][3].", ["a", "b"])]
    [('b',), ('a', '')]
    """
    spans, start = [], _opening_end(text)
    for match in _MARKS.finditer(text, start):
        numbers = (int(number) for number in _NUMBER.findall(match[0]))
        ids = [item_ids[n - 1] if 1 <= n <= len(item_ids) else "" for n in numbers]
        spans.append(CitedSpan(start=start, end=match.start(), item_ids=tuple(dict.fromkeys(ids))))
        start = match.end()
    return tuple(spans)


def is_supported(stretch: str, source: str) -> bool:
    """Whether a source has the figures, dates, ids and quotations of a stretch, and its words."""
    stems = set(content_stems(stretch))
    shared = len(stems & set(content_stems(source)))
    return shared >= LEAST_SHARED * len(stems) and not any(
        True for _ in find_missing(stretch, source)
    )


def find_citation_fault(answer: str, snippets: Sequence[Snippet]) -> str:
    """Why an answer's citations do not hold; empty where every stretch cites what says it.

    Marks such as `[2]` count the snippets from 1.
    """
    texts = {snippet.id: snippet.text for snippet in snippets}
    cited = find_cited(answer, list(texts))
    for span in cited:
        stretch = answer[span.start : span.end]
        if not all(id_ in texts and is_supported(stretch, texts[id_]) for id_ in span.item_ids):
            return "what is cited was not shown, or does not say it"
    last = max((span.end for span in cited), default=_opening_end(answer))
    uncited = len(content_stems(_MARKS.sub("", answer[last:]))) >= SAYS
    return "a stretch of the answer cites nothing" if uncited or not cited else ""


def check_offered(
    pack: ContextPack, registry: Iterable[ToolSpec], decide: Decide, tags: LabelFilter
) -> tuple[ToolFault, ...]:
    """What is wrong with the tools of a pack, in their order; nothing for a sound one.

    Spec: Summit §Failure Modes & Mitigations
    """
    known = {tool.name: tool for tool in registry}
    faults: list[ToolFault] = []
    for name, shown_ref in _tools_of(pack).items():
        tool = known.get(name)
        if tool is not None and shown_ref != sha256(tool.shown):
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
    known = {tool.name: tool for tool in registry}
    offered = _tools_of(pack)
    faults: list[ToolFault] = []
    for call in calls:
        wrong = _tool_faults(call.name, known.get(call.name), decide, tags)
        if not wrong and call.name not in offered:
            reason = "the model was not offered it"
            wrong = [ToolFault(name=call.name, fault="not-offered", reason=reason)]
        faults += wrong
    return tuple(faults)


def _tools_of(pack: ContextPack) -> dict[str, str]:
    """The reference to what is shown of each tool of a pack, by the tool's name."""
    return {
        item.id.removeprefix(_TOOL_ID): item.shown_ref
        for section in pack.sections
        if section.type == "tools"
        for item in section.items
    }


def _tool_faults(
    name: str, tool: ToolSpec | None, decide: Decide, tags: LabelFilter
) -> list[ToolFault]:
    if tool is None:
        return [ToolFault(name=name, fault="unknown", reason="no such tool is registered")]
    decision = decide(tuple(sorted(tool.labels)))
    if not decision.allowed:
        return [ToolFault(name=name, fault="unauthorised", reason=decision.reason)]
    if not tags.passes(tool.safety_tags):
        reason = f"its safety tags {', '.join(tool.safety_tags)} are not what policy lets in"
        return [ToolFault(name=name, fault="unsafe", reason=reason)]
    return []


def _opening_end(text: str) -> int:
    """Where an answer begins after a line such as `Quoted from the context:`."""
    opening = _OPENING.match(text)
    return opening.end() if opening else 0
