"""Explains in a few sentences, in four languages, why an answer's risk is not LOW."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Final

from crp_integrations.dpe.records import CONTRADICTION, Claim
from crp_integrations.errors import ConfigError
from crp_integrations.vocabulary import ClaimStatus

# Maximum number of reasons, and of characters in a quotation.
MOST: Final = 5
LONGEST: Final = 90
# Gravest first.
REASON_ORDER: Final = (
    ClaimStatus.CONTRADICTED,
    ClaimStatus.UNSUPPORTED,
    # Claims that the exact comparison disputes or finds in contradiction with an earlier one.
    ClaimStatus.SUPPORTED,
    ClaimStatus.NOT_CHECKED,
)

SENTENCES: Final[Mapping[str, Mapping[str, str]]] = json.loads(
    files(__package__).joinpath("sentences.json").read_text(encoding="utf-8")
)
"""The sentence templates by language and subject."""


def reasons(answer: str, claims: Sequence[Claim], language: str = "en") -> tuple[str, ...]:
    """At most five sentences on flagged, disputed, opposed and unread claims, gravest first."""
    if language not in SENTENCES:
        wanted = ", ".join(SENTENCES)
        raise ConfigError(f"language {language!r:.40} is not one of {wanted}")
    words = SENTENCES[language]
    earlier = {claim.claim_id: claim for claim in claims}
    ranked = []
    for claim in claims:
        opposite = None if claim.flagged or claim.disputed else earlier.get(opposed_by(claim))
        status = claim.status if opposite is None else ClaimStatus.SUPPORTED
        if claim.flagged or claim.disputed or opposite or status is ClaimStatus.NOT_CHECKED:
            sentence = _sentence(answer, claim, opposite, words) + "."
            ranked.append((REASON_ORDER.index(status), claim.start, sentence))
    ranked.sort(key=lambda row: row[:2])
    return tuple(list(dict.fromkeys(sentence for *_, sentence in ranked))[:MOST])


def opposed_by(claim: Claim) -> str:
    """The id of the earlier claim that contradicts a claim; empty for none."""
    ids = (finding.other_claim_id for finding in claim.findings if finding.kind == CONTRADICTION)
    return next(filter(None, ids), "")


def _sentence(answer: str, claim: Claim, opposite: Claim | None, words: Mapping[str, str]) -> str:
    start, end = claim.wrong or (claim.start, claim.end)
    wrong = _quoted(answer[start:end])
    if opposite is not None:
        sentence = words["within"].format(
            wrong=wrong, quote=_quoted(answer[opposite.start : opposite.end])
        )
    elif claim.disputed:
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
