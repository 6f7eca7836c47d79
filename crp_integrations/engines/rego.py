"""Rego by regopy, in this process: a bundle is built once and its decisions are remembered.

The library is loaded at the first decision. An interpreter holds its input, so one thread uses it
at a time.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from crp_integrations.errors import EngineError
from crp_integrations.guard.ports import Bundle

LIBRARY: Final = "regopy"
# Decisions that are kept: they depend on a few registered words, so few differ.
MOST_KEPT: Final = 1_024


class RegoEngine:
    """Evaluates Rego v1 bundles with regopy.

    Attributes:
        identity: library and version.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._built: dict[str, Any] = {}
        self._decided: OrderedDict[tuple[str, str], str] = OrderedDict()

    @property
    def identity(self) -> str:
        """`regopy` and its version, `regopy absent` where it is not installed."""
        return _identity()

    def decide(self, bundle: Bundle, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """The value of the bundle's entrypoint for an input.

        Raises:
            EngineError: regopy cannot be loaded, the policy is no Rego, or it has no value.
        """
        asked = json.dumps(question, sort_keys=True, ensure_ascii=False)
        key = (bundle.digest, asked)
        with self._lock:
            kept = self._decided.get(key)
            if kept is None:
                kept = json.dumps(self._evaluated(bundle, key[0], question))
                self._decided[key] = kept
                if len(self._decided) > MOST_KEPT:
                    self._decided.popitem(last=False)
            else:
                self._decided.move_to_end(key)
        # Parsed anew, so that no caller can change what the next one gets.
        decision: dict[str, Any] = json.loads(kept)
        return decision

    def _evaluated(self, bundle: Bundle, name: str, question: Mapping[str, Any]) -> dict[str, Any]:
        try:
            import regopy
        except ImportError as error:
            raise EngineError("regopy cannot be loaded", engine=LIBRARY) from error
        try:
            found = self._built.get(name)
            if found is None:
                interpreter = regopy.Interpreter()
                interpreter.add_data(dict(bundle.data))
                interpreter.add_module(f"{bundle.name}.rego", bundle.module)
                found = interpreter, interpreter.build(None, [bundle.entrypoint])
                self._built[name] = found
            interpreter, built = found
            interpreter.set_input(dict(question))
            output = interpreter.query_bundle_entrypoint(built, bundle.entrypoint)
            answered = json.loads(str(output))["expressions"]
        except (regopy.RegoError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise EngineError(
                f"the policy {bundle.name} could not be evaluated",
                engine=LIBRARY,
                version=version(LIBRARY),
            ) from error
        if len(answered) != 1 or not isinstance(answered[0], dict):
            raise EngineError(
                f"the policy {bundle.name} gave {len(answered)} values, wanted one object",
                engine=LIBRARY,
                version=version(LIBRARY),
            )
        value: dict[str, Any] = answered[0]
        return value


@cache
def _identity() -> str:
    # Looking a version up takes a millisecond, and every report names it.
    try:
        return f"{LIBRARY} {version(LIBRARY)}"
    except PackageNotFoundError:
        return f"{LIBRARY} absent"
