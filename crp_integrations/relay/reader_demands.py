"""Whether somebody reads the answers that a policy makes demands of, before one is paid for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, Final

from crp_integrations.dpe.pii.contact import finds_phones
from crp_integrations.dpe.ports import Verifier
from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.policy.demands import halting_demands, reader_demands, refusal_words
from crp_integrations.policy.inheritance import apply_mode, combine_strictest
from crp_integrations.policy.policy_text import parse_policy
from crp_integrations.policy.records import Policy
from crp_integrations.relay.defaults import reads_claims
from crp_integrations.relay.judge import BACKGROUND, Judge
from crp_integrations.relay.settings import Settings
from crp_integrations.relay.world import World
from crp_integrations.vocabulary import RiskLevel, SafetyMode

NOBODY: Final = "nothing here reads answers"
LATE: Final = "the judge speaks in the background, once the answer is out"
SAMPLED: Final = "the judge reads a sample of the answers"


def unmeasured_demands(
    policy: Policy,
    *,
    judge: Judge | None,
    reads: bool,
    accept_risk: RiskLevel | None = None,
) -> str:
    """The sentence on demands of a policy that nothing can measure; empty where all can be.

    A judge that is asked in doubt alone is a reader: what it is not asked of stands in the
    evidence word for word.

    Spec: related facts §6

    Args:
        judge: who is asked of each answer; None for nobody.
        reads: a verifier that reads, or the arithmetic of `literal`, decides on the claims.
        accept_risk: the highest level that the caller accepts; None for any.
    """
    if reads:
        return ""
    if judge is None:
        demands, why = reader_demands(policy, accept_risk), NOBODY
    elif judge.settings.mode == BACKGROUND:
        demands, why = reader_demands(policy, accept_risk), LATE
    elif judge.settings.share < 1.0:
        # To ask again where the sample finds something is a use of a sample; to withhold is none.
        demands, why = halting_demands(policy, accept_risk), SAMPLED
    else:
        return ""
    return refusal_words(demands, why) if demands else ""


def _require_phones(policy: Policy) -> None:
    """Refuse to withhold personal data where telephone numbers among it would pass."""
    if policy.block_pii and not finds_phones():
        raise ConfigError(
            "block-pii needs telephone numbers to be found: pip install 'crp-integrations[pii]'"
        )


def require_reader(policy: Policy, world: World, accept_risk: RiskLevel | None = None) -> None:
    """Refuse a question whose policy demands what nothing can measure, before a model is paid.

    Raises:
        RequestError: nothing reads the answer's claims; names the demands and both ways out.
        ConfigError: the policy blocks personal data, and the extra `pii` is not installed.
    """
    _require_phones(policy)
    unmeasured = unmeasured_demands(
        policy,
        judge=world.judge,
        reads=reads_claims(world.settings, world.verifier),
        accept_risk=accept_risk,
    )
    if unmeasured:
        raise RequestError(unmeasured)


def require_reader_of(
    taker: str,
    asking: Mapping[str, Any],
    judge: Judge | None,
    settings: Settings,
    verifier: Verifier | None = None,
) -> None:
    """Refuse the fields of a component whose questions bring no judge of their own.

    Args:
        taker: the component's name.
        asking: its fields of a question, by their names.
        judge: its own; None for nobody.
        verifier: None for the one that the settings name.

    Raises:
        ConfigError: nothing reads the claims of its answers; names the demands and both ways out.
    """
    above = [text for text in (settings.policy, asking.get("inherited_policy")) if text]
    own = asking.get("policy")
    # A question's own policy repeats the policies above it, or is refused as laxer.
    texts = [own] if own else above
    policy = reduce(combine_strictest, map(parse_policy, texts)) if texts else Policy()
    _require_phones(policy)
    mode, accepted = asking.get("safety_mode"), asking.get("accept_risk")
    unmeasured = unmeasured_demands(
        apply_mode(policy, SafetyMode(mode) if mode else None),
        judge=judge,
        reads=reads_claims(settings, verifier),
        accept_risk=RiskLevel(accepted) if accepted else None,
    )
    if unmeasured:
        raise ConfigError(f"{taker}: {unmeasured}")
