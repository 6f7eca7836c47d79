"""What is said of several windows together: of each header the worst value.

Spec: related facts §7
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from crp_integrations.headers import names
from crp_integrations.vocabulary import QualityTier, RiskLevel

# Values from best to worst.
_WORDS: Final = {
    names.RISK: tuple(str(word) for word in RiskLevel),
    names.QUALITY_TIER: tuple(str(word) for word in QualityTier),
}
_LOWEST: Final = (
    names.GROUNDING_PCT,
    names.ENTAILMENT,
    names.FIDELITY,
    names.ATTRIBUTION_SCORE,
    names.QUALITY_SCORE,
    names.SAFETY_BUDGET,
)
_HIGHEST: Final = (names.RISK_SCORE,)
_COUNTS: Final = (names.FABRICATIONS, names.CLAIM_COUNT)
# What speaks of envelopes, which a batch adds up and an answer of several windows does not.
_ENVELOPES_HIGHEST: Final = (names.SATURATION,)
_ENVELOPES_COUNTS: Final = (names.TOKENS_USED,)


def worst(headers: Iterable[Mapping[str, str]], *, envelopes: bool = True) -> dict[str, str]:
    """The headers that stand for several windows: of each the worst value, counts added up.

    Args:
        envelopes: also those that speak of the windows' envelopes.
    """
    each = list(headers)
    made: dict[str, str] = {}
    for name, ranks in _WORDS.items():
        found = [one[name] for one in each if name in one]
        if found:
            made[name] = max(found, key=ranks.index)
    highest = (*_HIGHEST, *_ENVELOPES_HIGHEST) if envelopes else _HIGHEST
    for name in (*_LOWEST, *highest):
        found = [one[name] for one in each if name in one]
        if found:
            made[name] = (min if name in _LOWEST else max)(found, key=float)
    for name in (*_COUNTS, *_ENVELOPES_COUNTS) if envelopes else _COUNTS:
        found = [one[name] for one in each if name in one]
        if found:
            made[name] = str(sum(map(int, found)))
    if each:
        made[names.PROTOCOL] = names.PROTOCOL_VERSION
    return made
