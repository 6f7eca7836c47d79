"""The policy language as one table: how the values of each directive are read, written, compared.

The values of every directive are ordered from lax to strict, so the stricter of two duplicates
applies, and a child policy can be compared with its parent directive by directive. A missing
directive is laxest, but strictest for the directives in `RELAXING`, which permit something.

Spec: related facts §3, §6, §8
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pydantic import Field, field_validator

from crp_integrations.errors import ConfigError, PolicySyntaxError
from crp_integrations.records import Part
from crp_integrations.vocabulary import (
    Oversight,
    QualityTier,
    RepetitionLevel,
    RiskLevel,
    SafetyMode,
    Strategy,
)


class PolicySource(StrEnum):
    """A kind of source that an answer may rest on.

    Spec: related facts §6

    Attributes:
        CONTEXT: the model's input for this question: facts of its envelope, texts from the caller,
            and earlier windows of the same session.
        PARAMETRIC: the model's own knowledge.
        CKF: facts that a tool or an agent read from the fabric while answering and that are in no
            envelope.
        CROSS_SESSION: answers of other sessions, except those that this one delegated to.
    """

    CONTEXT = "context"
    PARAMETRIC = "parametric"
    CKF = "ckf"
    CROSS_SESSION = "cross-session"


class PolicyProfile(StrEnum):
    """Names of predefined policies.

    Spec: related facts §6
    """

    MEDICAL = "medical"
    FINANCIAL = "financial"
    DEVELOPER = "developer"
    PUBLIC_FACING = "public-facing"


class Demand(StrEnum):
    """A kind of unmet demand that asking the model again could meet."""

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
    """Kinds of violations in a violation report."""

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

# `strict` is as specified; the other two are defined here and withhold nothing.
MODE_TEXTS: Final = MappingProxyType(
    {
        SafetyMode.STRICT: "halt-on CRITICAL; warn-on HIGH; block-ungrounded",
        SafetyMode.WARN: "warn-on HIGH",
        SafetyMode.PERMISSIVE: "default-src context parametric",
    }
)


FRACTION_DIGITS: Final = 4
# Minimum digits when a threshold is printed, as in the profiles.
LEAST_DIGITS: Final = 2
# Limits of `report-uri` and `report-to`, which a policy from outside may set.
MOST_ADDRESSES: Final = 4
ADDRESS_CHARACTERS: Final = 512
NAME_CHARACTERS: Final = 64
NONE: Final = "'none'"
# Maximum characters of a word in an error message.
_SHOWN: Final = 40

_FRACTION: Final = re.compile(rf"0\.[0-9]{{1,{FRACTION_DIGITS}}}|1\.0{{1,{FRACTION_DIGITS}}}")
# Without credentials and fragment, since others can read a policy.
ADDRESS: Final = re.compile(
    r"https?://(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])"
    r"(?::(?:[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
    r"(?:[/?](?:[A-Za-z0-9._~:/?@!$&'()*+,=\[\]-]|%[0-9A-Fa-f]{2})*)?",
    re.IGNORECASE | re.ASCII,
)
NAME: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)

# Allowed values of directives, from lax to strict.
LEVELS: Final = (RiskLevel.CRITICAL, RiskLevel.HIGH, RiskLevel.MEDIUM)
OVERSIGHTS: Final = (Oversight.LOG_ONLY, Oversight.AUTO, Oversight.HUMAN_REVIEW, Oversight.HALT)
REPETITIONS: Final = (RepetitionLevel.SIGNIFICANT, RepetitionLevel.MINOR, RepetitionLevel.NONE)
UPGRADES: Final = (Strategy.BATCH, Strategy.HIERARCHICAL, Strategy.REFLEXIVE)
TIERS: Final = (QualityTier.S, QualityTier.A, QualityTier.B)
# The only value of `unchecked`: an answer that no one read may be shown.
ALLOW: Final = "allow"


class PolicyWord(NamedTuple):
    """A word of a policy's text with its 1-based column."""

    text: str
    column: int

    @property
    def folded(self) -> str:
        """The word in lower case; unchanged if not ASCII, since all known words are ASCII."""
        return self.text.lower() if self.text.isascii() else self.text


def word_error(word: PolicyWord, name: str, wanted: str) -> PolicySyntaxError:
    """The error for a word that a directive does not accept."""
    # An address may contain a secret.
    seen = "a value" if name.startswith("report-") else repr(word.text[:_SHOWN])
    return PolicySyntaxError(
        f"{name} has {seen} in column {word.column}, wanted {wanted}",
        column=word.column,
    )


def _single_word(name: str, words: Sequence[PolicyWord], end: int, wanted: str) -> PolicyWord:
    _check_given(name, words, end, wanted)
    if len(words) > 1:
        raise word_error(words[1], name, "one value only")
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
    """One word of a list ordered from lax to strict."""

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
    """A number in [0, 1] with a decimal point; the larger is stricter."""

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
    """Members of a closed list; fewer are stricter.

    Attributes:
        ordered: function that sorts members and adds implied ones.
        nothing: the word for no members; empty if at least one member is required.
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
    """Addresses or names of receivers of reports; more are stricter.

    Attributes:
        folds: whether case is ignored.
    """

    pattern: re.Pattern[str]
    longest: int
    wanted: str
    folds: bool = False

    def read(self, name: str, words: Sequence[PolicyWord], end: int) -> tuple[str, ...]:
        """The texts of the words, each checked to be a valid receiver."""
        _check_given(name, words, end, self.wanted)
        for word in words:
            if not self.takes(word.text):
                raise word_error(word, name, self.wanted)
        return self.unique(word.text for word in words)

    def unique(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Sorted texts without duplicates, in lower case if case is ignored."""
        return tuple(sorted({text.lower() if self.folds else text for text in texts}))

    def takes(self, text: str) -> bool:
        """Whether a text is a valid receiver."""
        return len(text) <= self.longest and bool(self.pattern.fullmatch(text))

    def write(self, value: Any) -> str:
        """The texts, separated by blanks."""
        return " ".join(value)

    def stricter(self, left: Any, right: Any) -> tuple[str, ...]:
        """The union of both."""
        return tuple(sorted({*left, *right}))


def ordered_sources(members: Iterable[PolicySource]) -> tuple[PolicySource, ...]:
    """Sources without duplicates, in the order of `PolicySource`."""
    wanted = set(members)
    return tuple(source for source in PolicySource if source in wanted)


def accepted_tiers(members: Iterable[QualityTier]) -> tuple[QualityTier, ...]:
    """All tiers that are at least as good as the worst one given; empty if none is given."""
    tiers = set(members)
    worst = max((tier.place for tier in tiers), default=-1)
    return tuple(tier for tier in TIERS if tier.place <= worst)


REPORT_URIS: Final = ReportReceivers(
    ADDRESS, ADDRESS_CHARACTERS, "addresses that begin with https:// or http://"
)
REPORT_NAMES: Final = ReportReceivers(
    NAME, NAME_CHARACTERS, "names of letters, digits, hyphens, underscores and dots", folds=True
)

# The kinds of a directive's values; None, False and the empty tuple mean that it is absent.
DirectiveKind = _Flag | _Choice | _Fraction | _Members | ReportReceivers
# In the order of a policy's canonical text.
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
        "ask-again-on": _Choice(LEVELS),
        "repair-on": _Choice(LEVELS),
        "require-grounding": _Fraction(),
        "require-entailment": _Fraction(),
        "require-flow": _Fraction(),
        "require-completeness": _Fraction(),
        # Stands for all tiers that are at least as good as the worst one listed.
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

# Directives that only permit something: a child policy may drop one but not add it.
RELAXING: Final = frozenset({"unchecked"})


def field_of(name: str) -> str:
    """The name of the `Policy` field for a directive."""
    return name.replace("-", "_")


def write_directive(name: str, value: Any) -> str:
    """A directive with its value, in canonical form."""
    return f"{name} {DIRECTIVES[name].write(value)}".rstrip(" ")


def write_threshold(value: float) -> str:
    """A threshold with two to four decimals.

    >>> write_threshold(0.9), write_threshold(0.8575), write_threshold(1.0)
    ('0.90', '0.8575', '1.00')
    """
    whole, _, digits = f"{value:.{FRACTION_DIGITS}f}".partition(".")
    return f"{whole}.{digits.rstrip('0').ljust(LEAST_DIGITS, '0')}"


class ReportSettings(Part):
    """How violation reports are delivered.

    Spec: related facts §6

    Attributes:
        hosts: names and addresses of private hosts to which reports may be posted, such as
            `siem.internal` or `127.0.0.1`.
        receivers: address of each name that `report-to` may use; implies their `hosts`.
        capacity: maximum number of deliveries in progress; further ones are dropped.
        attempts: maximum number of attempts of one delivery.
        timeout_seconds: deadline of one attempt, from its first byte to its last.
        backoff_seconds: pause before the second attempt; it doubles with each further one.
        close_seconds: how long a closing relay waits for deliveries in progress.
    """

    hosts: tuple[str, ...] = ()
    receivers: dict[str, str] = {}
    capacity: int = Field(default=1_000, ge=1)
    attempts: int = Field(default=4, ge=1)
    timeout_seconds: float = Field(default=10.0, gt=0.0)
    backoff_seconds: float = Field(default=0.5, ge=0.0)
    close_seconds: float = Field(default=5.0, ge=0.0)

    @field_validator("receivers")
    @classmethod
    def _addressed(cls, value: dict[str, str]) -> dict[str, str]:
        for name, uri in value.items():
            if not REPORT_NAMES.takes(name):
                raise ConfigError(f"receiver {name!r:.60} is invalid, wanted {REPORT_NAMES.wanted}")
            if not REPORT_URIS.takes(uri):
                raise ConfigError(f"receiver {name!r:.60} wants {REPORT_URIS.wanted}")
        return {name.lower(): uri for name, uri in value.items()}
