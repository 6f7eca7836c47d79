"""Rego by regopy, in this process: a bundle is built once and its decisions are remembered.

The library is loaded at the first decision. An interpreter holds its input, so one thread uses it
at a time. Input and output go through the library's C functions themselves: its Python makes a
buffer of each text and reads each output three times, which takes longer than the policy
(docs/adr/0229). A policy that regopy 1.5.2 evaluates to something else than it says is refused.
"""

from __future__ import annotations

import ctypes
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

import orjson

from crp_integrations.errors import EngineError
from crp_integrations.guard.ports import Bundle

# What a source says in neither code nor names: texts, also over lines, and comments, whichever
# begins first. A sign of one kind within another stands for nothing.
_ASIDE: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`|#[^\n]*')
# Functions whose answer to equal arguments is another one each time, or comes from outside.
_CHANGING: Final = re.compile(
    r"(?<![\w.])(time\s*\.\s*now_ns|rand\s*\.\s*intn|uuid\s*\.\s*rfc4122|opa\s*\.\s*runtime"
    r"|http\s*\.\s*send|net\s*\.\s*lookup_ip_addr)\b"
)
_EVERY: Final = re.compile(r"\bevery\b")
_IN: Final = re.compile(r"\bin\b")
_NOT: Final = re.compile(r"\bnot\b")
# A unification, and what may stand on a side of one without harm.
_UNIFIES: Final = re.compile(r"(?<![:=!<>])=(?!=)")
_LITERAL: Final = re.compile(r'(?:true|false|null|""|-?\d[\w.+-]*)')
# A body of a rule, which is no collection whatever stands in it.
_OPENS_BODY: Final = re.compile(r"\b(?:if|else)\s*$")
# A variable: no name of a field, of a function, and no key before a colon of an object's.
_VARIABLE: Final = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\w*\()")
_BOUND: Final = r"\bsome\b[^\n;]*\b{0}\b|\b{0}\s*:="
# Names that have a value wherever they are read: of rules and of what is imported.
_RULE: Final = re.compile(r"^(?:default[ \t]+)?([A-Za-z_]\w*)", re.MULTILINE)
_IMPORT: Final = re.compile(
    r"^import[ \t]+[\w.]*?(\w+)(?:[ \t]+as[ \t]+(\w+))?[ \t]*$", re.MULTILINE
)
_KNOWN: Final = frozenset({"input", "data", "true", "false", "null", "some", "in", "not"})
_CLOSES: Final = {"[": "]", "{": "}", "(": ")"}


class _Comprehension(NamedTuple):
    """Where it opens and ends, what it gives, and its body."""

    start: int
    end: int
    head: str
    body: str


def misread(source: str) -> str:
    """Why a source would be misread; empty where nothing is known against it.

    Five things are known. A `not` within an `every` counts as true. A comprehension within an
    `every` is evaluated before the variable of that has a value. So is one that gives a variable of
    what is around it and does not name it in its body. What a function says that asks for the time,
    for chance or for the world outside would be kept as if the policy alone had decided. And a
    variable that gets its value by `=` within an `every`, from one outside, ends the process.

    >>> misread("x := [label | some role in roles; granted[role]] if some label in labels")[:37]
    'a comprehension that gives `label` an'
    >>> misread("x := [role | some role in roles]")
    ''
    """
    plain = _ASIDE.sub(_put_aside, source)
    changing = _CHANGING.search(plain)
    if changing:
        return (
            f"`{''.join(changing[1].split())}`, whose answer changes while decisions are kept; ask "
            "a server for what changes, or let a governed exception expire"
        )
    given = list(_comprehensions(plain))
    for start, end in _bodies(plain):
        if _NOT.search(plain, start, end):
            return (
                "a `not` in an `every`, which this interpreter takes for true whatever follows; "
                "count what does not hold instead"
            )
        if any(start <= one.start < end for one in given):
            return (
                "a comprehension in an `every`, which this interpreter evaluates before the "
                "`every` has a value; put it into a function that is called there"
            )
        if _unifies(plain[start + 1 : end]):
            return (
                "a `=` between what are no values in an `every`, at which this interpreter may end "
                "the process; say `:=` for a new name and `==` for a comparison"
            )
    for name in _unnamed(plain, given):
        return (
            f"a comprehension that gives `{name:.60}` and does not name it in its body, which this "
            f"interpreter evaluates too early; say `given := {name:.60}` there and give that"
        )
    return ""


def _unifies(body: str) -> bool:
    """Whether a statement of a body unifies two things of which neither is a plain value.

    >>> _unifies("given := table[label]; given == true; table[label] = true")
    False
    >>> _unifies("given = table[label]")
    True
    """
    for statement in re.split(r"[;\n{}]", body):
        sides = [side.strip() for side in _UNIFIES.split(statement)]
        if len(sides) > 1 and not any(map(_LITERAL.fullmatch, sides)):
            return True
    return False


def _put_aside(found: re.Match[str]) -> str:
    return "" if found[0].startswith("#") else '""'


def _bodies(plain: str) -> Iterator[tuple[int, int]]:
    """Where the body of each `every` begins and ends."""
    for every in _EVERY.finditer(plain):
        inside = _IN.search(plain, every.end())
        if inside is None:
            continue
        place = inside.end()
        while place < len(plain) and plain[place].isspace():
            place += 1
        # The collection may be written out, in brackets of its own; the next ones are the body.
        if plain[place : place + 1] in _CLOSES:
            place = _closing(plain, place) + 1
        while place < len(plain) and plain[place] != "{":
            place = _closing(plain, place) + 1 if plain[place] in _CLOSES else place + 1
        if place < len(plain):
            yield place, _closing(plain, place)


def _comprehensions(plain: str) -> Iterator[_Comprehension]:
    """Brackets with a bar of their own, but for bodies of rules and of `every`."""
    bodies = {start for start, _ in _bodies(plain)}
    # Brackets that wait to be closed: where each opens, and where its first bar stands.
    waiting: list[list[int]] = []
    for place, sign in enumerate(plain):
        if sign in _CLOSES:
            waiting.append([place, 0])
        elif sign == "|" and waiting:
            waiting[-1][1] = waiting[-1][1] or place
        elif sign in "]})" and waiting:
            start, bar = waiting.pop()
            opens_body = start in bodies or _OPENS_BODY.search(plain, max(0, start - 40), start)
            if bar and plain[start] != "(" and not opens_body:
                head, body = plain[start + 1 : bar], plain[bar + 1 : place]
                yield _Comprehension(start, place, head, body)


def _unnamed(plain: str, given: list[_Comprehension]) -> Iterator[str]:
    """Variables that a comprehension gives, have a value around it and are not named in its body.

    A variable may get its value in many ways, as an argument and in brackets too; the name of a
    rule has one wherever it is read, unless a variable of that name hides it.
    """
    known = _KNOWN | {found[1] for found in _RULE.finditer(plain)}
    known |= {found[2] or found[1] for found in _IMPORT.finditer(plain)}
    for one in given:
        around = _inner(plain[: one.start] + plain[one.end :])
        for found in _VARIABLE.finditer(one.head):
            name = found[0]
            if re.search(rf"\b{name}\b", one.body) or re.search(_BOUND.format(name), one.head):
                continue
            if name not in known or re.search(_BOUND.format(name), around):
                yield name


def _inner(source: str) -> str:
    """A source without the names of its rules, which have a value wherever they are read."""
    return re.sub(r"(?m)^(?:default\s+)?[A-Za-z_]\w*\s*:?=", "", source)


def _closing(plain: str, start: int) -> int:
    """Where the bracket closes that opens there; the end of the text where none does."""
    waiting: list[str] = []
    for place in range(start, len(plain)):
        sign = plain[place]
        if sign in _CLOSES:
            waiting.append(_CLOSES[sign])
        elif sign == waiting[-1]:
            waiting.pop()
            if not waiting:
                return place
    return len(plain)


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
