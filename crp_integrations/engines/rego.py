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
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from json.encoder import encode_basestring
from typing import Any, Final

import orjson

from crp_integrations.engines.rego_limits import misread
from crp_integrations.errors import EngineError
from crp_integrations.guard.ports import Bundle

LIBRARY: Final = "regopy"
# How the interpreter writes an error: file and place, and its complaint.
_PLACE: Final = re.compile(r"\(error \d+:([^|()]*)\|(\d+)\|")
_COMPLAINT: Final = re.compile(r"\(errormsg \d+:([^()]*)\)")
# What it says of a bundle that it took and could not build.
_UNKNOWN: Final = "rego-errorseq"
# Decisions that are kept: they depend on a few registered words, so few differ.
MOST_KEPT: Final = 1_024
# Bytes of an answer that is read at once.
_ANSWER: Final = 4_096
# Texts whose writing is kept, and how long one may be: names of fields, roles and labels come back.
_WRITTEN: Final = 1_024
_SHORT: Final = 64


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
        self._decided: OrderedDict[tuple[str, str], bytes] = OrderedDict()

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

    def prepare(self, bundle: Bundle) -> None:
        """Build a bundle, so that one that cannot be is told before anybody asks.

        Raises:
            EngineError: regopy cannot be loaded, or the policy is no Rego.
        """
        with self._lock:
            self._evaluated(bundle, bundle.digest, None)

    def _evaluated(self, bundle: Bundle, name: str, question: Mapping[str, Any] | None) -> bytes:
        """What the interpreter says, as JSON; nothing where there is no question."""
        regopy = _library()
        try:
            found = self._built.get(name)
            if found is None:
                found = self._built[name] = _Built(regopy, bundle)
            return b"" if question is None else found.asked(question)
        except (regopy.RegoError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise EngineError(
                f"the policy {bundle.name} could not be evaluated: {_why(error, bundle.sources)}",
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
        # It would write its complaints on standard output, into what a command prints there.
        interpreter.log_level = regopy.LogLevel.NONE
        # Letters are written as they are; one that is escaped would equal none of the input's.
        interpreter.add_data_json(json.dumps(dict(bundle.data), ensure_ascii=False))
        for module, source in _modules(bundle).items():
            interpreter.add_module(module, source)
        plans = interpreter.build(None, [bundle.entrypoint])
        # These two own what the pointers below point to.
        self._owners = interpreter, plans
        self._interpreter = ctypes.c_void_p(interpreter._impl)
        self._plans = ctypes.c_void_p(plans._impl)
        self._entrypoint = bundle.entrypoint.encode()
        self._c = _near(regopy.rego_shared.rego)
        self._put = _putting(self._c)
        self._failed = regopy.RegoError
        self._error = partial(regopy.rego_shared.rego_get_error, interpreter._impl)
        self._buffer = ctypes.create_string_buffer(_ANSWER)

    def asked(self, question: Mapping[str, Any]) -> bytes:
        """What the entrypoint's value is for an input, as JSON.

        Raises:
            RegoError: the interpreter failed.
            ValueError, TypeError: the input has a value that the interpreter cannot hold.
        """
        c = self._c
        given = c.regoNewInput()
        try:
            if self._put(given, dict(question)) or c.regoSetInput(self._interpreter, given):
                raise self._failed("the input could not be made")
        finally:
            c.regoFreeInput(given)
        output = c.regoBundleQueryEntrypoint(self._interpreter, self._plans, self._entrypoint)
        if not output:
            raise self._failed(self._error())
        try:
            return self._read(output)
        finally:
            c.regoFreeOutput(output)

    def _read(self, output: _Pointer) -> bytes:
        buffer = self._buffer
        if self._c.regoOutputJSON(output, buffer, _ANSWER):
            # Most often it is too long; what else is wrong goes wrong again.
            size = self._c.regoOutputJSONSize(output)
            buffer = ctypes.create_string_buffer(size)
            if self._c.regoOutputJSON(output, buffer, size):
                raise self._failed("the output could not be read")
        return buffer.value


class _Pointer(ctypes.c_void_p):
    """A pointer that is handed on as it came; a number would be made a pointer by each call."""


def _near(library: Any) -> Any:
    """The library's functions as calls that are too short to let other threads go on meanwhile.

    All but the evaluation itself, which may take a policy of one's own as long as it likes. They
    are another set than those that regopy declares the arguments of, since a declared one is
    checked and made anew at each call.
    """
    near: Any = ctypes.PyDLL(LIBRARY, handle=library._handle)
    evaluate = ctypes.CDLL(LIBRARY, handle=library._handle).regoBundleQueryEntrypoint
    near.regoBundleQueryEntrypoint = evaluate
    near.regoNewInput.restype = evaluate.restype = _Pointer
    # No pointer comes back; the answer would be read as a number.
    near.regoFreeInput.restype = near.regoFreeOutput.restype = None
    # Numbers of another size than ctypes gives one by itself.
    near.regoInputInt.argtypes = (ctypes.c_void_p, ctypes.c_int64)
    near.regoInputFloat.argtypes = (ctypes.c_void_p, ctypes.c_double)
    return near


def _putting(c: Any) -> Callable[[_Pointer, Any], int]:
    """What puts a JSON value on an input's stack, and says 0 where all went well.

    The interpreter holds texts as JSON writes them, and takes what it is given for that: unescaped,
    a quotation mark would end a text in the answer, and a zero character ends it in C. The
    library's functions are looked up once, since an input takes two dozen of their calls. Whatever
    goes wrong with one of them goes wrong with all that follow, so the last one's word is enough.

    Raises:
        ValueError: a number is above 64 bits, or a text has half of a surrogate pair.
        TypeError: it is no value of JSON.
    """
    text, item = c.regoInputString, c.regoInputObjectItem
    of_items, of_values = c.regoInputObject, c.regoInputArray
    kept: dict[str, bytes] = {}
    before = kept.get

    def written(text: str) -> bytes:
        told = _written(text)
        if len(text) <= _SHORT:
            if len(kept) >= _WRITTEN:
                kept.clear()
            kept[text] = told
        return told

    def put(given: _Pointer, value: Any) -> int:
        kind = type(value)
        failed: int
        if kind is str:
            failed = text(given, before(value) or written(value))
        elif kind is dict:
            # Most names and values are texts; a call of this function costs as much as putting one.
            for name, one in value.items():
                if type(name) is str:
                    text(given, before(name) or written(name))
                else:
                    put(given, name)
                if type(one) is str:
                    text(given, before(one) or written(one))
                else:
                    put(given, one)
                item(given)
            failed = of_items(given, len(value))
        elif kind is list or kind is tuple:
            for one in value:
                if type(one) is str:
                    text(given, before(one) or written(one))
                else:
                    put(given, one)
            failed = of_values(given, len(value))
        else:
            failed = _put_scalar(c, put, given, value)
        return failed

    return put


def _put_scalar(c: Any, put: Callable[[_Pointer, Any], int], given: _Pointer, value: Any) -> int:
    """Put what is neither a text nor made of other values; what raises is told by `_putting`."""
    kind = type(value)
    if kind is bool:
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
        return put(given, plain(value))
    else:
        raise TypeError(f"the input has a {kind.__name__}, which JSON has not")
    return int(failed)


def _written(text: str) -> bytes:
    """A text as JSON writes it, without the quotation marks."""
    return encode_basestring(text)[1:-1].encode()


def _modules(bundle: Bundle) -> dict[str, str]:
    """The sources of a bundle by name.

    Raises:
        EngineError: one of them would be evaluated to something else than it says.
    """
    modules = bundle.sources
    for name, source in modules.items():
        wrong = misread(source)
        if wrong:
            raise EngineError(f"policy file {name!r:.80} has {wrong}", engine=LIBRARY)
    return modules


def _why(error: Exception, sources: Mapping[str, str]) -> str:
    """What the interpreter complains of, with the place in the file; no value of an input."""
    told = str(error)
    place, said = _PLACE.search(told), _COMPLAINT.search(told)
    if said is None:
        return "it uses what this interpreter does not know" if _UNKNOWN in told else told[:200]
    if place is None or place[1] not in sources:
        return said[1]
    line = sources[place[1]].encode().count(b"\n", 0, int(place[2])) + 1
    return f"{said[1]} in {place[1]}, line {line}"


def _value(said: bytes, bundle: Bundle) -> dict[str, Any]:
    try:
        answered = orjson.loads(said)["expressions"]
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
def _library() -> Any:
    """regopy, loaded at the first decision.

    Raises:
        EngineError: it cannot be loaded.
    """
    try:
        import regopy
    except ImportError as error:
        raise EngineError("regopy cannot be loaded", engine=LIBRARY) from error
    return regopy


@cache
def _identity() -> str:
    # Looking a version up takes a millisecond, and every report names it.
    try:
        return f"{LIBRARY} {version(LIBRARY)}"
    except PackageNotFoundError:
        return f"{LIBRARY} absent"
