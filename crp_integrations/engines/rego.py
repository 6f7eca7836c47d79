"""Rego, evaluated by regopy in this process or by an OPA server over HTTP.

regopy is loaded at the first decision. A bundle is built once and its decisions are cached; an
interpreter keeps its input, so only one thread uses it at a time. A policy that regopy 1.5.2 would
evaluate wrongly is refused.

A server's policy may change at any time, so its decisions are not cached. A server that cannot be
reached, or whose answer is not a decision, raises `EngineError`.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from crp_integrations.errors import ConfigError, EngineError, MissingExtra
from crp_integrations.guard.ports import Bundle

if TYPE_CHECKING:
    import httpx

LIBRARY: Final = "regopy"
# The parts of the interpreter's error text: file and offset, and the message.
_PLACE: Final = re.compile(r"\(error \d+:([^|()]*)\|(\d+)\|")
_COMPLAINT: Final = re.compile(r"\(errormsg \d+:([^()]*)\)")
# Maximum number of cached decisions; inputs are a few registered words, so few differ.
MOST_KEPT: Final = 1_024


class RegoEngine:
    """Evaluates Rego v1 bundles with regopy.

    Args:
        most_kept: maximum number of cached decisions; 0 for a caller that caches them itself.
    """

    def __init__(self, *, most_kept: int = MOST_KEPT) -> None:
        self._lock = threading.Lock()
        self._built: dict[str, _BuiltBundle] = {}
        self._answer = lru_cache(maxsize=most_kept)(
            lambda digest, question: self._built[digest].answer(json.loads(question))
        )

    @property
    def identity(self) -> str:
        """`regopy` and its version, `regopy absent` where it is not installed."""
        return _identity()

    def decide(self, bundle: Bundle, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """The value of the bundle's entrypoint for an input."""
        self.prepare(bundle)
        with _translated(bundle):
            asked = json.dumps(question, sort_keys=True, ensure_ascii=False, allow_nan=False)
            with self._lock:
                # Parsed again for each caller, so that none can change the cached value.
                values = json.loads(self._answer(bundle.digest, asked))
        if len(values) != 1 or not isinstance(values[0], dict):
            raise _failed(f"the policy {bundle.name} gave {len(values)} values, wanted one object")
        value: dict[str, Any] = values[0]
        return value

    def prepare(self, bundle: Bundle) -> None:
        """Build a bundle, so that an error in it is reported before the first decision."""
        with self._lock:
            if bundle.digest not in self._built:
                with _translated(bundle):
                    self._built[bundle.digest] = _BuiltBundle(bundle)


class _BuiltBundle:
    """A bundle in its own interpreter; for one thread at a time."""

    def __init__(self, bundle: Bundle) -> None:
        self._regopy = load_regopy()
        self._interpreter = new_interpreter()
        # Not escaped to ASCII, since an escaped letter would not equal the same one in an input.
        self._interpreter.add_data_json(json.dumps(dict(bundle.data), ensure_ascii=False))
        for module, source in bundle.sources.items():
            if wrong := misread(source):
                raise EngineError(f"policy file {module!r:.80} has {wrong}", engine=LIBRARY)
            self._interpreter.add_module(module, source)
        self._plans = self._interpreter.build(None, [bundle.entrypoint])
        if not self._plans.ok():
            # A query of such a bundle would crash the process.
            raise RuntimeError("it uses what this interpreter does not know")
        self._entrypoint = bundle.entrypoint

    def answer(self, question: Mapping[str, Any]) -> str:
        """The entrypoint's values for an input, as JSON."""
        self._interpreter.set_input(self._regopy.Input(_escaped(question)))
        output = self._interpreter.query_bundle_entrypoint(self._plans, self._entrypoint)
        if not output.ok():
            raise RuntimeError("a built-in function was given an argument that it cannot take")
        return json.dumps([value for result in output.results for value in result.expressions])


def _escaped(value: Any) -> Any:
    """A JSON value with its texts escaped as in JSON, which is how the interpreter stores texts.

    Unescaped, a quotation mark would end a text in the answer, and a zero byte would end it in C.
    """
    if isinstance(value, str):
        # Encoding is tried here, since the library mishandles an input that fails half-way.
        value.encode()
        return encode_basestring(value)[1:-1]
    if isinstance(value, dict):
        return {_escaped(name): _escaped(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a number of the input is above 64 bits")
    return value


@contextmanager
def _translated(bundle: Bundle) -> Iterator[None]:
    """Turn errors of the interpreter or of an unusable input into `EngineError`."""
    regopy = load_regopy()
    try:
        yield
    except (regopy.RegoError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise _failed(
            f"the policy {bundle.name} could not be evaluated: {_why(error, bundle.sources)}"
        ) from error


def _failed(what: str) -> EngineError:
    return EngineError(what, engine=LIBRARY, version=version(LIBRARY))


def _why(error: Exception, sources: Mapping[str, str]) -> str:
    """The interpreter's error message with file and line, without values of an input."""
    message = str(error)
    place, complaint = _PLACE.search(message), _COMPLAINT.search(message)
    if complaint is None:
        return message[:200]
    if place is None or place[1] not in sources:
        return complaint[1]
    line = sources[place[1]].encode().count(b"\n", 0, int(place[2])) + 1
    return f"{complaint[1]} in {place[1]}, line {line}"


def new_interpreter() -> Any:
    """An interpreter that does not print its errors on standard output."""
    regopy = load_regopy()
    interpreter = regopy.Interpreter()
    interpreter.log_level = regopy.LogLevel.NONE
    # Otherwise a failed built-in counts as undefined, and `not to_number(input.age) > 17` is true
    # for an age that is not a number.
    interpreter.strict_built_in_errors = True
    return interpreter


def load_regopy() -> Any:
    """Import regopy, or raise an error that says why it cannot be loaded."""
    try:
        import regopy
    except ModuleNotFoundError as error:
        raise MissingExtra("policy", "a policy bundle in Rego") from error
    except ImportError as error:
        raise EngineError("regopy cannot be loaded", engine=LIBRARY) from error
    return regopy


@cache
def _identity() -> str:
    # Cached, since looking up a version takes a millisecond and every report contains it.
    try:
        return f"{LIBRARY} {version(LIBRARY)}"
    except PackageNotFoundError:
        return f"{LIBRARY} absent"


# Strings, also over several lines, and comments, which the checks below ignore. One pattern finds
# them in order, so that a `#` in a string or a quotation mark in a comment has no effect.
_STRING_OR_COMMENT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`|#[^\n]*')
# Functions whose result differs for equal arguments, or comes from outside.
_NOT_PURE: Final = re.compile(
    r"(?<![\w.])(time\s*\.\s*now_ns|rand\s*\.\s*intn|uuid\s*\.\s*rfc4122|opa\s*\.\s*runtime"
    r"|http\s*\.\s*send|net\s*\.\s*lookup_ip_addr)\b"
)
_EVERY: Final = re.compile(r"\bevery\b")
_IN: Final = re.compile(r"\bin\b")
_NOT: Final = re.compile(r"\bnot\b")
# A unification, and the literals that are harmless on either side of one.
_UNIFIES: Final = re.compile(r"(?<![:=!<>])=(?!=)")
_LITERAL: Final = re.compile(r'(?:true|false|null|""|-?\d[\w.+-]*)')
# Precedes the body of a rule, which is not a collection.
_OPENS_BODY: Final = re.compile(r"\b(?:if|else)\s*$")
# A variable: not the name of a field or of a called function.
_VARIABLE: Final = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\w*\()")
_BOUND: Final = r"\bsome\b[^\n;]*\b{0}\b|\b{0}\s*:="
# Names of rules and imports, which have a value everywhere.
_RULE: Final = re.compile(r"^(?:default[ \t]+)?([A-Za-z_]\w*)", re.MULTILINE)
_IMPORT: Final = re.compile(
    r"^import[ \t]+[\w.]*?(\w+)(?:[ \t]+as[ \t]+(\w+))?[ \t]*$", re.MULTILINE
)
_KNOWN: Final = frozenset({"input", "data", "true", "false", "null", "some", "in", "not"})
_CLOSES: Final = {"[": "]", "{": "}", "(": ")"}
# One side of a comparison: a number, a removed string, a path or call with at most one more level
# of brackets inside; or arithmetic of these.
_TERM: Final = r'(?:-?\d[\w.]*|""|[A-Za-z_][\w.]*(?:\[[^\[\]]*\]|\((?:[^()]|\([^()]*\))*\)|\.\w+)*)'
_SIDE: Final = rf"{_TERM}(?:[ \t]*[-+*/%][ \t]*{_TERM})*"
_ORDER: Final = re.compile(r"[<>]=?")
_MOST_BREAKS: Final = 6
_COMPARISON: Final = re.compile(rf"({_SIDE})\s*[<>]=?\s*({_SIDE})")
_NUMERIC: Final = re.compile(
    r"-?\d[\w.]*|(?:abs|bits\.\w+|ceil|count|floor|indexof|product|round|sum|to_number"
    r"|time\.parse\w*|time\.add_date)\((?:[^()]|\([^()]*\))*\)"
)


class _Comprehension(NamedTuple):
    """Start and end offset of a comprehension, its head (the value it gives), and its body."""

    start: int
    end: int
    head: str
    body: str


def misread(source: str) -> str:
    """Why regopy would evaluate a source wrongly; empty if no known problem is found.

    Six problems are known. Values of two types are ordered differently than by OPA. A `not` within
    an `every` counts as true. A comprehension within an `every` is evaluated before the `every`'s
    variable has a value, and so is one whose head has an outer variable that its body does not
    name. The result of a function that reads the time, a random number or the outside world would
    be cached. And a variable that gets its value by `=` within an `every`, from one outside,
    crashes the process.

    >>> misread("x := [label | some role in roles; granted[role]] if some label in labels")[:37]
    'a comprehension that gives `label` an'
    >>> misread("x := [role | some role in roles]")
    ''
    """
    plain = _STRING_OR_COMMENT.sub(_without_content, source)
    changing = _NOT_PURE.search(plain)
    if changing:
        return (
            f"`{''.join(changing[1].split())}`, whose result changes while decisions are cached; "
            "use an OPA server for such rules, or let a governed exception expire"
        )
    comprehensions = list(_comprehensions(plain))
    for start, end in _bodies(plain):
        if _NOT.search(plain, start, end):
            return (
                "a `not` in an `every`, which this interpreter always takes for true; "
                "count the items that fail instead"
            )
        if any(start <= comprehension.start < end for comprehension in comprehensions):
            return (
                "a comprehension in an `every`, which this interpreter evaluates before the "
                "`every` has a value; move it into a function that is called there"
            )
        if _unifies(plain[start + 1 : end]):
            return (
                "a `=` without a literal in an `every`, at which this interpreter may end "
                "the process; write `:=` for a new name and `==` for a comparison"
            )
    for sides in _untyped(plain):
        return (
            f"a comparison of `{sides[0]:.60}` with `{sides[1]:.60}`, whose types are not known, "
            "and this interpreter orders two types differently than OPA; add `is_number(…)` or "
            "`is_string(…)` for each side in the same body"
        )
    for name in _unnamed(plain, comprehensions):
        return (
            f"a comprehension that gives `{name:.60}` and does not name it in its body, which this "
            f"interpreter evaluates too early; write `given := {name:.60}` there and give `given`"
        )
    return ""


def _untyped(plain: str) -> Iterator[tuple[str, str]]:
    r"""Both sides of each `<`, `<=`, `>` or `>=` that are not known to be of one type.

    >>> list(_untyped("allow if input.age < 3"))
    [('input.age', '3')]
    >>> list(_untyped("allow if { is_number(input.age); input.age < 3 }"))
    []
    >>> list(_untyped("n := count(input.roles)\nallow if n > 3"))
    []
    """
    covered = -1
    for order in _ORDER.finditer(plain):
        if order.start() < covered:
            continue
        comparison = _comparison_at(plain, order.start())
        if comparison is None:
            line = plain[plain.rfind("\n", 0, order.start()) + 1 :].partition("\n")[0]
            yield line.strip(), "what follows"
            continue
        covered = comparison.start(2)
        sides = (comparison[1].strip(), comparison[2].strip())
        around = _statements_around(plain, order.start())
        for type_name in ("number", "string"):
            if all(_is_known(side, type_name, plain, around) for side in sides):
                break
        else:
            yield sides


def _comparison_at(plain: str, place: int) -> re.Match[str] | None:
    """The comparison whose operator is at a place; None if a side is too complex to find."""
    start = place
    # A side such as `count([a | some a in b; c])` contains characters that usually end a statement.
    for _ in range(_MOST_BREAKS):
        start = max(plain.rfind(sign, 0, start) for sign in ";\n{|")
        for match in _COMPARISON.finditer(plain, start + 1):
            if match.end(1) <= place < match.start(2):
                balanced = match[1].count("(") == match[1].count(")")
                if balanced and (match.start() == 0 or plain[match.start() - 1] not in ")]}"):
                    return match
            if match.start() > place:
                break
        if start < 0:
            break
    return None


def _is_known(side: str, type_name: str, plain: str, around: str) -> bool:
    """Whether a side has a type by its form, by its assignments, or by a check in the body."""
    if type_name == "string" and side == '""':
        return True
    if type_name == "number" and _NUMERIC.fullmatch(side):
        return True
    if re.search(rf"(?<!not )\bis_{type_name}\(\s*{re.escape(side)}\s*\)", around):
        return True
    values = re.findall(rf"\b{re.escape(side)}[ \t]*:=[ \t]*([^;\n}}]+)", plain)
    if values:
        return all(
            (value.strip() == '""' and type_name == "string")
            or (type_name == "number" and _NUMERIC.fullmatch(value.strip()))
            for value in values
        )
    terms = re.split(r"[ \t]*[-+*/%][ \t]*", side)
    # One numeric term suffices: arithmetic with anything else fails, which is an error.
    return (
        len(terms) > 1
        and type_name == "number"
        and any(_is_known(term, type_name, plain, around) for term in terms)
    )


def _statements_around(plain: str, place: int) -> str:
    """The statements of the bodies around a place, without those of bodies nested in them."""
    statements, start, depth = [], place, 0
    while start > 0:
        start -= 1
        if plain[start] == "}":
            depth += 1
        elif plain[start] == "{" and depth:
            depth -= 1
        elif plain[start] == "{":
            body, inner = plain[start + 1 : _closing(plain, start)], ""
            while inner != body:
                inner, body = body, re.sub(r"\{[^{}]*\}", "", body)
            statements.append(body)
    return ";".join(statements)


def _unifies(body: str) -> bool:
    """Whether a statement of a body unifies two sides of which neither is a literal.

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


def _without_content(match: re.Match[str]) -> str:
    return "" if match[0].startswith("#") else '""'


def _bodies(plain: str) -> Iterator[tuple[int, int]]:
    """Start and end offset of the body of each `every`."""
    for every in _EVERY.finditer(plain):
        inside = _IN.search(plain, every.end())
        if inside is None:
            continue
        place = inside.end()
        while place < len(plain) and plain[place].isspace():
            place += 1
        # The collection may be a literal in brackets; the brackets after it are the body.
        if plain[place : place + 1] in _CLOSES:
            place = _closing(plain, place) + 1
        while place < len(plain) and plain[place] != "{":
            place = _closing(plain, place) + 1 if plain[place] in _CLOSES else place + 1
        if place < len(plain):
            yield place, _closing(plain, place)


def _comprehensions(plain: str) -> Iterator[_Comprehension]:
    """Brackets that directly contain a `|`, except bodies of rules and of `every`."""
    bodies = {start for start, _ in _bodies(plain)}
    # Open brackets: the offset of each, and that of its first `|`.
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


def _unnamed(plain: str, comprehensions: list[_Comprehension]) -> Iterator[str]:
    """Variables in a comprehension's head that have a value outside and are not in its body.

    A variable may get its value in many ways, also as an argument or in brackets; the name of a
    rule has a value everywhere, unless a variable of that name hides it.
    """
    known = _KNOWN | {match[1] for match in _RULE.finditer(plain)}
    known |= {match[2] or match[1] for match in _IMPORT.finditer(plain)}
    for comprehension in comprehensions:
        around = _inner(plain[: comprehension.start] + plain[comprehension.end :])
        for match in _VARIABLE.finditer(comprehension.head):
            name = match[0]
            if re.search(rf"\b{name}\b", comprehension.body) or re.search(
                _BOUND.format(name), comprehension.head
            ):
                continue
            if name not in known or re.search(_BOUND.format(name), around):
                yield name


def _inner(source: str) -> str:
    """A source without the names of its rules, which are not assignments of variables."""
    return re.sub(r"(?m)^(?:default\s+)?[A-Za-z_]\w*\s*:?=", "", source)


def _closing(plain: str, start: int) -> int:
    """Offset of the bracket that closes the one at `start`; the end of the text if none does."""
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


OPA: Final = "opa"
# Maximum bytes of an answer; a decision takes a few hundred.
LONGEST_ANSWER: Final = 1_000_000


class OpaEngine:
    """Asks an OPA server; thread-safe.

    Args:
        url: address of the server, without a path; text before an `@` is sent as name and
            password and never shown.
        timeout_s: maximum seconds until an answer begins, and from there until it ends.
        transport: httpx transport for the requests; None for the network.
    """

    def __init__(
        self, url: str, *, timeout_s: float = 2.0, transport: httpx.BaseTransport | None = None
    ) -> None:
        # Imported here, since loading it takes longer than opening a store.
        import httpx

        self._url = url.rstrip("/")
        self._shown = _hide_password(self._url)
        self._timeout_s = timeout_s
        # No proxy from the environment may see requests for access.
        self._client = httpx.Client(timeout=timeout_s, transport=transport, trust_env=False)

    @property
    def identity(self) -> str:
        """`opa` and the server's address."""
        return f"{OPA} {self._shown}"

    def decide(self, bundle: Bundle, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """The value of the entrypoint for an input, with the server's `decision_id` if it has
        one.
        """
        import httpx

        place = f"{self._url}/v1/data/{bundle.entrypoint}"
        try:
            answer = json.loads(self._answer(place, {"input": dict(question)}))
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            raise self._failed(f"answered with status {status}") from error
        except httpx.HTTPError as error:
            raise self._failed(f"cannot be reached ({type(error).__name__})") from error
        except (ValueError, RecursionError) as error:
            raise self._failed("did not answer with JSON") from error
        result = answer.get("result") if isinstance(answer, dict) else None
        if not isinstance(result, dict):
            raise self._failed(f"has no object at {bundle.entrypoint}; is the policy loaded?")
        number = answer.get("decision_id")
        return {**result, "decision_id": number} if isinstance(number, str) else result

    def _answer(self, place: str, asked: Mapping[str, Any]) -> bytes:
        """The body of an answer; httpx applies the timeout to each piece, this to the whole."""
        with self._client.stream("POST", place, json=asked) as answer:
            answer.raise_for_status()
            ends = time.monotonic() + self._timeout_s
            body = bytearray()
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > LONGEST_ANSWER:
                    raise self._failed(f"answered with more than {LONGEST_ANSWER} bytes")
                if time.monotonic() > ends:
                    raise self._failed(f"did not end its answer in {self._timeout_s:g} s")
        return bytes(body)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _failed(self, why: str) -> EngineError:
        return EngineError(f"the OPA server at {self._shown} {why}", engine=OPA)


def _hide_password(url: str) -> str:
    """The address without name and password, for errors and reports."""
    import httpx

    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        # The address is not quoted, since the wrong part of it may be the password.
        raise ConfigError(
            "guard.opa_url is not the address of a server, such as http://127.0.0.1:8181"
        )
    return str(parsed.copy_with(userinfo=b"")).rstrip("/")
