"""Why an answer is flagged, in plain sentences of one language."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from crp_integrations.dpe.records import Claim
from crp_integrations.errors import ConfigError
from crp_integrations.vocabulary import ClaimStatus, ClaimType

MOST: Final = 5
LONGEST: Final = 90
# Gravest first.
ORDER: Final = (ClaimStatus.CONTRADICTED, ClaimStatus.UNSUPPORTED, ClaimStatus.NOT_CHECKED)

SENTENCES: Final = MappingProxyType(
    {
        "en": MappingProxyType(
            {
                "contradicted": "The answer says {wrong}; {source} says {quote}",
                "contradicted bare": "The evidence contradicts {wrong}",
                "unsupported": "The evidence does not support {wrong}",
                "unchecked": "{wrong} was not checked",
                "passage": "passage {number}",
                "question": "the question",
                "system": "the system prompt",
            }
        ),
        "de": MappingProxyType(
            {
                "contradicted": "In der Antwort steht {wrong}; in {source} steht {quote}",
                "contradicted bare": "Die Quellen widersprechen {wrong}",
                "unsupported": "Die Quellen belegen {wrong} nicht",
                "unchecked": "{wrong} wurde nicht geprüft",
                "passage": "Abschnitt {number}",
                "question": "der Frage",
                "system": "der Systemanweisung",
            }
        ),
        "fr": MappingProxyType(
            {
                "contradicted": "La réponse dit {wrong} ; {source} dit {quote}",
                "contradicted bare": "Les sources contredisent {wrong}",
                "unsupported": "Les sources n'appuient pas {wrong}",
                "unchecked": "{wrong} n'a pas été vérifié",
                "passage": "le passage {number}",
                "question": "la question",
                "system": "l'instruction système",
            }
        ),
        "es": MappingProxyType(
            {
                "contradicted": "La respuesta dice {wrong}; {source} dice {quote}",
                "contradicted bare": "Las fuentes contradicen {wrong}",
                "unsupported": "Las fuentes no respaldan {wrong}",
                "unchecked": "{wrong} no se ha comprobado",
                "passage": "el pasaje {number}",
                "question": "la pregunta",
                "system": "la instrucción del sistema",
            }
        ),
    }
)


def reasons(answer: str, claims: Sequence[Claim], language: str = "en") -> tuple[str, ...]:
    """At most five sentences on the claims that speak against an answer, gravest first."""
    if language not in SENTENCES:
        wanted = ", ".join(SENTENCES)
        raise ConfigError(f"language {language!r:.40} is not one of {wanted}")
    words = SENTENCES[language]
    told = [claim for claim in claims if claim.flagged or _open(claim)]
    told.sort(key=lambda claim: (ORDER.index(claim.status), claim.start))
    found = (_sentence(answer, claim, words) + "." for claim in told)
    return tuple(list(dict.fromkeys(found))[:MOST])


def _open(claim: Claim) -> bool:
    checkable = claim.claim_type in (ClaimType.FACTUAL, ClaimType.PROCEDURAL)
    return claim.status is ClaimStatus.NOT_CHECKED and checkable


def _sentence(answer: str, claim: Claim, words: MappingProxyType[str, str]) -> str:
    start, end = claim.wrong or (claim.start, claim.end)
    wrong = _quoted(answer[start:end])
    if claim.status is ClaimStatus.NOT_CHECKED:
        said = words["unchecked"].format(wrong=wrong)
    elif claim.status is ClaimStatus.UNSUPPORTED:
        said = words["unsupported"].format(wrong=wrong)
    elif not claim.quotations:
        said = words["contradicted bare"].format(wrong=wrong)
    else:
        first = claim.quotations[0]
        name = first.fact_id if first.passage == 0 else "passage"
        source = words[name if name in words else "passage"].format(number=first.passage)
        said = words["contradicted"].format(wrong=wrong, source=source, quote=_quoted(first.text))
    return said[:1].upper() + said[1:]


def _quoted(text: str) -> str:
    """Words as they stand, in quotation marks unless they are one figure with its unit."""
    flat = " ".join(text.split()).strip(" .,;:")
    if len(flat) > LONGEST:
        flat = flat[:LONGEST].rsplit(" ", 1)[0] + " …"
    plain = len(flat.split()) <= 2 and any(character.isdigit() for character in flat)
    return flat if plain else f"“{flat}”"
