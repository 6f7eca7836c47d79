"""Inheritance of policies: a child may tighten and never relax.

Spec: related facts §6, §8
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from crp_integrations.errors import PolicyRelaxed
from crp_integrations.policy.directives import DIRECTIVES, MOST_ADDRESSES, field_of
from crp_integrations.policy.records import Policy, given
from crp_integrations.policy.render import has

VIOLATION: Final = "safety_policy_inheritance_violation"
ABSENT: Final = "absent"
PRESENT: Final = "present"


def tightened(parent: Policy, child: Policy | None) -> Policy:
    """The policy of a child: its own, where that is at least as strict on every directive.

    A directive that the parent has may not be missing. Addresses of reports count as well: a
    child that reports elsewhere only would hide its violations from the parent.

    Spec: related facts §6, §8

    Args:
        child: None where the child has none, which leaves the parent's.

    Raises:
        PolicyRelaxed: a directive is laxer; names the first one in the order of printing.
        RequestError: one of them is no policy, but the text of one, say.
    """
    given(parent, "parent")
    if child is None:
        return parent
    given(child, "child")
    for name, kind in DIRECTIVES.items():
        if not has(parent, name):
            continue
        theirs, own = getattr(parent, field_of(name)), getattr(child, field_of(name))
        if not has(child, name) or kind.stricter(theirs, own) != own:
            wanted, seen = _said(parent, name), _said(child, name)
            raise PolicyRelaxed(
                f"{VIOLATION}: {name} of the child is {seen}, the parent's {wanted} may only be "
                "tightened",
                directive=name,
                parent=wanted,
                child=seen,
            )
    return child


def strictest(first: Policy, second: Policy) -> Policy:
    """Of each directive the stricter value of two policies that were in force side by side.

    Spec: related facts §6

    Where both together name more receivers of reports than a policy may, those of the first stay.
    """
    fields = {}
    for name, kind in DIRECTIVES.items():
        field = field_of(name)
        ours, theirs = getattr(first, field), getattr(second, field)
        if has(first, name) and has(second, name):
            value = kind.stricter(ours, theirs)
            if name.startswith("report-") and len(value) > MOST_ADDRESSES:
                value = (*ours, *(one for one in theirs if one not in ours))[:MOST_ADDRESSES]
            fields[field] = value
        elif has(second, name):
            fields[field] = theirs
    return first.changed(**fields)


def in_force(layers: Iterable[Policy | None]) -> Policy:
    """The policy that holds after several that inherit one from the other.

    Spec: related facts §6

    Args:
        layers: outermost first, such as the operator's, the session's and the request's; None
            where there is none. The first that is there may say anything.

    Returns:
        The innermost that is there, a policy that demands nothing when there is none.

    Raises:
        PolicyRelaxed: one of them is laxer than the one before.
    """
    holding: Policy | None = None
    for layer in layers:
        holding = layer if holding is None else tightened(holding, layer)
    return Policy() if holding is None else holding


def _said(policy: Policy, name: str) -> str:
    if not has(policy, name):
        return ABSENT
    return DIRECTIVES[name].write(getattr(policy, field_of(name))) or PRESENT
