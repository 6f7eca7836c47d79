"""Additions that nothing supports."""

from __future__ import annotations

import re
from random import Random

from tests.bench.distortions.case import Edit, Pool, Sentence

_CLAUSES = (
    ", at a cost of {million} million dollars",
    ", which was later confirmed by an independent audit",
    ", a figure that had been disputed in court for {small} years",
    ", as reported by {person}",
    ", after a long quarrel with {person}",
    ", and was criticised for it by {person}",
    ", with the financial help of {person}",
    ", although a committee of {small} experts had advised against it",
)
_SENTENCES = (
    " A team led by {person} came to the same result in {city}.",
    " This was financed by a private donor from {city}.",
    " It received an award for this from the city of {city}.",
    " The decision was later reversed by a court in {city}.",
    " {person} later described this as the biggest mistake of the decade.",
    " About {percent} percent of those who were asked opposed it.",
    " The original documents were destroyed in a fire in {city}.",
    " A survey by {person} found {percent} complaints about it.",
    " It was abandoned after {small} unsuccessful attempts.",
    " The costs rose to {million} million dollars within a year.",
)
# For documentation of software.
_TECHNICAL = (
    " This behaviour was removed in version {small}.{percent}.",
    " It is about {percent} percent slower on Windows.",
    " At most {percent} of them can be open at the same time.",
    " The result is cached on disk for {small} hours.",
    " A warning is sent to the administrator by e-mail.",
    " This needs a licence key from the vendor.",
    " It was first proposed by {person}.",
    " On failure the call is repeated {small} times with a pause of {percent} seconds.",
    " The data is encrypted with a key that is stored in the user's home folder.",
)
_CITIES = ("Antwerp", "Bremen", "Tallinn", "Salzburg", "Aarhus", "Porto", "Turin", "Lyon", "Basel")
_SUBJECT = re.compile(r"^(?:[A-Z][\w'’-]+|The|He|She|It|In)\b")


def addition(sentence: Sentence, draw: Random, pool: Pool) -> Edit | None:
    """The sentence with a clause or a further sentence of which the passage says nothing."""
    text = sentence.text
    if not _SUBJECT.match(text) or not text.endswith(".") or text.endswith('".'):
        return None
    technical = not sentence.title
    templates = _TECHNICAL if technical else (*_CLAUSES, *_SENTENCES)
    template = draw.choice(templates)
    added = template.format(
        person=draw.choice(pool.people),
        city=draw.choice(_CITIES),
        small=draw.randint(3, 9),
        million=f"{draw.randint(2, 70)}.{draw.randint(1, 9)}",
        percent=draw.randint(11, 79),
    )
    if any(word in sentence.evidence for word in re.findall(r"[A-Z]\w{3,}|\d{2,}", added)):
        return None
    if template.startswith(","):
        if "," in text or not re.search(r"\b(?:was|were|won|built|became|founded|\w+ed)\b", text):
            return None
        return Edit("clause", f"{text[:-1]}{added}.", len(text) - 1, len(text) - 1 + len(added))
    return Edit("sentence", text + added, len(text) + 1, len(text) + len(added))
