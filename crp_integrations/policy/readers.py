"""Which directives need somebody who reads the answers.

What a policy demands of the truth of an answer is measured by whoever reads its claims: a judge, a
verifier that reads, or the printed arithmetic of `literal`. Without a reader such a demand would be
met or unmet by chance, so it is refused, unless the policy says `unchecked allow`.

Spec: related facts §6
"""

from __future__ import annotations

from typing import Final

from crp_integrations.policy.directives import PolicySource, field_of, write_directive
from crp_integrations.policy.policy_text import has_directive
from crp_integrations.policy.records import Policy
from crp_integrations.vocabulary import RiskLevel

# `warn-on` withholds nothing: it warns of what was not read. Personal data, repetition, flow,
# tiers and oversight are measured by rules, or by a person.
READ: Final = (
    "halt-on",
    "require-grounding",
    "require-entailment",
    "require-completeness",
    "block-ungrounded",
    "block-parametric",
    "block-fabrication",
    "block-distortion",
)
UPGRADE: Final = "upgrade-on-risk"
WAYS_OUT: Final = (
    "give judge=…, such as judge='openai/gpt-4o-mini', or write the directive 'unchecked allow' "
    "into the policy, which lets answers pass that nobody read"
)
# Accepted levels by which nothing has to be read: the first lets everything pass, the second what
# nobody read.
_UNREAD_ACCEPTED: Final = (RiskLevel.CRITICAL, RiskLevel.UNKNOWN)


def halting_demands(policy: Policy, accept_risk: RiskLevel | None = None) -> tuple[str, ...]:
    """The demands that withhold an answer which nobody read, as they stand in the policy.

    Args:
        accept_risk: the highest level that the caller accepts; None for any.

    Returns:
        Directives in their canonical form, and `accepted risk LEVEL`; empty where there is none,
        or the policy says `unchecked allow`.
    """
    if policy.allows_unread:
        return ()
    named = ["default-src"] if not policy.allows(PolicySource.PARAMETRIC) else []
    named += [name for name in READ if has_directive(policy, name)]
    demands = [write_directive(name, getattr(policy, field_of(name))) for name in named]
    if accept_risk is not None and accept_risk not in _UNREAD_ACCEPTED:
        demands.append(f"accepted risk {accept_risk}")
    return tuple(demands)


def reader_demands(policy: Policy, accept_risk: RiskLevel | None = None) -> tuple[str, ...]:
    """The demands that need a reader: those that withhold, and `upgrade-on-risk`.

    Spec: related facts §6

    Args:
        accept_risk: the highest level that the caller accepts; None for any.

    >>> from crp_integrations.policy.policy_text import parse_policy
    >>> reader_demands(parse_policy("halt-on HIGH; warn-on MEDIUM; block-pii"))
    ('halt-on HIGH',)
    >>> reader_demands(parse_policy("halt-on HIGH; unchecked allow"))
    ()
    """
    demands = halting_demands(policy, accept_risk)
    if policy.upgrade_on_risk is not None and not policy.allows_unread:
        demands += (write_directive(UPGRADE, policy.upgrade_on_risk),)
    return demands


def refusal_words(demands: tuple[str, ...], why: str) -> str:
    """The sentence of an error that refuses demands which nothing can measure.

    Args:
        why: why nobody reads every answer before it is shown.
    """
    verb = "needs" if len(demands) == 1 else "need"
    named = ", ".join(demands)
    return f"{named} {verb} every answer to be read before it is shown, and {why}; {WAYS_OUT}"
