"""Rego by regopy, in this process: a bundle is built once and its decisions are remembered.

The library is loaded at the first decision. An interpreter holds its input, so one thread uses it
at a time. Input and output go through the library's C functions themselves: its Python makes a
buffer of each text and reads each output three times, which takes longer than the policy
(docs/adr/0229).
"""

from __future__ import annotations

import ctypes
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from json.encoder import encode_basestring
from typing import Any, Final

from crp_integrations.errors import EngineError
from crp_integrations.guard.ports import Bundle

LIBRARY: Final = "regopy"
# regopy 1.5.2 takes `not` within `every` for true, so that such a rule would allow everything.
_NOT_IN_EVERY: Final = re.compile(r"\bevery\b[^{}]*\{[^}]*\bnot\b")
_COMMENT: Final = re.compile(r"#[^\n]*")
# Decisions that are kept: they depend on a few registered words, so few differ.
MOST_KEPT: Final = 1_024
# Bytes of an answer that is read at once.
_ANSWER: Final = 4_096


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
        self._built: dict[str, _Built] = {}
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
                said = self._evaluated(bundle, bundle.digest, question)
            return _value(said, bundle)
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
                found = self._built[name] = _Built(regopy, bundle)
            return found.asked(question)
        except (regopy.RegoError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise EngineError(
                f"the policy {bundle.name} could not be evaluated",
                engine=LIBRARY,
                version=version(LIBRARY),
            ) from error


class _Built:
    """A bundle in an interpreter of its own; for one thread at a time.

    Raises:
        RegoError: the policy is no Rego.
        EngineError: it would be evaluated to something else than it says.
    """

    def __init__(self, regopy: Any, bundle: Bundle) -> None:
        interpreter = regopy.Interpreter()
        # Letters are written as they are; one that is escaped would equal none of the input's.
        interpreter.add_data_json(json.dumps(dict(bundle.data), ensure_ascii=False))
        for module, source in _modules(bundle).items():
            interpreter.add_module(module, source)
        plans = interpreter.build(None, [bundle.entrypoint])
        # These two own what the pointers below point to.
        self._owners = interpreter, plans
        self._interpreter, self._plans = interpreter._impl, plans._impl
        self._entrypoint = bundle.entrypoint.encode()
        self._c = regopy.rego_shared.rego
        self._failed = regopy.RegoError
        self._error = regopy.rego_shared.rego_get_error
        self._buffer = ctypes.create_string_buffer(_ANSWER)

    def asked(self, question: Mapping[str, Any]) -> str:
        """What the entrypoint's value is for an input, as JSON.

        Raises:
            RegoError: the interpreter failed.
            ValueError, TypeError: the input has a value that the interpreter cannot hold.
        """
        c = self._c
        given = c.regoNewInput()
        try:
            if _put(c, given, dict(question)) or c.regoSetInput(self._interpreter, given):
                raise self._failed("the input could not be made")
        finally:
            c.regoFreeInput(given)
        output = c.regoBundleQueryEntrypoint(self._interpreter, self._plans, self._entrypoint)
        if not output:
            raise self._failed(self._error(self._interpreter))
        try:
            return self._read(output)
        finally:
            c.regoFreeOutput(output)

    def _read(self, output: int) -> str:
        buffer = self._buffer
        if self._c.regoOutputJSON(output, buffer, len(buffer)):
            # Most often it is too long; what else is wrong goes wrong again.
            size = self._c.regoOutputJSONSize(output)
            buffer = ctypes.create_string_buffer(size)
            if self._c.regoOutputJSON(output, buffer, size):
                raise self._failed("the output could not be read")
        return buffer.value.decode()


def _put(c: Any, given: int, value: Any) -> int:
    """Put a JSON value on an input's stack; 0 where all went well.

    The interpreter holds texts as JSON writes them, and takes what it is given for that: unescaped,
    a quotation mark would end a text in the answer, and a zero character ends it in C.

    Raises:
        ValueError: a number is above 64 bits, or a text has half of a surrogate pair.
        TypeError: it is no value of JSON.
    """
    kind = type(value)
    if kind is str:
        failed = c.regoInputString(given, encode_basestring(value)[1:-1].encode())
    elif kind is dict:
        failed = 0
        for name, one in value.items():
            failed |= _put(c, given, name) | _put(c, given, one) | c.regoInputObjectItem(given)
        failed |= c.regoInputObject(given, len(value))
    elif kind is list or kind is tuple:
        failed = 0
        for one in value:
            failed |= _put(c, given, one)
        failed |= c.regoInputArray(given, len(value))
    elif kind is bool:
        failed = c.regoInputBoolean(given, value)
    elif kind is int:
        if not -(2**63) <= value < 2**63:
            raise ValueError("a number of the input is above 64 bits")
        failed = c.regoInputInt(given, value)
    elif kind is float:
        failed = c.regoInputFloat(given, value)
    elif value is None:
        failed = c.regoInputNull(given)
    elif isinstance(value, (str, int, float)):
        # A word of a closed list, or another kind of these.
        plain = next(base for base in (str, int, float) if isinstance(value, base))
        return _put(c, given, plain(value))
    else:
        raise TypeError(f"the input has a {kind.__name__}, which JSON has not")
    return int(failed)


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
