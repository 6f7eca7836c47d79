"""Ready policies: the profiles of the document, and what the words of `CRP-Safety-Mode` mean.

Spec: related facts §3, §6
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from crp_integrations.policy.parse import parse
from crp_integrations.policy.words import MODE_TEXTS, PROFILE_TEXTS

PROFILES: Final = MappingProxyType({name: parse(text) for name, text in PROFILE_TEXTS.items()})
MODES: Final = MappingProxyType({mode: parse(text) for mode, text in MODE_TEXTS.items()})
