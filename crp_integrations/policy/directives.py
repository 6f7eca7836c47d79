"""The directives as one table: how each is read and written, and which of two values is stricter.

Every directive has one order from lax to strict, in which being absent is laxest; so of two
duplicates one value is the most restrictive, and a child policy can be held against its parent
directive by directive.

Spec: related facts §6, §8
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from crp_integrations.errors import PolicySyntaxError
from crp_integrations.policy.words import PolicySource
from crp_integrations.vocabulary import (
    Oversight,
    QualityTier,
    RepetitionLevel,
    RiskLevel,
    Strategy,
)

FRACTION_DIGITS: Final = 4
# Two digits are printed, as the profiles have them.
LEAST_DIGITS: Final = 2
MOST_ADDRESSES: Final = 4
ADDRESS_CHARACTERS: Final = 512
NAME_CHARACTERS: Final = 64
NONE: Final = "'none'"
_SHOWN: Final = 40

_FRACTION: Final = re.compile(rf"0\.[0-9]{{1,{FRACTION_DIGITS}}}|1\.0{{1,{FRACTION_DIGITS}}}")
# No credentials and no fragment: neither belongs into a policy that others read.
ADDRESS: Final = re.compile(
    r"https?://(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])"
    r"(?::(?:[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
    r"(?:[/?](?:[A-Za-z0-9._~:/?@!$&'()*+,=\[\]-]|%[0-9A-Fa-f]{2})*)?",
    re.IGNORECASE | re.ASCII,
)
NAME: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)

# From lax to strict; what a directive may say is in its list.
LEVELS: Final = (RiskLevel.CRITICAL, RiskLevel.HIGH, RiskLevel.MEDIUM)
OVERSIGHTS: Final = (Oversight.LOG_ONLY, Oversight.AUTO, Oversight.HUMAN_REVIEW, Oversight.HALT)
REPETITIONS: Final = (RepetitionLevel.SIGNIFICANT, RepetitionLevel.MINOR, RepetitionLevel.NONE)
UPGRADES: Final = (Strategy.BATCH, Strategy.HIERARCHICAL, Strategy.REFLEXIVE)
TIERS: Final = (QualityTier.S, QualityTier.A, QualityTier.B)


class Word(NamedTuple):
    """A word of a policy's text with its 1-based column."""

    text: str
    column: int

    @property
    def folded(self) -> str:
        """In lower case; letters outside ASCII stay, since none of them equals one of ours."""
        return self.text.lower() if self.text.isascii() else self.text


class Kind(Protocol):
    """What a directive's values are; None, False and the empty tuple are its absence."""

    def read(self, name: str, words: Sequence[Word], end: int) -> Any:
        """The value of the words after a directive's name.

        Args:
            end: column right after the directive, where a missing word was expected.

        Raises:
            PolicySyntaxError: they are no value.
        """
        ...

    def write(self, value: Any) -> str:
        """A value as it stands after the directive's name; empty for a flag."""
        ...

    def stricter(self, left: Any, right: Any) -> Any:
        """The most restrictive of two values that are there."""
        ...


def refused(word: Word, name: str, wanted: str) -> PolicySyntaxError:
    """The error for a word that a directive does not take."""
    # What an address holds may be a secret.
    seen = "a value" if name.startswith("report-") else repr(word.text[:_SHOWN])
    return PolicySyntaxError(
        f"{name} has {seen} in column {word.column}, wanted {wanted}",
        column=word.column,
    )


def _one(name: str, words: Sequence[Word], end: int, wanted: str) -> Word:
    if not words:
        raise PolicySyntaxError(f"{name} has no value in column {end}, wanted {wanted}", column=end)
    if len(words) > 1:
        raise refused(words[1], name, "one value alone")
    return words[0]


@dataclass(frozen=True, slots=True)
class _Flag:
    def read(self, name: str, words: Sequence[Word], end: int) -> bool:
        if words:
            raise refused(words[0], name, "no value")
        return True

    def write(self, value: Any) -> str:
        return ""

    def stricter(self, left: Any, right: Any) -> bool:
        return bool(left or right)


@dataclass(frozen=True, slots=True)
class _Choice:
    """One word of a list that is ordered from lax to strict."""

    order: Sequence[Any]

    def read(self, name: str, words: Sequence[Word], end: int) -> Any:
        wanted = "one of " + ", ".join(self.order)
        word = _one(name, words, end, wanted)
        for known in self.order:
            if word.folded == known.lower():
                return known
        raise refused(word, name, wanted)

    def write(self, value: Any) -> str:
        return str(value)

    def stricter(self, left: Any, right: Any) -> Any:
        return max(left, right, key=self.order.index)


@dataclass(frozen=True, slots=True)
class _Fraction:
    """A number of [0, 1] with a decimal point; the larger is stricter."""

    def read(self, name: str, words: Sequence[Word], end: int) -> float:
        wanted = f"a number from 0.00 to 1.00 with at most {FRACTION_DIGITS} decimals"
        word = _one(name, words, end, wanted)
        if not _FRACTION.fullmatch(word.text):
            raise refused(word, name, wanted)
        return float(word.text)

    def write(self, value: Any) -> str:
        return fraction(value)

    def stricter(self, left: Any, right: Any) -> float:
        return float(max(left, right))


@dataclass(frozen=True, slots=True)
class _Sources:
    """Places that an answer may rest on, or `'none'`; fewer are stricter."""

    def read(self, name: str, words: Sequence[Word], end: int) -> tuple[PolicySource, ...]:
        wanted = ", ".join(PolicySource) + f" or {NONE} alone"
        if not words:
            raise PolicySyntaxError(
                f"{name} has no value in column {end}, wanted {wanted}", column=end
            )
        if len(words) == 1 and words[0].folded == NONE:
            return ()
        known = {source.value: source for source in PolicySource}
        for word in words:
            if word.folded not in known:
                raise refused(word, name, wanted)
        return sources(known[word.folded] for word in words)

    def write(self, value: Any) -> str:
        return " ".join(value) or NONE

    def stricter(self, left: Any, right: Any) -> tuple[PolicySource, ...]:
        return sources(set(left) & set(right))


@dataclass(frozen=True, slots=True)
class _Tiers:
    """Tiers that are accepted: all that are at least as good as the worst one listed (E14)."""

    def read(self, name: str, words: Sequence[Word], end: int) -> tuple[QualityTier, ...]:
        wanted = "tiers of " + ", ".join(TIERS)
        if not words:
            raise PolicySyntaxError(
                f"{name} has no value in column {end}, wanted {wanted}", column=end
            )
        known = {tier.value.lower(): tier for tier in TIERS}
        for word in words:
            if word.folded not in known:
                raise refused(word, name, wanted)
        return tiers(known[word.folded] for word in words)

    def write(self, value: Any) -> str:
        return " ".join(value)

    def stricter(self, left: Any, right: Any) -> tuple[QualityTier, ...]:
        return tiers(set(left) & set(right))


@dataclass(frozen=True, slots=True)
class Several:
    """Addresses or names that reports go to; more are stricter.

    Attributes:
        folds: whether case does not matter.
    """

    pattern: re.Pattern[str]
    longest: int
    wanted: str
    folds: bool = False

    def read(self, name: str, words: Sequence[Word], end: int) -> tuple[str, ...]:
        """The texts of the words, each of which must be one of these."""
        if not words:
            raise PolicySyntaxError(
                f"{name} has no value in column {end}, wanted {self.wanted}", column=end
            )
        for word in words:
            if not self.takes(word.text):
                raise refused(word, name, self.wanted)
        return self.kept(word.text for word in words)

    def kept(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Texts without repetition in order, in lower case where case does not matter."""
        return tuple(sorted({text.lower() if self.folds else text for text in texts}))

    def takes(self, text: str) -> bool:
        """Whether a text is one of these."""
        return len(text) <= self.longest and bool(self.pattern.fullmatch(text))

    def write(self, value: Any) -> str:
        """The texts apart by blanks."""
        return " ".join(value)

    def stricter(self, left: Any, right: Any) -> tuple[str, ...]:
        """All of both."""
        return tuple(sorted({*left, *right}))


REPORT_URIS: Final = Several(
    ADDRESS, ADDRESS_CHARACTERS, "addresses that begin with https:// or http://"
)
REPORT_NAMES: Final = Several(
    NAME, NAME_CHARACTERS, "names of letters, digits, hyphens, underscores and dots", folds=True
)

# In the order in which a policy is printed.
DIRECTIVES: Final = MappingProxyType[str, Kind](
    {
        "default-src": _Sources(),
        "halt-on": _Choice(LEVELS),
        "warn-on": _Choice(LEVELS),
        "require-grounding": _Fraction(),
        "require-entailment": _Fraction(),
        "require-flow": _Fraction(),
        "require-completeness": _Fraction(),
        "require-quality": _Tiers(),
        "require-oversight": _Choice(OVERSIGHTS),
        "oversight": _Choice(OVERSIGHTS),
        "block-ungrounded": _Flag(),
        "block-parametric": _Flag(),
        "block-pii": _Flag(),
        "block-fabrication": _Flag(),
        "block-repetition": _Flag(),
        "max-repetition": _Choice(REPETITIONS),
        "upgrade-on-risk": _Choice(UPGRADES),
        "report-uri": REPORT_URIS,
        "report-to": REPORT_NAMES,
    }
)


def field_of(name: str) -> str:
    """The field of a policy that holds a directive's value."""
    return name.replace("-", "_")


def written(name: str, value: Any) -> str:
    """A directive with a value that is there, in the canonical form."""
    return f"{name} {DIRECTIVES[name].write(value)}".rstrip(" ")


def sources(found: Iterable[PolicySource]) -> tuple[PolicySource, ...]:
    """Sources without repetition, in the order of their list."""
    given = set(found)
    return tuple(source for source in PolicySource if source in given)


def tiers(found: Iterable[QualityTier]) -> tuple[QualityTier, ...]:
    """The tiers that are at least as good as the worst one given; none for none."""
    given = set(found)
    worst = max((tier.place for tier in given), default=-1)
    return tuple(tier for tier in TIERS if tier.place <= worst)


def fraction(value: float) -> str:
    """A threshold with two to four decimals.

    >>> fraction(0.9), fraction(0.8575), fraction(1.0)
    ('0.90', '0.8575', '1.00')
    """
    whole, _, digits = f"{value:.{FRACTION_DIGITS}f}".partition(".")
    return f"{whole}.{digits.rstrip('0').ljust(LEAST_DIGITS, '0')}"
