"""A policy as text: one form for each policy, so that its hash names it."""

from __future__ import annotations

from crp_integrations.policy.directives import DIRECTIVES, field_of, written
from crp_integrations.policy.records import Policy, given
from crp_integrations.seals import sha256


def render(policy: Policy) -> str:
    """The canonical text: every directive that is there once, in the order of the table.

    `default-src` is always written, since a policy without it has its default.

    Spec: related facts §6

    Raises:
        RequestError: it is no policy, but the text of one, say.

    >>> from crp_integrations.policy.parse import parse
    >>> render(parse("block-pii;HALT-ON high ; halt-on critical"))
    'default-src context parametric; halt-on HIGH; block-pii'
    """
    given(policy)
    return "; ".join(
        written(name, value)
        for name in DIRECTIVES
        if name == "default-src" or has(policy, name)
        for value in (getattr(policy, field_of(name)),)
    )


def has(policy: Policy, name: str) -> bool:
    """Whether a directive is there; `default-src` always is.

    >>> has(Policy(require_flow=0.0), "require-flow"), has(Policy(), "block-pii")
    (True, False)
    """
    value = getattr(policy, field_of(name))
    # A threshold of 0.00 was written, and an equality would call it False.
    return name == "default-src" or not (value is None or value is False or value == ())


def policy_hash(policy: Policy) -> str:
    """`sha256:` hash of the canonical text."""
    return sha256(render(policy))
