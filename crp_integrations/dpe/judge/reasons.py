"""Explains in a few sentences, in four languages, why an answer's risk is not LOW."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Final

from crp_integrations.dpe.records import Claim
from crp_integrations.errors import ConfigError
from crp_integrations.vocabulary import ClaimStatus

# Maximum number of reasons, and of characters in a quotation.
MOST: Final = 5
LONGEST: Final = 90
# Gravest first.
REASON_ORDER: Final = (
    ClaimStatus.CONTRADICTED,
    ClaimStatus.UNSUPPORTED,
    # Only supported claims that the exact comparison disputes.
    ClaimStatus.SUPPORTED,
    ClaimStatus.NOT_CHECKED,
)

SENTENCES: Final[Mapping[str, Mapping[str, str]]] = json.loads(
    files(__package__).joinpath("sentences.json").read_text(encoding="utf-8")
)
"""The sentence templates by language and subject."""


def reasons(answer: str, claims: Sequence[Claim], language: str = "en") -> tuple[str, ...]:
    """At most five sentences on flagged, disputed and unread claims, gravest first."""
    if language not in SENTENCES:
        wanted = ", ".join(SENTENCES)
        raise ConfigError(f"language {language!r:.40} is not one of {wanted}")
    words = SENTENCES[language]
    unread = ClaimStatus.NOT_CHECKED
    mentioned = [c for c in claims if c.flagged or c.disputed or c.status is unread]
    mentioned.sort(key=lambda claim: (REASON_ORDER.index(claim.status), claim.start))
    sentences = (_sentence(answer, claim, words) + "." for claim in mentioned)
    return tuple(list(dict.fromkeys(sentences))[:MOST])


def _sentence(answer: str, claim: Claim, words: Mapping[str, str]) -> str:
    start, end = claim.wrong or (claim.start, claim.end)
    wrong = _quoted(answer[start:end])
    if claim.disputed:
        sentence = words["disputed"].format(wrong=wrong)
    elif claim.status is ClaimStatus.NOT_CHECKED:
        sentence = words["unread"].format(wrong=wrong)
    elif claim.status is ClaimStatus.UNSUPPORTED:
        name = "rejected" if claim.rejection else "unsupported"
        sentence = words[name].format(wrong=wrong)
    elif not claim.quotations:
        sentence = words["contradicted bare"].format(wrong=wrong)
    else:
        first = claim.quotations[0]
        name = first.fact_id if first.passage == 0 else "passage"
        source = words[name if name in words else "passage"].format(number=first.passage)
        sentence = words["contradicted"].format(
            wrong=wrong, source=source, quote=_quoted(first.text)
        )
    return sentence[:1].upper() + sentence[1:]


def _quoted(text: str) -> str:
    """The words in quotation marks, or without if they are one figure with its unit."""
    flat = " ".join(text.split()).strip(" .,;:")
    if len(flat) > LONGEST:
        flat = flat[:LONGEST].rsplit(" ", 1)[0] + " …"
    plain = len(flat.split()) <= 2 and any(character.isdigit() for character in flat)
    return flat if plain else f"“{flat}”"
