"""Canonical JSON (RFC 8785) for receipts: each value has exactly one encoding.

Receipts contain no floats and no number of 2^53 or more, and their keys are ASCII. For such values
orjson with sorted keys writes RFC 8785 JSON in a thirtieth of the time of a general encoder; a test
compares the two. Where the output may have a float, `json` parses it to reject it.
(`seals.canonical` allows them.)
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

import orjson

from crp_integrations.errors import ReceiptBroken

# The largest integer that every JSON parser reads exactly (RFC 8785 §3.2.2.3).
LARGEST = 2**53 - 1
_LONGEST_NUMBER = len(str(-LARGEST))
_ORJSON_OPTIONS: Final = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
# UTF-8 bytes of the Basic Multilingual Plane: characters beyond it start with 0xF0 or more.
_FIRST_PLANE: Final = bytes(range(0xF0))
# An `e` becomes a point and a bracket a comma, so that two searches find every float.
_MARKED: Final = bytes.maketrans(b"e[", b".,")
_written = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode


def dumps(value: Any, *, strings_only: bool = False) -> bytes:
    r"""Encode objects, lists, strings, integers, booleans and null as canonical JSON.

    With `strings_only` the caller guarantees ASCII keys and no numbers, which skips the checks.

    >>> dumps({"b": [1, True, None], "a": "\n"})
    b'{"a":"\\n","b":[1,true,null]}'
    """
    hooks: dict[str, Any] = {}
    try:
        data = orjson.dumps(value, option=_ORJSON_OPTIONS)
    except TypeError:
        # Nested too deeply for orjson, a large number, or not a JSON value.
        data, hooks = _encode_slowly(value), {"parse_int": _small}
    if hooks or not (strings_only or _is_plain(data)):
        _check_keys(data, _read(data.decode(), **hooks))
    return data


def loads(data: bytes, place: str, *, strings_only: bool = False) -> Any:
    """Read canonical JSON; any other encoding of the same value is refused."""
    try:
        value = orjson.loads(data)
        if orjson.dumps(value, option=_ORJSON_OPTIONS) == data:
            if not (strings_only or _is_plain(data)):
                _check_keys(data, _read(data.decode()))
            return value
    except (ValueError, TypeError):
        # The slower code below finds the place of the error.
        pass
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ReceiptBroken(f"{place}, byte {error.start}", "not valid UTF-8") from None
    try:
        value = _read(text, parse_int=_small)
        _check_keys(data, value)
        again = _written(value).encode()
    except UnicodeEncodeError as error:
        at = len(error.object[: error.start].encode())
        raise ReceiptBroken(f"{place}, byte {at}", "half of a surrogate pair") from None
    except json.JSONDecodeError as error:
        at = len(text[: error.pos].encode())
        raise ReceiptBroken(f"{place}, byte {at}", f"not valid JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise ReceiptBroken(place, f"not JSON of a receipt: {error}") from None
    if again != data:
        at = next(
            (n for n, (old, new) in enumerate(zip(data, again, strict=False)) if old != new),
            min(len(data), len(again)),
        )
        raise ReceiptBroken(f"{place}, byte {at}", "not the canonical encoding (RFC 8785)")
    return value


def kind_of(data: bytes) -> str:
    """The `schema` of any JSON object, canonical or not; "" if it has none.

    Used in the error about a file of the wrong kind.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    named = value.get("schema") if isinstance(value, dict) else None
    return named if isinstance(named, str) else ""


def b64(data: bytes) -> str:
    """Base64 with padding, the only encoding of bytes in a receipt."""
    return binascii.b2a_base64(data, newline=False).decode()


def seen(value: Any) -> str:
    """A value as an error shows it, in at most 40 characters; of a list or object only that."""
    if isinstance(value, (dict, list)):
        return "a JSON object" if isinstance(value, dict) else "a list"
    return f"{value!r:.40}" if isinstance(value, str) else f"{json.dumps(value):.40}"


def unb64(text: Any, place: str, length: int | None = None) -> bytes:
    """Decode base64 that is exactly what `b64` writes."""
    try:
        data = binascii.a2b_base64(text_of(text, place), strict_mode=True)
    except ValueError:
        raise ReceiptBroken(place, f"is {seen(text)}, wanted base64 with padding") from None
    # Strict mode accepts any values for the unused bits after the last byte.
    if b64(data[len(data) // 3 * 3 :]) != text[len(data) // 3 * 4 :]:
        raise ReceiptBroken(place, "not the canonical base64")
    if length is not None and len(data) != length:
        raise ReceiptBroken(place, f"has {len(data)} bytes, wanted {length}")
    return data


def fields(value: Any, names: frozenset[str], place: str) -> Mapping[str, Any]:
    """Check that a value is an object with exactly these keys."""
    if not isinstance(value, dict):
        wanted = ", ".join(sorted(names))
        raise ReceiptBroken(place, f"is {seen(value)}, wanted a JSON object with {wanted}")
    if value.keys() != names:
        odd = min(value.keys() ^ names)
        state = "is missing" if odd in names else f"is unknown, wanted {', '.join(sorted(names))}"
        raise ReceiptBroken(place, f"key {seen(odd)} {state}")
    return value


def items(value: Any, place: str) -> list[Any]:
    """Check that a value is a list."""
    if not isinstance(value, list):
        raise ReceiptBroken(place, f"is {seen(value)}, wanted a list")
    return value


def text_of(value: Any, place: str) -> str:
    """Check that a value is a string."""
    if not isinstance(value, str):
        raise ReceiptBroken(place, f"is {seen(value)}, wanted a string")
    return value


def hex_of(value: Any, place: str) -> bytes:
    """Decode 32 bytes from 64 hexadecimal digits in lower case."""
    if isinstance(value, str) and len(value) == 64:
        try:
            data = bytes.fromhex(value)
        except ValueError:
            data = b""
        if data.hex() == value:
            return data
    wanted = "wanted 64 hexadecimal digits in lower case"
    raise ReceiptBroken(place, f"is {seen(value)}, {wanted}")


def whole(value: Any, place: str, *, least: int = 0) -> int:
    """Check that a value is an integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ReceiptBroken(place, f"is {seen(value)}, wanted an integer of at least {least}")
    return value


class FieldKind(NamedTuple):
    """How a field is written to JSON and read back; `read` also takes the place for errors.

    Attributes:
        schema: JSON schema of the written value.
    """

    write: Callable[[Any], Any]
    read: Callable[[Any, str], Any]
    schema: Mapping[str, Any]


def whole_number(least: int = 0) -> FieldKind:
    """A field of integers of at least `least`."""
    limits = {"type": "integer", "minimum": least, "maximum": LARGEST}
    return FieldKind(int, partial(whole, least=least), limits)


def listed(kind: FieldKind) -> FieldKind:
    """A field of tuples whose items are of one kind, written as arrays."""

    def read(value: Any, place: str) -> tuple[Any, ...]:
        return tuple(kind.read(item, f"{place}[{n}]") for n, item in enumerate(items(value, place)))

    array = {"type": "array", "items": kind.schema}
    return FieldKind(lambda value: [kind.write(item) for item in value], read, array)


TEXT: Final = FieldKind(str, text_of, {"type": "string"})
HASH: Final = FieldKind(bytes.hex, hex_of, {"type": "string", "pattern": "^[0-9a-f]{64}$"})
BASE64: Final = FieldKind(b64, unb64, {"type": "string", "contentEncoding": "base64"})


def object_schema(members: Mapping[str, Any]) -> dict[str, Any]:
    """JSON schema of an object with exactly these members."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": dict(members),
        "required": sorted(members),
    }


class Shape:
    """The declared fields of an object, from which it is both written and read."""

    def __init__(self, schema: str = "", /, **kinds: FieldKind) -> None:
        """Declare the fields by name, and the value of the object's `schema` key if it has one."""
        self._schema, self._kinds = schema, kinds
        self._names = frozenset(kinds) | ({"schema"} if schema else frozenset())

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the object."""
        members: dict[str, Any] = {name: kind.schema for name, kind in self._kinds.items()}
        return object_schema(
            members | ({"schema": {"const": self._schema}} if self._schema else {})
        )

    def write(self, value: Any) -> dict[str, Any]:
        """The JSON object for a value that has the declared fields as attributes."""
        members = {name: kind.write(getattr(value, name)) for name, kind in self._kinds.items()}
        return {"schema": self._schema, **members} if self._schema else members

    def read(self, value: Any, place: str) -> dict[str, Any]:
        """The values of the declared fields; an object with other fields is refused."""
        members = fields(value, self._names, place)
        if self._schema and members["schema"] != self._schema:
            reason = f"is {seen(members['schema'])}, wanted {self._schema!r}"
            raise ReceiptBroken(f"{place}.schema", reason)
        return {
            name: kind.read(members[name], f"{place}.{name}") for name, kind in self._kinds.items()
        }


def _encode_slowly(value: Any) -> bytes:
    try:
        return _written(value).encode()
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not a JSON value: {error}") from None
    except UnicodeEncodeError:
        raise ValueError("a text of it cannot be written as UTF-8") from None


def _read(text: str, **hooks: Any) -> Any:
    return json.loads(text, parse_float=_no_float, parse_constant=_no_constant, **hooks)


def _is_plain(data: bytes) -> bool:
    """Whether orjson's output surely has no float and no key that `_check_keys` refuses.

    Without its digits and signs a float is a point or an `e` after `":`, `,` or `[`, or at the
    start. Parsing instead takes a tenth of a call over an empty store.
    """
    bare = data.translate(_MARKED, b"0123456789+-")
    return (
        (data.isascii() or not data.translate(None, _FIRST_PLANE))
        and not bare.startswith(b".")
        and b'":.' not in bare
        and b",." not in bare
    )


def _check_keys(data: bytes, value: Any) -> None:
    """Refuse non-ASCII keys in data beyond the first plane: RFC 8785 sorts them by UTF-16 units."""
    if data.isascii() or not data.translate(None, _FIRST_PLANE):
        return
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if not all(key.isascii() for key in item):
                raise ValueError("a key that is not ASCII")
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)


def _no_float(text: str) -> NoReturn:
    raise ValueError(f"number {text[:24]} is not an integer")


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _small(text: str) -> int:
    value = int(text) if len(text) <= _LONGEST_NUMBER else LARGEST + 1
    if not -LARGEST <= value <= LARGEST:
        raise ValueError("a number of 2^53 or more")
    return value
