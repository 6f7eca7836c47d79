"""Settings as a receipt tells them: numbers as decimals, weights of one's own only when asked to.

Spec: CRP-SPEC-005 §21.3 (decision D18)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import CRPError
from crp_integrations.receipt.canonical import dumps, part
from crp_integrations.receipt.window_values import InForce
from crp_integrations.records import Part

Kind = TypeVar("Kind", EnvelopeSettings, DpeSettings)
PRESETS: Final = ("default", "literal")
# What is used before the scores only, or for another kind of context.
_BEFORE: Final = frozenset({"assembly", "decompose", "graph", "reuse", "screening"})
_BEFORE_PATHS: Final = re.compile(r"hybrid\.(?!enabled$|whole_share$|passed_over$|stretches_seen$)")
# Bytes of settings that are kept by what is told of them: those of a receipt are a tenth of it.
_LONGEST: Final = 65_536
_WEIGHTS: Final = ("_weight", "_factor", "_shift")


class Withheld(Exception):
    """Settings that cannot be put together again, since weights of them were not told.

    Attributes:
        names: of the weights.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(f"{', '.join(names)} were not told")
        self.names = names


@lru_cache(maxsize=16)
def disclosed(in_force: InForce) -> dict[str, Any]:
    """Settings as content."""
    withheld: list[str] = []
    told = {}
    for name, settings in (("envelope", in_force.envelope), ("dpe", in_force.dpe)):
        published = [_flat(type(settings).preset(preset).model_dump()) for preset in PRESETS]
        own = _flat(settings.model_dump(exclude=set(_BEFORE)))
        own = {path: value for path, value in own.items() if not _BEFORE_PATHS.match(path)}
        for path, value in own.items():
            known = any(path in one and one[path] == value for one in published)
            if _is_weight(path) and not known and not in_force.disclose:
                withheld.append(f"{name}.{path}")
        hidden = {path.removeprefix(f"{name}.") for path in withheld if path.startswith(name)}
        told[name] = {path: _written(value) for path, value in own.items() if path not in hidden}
    return {"digest": in_force.digest, **told, "withheld": withheld}


@lru_cache(maxsize=16)
def disclosed_part(in_force: InForce) -> Any:
    """The same, written: settings last longer than many windows."""
    return part(disclosed(in_force))


def envelope_settings(content: Mapping[str, Any], withheld: tuple[str, ...]) -> EnvelopeSettings:
    """The envelope's settings out of content."""
    return _read(EnvelopeSettings, "envelope", content, withheld)


def dpe_settings(content: Mapping[str, Any], withheld: tuple[str, ...]) -> DpeSettings:
    """The provenance engine's settings out of content."""
    return _read(DpeSettings, "dpe", content, withheld)


def _read(
    kind: type[Kind], name: str, content: Mapping[str, Any], withheld: tuple[str, ...]
) -> Kind:
    missing = tuple(path for path in withheld if path.startswith(f"{name}."))
    if missing:
        raise Withheld(missing)
    told = dumps(content, texts_alone=True)
    if len(told) > _LONGEST:
        return _made(kind, name, content)
    found: Kind = _kept(kind, name, told)
    return found


# Receipts of one store share their settings, which are frozen.
@lru_cache(maxsize=16)
def _kept(kind: type[Kind], name: str, told: bytes) -> Any:
    return _made(kind, name, json.loads(told))


def _made(kind: type[Kind], name: str, content: Mapping[str, Any]) -> Kind:
    tree: dict[str, Any] = {}
    for path, value in content.items():
        *rooms, last = path.split(".")
        at = tree
        for room in rooms:
            at = at.setdefault(room, {})
        at[last] = value
    try:
        return kind.model_validate(tree)
    except (ValidationError, CRPError, TypeError) as error:
        raise ValueError(f"the settings of {name} cannot be read: {type(error).__name__}") from None


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their path."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping) and value and not prefix:
            found |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, Part):
            found |= _flat(value.model_dump(), f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def _is_weight(path: str) -> bool:
    return path.endswith(_WEIGHTS) or path.startswith("amplifiers.")


def _written(value: Any) -> Any:
    """A setting's value without floats: those are decimals, which are read back to the same."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        return {str(name): _written(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_written(inner) for inner in value]
    return value
