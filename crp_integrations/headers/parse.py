"""Headers read: what a request asks for, and what a response said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from crp_integrations.errors import HeaderSyntaxError
from crp_integrations.headers import fields, names, values
from crp_integrations.headers.fields import Field
from crp_integrations.headers.names import Direction
from crp_integrations.headers.records import RequestHeaders, ResponseHeaders

# Pairs keep a name that was sent twice in one spelling; a mapping cannot.
Given: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]

_SHOWN_CHARACTERS: Final = 60


def parse(headers: Given) -> RequestHeaders:
    """What a request's CRP headers ask for; other headers are not looked at.

    Spec: related facts §3

    Args:
        headers: as received, a mapping or pairs of name and value; names in any case.

    Raises:
        HeaderSyntaxError: a CRP header is unknown, belongs into responses, stands twice or has a
            malformed value. None is ever ignored.
    """
    return RequestHeaders(**_values(headers, _REQUEST, Direction.RESPONSE, unknown=True))


def read(headers: Given) -> ResponseHeaders:
    """What a response's CRP headers say; those of later versions are passed over.

    Spec: related facts §3

    Raises:
        HeaderSyntaxError: a value is malformed, a name stands twice or belongs into requests.
    """
    return ResponseHeaders(**_values(headers, _RESPONSE, Direction.REQUEST, unknown=False))


def _values(
    headers: Given,
    table: Mapping[str, tuple[str, Field]],
    forbidden: Direction,
    *,
    unknown: bool,
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in _of_crp(headers, forbidden, unknown=unknown):
        field, form = table[name]
        found[field] = form.read(values.check(name, value))
    return found


def _of_crp(headers: Given, forbidden: Direction, *, unknown: bool) -> Iterator[tuple[str, str]]:
    """The CRP headers by the names of `names.py`; `unknown` says whether others are refused."""
    seen: set[str] = set()
    for given, value in headers.items() if isinstance(headers, Mapping) else headers:
        if not isinstance(given, str):
            raise HeaderSyntaxError(f"a header's name is of type {type(given).__name__}, not text")
        stripped = given.strip()
        lower = stripped.lower()
        if not lower.startswith(names.PREFIX):
            continue
        if stripped != given:
            # A proxy may have read "Name :" as another header than we would.
            raise HeaderSyntaxError(f"the name {given[:_SHOWN_CHARACTERS]!r} has blanks around it")
        name = names.BY_LOWER.get(lower)
        if name is None:
            if unknown:
                shown = given[:_SHOWN_CHARACTERS]
                raise HeaderSyntaxError(
                    f"{shown!r} is not a header of CRP {names.PROTOCOL_VERSION}"
                )
            continue
        if names.DIRECTIONS[name] is forbidden:
            raise HeaderSyntaxError(f"{name} is a {forbidden} header and does not belong here")
        if name in seen:
            raise HeaderSyntaxError(f"{name} stands twice; write it once")
        seen.add(name)
        yield name, value


def _by_name(table: Mapping[str, Field]) -> MappingProxyType[str, tuple[str, Field]]:
    return MappingProxyType({form.name: (field, form) for field, form in table.items()})


_REQUEST: Final = _by_name(fields.REQUEST)
_RESPONSE: Final = _by_name(fields.RESPONSE)
