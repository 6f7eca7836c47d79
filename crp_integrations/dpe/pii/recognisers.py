"""Runs all of the package's recognisers of personal data in one call.

Special categories (health, politics, origin, religion, orientation and union) are found by
sentence: a word of the category, a word for a person, and a phrase that connects the two. A
sentence on the subject alone, such as one on a disease, is not personal data.

Spec: CRP-SPEC-005 §13.2
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from crp_integrations.dpe.pii.contact import (
    emails,
    hardware_addresses,
    ip_addresses,
    phones,
    street_addresses,
    urls,
)
from crp_integrations.dpe.pii.identity_numbers import FINANCIAL_RULES as FINANCIAL
from crp_integrations.dpe.pii.identity_numbers import QUASI_IDENTIFIER_RULES as QUASI
from crp_integrations.dpe.pii.identity_numbers import STATE_RULES as NATIONAL
from crp_integrations.dpe.pii.identity_numbers import ages, crypto_addresses, ibans, salaries
from crp_integrations.dpe.pii.persons import persons
from crp_integrations.dpe.pii.spans import LISTS, PersonalSpan, apart, found_by, read, span
from crp_integrations.dpe.settings import PersonalSettings
from crp_integrations.language.text import split_sentences

NAME: Final = "sensitive@1"


def _words(name: str) -> str:
    # Longer words come first, so that "breast cancer" is not found as "cancer".
    longest = sorted(LISTS[name], key=len, reverse=True)
    return "(?:" + "|".join(re.escape(word).replace("_", "[ -]") for word in longest) + ")"


_PERSON: Final = re.compile(
    r"(?<!\w)(?:i|i'm|i've|my|me|he|he's|she|she's|his|her|him|we|we're|our|they're|patient|patients|employee"
    r"|customer|client|applicant|candidate|mother|father|wife|husband|son|daughter|sister|brother"
    r"|colleague|neighbou?r|friend|boss|mr|mrs|ms|mum|mom|dad|woman|man|girl|boy|child|student"
    r"|you|your|who)(?!\w)",
    re.IGNORECASE,
)
_ILL: Final = _words("illnesses")
_TREATED: Final = (
    r"(?:ha[sd]|have|having|suffer(?:s|ed|ing)?|diagnos(?:ed|is)|test(?:ed|s)? positive|treated|treatment|takes?|taking|on"
    r"|underwent|undergoing|recover(?:ed|ing)|liv(?:es|ing) with|died of|is|was|am|i'm|are|became"
    r"|hospitali[sz]ed|admitted|surviv(?:ed|or)|prescribed|contracted|battling|fighting|due to|because of|after)"
)
_POLITICAL: Final = (
    r"(?:(?:vot(?:e|es|ed|ing) (?:for|against)|member of|supports?|supporter of|campaign(?:s|ed|ing) for"
    r"|donat(?:ed|es) to|activist (?:for|in)|joined|registered (?:as a |with ))(?: the)? "
    r"(?:[A-Z]\w{1,30} ){0,3}(?:party|democrats?|republicans?|labour|conservatives?|tories|greens?|liberals?"
    r"|socialists?|communists?|afd|spd|cdu|fdp|gop|trump|biden|left|right)"
    r"|(?:am|is|was|i'm|he's|she's|are)(?: a| an)?(?: (?:registered|lifelong|staunch|committed|convinced))?"
    r" (?:democrat|republican|communist|socialist|conservative|liberal|anarchist|fascist|libertarian|marxist"
    r"|nationalist|leftist|right-winger|left-winger)"
    r"|political (?:opinions?|views?|beliefs?) (?:is|are|as))"
)
_PEOPLES: Final = _words("peoples")
_ORIGIN: Final = (
    r"(?:descent|origin|heritage|ancestry|ethnicity|nationality|citizen|national|roots|background|immigrant"
    r"|refugee|man|woman|person|people|boy|girl|family|parents|mother|father|wife|husband|actor|actress"
    r"|singer|author|writer|politician|player|scientist|artist|student|director|doctor|nurse|engineer"
    r"|teacher|journalist)"
)
_FAITHS: Final = _words("faiths")
_LOVES: Final = _words("orientations")
_BEING: Final = (
    r"(?:i am|i'm|he is|he's|she is|she's|they are|they're|we are|we're|you are|you're|who is|who are|was|is"
    r"|are|am|being|identif(?:y|ies|ied) as|came out as|converted to|grew up|raised|practi[sc]ing|devout)"
)

_PHRASES: Final[tuple[tuple[str, re.Pattern[str], float], ...]] = tuple(
    (kind, re.compile(rf"(?<!\w){pattern}(?!\w)", re.IGNORECASE), score)
    for kind, pattern, score in (
        ("health", rf"{_TREATED}(?: [\w'-]{{1,20}},?){{0,5}}? (?P<n>{_ILL})", 0.75),
        ("health", rf"(?:his|her|my|patient's|your|their)(?: [\w'-]{{1,20}}){{0,2}}? (?P<n>{_ILL})", 0.75),
        ("health", r"(?:blood type|medical history|medical condition|diagnosis|prescription) (?:is|was|of|:) ?(?P<n>[\w'+-]{1,30}(?: [\w'+-]{1,30}){0,2})", 0.60),
        ("politics", rf"(?P<n>{_POLITICAL})", 0.75),
        ("ethnicity", rf"(?P<n>{_PEOPLES}) {_ORIGIN}", 0.70),
        ("ethnicity", rf"{_BEING}(?: (?:a|an|of|half|part|originally|ethnically|partly|from|also|not)){{0,3}} (?P<n>{_PEOPLES})(?= {_ORIGIN}|[.,;!?]|\Z| (?:and|but|by|because|who))", 0.65),
        ("religion", rf"{_BEING}(?: (?:a|an|strict|devout|practi[sc]ing|non-practi[sc]ing|born|raised|up|very|the)){{0,3}} (?P<n>{_FAITHS})", 0.75),
        ("religion", rf"(?P<n>{_FAITHS}) (?:man|woman|family|faith|parents|believer|convert|boy|girl|person|mother|father|wife|husband)", 0.65),
        ("religion", r"(?:my|his|her|their) (?:religion|faith) (?:is|was) (?P<n>[\w'-]{3,30})", 0.75),
        ("orientation", rf"{_BEING}(?: (?:a|an|openly|proudly|not)){{0,2}} (?P<n>{_LOVES})(?! ?(?:line|forward|away|to|up|from))", 0.75),
        ("orientation", r"(?:my|his|her|their) (?P<n>sexual orientation|sex life|gender identity)", 0.60),
        ("orientation", rf"(?P<n>{_LOVES}) (?:man|woman|couple|person|son|daughter|colleague|employee)", 0.65),
        ("union", r"(?P<n>(?:(?:is|was|am|i'm|are|became) an? )?(?:active |paying )?(?:trade |labou?r )?union (?:member|rep|representative|steward|organi[sz]er|dues|card))", 0.70),
        ("union", r"(?P<n>(?:joined|belongs? to|member of|active in|organi[sz]ed with)(?: (?:a|the|his|her|my|our))? (?:[A-Z]\w{1,30} ){0,3}(?:trade |labou?r )?union)", 0.70),
    )
)  # fmt: skip


def sensitive(plain: str, persons: Sequence[PersonalSpan]) -> Iterator[PersonalSpan]:
    """Words of a special category in sentences about a person."""
    # Most texts name no person. In ASCII no sentence begins directly after a word character.
    if not persons and plain.isascii() and not _PERSON.search(plain):
        return
    starts = [person.start for person in persons]
    at = 0
    for sentence in split_sentences(plain):
        text = plain[sentence.start : sentence.end]
        while at < len(starts) and starts[at] < sentence.start:
            at += 1
        named = at < len(starts) and starts[at] < sentence.end
        if not named and not _PERSON.search(text):
            continue
        for kind, pattern, score in _PHRASES:
            for match in pattern.finditer(text):
                start, end = match.span("n")
                yield span(kind, sentence.start + start, sentence.start + end, NAME, score)


OWN: Final = "own recognisers@1"
_RULES: Final = (*FINANCIAL, *NATIONAL, *QUASI)
_DEFAULT: Final = PersonalSettings()
_DIGIT: Final = re.compile(r"\d")


def find_personal_data(
    text: str, *, settings: PersonalSettings = _DEFAULT
) -> tuple[PersonalSpan, ...]:
    """Places of a text that contain personal data, in order and without overlaps.

    Spec: CRP-SPEC-005 §13.2

    Args:
        settings: minimum score of a place, and kinds that are left out.

    Returns:
        Places with offsets in `text`.

    >>> [(s.kind, s.category.value) for s in find_personal_data("Mail jo@example.org, Ms Moon.")]
    [('email', 'direct'), ('person', 'direct')]
    """
    reading = read(text)
    plain = reading.plain
    names = list(persons(plain))
    places = [
        *names,
        *crypto_addresses(plain),
        *emails(plain),
        *urls(plain),
        *ip_addresses(plain),
        *hardware_addresses(plain),
        *sensitive(plain, names),
    ]
    if _DIGIT.search(plain):
        places += numbered(plain, settings)
    wanted = [
        place
        for place in places
        if place.score >= settings.least_score and place.kind not in settings.aside
    ]
    return tuple(_back(place, reading.back(place.start, place.end)) for place in apart(wanted))


def numbered(plain: str, settings: PersonalSettings) -> list[PersonalSpan]:
    """Data that contains a digit; not searched for in texts without one, as most sentences are."""
    return [
        *found_by(_RULES, plain),
        *ibans(plain),
        *salaries(plain),
        *phones(plain, settings.regions),
        *ages(plain),
        *street_addresses(plain),
    ]


def _back(span: PersonalSpan, place: tuple[int, int]) -> PersonalSpan:
    return PersonalSpan(span.category, span.kind, *place, span.recogniser, span.score)
