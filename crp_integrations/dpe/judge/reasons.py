"""Why an answer is not LOW, in a few plain sentences in four languages."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from crp_integrations.dpe.records import Claim
from crp_integrations.errors import ConfigError
from crp_integrations.vocabulary import ClaimStatus

MOST: Final = 5
LONGEST: Final = 90
# Gravest first.
REASON_ORDER: Final = (
    ClaimStatus.CONTRADICTED,
    ClaimStatus.UNSUPPORTED,
    # Of supported ones those alone that exact comparison disputes.
    ClaimStatus.SUPPORTED,
    ClaimStatus.NOT_CHECKED,
)

SENTENCES: Final = MappingProxyType(
    {
        "en": MappingProxyType(
            {
                "contradicted": "The answer says {wrong}; {source} says {quote}",
                "disputed": "Exact comparison and the judge differ on {wrong}",
                "contradicted bare": "The evidence contradicts {wrong}",
                "unsupported": "The evidence does not support {wrong}",
                "rejected": "A sub-agent's report rejected {wrong}",
                "unread": "{wrong} was not read",
                "passage": "passage {number}",
                "question": "the question",
                "system": "the system prompt",
            }
        ),
        "de": MappingProxyType(
            {
                "contradicted": "In der Antwort steht {wrong}; in {source} steht {quote}",
                "disputed": "Genauer Vergleich und Prüfmodell sind sich über {wrong} nicht einig",
                "contradicted bare": "Die Quellen widersprechen {wrong}",
                "unsupported": "Die Quellen belegen {wrong} nicht",
                "rejected": "Der Bericht über einen Unteragenten verwirft {wrong}",
                "unread": "{wrong} wurde nicht gelesen",
                "passage": "Abschnitt {number}",
                "question": "der Frage",
                "system": "der Systemanweisung",
            }
        ),
        "fr": MappingProxyType(
            {
                "contradicted": "La réponse dit {wrong} ; {source} dit {quote}",
                "disputed": "La comparaison exacte et le juge divergent sur {wrong}",
                "contradicted bare": "Les sources contredisent {wrong}",
                "unsupported": "Les sources n'appuient pas {wrong}",
                "rejected": "Le rapport sur un sous-agent rejette {wrong}",
                "unread": "{wrong} n'a pas été lu",
                "passage": "le passage {number}",
                "question": "la question",
                "system": "l'instruction système",
            }
        ),
        "es": MappingProxyType(
            {
                "contradicted": "La respuesta dice {wrong}; {source} dice {quote}",
                "disputed": "La comparación exacta y el juez discrepan sobre {wrong}",
                "contradicted bare": "Las fuentes contradicen {wrong}",
                "unsupported": "Las fuentes no respaldan {wrong}",
                "rejected": "El informe sobre un subagente rechaza {wrong}",
                "unread": "{wrong} no se ha leído",
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
    unread = ClaimStatus.NOT_CHECKED
    mentioned = [c for c in claims if c.flagged or c.disputed or c.status is unread]
    mentioned.sort(key=lambda claim: (REASON_ORDER.index(claim.status), claim.start))
    sentences = (_sentence(answer, claim, words) + "." for claim in mentioned)
    return tuple(list(dict.fromkeys(sentences))[:MOST])


def _sentence(answer: str, claim: Claim, words: MappingProxyType[str, str]) -> str:
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
    """Words as they stand, in quotation marks unless they are one figure with its unit."""
    flat = " ".join(text.split()).strip(" .,;:")
    if len(flat) > LONGEST:
        flat = flat[:LONGEST].rsplit(" ", 1)[0] + " …"
    plain = len(flat.split()) <= 2 and any(character.isdigit() for character in flat)
    return flat if plain else f"“{flat}”"
