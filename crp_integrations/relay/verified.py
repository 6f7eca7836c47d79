"""Whether the engine's code and weights are those that were published."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from crp_integrations import weights
from crp_integrations.weights.manifest import PACKAGE, has_manifest, verify_code


@cache
def verified_engine() -> bool:
    """Check the engine's code and every shipped weight, once a process.

    Spec: CRP-SPEC-005 §21.1 (decision D19)

    Returns:
        Whether the code was checked; False in a working tree, which has no manifest.

    Raises:
        EngineError: a file of the code or of the weights is not the one that was published.
    """
    root = Path(str(files(PACKAGE)))
    checked = verify_code(root, installed=has_manifest())
    for name in weights.names():
        weights.load(name)
    return checked
