"""Rego by regopy, in this process: a bundle is built once and its decisions are remembered.

The library is loaded at the first decision. An interpreter holds its input, so one thread uses it
at a time.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from crp_integrations.errors import EngineError
from crp_integrations.guard.ports import Bundle

LIBRARY: Final = "regopy"
# regopy 1.5.2 takes `not` within `every` for true, so that such a rule would allow everything.
_NOT_IN_EVERY: Final = re.compile(r"\bevery\b[^{}]*\{[^}]*\bnot\b")
_COMMENT: Final = re.compile(r"#[^\n]*")
# Decisions that are kept: they depend on a few registered words, so few differ.
MOST_KEPT: Final = 1_024


class RegoEngine:
    """Evaluates Rego v1 bundles with regopy.

    Args:
        most_kept: decisions that are kept; 0 for a caller that remembers them itself.

    Attributes:
        identity: library and version.
    """

    def __init__(self, *, most_kept: int = MOST_KEPT) -> None:
        self._most = most_kept
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
        if not self._most:
            with self._lock:
                return _value(self._evaluated(bundle, bundle.digest, question), bundle)
        asked = json.dumps(question, sort_keys=True, ensure_ascii=False)
        key = (bundle.digest, asked)
        with self._lock:
            kept = self._decided.get(key)
            if kept is None:
                kept = self._evaluated(bundle, key[0], question)
                value = _value(kept, bundle)
                self._decided[key] = kept
                if len(self._decided) > self._most:
                    self._decided.popitem(last=False)
                return value
            self._decided.move_to_end(key)
        # Parsed anew, so that no caller can change what the next one gets.
        return _value(kept, bundle)

    def _evaluated(self, bundle: Bundle, name: str, question: Mapping[str, Any]) -> str:
        """What the interpreter says, as JSON."""
        try:
            import regopy
        except ImportError as error:
            raise EngineError("regopy cannot be loaded", engine=LIBRARY) from error
        try:
            found = self._built.get(name)
            if found is None:
                interpreter = regopy.Interpreter()
                interpreter.add_data(dict(bundle.data))
                for module, source in _modules(bundle).items():
                    interpreter.add_module(module, source)
                found = interpreter, interpreter.build(None, [bundle.entrypoint])
                self._built[name] = found
            interpreter, built = found
            interpreter.set_input(dict(question))
            return str(interpreter.query_bundle_entrypoint(built, bundle.entrypoint))
        except (regopy.RegoError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise EngineError(
                f"the policy {bundle.name} could not be evaluated",
                engine=LIBRARY,
                version=version(LIBRARY),
            ) from error


def _modules(bundle: Bundle) -> dict[str, str]:
    """The sources of a bundle by name.

    Raises:
        EngineError: one of them would be evaluated to something else than it says.
    """
    modules = {f"{bundle.name}.rego": bundle.module, **bundle.further}
    for name, source in modules.items():
        if _NOT_IN_EVERY.search(_COMMENT.sub("", source)):
            raise EngineError(
                f"policy file {name!r:.80} has a `not` in an `every`, which this interpreter takes "
                "for true whatever follows; count what does not hold instead",
                engine=LIBRARY,
            )
    return modules


def _value(said: str, bundle: Bundle) -> dict[str, Any]:
    try:
        answered = json.loads(said)["expressions"]
    except (ValueError, KeyError, TypeError):
        answered = ()
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
