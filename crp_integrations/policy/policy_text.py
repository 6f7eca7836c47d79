"""Parsing a policy's text, rendering its canonical form, and nonces bound to a policy.

Spec: related facts §3, §6
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

from crp_integrations.errors import PolicySyntaxError, RequestError
from crp_integrations.policy.directives import (
    DIRECTIVES,
    MOST_ADDRESSES,
    PROFILE_TEXTS,
    PolicyWord,
    field_of,
    word_error,
    write_directive,
)
from crp_integrations.policy.records import Policy, require_policy
from crp_integrations.seals import policy_nonce, same, sha256

# Maximum length of a policy's text; the canonical form of every policy is shorter.
MOST_CHARACTERS: Final = 4_096
_WORD: Final = re.compile(r"[^ \t]+")
_PROFILE: Final = "profile"
_SHOWN: Final = 40


def parse_policy(text: str) -> Policy:
    """Parse a policy: directives separated by semicolons, with any blanks around them.

    Case is ignored. Of two directives with one name the stricter value applies; a profile is
    replaced by its directives.

    Spec: related facts §6

    Raises:
        PolicySyntaxError: the text does not follow the grammar; `column` is the 1-based place, at
            most one after the last character.
        RequestError: the argument is not a string.

    >>> parse_policy("halt-on HIGH; block-pii").halt_on.value
    'HIGH'
    >>> parse_policy("halt-on HIGH; blok-pii")
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
                f"the policy contains control character U+{ord(character):04X} in column {place}",
                column=place,
            )
    return Policy(**_values(text))


def _values(text: str) -> dict[str, Any]:
    """The fields of a `Policy` that a text sets."""
    fields: dict[str, Any] = {}
    for words, end in _directives(text):
        first = words[0]
        if first.folded.partition("=")[0] == _PROFILE:
            values = _profile_values(words, end)
        elif first.folded in DIRECTIVES:
            kind = DIRECTIVES[first.folded]
            values = {first.folded: kind.read(first.folded, words[1:], end)}
        else:
            raise PolicySyntaxError(
                f"unknown directive {first.text[:_SHOWN]!r} in column {first.column}",
                column=first.column,
            )
        for name, value in values.items():
            field = field_of(name)
            if field in fields:
                value = DIRECTIVES[name].stricter(fields[field], value)
            if name.startswith("report-") and len(value) > MOST_ADDRESSES:
                raise PolicySyntaxError(
                    f"{name} in column {first.column} makes {len(value)} receivers of reports, "
                    f"at most {MOST_ADDRESSES} are allowed",
                    column=first.column,
                )
            fields[field] = value
    return fields


def _directives(text: str) -> Iterator[tuple[list[PolicyWord], int]]:
    """The words of each directive, and the column right after its last word."""
    start = 0
    for segment in text.split(";"):
        words = [PolicyWord(m[0], start + m.start() + 1) for m in _WORD.finditer(segment)]
        if not words:
            column = start + len(segment) + 1
            raise PolicySyntaxError(f"no directive in column {column}, wanted one", column=column)
        yield words, words[-1].column + len(words[-1].text)
        start += len(segment) + 1


def _profile_values(words: list[PolicyWord], end: int) -> dict[str, Any]:
    """The values of a profile's directives."""
    first = words[0]
    name, equals, value = first.folded.partition("=")
    wanted = "one of " + ", ".join(f"{_PROFILE}={profile}" for profile in PROFILE_TEXTS)
    if not equals:
        raise word_error(first, name, wanted)
    if len(words) > 1:
        raise word_error(words[1], name, "one value only")
    for known, text in PROFILE_TEXTS.items():
        if value == known.value:
            return {
                each[0].folded: DIRECTIVES[each[0].folded].read(each[0].folded, each[1:], stop)
                for each, stop in _directives(text)
            }
    column = first.column + len(_PROFILE) + 1
    raise word_error(PolicyWord(first.text.partition("=")[2], column), name, wanted)


def render_policy(policy: Policy) -> str:
    """The canonical text of a policy: each of its directives once, in the order of the table.

    `default-src` is always written, since a policy without it has the default value.

    Spec: related facts §6

    Raises:
        RequestError: the argument is not a Policy, but for example a policy's text.

    >>> from crp_integrations.policy.policy_text import parse_policy
    >>> render_policy(parse_policy("block-pii;HALT-ON high ; halt-on critical"))
    'default-src context parametric; halt-on HIGH; block-pii'
    """
    require_policy(policy)
    return "; ".join(
        write_directive(name, value)
        for name in DIRECTIVES
        if name == "default-src" or has_directive(policy, name)
        for value in (getattr(policy, field_of(name)),)
    )


def has_directive(policy: Policy, name: str) -> bool:
    """Whether a policy has a directive; every policy has `default-src`.

    >>> has_directive(Policy(require_flow=0.0), "require-flow")
    True
    """
    value = getattr(policy, field_of(name))
    # Compared by identity, since a threshold of 0.0 equals False.
    return name == "default-src" or not (value is None or value is False or value == ())


def policy_hash(policy: Policy) -> str:
    """`sha256:` hash of the canonical text."""
    return sha256(render_policy(policy))


PREFIX: Final = "base64:"
RANDOM_BYTES: Final = 16
_SEAL_BYTES: Final = 32


def make_nonce(policy: Policy, *, random: bytes, key: bytes) -> str:
    """Create a nonce that is bound to a policy.

    Spec: related facts §3
    """
    if len(random) != RANDOM_BYTES or not key:
        raise ValueError(
            f"{len(random)} random bytes and a key of {len(key)}; wanted {RANDOM_BYTES} and a key"
        )
    sealed = policy_nonce(key, random=random, policy_hash=policy_hash(policy))
    return PREFIX + base64.b64encode(random + bytes.fromhex(sealed)).decode()


def check_nonce(nonce: str, policy: Policy, *, key: bytes) -> None:
    """Raise `RequestError` unless a nonce was issued for exactly this policy.

    Spec: related facts §3
    """
    try:
        decoded = base64.b64decode(nonce.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    # The whole text is compared, so only one spelling of a nonce is valid.
    wanted = len(decoded) == RANDOM_BYTES + _SEAL_BYTES
    if not wanted or not same(nonce, make_nonce(policy, random=decoded[:RANDOM_BYTES], key=key)):
        raise RequestError(
            "the safety nonce does not belong to this policy; send the one that came with it"
        )
