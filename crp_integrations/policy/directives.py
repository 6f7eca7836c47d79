"""The policy language as one table: its words, how each directive is read, written and compared.

Every directive has one order from lax to strict, so of two duplicates one value is the most
restrictive, and a child policy can be held against its parent directive by directive. Being absent
is laxest; for the directives of `RELAXING`, which permit something, it is strictest.

Spec: related facts §3, §6, §8
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from crp_integrations.errors import PolicySyntaxError
from crp_integrations.vocabulary import (
    Oversight,
    QualityTier,
    RepetitionLevel,
    RiskLevel,
    SafetyMode,
    Strategy,
)


class PolicySource(StrEnum):
    """What an answer may rest on.

    Spec: related facts §6

    Attributes:
        CONTEXT: what was put before the model for this question: the facts of its envelope, what
            the caller handed in, and earlier windows of the same session.
        PARAMETRIC: what the model knows by itself.
        CKF: what was read out of the fabric while answering, by a tool or an agent, and stood in
            no envelope.
        CROSS_SESSION: what another session has said, apart from those that this one delegated to.
    """

    CONTEXT = "context"
    PARAMETRIC = "parametric"
    CKF = "ckf"
    CROSS_SESSION = "cross-session"


class PolicyProfile(StrEnum):
    """Names of ready policies.

    Spec: related facts §6
    """

    MEDICAL = "medical"
    FINANCIAL = "financial"
    DEVELOPER = "developer"
    PUBLIC_FACING = "public-facing"


class Demand(StrEnum):
    """What of a policy is unmet, as far as asking the model again could mend it."""

    RISK = "risk"
    GROUNDING = "grounding"
    ENTAILMENT = "entailment"
    FABRICATION = "fabrication"
    DISTORTION = "distortion"
    REPETITION = "repetition"
    FLOW = "flow"
    COMPLETENESS = "completeness"
    QUALITY = "quality"


class ViolationType(StrEnum):
    """Kinds of violations, as a violation report names them."""

    SOURCE = "source"
    RISK = "risk"
    GROUNDING = "grounding"
    ENTAILMENT = "entailment"
    UNGROUNDED = "ungrounded"
    PARAMETRIC = "parametric"
    PERSONAL_DATA = "personal-data"
    FABRICATION = "fabrication"
    DISTORTION = "distortion"
    REPETITION = "repetition"
    FLOW = "flow"
    COMPLETENESS = "completeness"
    QUALITY = "quality"
    INHERITANCE = "inheritance"


PROFILE_TEXTS: Final = MappingProxyType(
    {
        PolicyProfile.MEDICAL: (
            "default-src context; halt-on HIGH; require-grounding 0.90; require-entailment 0.85; "
            "block-ungrounded; block-pii; block-fabrication; oversight human-review; "
            "require-flow 0.70; require-completeness 0.90"
        ),
        PolicyProfile.FINANCIAL: (
            "default-src context parametric; halt-on CRITICAL; warn-on HIGH; "
            "require-grounding 0.80; block-fabrication; upgrade-on-risk reflexive; "
            "require-completeness 0.80"
        ),
        PolicyProfile.DEVELOPER: (
            "default-src context parametric; warn-on CRITICAL; require-quality S A B; "
            "oversight auto"
        ),
        PolicyProfile.PUBLIC_FACING: (
            "default-src context parametric; halt-on CRITICAL; warn-on HIGH; block-pii; "
            "require-flow 0.60; max-repetition MINOR; require-completeness 0.70"
        ),
    }
)

# The text of `strict` is the document's; the other two are ours, and withhold nothing.
MODE_TEXTS: Final = MappingProxyType(
    {
        SafetyMode.STRICT: "halt-on CRITICAL; warn-on HIGH; block-ungrounded",
        SafetyMode.WARN: "warn-on HIGH",
        SafetyMode.PERMISSIVE: "default-src context parametric",
    }
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
# The one word of `unchecked`: an answer that nobody read may be shown.
ALLOW: Final = "allow"


class PolicyWord(NamedTuple):
    """A word of a policy's text with its 1-based column."""

    text: str
    column: int

    @property
    def folded(self) -> str:
        """In lower case; letters outside ASCII stay, since none of them equals one of ours."""
        return self.text.lower() if self.text.isascii() else self.text


def word_error(word: PolicyWord, name: str, wanted: str) -> PolicySyntaxError:
    """The error for a word that a directive does not take."""
    # What an address holds may be a secret.
    seen = "a value" if name.startswith("report-") else repr(word.text[:_SHOWN])
    return PolicySyntaxError(
        f"{name} has {seen} in column {word.column}, wanted {wanted}",
        column=word.column,
    )


def _single_word(name: str, words: Sequence[PolicyWord], end: int, wanted: str) -> PolicyWord:
    _check_given(name, words, end, wanted)
    if len(words) > 1:
        raise word_error(words[1], name, "one value alone")
    return words[0]


@dataclass(frozen=True, slots=True)
class _Flag:
    def read(self, name: str, words: Sequence[PolicyWord], end: int) -> bool:
        if words:
            raise word_error(words[0], name, "no value")
        return True

    def write(self, value: Any) -> str:
        return ""

    def stricter(self, left: Any, right: Any) -> bool:
        return bool(left or right)


@dataclass(frozen=True, slots=True)
class _Choice:
    """One word of a list that is ordered from lax to strict."""

    order: Sequence[Any]

    def read(self, name: str, words: Sequence[PolicyWord], end: int) -> Any:
        wanted = "one of " + ", ".join(self.order)
        word = _single_word(name, words, end, wanted)
        for known in self.order:
            if word.folded == known.lower():
                return known
        raise word_error(word, name, wanted)

    def write(self, value: Any) -> str:
        return str(value)

    def stricter(self, left: Any, right: Any) -> Any:
        return max(left, right, key=self.order.index)


@dataclass(frozen=True, slots=True)
class _Fraction:
    """A number of [0, 1] with a decimal point; the larger is stricter."""

    def read(self, name: str, words: Sequence[PolicyWord], end: int) -> float:
        wanted = f"a number from 0.00 to 1.00 with at most {FRACTION_DIGITS} decimals"
        word = _single_word(name, words, end, wanted)
        if not _FRACTION.fullmatch(word.text):
            raise word_error(word, name, wanted)
        return float(word.text)

    def write(self, value: Any) -> str:
        return write_threshold(value)

    def stricter(self, left: Any, right: Any) -> float:
        return float(max(left, right))


def _check_given(name: str, words: Sequence[PolicyWord], end: int, wanted: str) -> None:
    if not words:
        raise PolicySyntaxError(f"{name} has no value in column {end}, wanted {wanted}", column=end)


@dataclass(frozen=True, slots=True)
class _Members:
    """Members of a closed list, of which fewer are stricter.

    Attributes:
        ordered: puts members in order, and adds those that come with them.
        nothing: the word that stands alone for no member; empty where one is needed.
    """

    members: Sequence[Any]
    wanted: str
    ordered: Callable[[Iterable[Any]], tuple[Any, ...]]
    nothing: str = ""

    def read(self, name: str, words: Sequence[PolicyWord], end: int) -> tuple[Any, ...]:
        _check_given(name, words, end, self.wanted)
        if self.nothing and [word.folded for word in words] == [self.nothing]:
            return ()
        known = {member.value.lower(): member for member in self.members}
        for word in words:
            if word.folded not in known:
                raise word_error(word, name, self.wanted)
        return self.ordered(known[word.folded] for word in words)

    def write(self, value: Any) -> str:
        return " ".join(value) or self.nothing

    def stricter(self, left: Any, right: Any) -> tuple[Any, ...]:
        return self.ordered(set(left) & set(right))


@dataclass(frozen=True, slots=True)
class ReportReceivers:
    """Addresses or names that reports go to; more are stricter.

    Attributes:
        folds: whether case does not matter.
    """

    pattern: re.Pattern[str]
    longest: int
    wanted: str
    folds: bool = False

    def read(self, name: str, words: Sequence[PolicyWord], end: int) -> tuple[str, ...]:
        """The texts of the words, each of which must be one of these."""
        _check_given(name, words, end, self.wanted)
        for word in words:
            if not self.takes(word.text):
                raise word_error(word, name, self.wanted)
        return self.unique(word.text for word in words)

    def unique(self, texts: Iterable[str]) -> tuple[str, ...]:
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


def ordered_sources(members: Iterable[PolicySource]) -> tuple[PolicySource, ...]:
    """Sources without repetition, in the order of `PolicySource`."""
    wanted = set(members)
    return tuple(source for source in PolicySource if source in wanted)


def accepted_tiers(members: Iterable[QualityTier]) -> tuple[QualityTier, ...]:
    """The tiers that are at least as good as the worst one given; empty where none is."""
    tiers = set(members)
    worst = max((tier.place for tier in tiers), default=-1)
    return tuple(tier for tier in TIERS if tier.place <= worst)


REPORT_URIS: Final = ReportReceivers(
    ADDRESS, ADDRESS_CHARACTERS, "addresses that begin with https:// or http://"
)
REPORT_NAMES: Final = ReportReceivers(
    NAME, NAME_CHARACTERS, "names of letters, digits, hyphens, underscores and dots", folds=True
)

# What a directive's values are; None, False and the empty tuple are its absence.
DirectiveKind = _Flag | _Choice | _Fraction | _Members | ReportReceivers
# In the order in which a policy is printed.
DIRECTIVES: Final = MappingProxyType[str, DirectiveKind](
    {
        "default-src": _Members(
            tuple(PolicySource),
            ", ".join(PolicySource) + f" or {NONE} alone",
            ordered_sources,
            NONE,
        ),
        "halt-on": _Choice(LEVELS),
        "warn-on": _Choice(LEVELS),
        "require-grounding": _Fraction(),
        "require-entailment": _Fraction(),
        "require-flow": _Fraction(),
        "require-completeness": _Fraction(),
        # All that are at least as good as the worst one listed (E14).
        "require-quality": _Members(TIERS, "tiers of " + ", ".join(TIERS), accepted_tiers),
        "require-oversight": _Choice(OVERSIGHTS),
        "oversight": _Choice(OVERSIGHTS),
        "block-ungrounded": _Flag(),
        "block-parametric": _Flag(),
        "block-pii": _Flag(),
        "block-fabrication": _Flag(),
        "block-distortion": _Flag(),
        "block-repetition": _Flag(),
        "max-repetition": _Choice(REPETITIONS),
        "upgrade-on-risk": _Choice(UPGRADES),
        "unchecked": _Choice((ALLOW,)),
        "report-uri": REPORT_URIS,
        "report-to": REPORT_NAMES,
    }
)

# What permits and demands nothing: a child may drop it and not add it.
RELAXING: Final = frozenset({"unchecked"})


def field_of(name: str) -> str:
    """The field of a policy that holds a directive's value."""
    return name.replace("-", "_")


def write_directive(name: str, value: Any) -> str:
    """A directive with a value that is there, in the canonical form."""
    return f"{name} {DIRECTIVES[name].write(value)}".rstrip(" ")


def write_threshold(value: float) -> str:
    """A threshold with two to four decimals.

    >>> write_threshold(0.9), write_threshold(0.8575), write_threshold(1.0)
    ('0.90', '0.8575', '1.00')
    """
    whole, _, digits = f"{value:.{FRACTION_DIGITS}f}".partition(".")
    return f"{whole}.{digits.rstrip('0').ljust(LEAST_DIGITS, '0')}"
