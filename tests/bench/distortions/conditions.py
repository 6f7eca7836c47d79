"""Dropped conditions, exceptions and limits."""

from __future__ import annotations

import re
from random import Random

from tests.bench.distortions.case import Edit, Pool, Sentence, capital, whole

_FIRST = re.compile(
    r"(?P<out>(?:Only if|Only when|If|Unless|Provided that|As long as|In the absence of|In case of|"
    r"In the event of|Except for|Except when|Assuming|When used|Subject to|With the exception of)\b"
    r"[^,;:()]{8,120}), (?:then )?(?P<in>[^;:()]{20,})\.$"
)
_LAST = re.compile(
    r"^(?P<in>[^;:()]{20,}?),? (?P<out>(?:only if|only when|but only if|but only when|"
    r"if and only if|"
    r"if|unless|provided that|as long as|so long as|except for|"
    r"except when|except in|except that|"
    r"except|with the exception of|excluding|in the absence of|in the event of|in case of|"
    r"assuming that|"
    r"subject to|only during|only after|on condition that|not including)\b"
    r"[^;:()]{6,120})\.$"
)
# A question of whether, a comparison, and what makes the remainder depend on what went.
_NO = re.compile(
    r"\b(?:even if|as if|what if|see if|know if|check if|determine if|test if|checks if|tests if|"
    r"only if not|"
    r"otherwise|whether|else|asked if|wonder\w* if|rather than|if any|if possible|if necessary|"
    r"return true if|"
    r"returns true if|true if|false if|if not|if so|checking if|as though|but if|or if|and if|"
    r"not subject to|"
    r"if it were|would|could have|might|iff|ask if|indicat\w+ if|decide if|verif\w+ if|see what|"
    r"used if|"
    r"do nothing|nothing|may|can|could|possibl[ey]|either)\b|, or ",
    re.IGNORECASE,
)
_BACK = re.compile(
    r"^(?:and|or|it|they|he|she|this|that|these|those|then|so|both|neither|such|its|their)\b",
    re.IGNORECASE,
)
_VERB = re.compile(
    r" (?:is|are|was|were|has|have|do|does|did|will|must|cannot|[a-z]{2,}(?:s|ed))\b"
)
_RULE = re.compile(r"^(?:but |so |and )?(?:only |if and only )?([a-z]+)", re.IGNORECASE)


def condition(sentence: Sentence, draw: Random, pool: Pool) -> Edit | None:
    """The claim without the condition that the evidence puts on it."""
    text = sentence.text
    if _NO.search(text):
        return None
    # What may be or can be under a condition may be or can be: these say no more without it.
    first = _FIRST.match(text)
    if first:
        rest = first.group("in")
        clause = first.group("out")
        if clause[:3] in ("If ", "Unl") and not _VERB.search(clause):
            return None
        if _BACK.match(rest) or len(rest.split()) < 5:
            return None
        return _dropped(first.group("out"), f"{capital(rest)}.")
    last = _LAST.match(text)
    if last:
        rest = last.group("in").rstrip(", ")
        if len(last.group("out").split()) < 4 or re.search(
            r", |\band (?:will|on)\b", last.group("out")
        ):
            return None
        if re.search(r"\band (?:will|is|are|was|were|must|\w+s)\b", rest):
            return None
        # "If a, b" inside, an open list, or a clause that hangs on a verb of asking.
        if len(rest.split()) < 5 or re.search(
            r"\b(?:only|and|or|that|to|is|are|was|be|of|[Ii]f|except|only \w+)$", rest
        ):
            return None
        if re.search(r"\b(?:not|no|never|any|every|[Ii]f|unless)\b", rest) and "except" not in text:
            return None
        return _dropped(last.group("out"), f"{rest}.")
    return None


def _dropped(out: str, claim: str) -> Edit:
    match = _RULE.match(out)
    word = match.group(1).lower() if match else "if"
    return whole(claim, word, out)
