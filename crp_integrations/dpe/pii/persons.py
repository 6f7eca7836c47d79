"""Finds names of persons by titles, introductions, lists of given names and forms of surnames."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from crp_integrations.dpe.pii.spans import LISTS, PersonalSpan, span
from crp_integrations.language.words import AUXILIARIES, ORDINARY, PRONOUNS, STOP_WORDS, VERBS

GIVEN: Final[frozenset[str]] = frozenset(LISTS["given_names"])

AMBIGUOUS: Final[frozenset[str]] = frozenset(LISTS["given_names_and_words"])
"""Given names that are also other words; alone they count only with a sign of a person."""


NAME: Final = "person@1"
_WORD: Final = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
_JOINED: Final = re.compile(r"\.? {1,2}\Z")
_PARTICLES: Final = frozenset(
    "de da di du del della dos das der den van von zu la le el al bin ibn ben ter ten af av y e".split()
)
_TITLES: Final = frozenset(LISTS["titles"])
# Titles that are often something else: "General Motors", "Major League", "Saint Petersburg".
_WEAK_TITLES: Final = frozenset(LISTS["weak_titles"])
_NO_PERSON: Final = frozenset(LISTS["no_persons"])
_PLACE_LEADS: Final = frozenset(LISTS["place_leads"])
_STREETS_BEFORE: Final = re.compile(r"\d{1,5} \Z")
_CUE: Final = re.compile(
    r"(?:\b(?:my|his|her|their|your|our|whose|the|first|last|full|family|maiden|sur|middle|legal"
    r"|customer|client|patient|employee|user|account)[ -]{0,2}?(?:holder'?s? )?(?:name|surname|names)"
    r"(?: is| was|'s|:| on the account(?: is|:)?)?[\s:?\"'-]{1,4}"
    r"|\bname(?:d)? (?:is|him|her|them|it) |\bnamed |\bname ?[:=] ?[\"']?|\bi am |\bi'm |\bthis is |\bit's "
    r"|\bcalled |\bdear |\bhi,? |\bhello,? |\bhey,? |\bmeet |\bregards,?\s{1,3}|\bsincerely,?\s{1,3}"
    r"|\bcheers,?\s{1,3}|\bthanks,?\s{1,3}|\bsigned:? |\bsignature:? |\bsigned by "
    r"|\bto the attention of |\battn:? |\b(?:wife|husband|son|daughter|mother|father|brother|sister"
    r"|friend|colleague|boss|manager|uncle|aunt|cousin|neighbo[u]?r|girlfriend|boyfriend|partner"
    r"|employee|patient|customer|client|student|teacher|nurse|doctor|actor|actress|author|singer"
    r"|director),? )\Z",
    re.IGNORECASE,
)
_STRONG_CUE: Final = re.compile(
    r"name|signed|signature|regards|sincerely|attn|attention|dear", re.I
)
_GREETING: Final = re.compile(r"\b(?:hi|hello|hey)\b", re.IGNORECASE)
_SURNAME: Final = re.compile(
    r"(?:ov[áa]|[eo]v|[eo]va|enko|chuk|czuk|sk[iíý]|ska|sky|skaya|wicz|vić|vic|ić|sson|ss?en|d[óo]ttir"
    r"|sdotter|poulos|opoulou|idis|akis|akos|escu|dze|shvili|[mnrtdlgb]ez|etti|elli|cci|ini|berger|qvist"
    r"|kvist|gaard|nen|o[ğg]lu|zadeh|stein|mann|ström|strom|[mn]aier|meyer|ovich|evich|czyk|čík|ček|ák)\Z"
)
_NOT_SURNAMES: Final = re.compile(
    r"(?:citizen|kitchen|chicken|garden|golden|mission|houston|women|open|hidden|japanese|linen|queen"
    r"|frozen|eleven|heaven|oven|haven|kitten|golden|broken|chosen|screen|green|token|dozen|raven"
    r"|houses?|human|roman|german|norman|ottoman|walkman|batman|superman|spiderman|mini|bikini"
    r"|martini|panini|linguini|zucchini|spaghetti|confetti|moscow|pskov|kharkov|rostov|saratov"
    r"|helsinki|suzuki|kawasaki|nagasaki|whisky|husky|risky|sky|tricky|frankenstein)\Z"
)
_SPEECH: Final = re.compile(
    r" (?:said|says|asked|replied|told|wrote|writes|added|explained|argued|noted|was born|is a|lives"
    r"|lived|works|worked|called|emailed|thinks|thought|married|died|loves|likes|wants|needs)\b"
)
_LONGEST: Final = 5
_COMMON: Final = (
    frozenset(ORDINARY) | VERBS | AUXILIARIES | PRONOUNS | STOP_WORDS
    | frozenset(
        """hello hi hey dear thanks thank please regards sincerely sorry yes no ok okay name names from
        to team all everyone everybody folks guys sir madam customer box p o there subject date re phone email fax tel address user bot agent customer question answer what
        when where why how who which today tomorrow yesterday january february march april june july
        august september october november december monday tuesday wednesday thursday friday saturday
        sunday english french german spanish italian russian chinese japanese american british""".split()
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    start: int
    end: int

    @property
    def key(self) -> str:
        """The text in lower case."""
        return self.text.lower()


def _plain(word: str) -> str:
    if word.isascii():
        return word
    return "".join(
        letter
        for letter in unicodedata.normalize("NFKD", word)
        if not unicodedata.combining(letter)
    )


def _is_given(word: str) -> bool:
    """Whether a word is a given name, or several joined by hyphens."""
    parts = word.split("-")
    return all(part in GIVEN or part in AMBIGUOUS or _plain(part) in GIVEN for part in parts)


def _is_word_too(word: str) -> bool:
    return word in AMBIGUOUS or (word in _COMMON and word not in GIVEN)


def persons(plain: str) -> Iterator[PersonalSpan]:
    """Names of persons, without their titles."""
    for group in _groups(plain):
        person = _person(plain, group)
        if person is not None:
            tokens, score = person
            end = tokens[-1].end
            if tokens[-1].text.endswith(("'s", "'S")):
                end -= 2
            yield span("person", tokens[0].start, end, NAME, score)


def _groups(plain: str) -> Iterator[list[_Token]]:
    """Runs of capitalised words, with the particles between them."""
    group: list[_Token] = []
    pending: list[_Token] = []
    last = -1
    for match in _WORD.finditer(plain):
        if not group and not match.group()[0].isupper():
            last = match.end()
            continue
        token = _Token(match.group(), *match.span())
        joined = bool(group) and _follows(plain, group, pending, last, token.start)
        if token.text[0].isupper():
            if not joined:
                if group:
                    yield group
                group, pending = [], []
            group = [*group, *pending, token]
            pending = []
        elif joined and token.key in _PARTICLES and len(pending) < 2:
            pending = [*pending, token]
        else:
            if group:
                yield group
            group, pending = [], []
        last = token.end
        if len(group) > 12:
            yield group
            group, pending = [], []
    if group:
        yield group


def _follows(plain: str, group: list[_Token], pending: list[_Token], last: int, start: int) -> bool:
    """Whether a word continues a group: after a blank, or after a short word with a point."""
    between = plain[last:start]
    if not _JOINED.fullmatch(between):
        return False
    before = (pending or group)[-1]
    short = len(before.text) == 1 or before.key in _TITLES or before.key in ("jr", "st")
    return "." not in between or short


def _person(plain: str, group: list[_Token]) -> tuple[list[_Token], float] | None:
    """The part of a group that names a person, and its score."""
    tokens = list(group)
    titled = weak = False
    while len(tokens) > 1 and (tokens[0].key in _TITLES or _is_opener(tokens)):
        if tokens[0].key in _TITLES:
            titled, weak = True, tokens[0].key in _WEAK_TITLES
        tokens = tokens[1:]
    while tokens and tokens[-1].key in _PARTICLES:
        tokens = tokens[:-1]
    if not tokens or len(tokens) > _LONGEST:
        return None
    keys = [token.key.removesuffix("'s") for token in tokens]
    has_given_name = _is_given(keys[0])
    if len(keys) == 1 and not has_given_name and keys[0] in _COMMON:
        # A common word, such as the first of a sentence, is never a name in any context.
        return None
    if any(key in _NO_PERSON for key in keys) or _is_address(plain, tokens[0].start):
        return None
    if titled and not (weak and not has_given_name and len(tokens) < 2):
        return (tokens, 0.90) if keys[0] not in _COMMON or has_given_name else None
    before = plain[max(0, tokens[0].start - 48) : tokens[0].start]
    cue = _CUE.search(before)
    if cue and (keys[0] not in _COMMON or has_given_name):
        strong = bool(_STRONG_CUE.search(cue.group()))
        if has_given_name or strong:
            return tokens, 0.85
        if len(tokens) > 1 or _GREETING.search(cue.group()):
            return tokens, 0.55
    return _unintroduced(plain, tokens, keys, has_given_name)


def _unintroduced(
    plain: str, tokens: list[_Token], keys: list[str], has_given_name: bool
) -> tuple[list[_Token], float] | None:
    """A name without a title or introduction, and its score."""
    if len(tokens) == 1:
        text = tokens[0].text
        if not has_given_name or (text.isupper() and len(text) > 1) or len(text) < 3:
            return None
        if not _is_word_too(keys[0]):
            return tokens, 0.60
        spoken = _SPEECH.match(plain, tokens[0].end) or _opens_a_line(plain, tokens[0])
        return (tokens, 0.55) if spoken and keys[0] in GIVEN else None
    if keys[0] in _PLACE_LEADS:
        return None
    if has_given_name and (keys[1] not in _COMMON or len(keys[1]) == 1):
        return tokens, 0.65 if _is_word_too(keys[0]) else 0.85
    if has_given_name and keys[1] in _COMMON and not _is_word_too(keys[0]):
        return tokens[:1], 0.60
    if len(tokens[0].text) == 1 and plain[tokens[0].end : tokens[0].end + 1] == ".":
        return (tokens, 0.60) if keys[-1] not in _COMMON and len(keys[-1]) > 2 else None
    last = keys[-1]
    formed = len(last) > 4 and _SURNAME.search(last) and not _NOT_SURNAMES.search(last)
    if formed and keys[0] not in _COMMON and len(keys[0]) > 2 and not tokens[0].text.isupper():
        return tokens, 0.60
    return None


def _is_opener(tokens: list[_Token]) -> bool:
    """Whether the first word is capitalised only because it begins a sentence."""
    key = tokens[0].key
    if _is_given(key):
        return key in _COMMON and key not in GIVEN and _is_given(tokens[1].key)
    return key in _COMMON or key.split("'")[0] in _COMMON


def _is_address(plain: str, start: int) -> bool:
    return _STREETS_BEFORE.search(plain, max(0, start - 7), start) is not None


def _opens_a_line(plain: str, token: _Token) -> bool:
    """Whether a word is a speaker's label: at the start of a line, before a colon."""
    before = plain[max(0, token.start - 1) : token.start]
    return before in ("", "\n") and plain[token.end : token.end + 1] == ":"
