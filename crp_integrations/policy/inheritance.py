"""Inheritance of policies: a child may tighten and never relax; profiles and safety modes.

Spec: related facts §3, §6, §8
"""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType
from typing import Any, Final

from crp_integrations.errors import PolicyRelaxed, RequestError
from crp_integrations.policy.directives import (
    DIRECTIVES,
    MODE_TEXTS,
    MOST_ADDRESSES,
    RELAXING,
    field_of,
)
from crp_integrations.policy.policy_text import has_directive, parse_policy
from crp_integrations.policy.records import Policy, require_policy
from crp_integrations.vocabulary import SafetyMode

VIOLATION: Final = "safety_policy_inheritance_violation"
ABSENT: Final = "absent"
PRESENT: Final = "present"


def tighten(parent: Policy, child: Policy | None) -> Policy:
    """The policy of a child: its own, where that is at least as strict on every directive.

    A directive that the parent has may not be missing, and one that permits something (`unchecked`)
    may not be added. Addresses of reports count as well: a child that reports elsewhere only would
    hide its violations from the parent.

    Spec: related facts §6, §8

    Args:
        child: None where the child has none, which leaves the parent's.

    Raises:
        PolicyRelaxed: a directive is laxer; names the first one in the order of printing.
        RequestError: one of them is no policy, but the text of one, say.
    """
    require_policy(parent, "parent")
    if child is None:
        return parent
    require_policy(child, "child")
    for name in DIRECTIVES:
        if _relaxed(parent, child, name):
            wanted, seen = _directive_text(parent, name), _directive_text(child, name)
            raise PolicyRelaxed(
                f"{VIOLATION}: {name} of the child is {seen}, the parent's {wanted} may only be "
                "tightened",
                directive=name,
                parent=wanted,
                child=seen,
            )
    return child


def _relaxed(parent: Policy, child: Policy, name: str) -> bool:
    """Whether a directive of a child is laxer than its parent's."""
    if name in RELAXING:
        return has_directive(child, name) and not has_directive(parent, name)
    if not has_directive(parent, name) or not has_directive(child, name):
        return has_directive(parent, name)
    theirs, own = getattr(parent, field_of(name)), getattr(child, field_of(name))
    return bool(DIRECTIVES[name].stricter(theirs, own) != own)


def combine_strictest(first: Policy, second: Policy) -> Policy:
    """Take the stricter value of each directive from two policies in force side by side.

    Spec: related facts §6

    Where both together name more receivers of reports than a policy may, the first policy's come
    first. A directive that permits something stays only where both have it.
    """
    fields = _merged(first, second, set(DIRECTIVES) - RELAXING)
    for name in RELAXING:
        if not (has_directive(first, name) and has_directive(second, name)):
            fields[field_of(name)] = None
    for name in ("report-uri", "report-to"):
        ours, addresses = getattr(first, field_of(name)), fields.get(field_of(name), ())
        if len(addresses) > MOST_ADDRESSES:
            others = [address for address in addresses if address not in ours]
            fields[field_of(name)] = (*ours, *others)[:MOST_ADDRESSES]
    return first.changed(**fields)


def _merged(first: Policy, second: Policy, names: Collection[str]) -> dict[str, Any]:
    """The stricter value, by its field, of each of the directives that the second policy has."""
    fields = {}
    for name in names:
        if has_directive(second, name):
            field = field_of(name)
            own, other = getattr(first, field), getattr(second, field)
            both = has_directive(first, name)
            fields[field] = DIRECTIVES[name].stricter(own, other) if both else other
    return fields


def _directive_text(policy: Policy, name: str) -> str:
    if not has_directive(policy, name):
        return ABSENT
    return DIRECTIVES[name].write(getattr(policy, field_of(name))) or PRESENT


MODES: Final = MappingProxyType({mode: parse_policy(text) for mode, text in MODE_TEXTS.items()})


def apply_mode(policy: Policy, mode: SafetyMode | None) -> Policy:
    """A policy under the safety mode of a request: of each directive the stricter value.

    A mode says nothing of sources and of `unchecked`, and it never relaxes: `permissive` leaves a
    policy as it is.

    Spec: related facts §3
    """
    require_policy(policy)
    if mode is None:
        return policy
    if mode not in MODES:
        wanted = ", ".join(MODES)
        raise RequestError(f"safety mode {mode!r:.40} is none, wanted one of {wanted}")
    names = set(DIRECTIVES) - RELAXING - {"default-src"}
    return policy.changed(**_merged(policy, MODES[mode], names))
