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
from typing import TYPE_CHECKING, Any, Final

from crp_integrations.engines.rego_hazards import misread
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
