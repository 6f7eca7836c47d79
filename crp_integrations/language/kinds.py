"""Kinds of claim: fact unless clearly opinion, procedure or talk about the answer itself.

What names a number, a date or a name cannot hide behind "I think" or "As mentioned above":
it stays FACTUAL (decision D3, for safety).
"""

from __future__ import annotations

import re

from crp_integrations.language.dates import dates
from crp_integrations.language.lexicon import IMPERATIVES, VERBS
from crp_integrations.language.names import names
from crp_integrations.language.quantities import quantities
from crp_integrations.language.talk import SOURCE, is_silent, is_talk
from crp_integrations.language.text import fold
from crp_integrations.language.verbs import finite_verb
from crp_integrations.language.words import words
from crp_integrations.vocabulary import ClaimType

_I = re.IGNORECASE
_OPENER = re.compile(
    rf"(?:as\s+(?:mentioned|noted|discussed|described|stated|explained|shown|outlined)"
    rf"(?:\s+(?:above|below|earlier|previously|before|in\s+{SOURCE}))?"
    rf"|(?:based\s+on|according\s+to|given|from)\s+{SOURCE}"
    r"|in\s+(?:summary|conclusion|short|brief)|to\s+(?:summari[sz]e|conclude|sum\s+up|recap)"
    r"|overall"
    r"|(?:yes|no|sure|certainly|of\s+course|absolutely|great\s+question|good\s+question)"
    r")\s*(?:[,:;.!\u2013-]\s*|\Z)",
    _I,
)
_META = re.compile(
    r"(?:here(?:'s|\s+(?:is|are))\b|below\s+(?:is|are)\b|the\s+following\s+(?:is|are|list|table"
    r"|sections?|answer)\b"
    rf"|quot(?:ed|ing)\s+from\s+{SOURCE}"
    r"|i\s+hope\b|let\s+me\s+know\b|feel\s+free\b|(?:please\s+)?let\s+me\b|if\s+you\s+(?:have|need"
    r"|want|would\s+like)\b"
    r"|i(?:'m|\s+am)\s+(?:sorry|unable|not\s+able|happy|glad|an?\s+ai)\b|i\s+apologi[sz]e\b|sorry\b"
    r"|i\s+(?:cannot|can't|can\s+not|could\s+not|couldn't|do\s+not|don't|did\s+not"
    r"|didn't)\s+(?:answer|find|determine|know|have|see|provide|say|tell)\b"
    r"|i\s+(?:will|shall|'ll|have|can)\s+(?:now\s+)?(?:explain|describe|summari[sz]e|outline"
    r"|answer|list|help)\w*\b"
    r"|(?:this|the|my)\s+(?:answer|response|summary|list|overview|section)\s+(?:is|was|covers"
    r"|describes|summari[sz]es|quotes|uses|only|does|will|below|above)\b"
    r"|i\s+(?:quote|answered|summari[sz]ed|used)\b|thank\s+you\b|thanks\b|you(?:'re"
    r"|\s+are)\s+welcome\b)",
    _I,
)
_CITES = re.compile(r"(?:sources?|references?|citations?|see)\W*(?:\[\^?\w{1,16}\]\W*)+\Z", _I)
_OPINION = re.compile(
    r"(?:\b(?:i|we)\s+(?:personally\s+|really\s+|would\s+)?(?:think|believe|feel|suspect|guess"
    r"|reckon|recommend|suggest|prefer|like|love|argue|say)\b"
    r"|\bin\s+my\s+(?:\w+\s+)?(?:opinion|view|experience)\b|\barguably\b|\bpersonally\b"
    r"|\bto\s+my\s+mind\b"
    r"|\b(?:you|one|we|it)\s+(?:should|could|might\s+want\s+to"
    r"|may\s+want\s+to)\s+(?:\w+ly\s+)?consider\b|\bworth\s+(?:considering|noting|trying)\b"
    r"|\b(?:it|this|that|these|they)(?:'s|\s+(?:is|are|was|were|seems?|looks?"
    r"|feels?))\s+(?:\w+ly\s+|very\s+|quite\s+|a\s+|an\s+|the\s+|such\s+)*"
    r"(?:best|better|worst|great|excellent|beautiful|ugly|interesting|impressive|remarkable"
    r"|wonderful|terrible|awful|amazing|good|bad|nice|sad|exciting|disappointing|lovely"
    r"|fascinating|important|useful|helpful|sensible|wise|unfortunate)\b)",
    _I,
)
_PURPOSE = re.compile(
    r"(?:(?:first|next|then|finally|now|second|third|lastly|afterwards|please|also|once\s[^,]{1,80}"
    r"|to\s+[a-z][^,]{1,80}|in\s+order\s+to\s[^,]{1,80}|if\s[^,]{1,80}|when\s[^,]{1,80}"
    r"|after\s[^,]{1,80}"
    r"|before\s[^,]{1,80}),?\s+)",
    _I,
)
_MOST_OPENERS = 3


def kind_of(text: str, *, heading: bool = False, numbered: bool = False) -> ClaimType:
    """The kind of one claim.

    Spec: CRP-SPEC-005 §3.3

    Args:
        text: the claim.
        heading: whether it stands as a heading.
        numbered: whether it stands in a numbered list.

    >>> kind_of("I think it is nice.").value, kind_of("I think Acme earned $4M in 2020.").value
    ('OPINION', 'FACTUAL')
    """
    body = fold(text).text.strip().strip("*_# ").strip()
    rest = unopened(body)
    opened = rest != body
    if not any(character.isalnum() for character in rest):
        return ClaimType.META
    if _CITES.match(rest):
        return ClaimType.META
    found = words(rest)
    if (is_silent(rest) and not _second_clause(rest)) or is_talk(rest):
        return ClaimType.META
    counted = quantities(rest)
    firm = bool(counted or dates(rest))
    named = bool(names(rest))
    if not firm and _imperative(rest, numbered):
        return ClaimType.PROCEDURAL
    if firm:
        # "Here are the 3 points:" only counts what follows.
        bare = len(counted) == 1 and counted[0].kind == "number" and not dates(rest)
        announces = bare and rest.endswith(":") and _META.match(rest) is not None
        return ClaimType.META if announces else ClaimType.FACTUAL
    if (heading and finite_verb(found, 1) is None) or rest.endswith("?"):
        return ClaimType.META
    if rest.endswith(":") and (finite_verb(found) is None or _META.match(rest)):
        return ClaimType.META
    if named:
        return ClaimType.FACTUAL
    if _META.match(rest):
        return ClaimType.META
    if opened and len(found) < 2:
        return ClaimType.META
    return ClaimType.OPINION if _OPINION.search(rest) else ClaimType.FACTUAL


def unopened(text: str) -> str:
    """A text without "Yes," "Overall," and "Based on the context," before what it says.

    >>> unopened("Overall, based on the provided context, it is open.")
    'it is open.'
    """
    for _ in range(_MOST_OPENERS):
        match = _OPENER.match(text)
        if match is None or match.end() == 0:
            break
        text = text[match.end() :]
    return text


def _second_clause(text: str) -> bool:
    """Whether something with a verb of its own follows a comma, colon or dash."""
    for match in re.finditer(r"[,;:\u2013]\s|\s-\s|\.\s", text):
        tail = words(text[match.end() : match.end() + 200])
        if len(tail) > 2 and finite_verb(tail, 1) is not None:
            return True
    return False


def _imperative(text: str, numbered: bool) -> bool:
    for _ in range(_MOST_OPENERS):
        first = words(text[:40])
        if first and first[0].lower in IMPERATIVES:
            break
        match = _PURPOSE.match(text)
        if match is None:
            break
        text = text[match.end() :]
    found = words(text[:160])
    if not found:
        return False
    lower = found[0].lower
    if lower not in IMPERATIVES and not (numbered and lower in VERBS):
        return False
    # "Use of the tool is free" and "Test results are in" are no commands.
    after = found[1].lower if len(found) > 1 else ""
    if after in (
        "of",
        "is",
        "was",
        "are",
        "were",
        "has",
        "have",
        "had",
        "can",
        "will",
        "rose",
        "fell",
    ):
        return False
    return finite_verb(found[:4], 1) is None or after in ("the", "a", "an", "your", "it", "this")
