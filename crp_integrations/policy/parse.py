"""Reads the text of a policy, and says in which column it goes wrong.

Spec: related facts §6
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

from crp_integrations.errors import PolicySyntaxError, RequestError
from crp_integrations.policy.directives import (
    DIRECTIVES,
    MOST_ADDRESSES,
    Word,
    field_of,
    refused,
)
from crp_integrations.policy.records import Policy
from crp_integrations.policy.words import PROFILE_TEXTS

# The canonical form of every policy is shorter.
MOST_CHARACTERS: Final = 4_096
_WORD: Final = re.compile(r"[^ \t]+")
_PROFILE: Final = "profile"
_SHOWN: Final = 40


def parse(text: str) -> Policy:
    """Read a policy: directives apart by semicolons, blanks around them as you like.

    Words are read without regard to case. Of two directives of one name the most restrictive
    value holds; a profile counts as if its directives were written in its place.

    Spec: related facts §6

    Raises:
        PolicySyntaxError: the text does not follow the grammar; `column` is the 1-based place, at
            most one after the last character.
        RequestError: it is no text.

    >>> parse("halt-on HIGH; block-pii").halt_on.value
    'HIGH'
    >>> parse("halt-on HIGH; blok-pii")
    Traceback (most recent call last):
    crp_integrations.errors.PolicySyntaxError: unknown directive 'blok-pii' in column 15
    """
    if not isinstance(text, str):
        raise RequestError(
            f"a policy is read from a text, such as 'halt-on HIGH'; got {type(text).__name__}"
        )
    if len(text) > MOST_CHARACTERS:
        raise PolicySyntaxError(
            f"the policy has {len(text)} characters, at most {MOST_CHARACTERS} are allowed",
            column=MOST_CHARACTERS + 1,
        )
    for place, character in enumerate(text, 1):
        if unicodedata.category(character) == "Cc" and character != "\t":
            raise PolicySyntaxError(
                f"the policy holds control character U+{ord(character):04X} in column {place}",
                column=place,
            )
    return Policy(**_values(text))


def _values(text: str) -> dict[str, Any]:
    """The fields that a text sets."""
    found: dict[str, Any] = {}
    for words, end in _directives(text):
        first = words[0]
        if first.folded.partition("=")[0] == _PROFILE:
            given = _profile(words, end)
        elif first.folded in DIRECTIVES:
            kind = DIRECTIVES[first.folded]
            given = {first.folded: kind.read(first.folded, words[1:], end)}
        else:
            raise PolicySyntaxError(
                f"unknown directive {first.text[:_SHOWN]!r} in column {first.column}",
                column=first.column,
            )
        for name, value in given.items():
            field = field_of(name)
            if field in found:
                value = DIRECTIVES[name].stricter(found[field], value)
            if name.startswith("report-") and len(value) > MOST_ADDRESSES:
                raise PolicySyntaxError(
                    f"{name} in column {first.column} makes {len(value)} receivers of reports, "
                    f"at most {MOST_ADDRESSES} are allowed",
                    column=first.column,
                )
            found[field] = value
    return found


def _directives(text: str) -> Iterator[tuple[list[Word], int]]:
    """The words of each directive, and the column right after its last word."""
    start = 0
    for segment in text.split(";"):
        words = [Word(m[0], start + m.start() + 1) for m in _WORD.finditer(segment)]
        if not words:
            column = start + len(segment) + 1
            raise PolicySyntaxError(f"no directive in column {column}, wanted one", column=column)
        yield words, words[-1].column + len(words[-1].text)
        start += len(segment) + 1


def _profile(words: list[Word], end: int) -> dict[str, Any]:
    """The directives that a profile stands for."""
    first = words[0]
    name, equals, value = first.folded.partition("=")
    wanted = "one of " + ", ".join(f"{_PROFILE}={one}" for one in PROFILE_TEXTS)
    if not equals:
        raise refused(first, name, wanted)
    if len(words) > 1:
        raise refused(words[1], name, "one value alone")
    for known, text in PROFILE_TEXTS.items():
        if value == known.value:
            return {
                each[0].folded: DIRECTIVES[each[0].folded].read(each[0].folded, each[1:], stop)
                for each, stop in _directives(text)
            }
    column = first.column + len(_PROFILE) + 1
    raise refused(Word(first.text.partition("=")[2], column), name, wanted)
