"""Canonical JSON (RFC 8785) of what receipts are made of, written and read in one way only.

Receipts hold no floats and no number of 2^53 or more, and their keys are ASCII. For such values
orjson with sorted keys writes what RFC 8785 asks for, in a thirtieth of the time of a general
encoder; a test compares the two. The standard library then reads what was written, and refuses a
float.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, Final, NamedTuple, NoReturn

import orjson

from crp_integrations.errors import ReceiptBroken

# The largest whole number that every JSON reader keeps (RFC 8785 §3.2.2.3).
LARGEST = 2**53 - 1
_LONGEST_NUMBER = len(str(-LARGEST))
_ONE_WAY: Final = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
# Bytes of which no character beyond the first plane begins with one.
_FIRST_PLANE: Final = bytes(range(0xF0))
_written = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode


def dumps(value: Any, *, texts_alone: bool = False) -> bytes:
    r"""Canonical JSON of a value of objects, lists, strings, whole numbers, booleans and null.

    >>> dumps({"b": [1, True, None], "a": "\n"})
    b'{"a":"\\n","b":[1,true,null]}'
    """
    hooks: dict[str, Any] = {}
    try:
        data = orjson.dumps(value, option=_ONE_WAY)
    except TypeError:
        # Nested more deeply than orjson writes, a large number, or no JSON.
        data, hooks = _carefully(value), {"parse_int": _small}
    if hooks or not texts_alone:
        _check_keys(data, _read(data.decode(), **hooks))
    return data


def as_written(data: str | bytes) -> Any:
    """Canonical JSON of a value, in the place of that value in a greater one (`dumps`).

    >>> dumps({"a": as_written(dumps([1]))})
    b'{"a":[1]}'
    """
    return orjson.Fragment(data)


def loads(data: bytes, place: str, *, texts_alone: bool = False) -> Any:
    """Read canonical JSON; the same value written in any other way is refused."""
    try:
        value = orjson.loads(data)
        if orjson.dumps(value, option=_ONE_WAY) == data:
            if not texts_alone:
                _check_keys(data, _read(data.decode()))
            return value
    except (ValueError, TypeError):
        # The slower reading below finds the place of the fault.
        pass
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ReceiptBroken(f"{place}, byte {error.start}", "no UTF-8") from None
    try:
        value = _read(text, parse_int=_small)
        _check_keys(data, value)
        again = _written(value).encode()
    except UnicodeEncodeError as error:
        at = len(error.object[: error.start].encode())
        raise ReceiptBroken(f"{place}, byte {at}", "half of a surrogate pair") from None
    except json.JSONDecodeError as error:
        at = len(text[: error.pos].encode())
        raise ReceiptBroken(f"{place}, byte {at}", f"no JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise ReceiptBroken(place, f"no JSON of a receipt: {error}") from None
    if again != data:
        at = next(
            (n for n, (old, new) in enumerate(zip(data, again, strict=False)) if old != new),
            min(len(data), len(again)),
        )
        raise ReceiptBroken(f"{place}, byte {at}", "not the canonical encoding (RFC 8785)")
    return value


def kind_of(data: bytes) -> str:
    """The `schema` that a file of any JSON object names, "" where it names none.

    Used in the error about a file of another kind than was wanted; it need not be canonical.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    named = value.get("schema") if isinstance(value, dict) else None
    return named if isinstance(named, str) else ""


def b64(data: bytes) -> str:
    """Base64 with padding, the one form in which bytes stand in a receipt."""
    return binascii.b2a_base64(data, newline=False).decode()


def unb64(text: Any, place: str, length: int | None = None) -> bytes:
    """Bytes out of base64 that is written as `b64` writes it."""
    if not isinstance(text, str):
        raise ReceiptBroken(place, "no text")
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise ReceiptBroken(place, "no base64") from None
    # Bits behind the last byte are the one thing left that could be written in another way.
    if b64(data[len(data) // 3 * 3 :]) != text[len(data) // 3 * 4 :]:
        raise ReceiptBroken(place, "not the canonical base64")
    if length is not None and len(data) != length:
        raise ReceiptBroken(place, f"has {len(data)} bytes, wanted {length}")
    return data


def fields(value: Any, names: frozenset[str], place: str) -> Mapping[str, Any]:
    """An object with exactly these keys."""
    if not isinstance(value, dict):
        raise ReceiptBroken(place, "no object")
    if value.keys() != names:
        odd = sorted(value.keys() ^ names)[0]
        raise ReceiptBroken(place, f"key {odd!r:.40} is missing or unknown")
    return value


def text_of(value: Any, place: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise ReceiptBroken(place, "no text")
    return value


def hex_of(value: Any, place: str) -> bytes:
    """32 bytes as 64 hexadecimal digits in lower case."""
    if isinstance(value, str) and len(value) == 64:
        try:
            data = bytes.fromhex(value)
        except ValueError:
            data = b""
        if data.hex() == value:
            return data
    raise ReceiptBroken(place, "not 64 hexadecimal digits in lower case")


def whole(value: Any, place: str, *, least: int = 0) -> int:
    """A whole number."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ReceiptBroken(place, f"no whole number of at least {least}")
    return value


class FieldKind(NamedTuple):
    """How the values of a field are written as JSON, and read from it with the place of a fault."""

    write: Callable[[Any], Any]
    read: Callable[[Any, str], Any]


def whole_number(least: int = 0) -> FieldKind:
    """Whole numbers of at least so much."""
    return FieldKind(int, partial(whole, least=least))


def listed(kind: FieldKind) -> FieldKind:
    """Tuples of one kind, as arrays."""

    def read(value: Any, place: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ReceiptBroken(place, "no list")
        return tuple(kind.read(item, f"{place}[{n}]") for n, item in enumerate(value))

    return FieldKind(lambda value: [kind.write(item) for item in value], read)


TEXT: Final = FieldKind(str, text_of)
HASH: Final = FieldKind(bytes.hex, hex_of)


class Shape:
    """The declared fields of an object, from which it is both written and read."""

    def __init__(self, schema: str = "", /, **kinds: FieldKind) -> None:
        """Declare the fields by their names, and the schema where the object names one."""
        self._schema, self._kinds = schema, kinds
        self._names = frozenset(kinds) | ({"schema"} if schema else frozenset())

    def write(self, value: Any) -> dict[str, Any]:
        """The object of a value that has the declared fields as attributes."""
        members = {name: kind.write(getattr(value, name)) for name, kind in self._kinds.items()}
        return {"schema": self._schema, **members} if self._schema else members

    def read(self, value: Any, place: str) -> dict[str, Any]:
        """The values of the declared fields; an object with other fields is refused."""
        members = fields(value, self._names, place)
        if self._schema and members["schema"] != self._schema:
            raise ReceiptBroken(f"{place}.schema", f"is not {self._schema!r}")
        return {
            name: kind.read(members[name], f"{place}.{name}") for name, kind in self._kinds.items()
        }


def _carefully(value: Any) -> bytes:
    try:
        return _written(value).encode()
    except (TypeError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from None
    except UnicodeEncodeError:
        raise ValueError("a text of it cannot be written as UTF-8") from None


def _read(text: str, **hooks: Any) -> Any:
    return json.loads(text, parse_float=_no_float, parse_constant=_no_constant, **hooks)


def _check_keys(data: bytes, value: Any) -> None:
    """RFC 8785 sorts keys by UTF-16, which differs from code points beyond the first plane."""
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
    raise ValueError(f"number {text[:24]} is no whole number")


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _small(text: str) -> int:
    value = int(text) if len(text) <= _LONGEST_NUMBER else LARGEST + 1
    if not -LARGEST <= value <= LARGEST:
        raise ValueError("a number of 2^53 or more")
    return value


class Written(Mapping[str, Any]):
    """An object by its canonical JSON.

    Attributes:
        data: UTF-8.
    """

    def __init__(self, data: bytes) -> None:
        """Take canonical JSON of an object as it is."""
        self.data = data

    @cached_property
    def members(self) -> dict[str, Any]:
        """The object, read on first use."""
        content: dict[str, Any] = orjson.loads(self.data)
        return content

    def __getitem__(self, name: str) -> Any:
        return self.members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)


def part(value: Any) -> Any:
    """Canonical JSON of a part, in its place in what `together` puts together."""
    return as_written(dumps(value))


def together(parts: Mapping[str, Any], rest: Mapping[str, Any]) -> Written:
    """The object of parts that are written as JSON already, and of the rest."""
    dumps(rest)
    # The parts were checked when they were written, and the rest just now.
    return Written(dumps({**rest, **parts}, texts_alone=True))
