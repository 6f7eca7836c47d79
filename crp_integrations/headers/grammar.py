"""The syntax of every header's value as a regular expression, and the check of values.

Values are case-insensitive and ASCII. Matching takes linear time: in each expression the next
character decides whether a repetition continues.

Spec: related facts §3
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from types import MappingProxyType
from typing import Final

from crp_integrations import vocabulary
from crp_integrations.errors import HeaderSyntaxError
from crp_integrations.headers import names
from crp_integrations.headers.names import AgentPhase, RetryCondition
from crp_integrations.session.records import BUDGET_DIGITS, CONTINUATION_ID, SESSION_ID

# Maximum characters of a value.
MOST_CHARACTERS: Final = 8_192
# Lower limits for values with a specified size (related facts §5) or that are stored and sent on.
LIMITS: Final = MappingProxyType(
    {
        names.SESSION_TOKEN: 4_096,
        names.SAFETY_REPORT_URI: 2_048,
        names.REPORT_URI: 2_048,
        names.TRAIL_URI: 2_048,
    }
)
# Values that an error must not quote, since anyone who reads the log could use them.
SECRET: Final = frozenset({names.SESSION_TOKEN, names.SET_SESSION, names.OVERSIGHT_TOKEN})
SCOPES: Final = ("intra", "cross-window", "both")
FLOW_REMEDIES: Final = ("prompt-augmented", "stitched", "re-dispatched")


def _one_of(words: Iterable[str]) -> str:
    return "(?:" + "|".join(re.escape(word) for word in words) + ")"


def _list_of(item: str) -> str:
    return rf"{item}(?:[ \t]*,[ \t]*{item})*"


_WORD = r"[A-Za-z0-9._-]+"
_HASH = r"sha256:[0-9A-Fa-f]{64}"
_FRACTION = r"(?:0+\.[0-9]+|0*1\.0+)"
# 15 digits suffice for every count and stay below 2^53 for JavaScript readers.
_INTEGER = r"[0-9]{1,15}"
_PAIR = rf"{_INTEGER}/{_INTEGER}"
_STRATEGY = _one_of(vocabulary.Strategy)
_TIER = _one_of(vocabulary.QualityTier)
_DIRECTIVE = r"(?:no-store|no-cache|reuse-ckf|only-if-ckf|max-age=[0-9]{1,15})"
_DISTORTION = _one_of(vocabulary.DistortionType)
_CONTROL = r"A(?:\.[0-9]{1,2}){2,3}"
_OMISSIONS = rf"CRITICAL:{_INTEGER},[ \t]*HIGH:{_INTEGER},[ \t]*MEDIUM:{_INTEGER}"
_SESSION = SESSION_ID.pattern
_CONTINUATION = CONTINUATION_ID.pattern
_WINDOW = r"crp_win_[A-Za-z0-9]{16,32}"
_DURATION = (
    r"P(?=[0-9T])(?:[0-9]{1,9}D)?(?:T(?=[0-9])(?:[0-9]{1,9}H)?(?:[0-9]{1,9}M)?(?:[0-9]{1,9}S)?)?"
)
_MOMENT = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
    r"(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
# Payload and signature, both in base64url without padding.
_TOKEN = r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"
# Any printable text, since the `policy` subpackage checks the grammar of policies.
_POLICY = r"[!-~](?:[\t -~]*[!-~])?"
_NONCE = r"base64:[A-Za-z0-9+/_-]+={0,2}"
_URI_CHARACTER = r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})"
# An absolute URI, or a path on the gateway.
_URI = rf"(?:[A-Za-z][A-Za-z0-9+.-]*:|/){_URI_CHARACTER}+"
_WEB = rf"https?://[A-Za-z0-9\[]{_URI_CHARACTER}*"
_SET_SESSION = (
    rf"token={_TOKEN};[ \t]*Path=/[A-Za-z0-9._~/-]*;[ \t]*Max-Age={_INTEGER};[ \t]*Signed;"
    rf"[ \t]*SameSite=Strict;[ \t]*Window={_INTEGER}"
    rf"(?:;[ \t]*QualityHistory={_TIER}(?:,{_TIER})*)?"
)


def _rule(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE | re.ASCII)


TOKEN: Final = _rule(_WORD)
HASH: Final = _rule(_HASH)
FRACTION: Final = _rule(_FRACTION)
INTEGER: Final = _rule(_INTEGER)
DURATION: Final = _rule(_DURATION)
MOMENT: Final = _rule(_MOMENT)

GRAMMAR: Final = MappingProxyType(
    {
        names.QUALITY_TIER: _rule(_TIER),
        names.WINDOW: _rule(_PAIR),
        names.SATURATION: FRACTION,
        names.FACTS_USED: _rule(_PAIR),
        names.TOKENS_USED: INTEGER,
        names.STRATEGY: _rule(_STRATEGY),
        names.SESSION_ID: _rule(_SESSION),
        names.ETAG: HASH,
        names.IF_MATCH: _rule(rf"{_HASH}|\*"),
        names.CACHE_STATUS: _rule(rf"{_one_of(vocabulary.CacheStatus)}(?:;[ \t]*reason={_WORD})?"),
        names.CONTINUATION_ID: _rule(_list_of(_CONTINUATION)),
        names.PROTOCOL: _rule(r"[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}"),
        names.ACCEPT_STRATEGY: _rule(_list_of(_STRATEGY)),
        names.ACCEPT_QUALITY: _rule(_list_of(_TIER)),
        names.ACCEPT_RISK: _rule(_one_of(vocabulary.RiskLevel)),
        names.DISPATCH_STRATEGY: _rule(_STRATEGY),
        names.GROUNDING_MODE: _rule(_one_of(vocabulary.GroundingMode)),
        names.SEED: INTEGER,
        names.CACHE: _rule(_list_of(_DIRECTIVE)),
        names.RESIDENCY: _rule(r"[A-Z]{2}"),
        names.RISK: _rule(_one_of(vocabulary.RiskLevel)),
        names.RISK_SCORE: FRACTION,
        names.ATTRIBUTION: _rule(_one_of(vocabulary.Attribution)),
        names.GROUNDING_PCT: FRACTION,
        names.ENTAILMENT: FRACTION,
        names.FABRICATIONS: INTEGER,
        names.DISTORTIONS: _rule(rf"{_INTEGER}(?:;[ \t]*types={_DISTORTION}(?:,{_DISTORTION})*)?"),
        names.CONTRADICTIONS: _rule(rf"{_INTEGER}(?:;[ \t]*scope={_one_of(SCOPES)})?"),
        names.OVERSIGHT_MODE: _rule(_one_of(vocabulary.Oversight)),
        names.SAFETY_MODE: _rule(_one_of(vocabulary.SafetyMode)),
        names.POLICY: _rule(_POLICY),
        names.POLICY_REPORT_ONLY: _rule(_POLICY),
        names.POLICY_APPLIED: _rule(_POLICY),
        names.VIOLATION: _rule(_list_of(_WORD)),
        names.SAFETY_REPORT_URI: _rule(_WEB),
        names.RETRY_AFTER: _rule(rf"[0-9]{{1,9}}|{_MOMENT}|{_DURATION}|{_one_of(RetryCondition)}"),
        names.BUDGET_WARNING: _rule(_one_of(vocabulary.BudgetWarning)),
        names.NONCE: _rule(_NONCE),
        names.OVERSIGHT_TOKEN: _rule(rf"approved:{_HASH}"),
        names.REPETITION: _rule(
            rf"{_one_of(vocabulary.RepetitionLevel)}(?:;[ \t]*overlap={_FRACTION})?"
        ),
        names.COMPLETENESS: _rule(
            rf"{_one_of(vocabulary.CompletenessLevel)};[ \t]*sub-queries={_PAIR}"
            rf"(?:;[ \t]*uncovered={_WORD}(?:,{_WORD})*)?"
        ),
        names.FLOW: _rule(rf"{_FRACTION}(?:;[ \t]*remediation={_one_of(FLOW_REMEDIES)})?"),
        names.QUALITY_SCORE: FRACTION,
        names.OMISSIONS: _rule(_OMISSIONS),
        names.PERSONAL: _rule(r"true|false"),
        names.AI_ACT: _rule(_one_of(vocabulary.AiActClass)),
        names.NIST_TIER: _rule(r"TIER-[1-4]"),
        names.ISO_CONTROLS: _rule(_list_of(_CONTROL)),
        names.CONTROLS_MET: _rule(_PAIR),
        names.TRAIL_ID: _rule(r"crp_trail_[A-Za-z0-9]{16,32}"),
        names.TRAIL_URI: _rule(_URI),
        names.CLAIM_COUNT: INTEGER,
        names.ATTRIBUTION_SCORE: FRACTION,
        names.FIDELITY: FRACTION,
        names.CHAINED_HMAC: HASH,
        names.WINDOW_HMAC: HASH,
        names.CHAIN_INTEGRITY: _rule(_one_of(vocabulary.ChainIntegrity)),
        names.DAG_ROOT: _rule(rf"dag:{_WORD}"),
        names.LINEAGE: _rule(rf"{_WINDOW}(?:[ \t]*->[ \t]*{_WINDOW})*"),
        names.REPORT_URI: _rule(_URI),
        names.PHASE: _rule(_one_of(AgentPhase)),
        names.LOOP_DEPTH: INTEGER,
        names.SAFETY_BUDGET: FRACTION,
        names.TOOL_CALLS: INTEGER,
        names.SESSION_PARENT: _rule(_SESSION),
        names.REVISION_ROUND: _rule(_PAIR),
        names.SET_SESSION: _rule(_SET_SESSION),
        names.SESSION_TOKEN: _rule(_TOKEN),
        names.TIER_HIT: _rule(r"[0-3]"),
        names.CKF_HITS: INTEGER,
        names.CKF_COMMUNITY: TOKEN,
        names.KNOWLEDGE_AGE: DURATION,
    }
)


FRACTION_DIGITS: Final = 3
SLUG_CHARACTERS: Final = 64
# Maximum characters of a value in an error message.
_SHOWN_CHARACTERS: Final = 60
# All of Unicode's control characters except the tab.
_CONTROL_CHARACTER: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")
# A budget is rounded to this before it is cut off, so that float errors do not lower it.
_NOISE_DIGITS: Final = 9


def strip_value(name: str, value: object) -> str:
    """A value without outer blanks, checked for type, length and control characters."""
    if not isinstance(value, str):
        raise HeaderSyntaxError(f"{name} is of type {type(value).__name__}, wanted text")
    most = LIMITS.get(name, MOST_CHARACTERS)
    if len(value) > most:
        raise HeaderSyntaxError(f"{name} has {len(value)} characters, at most {most} are allowed")
    if _CONTROL_CHARACTER.search(value):
        raise HeaderSyntaxError(f"{name} contains a control character; none is allowed")
    return value.strip(" \t")


def check_value(name: str, value: str) -> str:
    """Check a value against its header's syntax, and return it without outer blanks."""
    trimmed = strip_value(name, value)
    if GRAMMAR[name].fullmatch(trimmed):
        return trimmed
    shown = repr(trimmed[:_SHOWN_CHARACTERS])
    if name in SECRET:
        shown = f"of {len(trimmed)} characters"
    if name == names.SESSION_TOKEN and GRAMMAR[names.SET_SESSION].fullmatch(trimmed):
        raise HeaderSyntaxError(
            f"{name} has a whole {names.SET_SESSION} as its value; send only its part between "
            "token= and the first semicolon"
        )
    raise HeaderSyntaxError(f"{name} has the value {shown}, which its syntax forbids")


def write_fraction(value: float, digits: int = FRACTION_DIGITS) -> str:
    """A number in [0, 1] with a decimal point.

    Args:
        digits: maximum number of digits after the point.

    Raises:
        HeaderSyntaxError: the value is outside [0, 1] or NaN.

    >>> write_fraction(1), write_fraction(0.9936), write_fraction(0.25)
    ('1.0', '0.994', '0.25')
    """
    if math.isnan(value) or not 0.0 <= value <= 1.0:
        raise HeaderSyntaxError(f"{value!r} is not a fraction; write a number from 0.0 to 1.0")
    text = f"{abs(value):.{digits}f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def floor_budget(budget: float) -> float:
    """A safety budget, rounded down to the digits that sessions store.

    >>> floor_budget(0.99996), floor_budget(1.0 - 0.15 - 0.05), floor_budget(0.3)
    (0.9999, 0.8, 0.3)
    """
    exact = Decimal(repr(round(budget, _NOISE_DIGITS)))
    return float(exact.quantize(Decimal(1).scaleb(-BUDGET_DIGITS), ROUND_FLOOR))


def whole_seconds(age: timedelta) -> timedelta:
    """An age rounded down to its largest unit, to disclose no more than needed; never below 0.

    >>> str(whole_seconds(timedelta(days=3, hours=5))), str(whole_seconds(timedelta(minutes=61)))
    ('3 days, 0:00:00', '1:00:00')
    """
    seconds = max(0, int(age.total_seconds()))
    unit = next((unit for unit in (86_400, 3_600, 60) if seconds >= unit), 1)
    return timedelta(seconds=seconds // unit * unit)


def write_duration(age: timedelta) -> str:
    """A duration in whole seconds as ISO 8601; negative ones count as 0.

    >>> write_duration(timedelta(days=3, hours=5)), write_duration(-timedelta(1))
    ('P3DT5H', 'PT0S')
    """
    rest = max(0, int(age.total_seconds()))
    days, rest = divmod(rest, 86_400)
    parts = []
    for unit, letter in ((3_600, "H"), (60, "M"), (1, "S")):
        number, rest = divmod(rest, unit)
        if number:
            parts.append(f"{number}{letter}")
    day, time = f"{days}D" if days else "", "".join(parts)
    return f"P{day}" + (f"T{time or '0S'}" if time or not day else "")


def write_moment(when: datetime) -> str:
    """A time as ISO 8601 in UTC.

    >>> write_moment(datetime(2026, 5, 25, 10, tzinfo=UTC))
    '2026-05-25T10:00:00Z'
    """
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")


def slug(label: str) -> str:
    """A label as an ASCII token in lower case; empty if no character is left.

    >>> slug("EU AI Act: compliance"), slug("Überblick"), slug("—")
    ('eu-ai-act-compliance', 'uberblick', '')
    """
    plain = unicodedata.normalize("NFKD", label).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9._]+", "-", plain).strip("-")[:SLUG_CHARACTERS].strip("-")
