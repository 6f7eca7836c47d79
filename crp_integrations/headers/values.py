"""Conversion of typed values to the values of headers, and back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from crp_integrations.dpe.records import RejectedClaim
from crp_integrations.errors import HeaderSyntaxError
from crp_integrations.headers import grammar, names
from crp_integrations.headers.names import RetryCondition
from crp_integrations.headers.records import (
    CacheOutcome,
    CompletenessValue,
    ContradictionsValue,
    DistortionsValue,
    FlowValue,
    OmissionsValue,
    RepetitionValue,
    RetryAfter,
    SetSessionValue,
)
from crp_integrations.session.records import BUDGET_DIGITS
from crp_integrations.vocabulary import (
    CacheStatus,
    CompletenessLevel,
    DistortionType,
    QualityTier,
    RepetitionLevel,
)


def read_upper(make: Callable[[str], Any]) -> Callable[[str], Any]:
    """A reader that converts text to upper case first."""
    return lambda text: make(text.upper())


def read_lower(make: Callable[[str], Any]) -> Callable[[str], Any]:
    """A reader that converts text to lower case first."""
    return lambda text: make(text.lower())


def read_each(make: Callable[[str], Any]) -> Callable[[str], Any]:
    """A reader of a comma-separated list."""
    return lambda text: tuple(make(part.strip(" \t")) for part in text.split(","))


def write_list(parts: tuple[str, ...]) -> str:
    """A comma-separated list."""
    return ", ".join(parts)


def read_id(text: str) -> str:
    """An id such as `crp_sess_…` with its prefix in lower case; the rest is unchanged."""
    prefix, mark, rest = text.rpartition("_")
    return prefix.lower() + mark + rest


def read_ids(text: str) -> tuple[str, ...]:
    """Read a comma-separated list of ids; refuses duplicates."""
    ids = tuple(read_id(part.strip(" \t")) for part in text.split(","))
    if len(set(ids)) < len(ids):
        raise HeaderSyntaxError(
            f"one of the {len(ids)} ids {ids[0]}, … occurs twice; write it once"
        )
    return ids


def read_nonce(text: str) -> str:
    """A nonce with its prefix in lower case; the rest is unchanged."""
    prefix, mark, rest = text.partition(":")
    return prefix.lower() + mark + rest


# Maximum characters of `CRP-Safety-Flagged-Claims`.
LONGEST_CLAIMS: Final = 4_000


def write_flagged(claims: Sequence[RejectedClaim]) -> str:
    """Flagged claims as ASCII JSON of at most 4,000 characters, without claims that do not fit."""
    written: list[str] = []
    for claim in claims:
        fields = [claim.text, claim.said, claim.wrong, claim.reason, claim.window_id]
        text = json.dumps(fields, separators=(",", ":"))
        if sum(map(len, written)) + len(written) + len(text) + 2 <= LONGEST_CLAIMS:
            written.append(text)
    return f"[{','.join(written)}]" if written else ""


def read_flagged(text: str) -> tuple[RejectedClaim, ...]:
    """Read the flagged claims of a sub-agent's response; empty if there are none."""
    try:
        rows = json.loads(text[:LONGEST_CLAIMS]) if text else []
        return tuple(
            RejectedClaim(text=claim, said=words, wrong=wrong, reason=reason, window_id=window_id)
            for claim, words, wrong, reason, window_id in rows
        )
    except (TypeError, ValueError, RecursionError):
        raise HeaderSyntaxError(
            f"{names.FLAGGED_CLAIMS} has {len(text)} characters that are not a JSON list of claims"
        ) from None


def write_budget(budget: float) -> str:
    """A safety budget, to four digits."""
    return grammar.write_fraction(budget, BUDGET_DIGITS)


def read_budget(text: str) -> float:
    """A safety budget, rounded down to four digits."""
    return grammar.floor_budget(float(text))


def write_pair(numbers: tuple[int, int]) -> str:
    """`n/total`."""
    return f"{numbers[0]}/{numbers[1]}"


def read_pair(text: str) -> tuple[int, int]:
    """`n/total`."""
    left, _, right = text.partition("/")
    return int(left), int(right)


def write_lineage(windows: tuple[str, ...]) -> str:
    """`crp_win_a -> crp_win_b`."""
    return " -> ".join(windows)


def read_lineage(text: str) -> tuple[str, ...]:
    """`crp_win_a -> crp_win_b`."""
    return tuple(read_id(part.strip(" \t")) for part in text.split("->"))


def write_retry(value: RetryAfter) -> str:
    """Write seconds, a time in UTC, or a condition."""
    return grammar.write_moment(value) if isinstance(value, datetime) else str(value)


def read_retry(text: str) -> RetryAfter:
    """Read seconds, a time, a condition, or a duration, which becomes seconds."""
    if text.isdecimal():
        return int(text)
    if grammar.MOMENT.fullmatch(text):
        try:
            return datetime.fromisoformat(text.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            raise HeaderSyntaxError(f"the time {text[:40]!r} does not exist") from None
    if grammar.DURATION.fullmatch(text):
        seconds = int(read_duration(text).total_seconds())
        if seconds >= 10**9:
            raise HeaderSyntaxError(f"the duration {text[:40]!r} is too long to wait")
        return seconds
    return RetryCondition(text.lower())


def read_duration(text: str) -> timedelta:
    """An ISO 8601 duration of days, hours, minutes and seconds."""
    units = {"D": "days", "H": "hours", "M": "minutes", "S": "seconds"}
    parts = re.findall(r"([0-9]+)([DHMS])", text.upper())
    try:
        return timedelta(**{units[letter]: int(number) for number, letter in parts})
    except OverflowError:
        raise HeaderSyntaxError(f"the duration {text[:40]!r} is too long") from None


def _marked(head: object, **marks: object) -> str:
    """`head; name=value`, without names that have no value."""
    names_ = (f"{name.replace('_', '-')}={value}" for name, value in marks.items() if value)
    return "; ".join((str(head), *names_))


def _unmarked(text: str) -> tuple[str, dict[str, str]]:
    """The text before the first semicolon, and the values after it by name in lower case."""
    head, *marks = (part.strip(" \t") for part in text.split(";"))
    parted = (mark.partition("=") for mark in marks)
    return head, {name.lower(): value for name, _, value in parted}


def write_session(value: SetSessionValue) -> str:
    """`token=…; Path=/; Max-Age=3600; Signed; SameSite=Strict; Window=3; QualityHistory=A,A,B`."""
    parts = [
        f"token={value.token}",
        f"Path={value.path}",
        f"Max-Age={value.max_age_seconds}",
        "Signed",
        "SameSite=Strict",
        f"Window={value.window}",
    ]
    if value.quality_history:
        parts.append(f"QualityHistory={','.join(value.quality_history)}")
    return "; ".join(parts)


def read_session(text: str) -> SetSessionValue:
    """Read `CRP-Set-Session`; case matters only in the token and the path."""
    _, fields = _unmarked(f"; {text}")
    if len(fields["token"]) > grammar.LIMITS[names.SESSION_TOKEN]:
        raise HeaderSyntaxError(
            f"{names.SET_SESSION} has a token of {len(fields['token'])} characters, at most "
            f"{grammar.LIMITS[names.SESSION_TOKEN]} are allowed"
        )
    if int(fields["window"]) < 1:
        raise HeaderSyntaxError(f"{names.SET_SESSION} has Window=0; windows count from 1")
    history = fields.get("qualityhistory", "").upper()
    return SetSessionValue(
        token=fields["token"],
        path=fields["path"],
        max_age_seconds=int(fields["max-age"]),
        window=int(fields["window"]),
        quality_history=tuple(QualityTier(tier) for tier in history.split(",")) if history else (),
    )


def write_cache_status(value: CacheOutcome) -> str:
    """`HIT`, or `MISS; reason=facts-updated`."""
    return _marked(value.status, reason=value.reason)


def read_cache_status(text: str) -> CacheOutcome:
    """`HIT`, or `MISS; reason=facts-updated`."""
    status, marks = _unmarked(text)
    return CacheOutcome(status=CacheStatus(status.upper()), reason=marks.get("reason", "").lower())


def write_distortions(value: DistortionsValue) -> str:
    """`0`, or `1; types=NUMBER_CHANGED`."""
    return _marked(value.count, types=",".join(value.types))


def read_distortions(text: str) -> DistortionsValue:
    """`0`, or `1; types=NUMBER_CHANGED`."""
    count, marks = _unmarked(text)
    kinds = filter(None, marks.get("types", "").upper().split(","))
    return DistortionsValue(count=int(count), types=tuple(map(DistortionType, kinds)))


def write_contradictions(value: ContradictionsValue) -> str:
    """`0`, or `1; scope=cross-window`."""
    return _marked(value.count, scope=value.scope)


def read_contradictions(text: str) -> ContradictionsValue:
    """`0`, or `1; scope=cross-window`."""
    count, marks = _unmarked(text)
    return ContradictionsValue(count=int(count), scope=marks.get("scope", "").lower())


def write_repetition(value: RepetitionValue) -> str:
    """`NONE`, or `SIGNIFICANT; overlap=0.28`."""
    overlap = "" if value.overlap is None else grammar.write_fraction(value.overlap)
    return _marked(value.level, overlap=overlap)


def read_repetition(text: str) -> RepetitionValue:
    """`NONE`, or `SIGNIFICANT; overlap=0.28`."""
    level, marks = _unmarked(text)
    overlap = float(marks["overlap"]) if "overlap" in marks else None
    return RepetitionValue(level=RepetitionLevel(level.upper()), overlap=overlap)


def write_completeness(value: CompletenessValue) -> str:
    """`COMPLETE; sub-queries=5/5`, or with `; uncovered=slug,slug`."""
    counts = write_pair((value.covered, value.total))
    return _marked(value.level, sub_queries=counts, uncovered=",".join(value.uncovered))


def read_completeness(text: str) -> CompletenessValue:
    """`COMPLETE; sub-queries=5/5`, or with `; uncovered=slug,slug`."""
    level, marks = _unmarked(text)
    covered, total = read_pair(marks["sub-queries"])
    slugs = filter(None, marks.get("uncovered", "").lower().split(","))
    return CompletenessValue(
        level=CompletenessLevel(level.upper()),
        covered=covered,
        total=total,
        uncovered=tuple(slugs),
    )


def write_flow(value: FlowValue) -> str:
    """`0.82`, or `0.34; remediation=prompt-augmented`."""
    return _marked(grammar.write_fraction(value.score), remediation=value.remediation)


def read_flow(text: str) -> FlowValue:
    """`0.82`, or `0.34; remediation=prompt-augmented`."""
    score, marks = _unmarked(text)
    return FlowValue(score=float(score), remediation=marks.get("remediation", "").lower())


def write_omissions(value: OmissionsValue) -> str:
    """`CRITICAL:0, HIGH:1, MEDIUM:2`."""
    return f"CRITICAL:{value.critical}, HIGH:{value.high}, MEDIUM:{value.medium}"


def read_omissions(text: str) -> OmissionsValue:
    """`CRITICAL:0, HIGH:1, MEDIUM:2`."""
    counts = (part.partition(":") for part in text.split(","))
    return OmissionsValue(**{name.strip().lower(): int(count) for name, _, count in counts})
