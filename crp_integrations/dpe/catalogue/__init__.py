"""The control catalogue: which evidence fulfils which control, and which domain has which class.

`controls.json` contains the data, `classification.rego` the rules; this file reads both. For each
kind of evidence the catalogue names its only provider: the engine from its own run, the relay
from what it stores, or the operator by attesting it in the settings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final, Literal

from crp_integrations.guard.ports import Bundle

DATA: Final = "controls.json"
RULES: Final = "classification.rego"
ENTRYPOINT: Final = "crp/classification/verdict"

EvidenceProvider = Literal["engine", "relay", "operator"]


@cache
def catalogue() -> Bundle:
    """The shipped catalogue as a bundle for a policy engine.

    Spec: CRP-SPEC-005 §14 (decision D20)
    """
    folder = files(__name__)
    data: Mapping[str, Any] = json.loads((folder / DATA).read_text(encoding="utf-8"))
    return Bundle(
        name=data["name"],
        module=(folder / RULES).read_text(encoding="utf-8"),
        data=MappingProxyType(dict(data)),
        entrypoint=ENTRYPOINT,
    )


@cache
def evidence_of(provider: EvidenceProvider) -> frozenset[str]:
    """The names of the evidence that only this provider can supply."""
    known = catalogue().data["evidence"]
    return frozenset(name for name, about in known.items() if about["by"] == provider)


@cache
def named() -> str:
    """The catalogue's name and the hash of its data and rules."""
    return f"{catalogue().name} {catalogue().digest}"
