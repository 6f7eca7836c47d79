"""Inheritance of policies (a child may tighten but never relax its parent), and safety modes.

Spec: related facts §3, §6, §8
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import MappingProxyType
from typing import Any, Final

from crp_integrations.errors import PolicyRelaxed, RequestError
from crp_integrations.policy.directives import (
    DIRECTIVES,
    LEVELS,
    MODE_TEXTS,
    MOST_ADDRESSES,
    RELAXING,
    field_of,
)
from crp_integrations.policy.policy_text import has_directive, parse_policy
from crp_integrations.policy.records import Policy, require_policy
from crp_integrations.vocabulary import FlagAction, RiskLevel, SafetyMode

VIOLATION: Final = "safety_policy_inheritance_violation"
ABSENT: Final = "absent"
PRESENT: Final = "present"


def tighten(parent: Policy, child: Policy | None) -> Policy:
    """Return the child's policy if it is at least as strict as the parent's on every directive.

    The child must have every directive of the parent, and may not add one that permits something
    (`unchecked`). This includes addresses of reports: a child that reports only elsewhere would
    hide its violations from the parent.

    Spec: related facts §6, §8

    Args:
        child: the child's policy; None returns the parent's.

    Raises:
        PolicyRelaxed: a directive is laxer; names the first one in canonical order.
        RequestError: an argument is not a Policy, but for example a policy's text.
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
    """Whether a directive of the child is laxer than the parent's."""
    if name in RELAXING:
        return has_directive(child, name) and not has_directive(parent, name)
    if not has_directive(parent, name) or not has_directive(child, name):
        return has_directive(parent, name)
    theirs, own = getattr(parent, field_of(name)), getattr(child, field_of(name))
    return bool(DIRECTIVES[name].stricter(theirs, own) != own)


def combine_strictest(first: Policy, second: Policy) -> Policy:
    """Combine two policies that both apply: the stricter value of each directive.

    Spec: related facts §6

    If both together have too many receivers of reports, the first policy's take precedence. A
    directive that permits something is kept only if both have it.
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
    """The stricter value, by field, of each directive that the second policy has."""
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
    """Tighten a policy by the safety mode of a request: the stricter value of each directive.

    A mode does not affect sources and `unchecked`, and never relaxes: `permissive` changes nothing.

    Spec: related facts §3
    """
    require_policy(policy)
    if mode is None:
        return policy
    if mode not in MODES:
        wanted = ", ".join(MODES)
        raise RequestError(f"safety mode {mode!r:.40} is unknown, wanted one of {wanted}")
    names = set(DIRECTIVES) - RELAXING - {"default-src"}
    return policy.changed(**_merged(policy, MODES[mode], names))


_ACTIONS: Final = MappingProxyType(
    {
        FlagAction.ASK_AGAIN: "ask_again_on",
        FlagAction.REPAIR: "repair_on",
        FlagAction.WITHHOLD: "halt_on",
    }
)


def flag_actions(on_flag: str | Sequence[str] | None) -> tuple[FlagAction, ...]:
    """Read `on_flag`: one action or several; `ask-again` alone is followed by `repair`.

    Raises:
        RequestError: an action is unknown.
    """
    if not isinstance(on_flag, Collection | None):
        raise RequestError(f"on_flag is {on_flag!r:.40}, wanted one of {', '.join(FlagAction)}")
    words = (on_flag,) if isinstance(on_flag, str) else tuple(on_flag or ())
    known = frozenset(FlagAction)
    unknown = [word for word in words if word not in known]
    if unknown:
        wanted = ", ".join(FlagAction)
        raise RequestError(f"on_flag {unknown[0]!r:.40} is unknown, wanted one of {wanted}")
    actions = [action for action in _ACTIONS if action in words]
    return (*actions, FlagAction.REPAIR) if actions == [FlagAction.ASK_AGAIN] else tuple(actions)


def with_actions(
    policy: Policy,
    on_flag: str | Sequence[str] | None,
    level: str | None = None,
    most_again: int = 1,
) -> Policy:
    """Tighten a policy by what a caller wants done with an answer that is flagged.

    Args:
        on_flag: `report`, `ask-again`, `repair`, `withhold`, or several of them.
        level: lowest risk level at which it is done; None for MEDIUM.
        most_again: how often the model is asked again.

    Raises:
        RequestError: an action or the level is unknown, or has no effect without `on_flag`.
    """
    if level is not None and level not in LEVELS:
        wanted = ", ".join(LEVELS)
        raise RequestError(f"on_flag_level {level!r:.40} is unknown, wanted one of {wanted}")
    if level is not None and not on_flag:
        raise RequestError(f"on_flag_level {level} has no effect without on_flag; give both")
    actions = flag_actions(on_flag)
    fields = {_ACTIONS[action]: RiskLevel(level or RiskLevel.MEDIUM) for action in actions}
    # `report` switches off what a component was made with, its numbers too.
    asks = policy.ask_again_on or FlagAction.ASK_AGAIN in actions
    if most_again > 1 and not asks and (actions or not on_flag):
        raise RequestError(f"most_again {most_again} has no effect; give on_flag='ask-again' too")
    return combine_strictest(policy, policy.changed(**fields)) if fields else policy
