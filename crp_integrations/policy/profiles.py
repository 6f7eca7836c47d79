"""Ready policies: the profiles of the document, and what the words of `CRP-Safety-Mode` mean.

Spec: related facts §3, §6
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from crp_integrations.errors import RequestError
from crp_integrations.policy.directives import DIRECTIVES, field_of
from crp_integrations.policy.parse import parse
from crp_integrations.policy.records import Policy, given
from crp_integrations.policy.render import has
from crp_integrations.policy.words import MODE_TEXTS, PROFILE_TEXTS
from crp_integrations.vocabulary import SafetyMode

PROFILES: Final = MappingProxyType({name: parse(text) for name, text in PROFILE_TEXTS.items()})
MODES: Final = MappingProxyType({mode: parse(text) for mode, text in MODE_TEXTS.items()})


def with_mode(policy: Policy, mode: SafetyMode | None) -> Policy:
    """A policy under the safety mode of a request: of each directive the stricter value.

    A mode says nothing of sources, and it never relaxes: `permissive` leaves a policy as it is.

    Spec: related facts §3

    Args:
        mode: None for none.

    Raises:
        RequestError: it is no policy, or no mode.
    """
    given(policy)
    if mode is None:
        return policy
    if mode not in MODES:
        wanted = ", ".join(MODES)
        raise RequestError(f"safety mode {mode!r:.40} is none, wanted one of {wanted}")
    added, fields = MODES[mode], {}
    for name, kind in DIRECTIVES.items():
        if name == "default-src" or not has(added, name):
            continue
        field = field_of(name)
        own, other = getattr(policy, field), getattr(added, field)
        fields[field] = kind.stricter(own, other) if has(policy, name) else other
    return policy.changed(**fields)
