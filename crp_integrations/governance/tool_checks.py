"""The verifier's word on tools: what is offered and what is called, against registry and policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from crp_integrations.governance.packs import ContextPack
from crp_integrations.governance.tools import Decide, ToolSpec
from crp_integrations.guard.decisions import LabelFilter
from crp_integrations.messages import ToolCall
from crp_integrations.records import Part
from crp_integrations.seals import sha256

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

    Args:
        registry: the tools as they are; the pack's word is not taken for them.
        tags: safety tags that policy requires and shuts out.
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
                faults += _faults(name, tool, decide, tags)
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
        found = _faults(call.name, known.get(call.name), decide, tags)
        if not found and call.name not in offered:
            reason = "the model was not offered it"
            found = [ToolFault(name=call.name, fault="not-offered", reason=reason)]
        faults += found
    return tuple(faults)


def _faults(name: str, tool: ToolSpec | None, decide: Decide, tags: LabelFilter) -> list[ToolFault]:
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
