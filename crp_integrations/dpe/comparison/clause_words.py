"""Splits claims and clauses into the words that are compared one by one.

Words are compared in folded form. A figure or date with its unit is one word, compared by value
whatever its notation. Articles, Markdown, citation markers and "According to the context," are
left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crp_integrations.dpe.verifier.values import MARKER, Value, read, same_value
from crp_integrations.language.claim_kinds import SOURCE
from crp_integrations.language.dates import DateMention
from crp_integrations.language.folded_text import HYPHENATION, Folded
from crp_integrations.language.memo import remembered_of_sentences
from crp_integrations.language.negation import find_conditions, negations
from crp_integrations.language.quantities import Quantity
from crp_integrations.language.words import (
    AUXILIARIES,
    DETERMINERS,
    PAST_OF,
    PREPOSITIONS,
    PRONOUNS,
    STOP_WORDS,
    finite_verb,
    stem,
    words,
)

# Signs are words too: "C++" is not "C". Punctuation and brackets are not.
_TOKEN: Final = re.compile(
    rf"\w+(?:['.,\-&/:@+{HYPHENATION}]+\w+)*|[^\w\s.,;:!?()\[\]{{}}\"'\u2026\u2013\u2014_-]|(?<=\w)\+\+?"
)
_CAMEL: Final = re.compile(r"[a-z][A-Z]")
_ARTICLES: Final = frozenset({"a", "an", "the"})
# Before these words the article is compared: "a few" differs from "few".
_AFTER_ARTICLE: Final = frozenset({"few", "little", "lot"})
# Verbs of contractions, which folding leaves without an apostrophe.
_FULL: Final = {"cant": "can", "cannot": "can", "wont": "will", "shant": "shall", "aint": "is"}
_SHORT_NOT: Final = frozenset(
    word.replace("'", "") for word in AUXILIARIES if word.endswith("n't")
) | {"cannot"}
DENIALS: Final = frozenset({"not", "never"})
_DO: Final = frozenset({"do", "does", "did"})
_LEAD: Final = re.compile(
    rf"[\s*_]*(?:based\s+on|according\s+to|given|from|as\s+stated\s+in)\s+{SOURCE}\s*,\s*", re.I
)
# Words by which another part of a sentence qualifies a clause, besides conditions and negations.
_QUALIFIED: Final = re.compile(
    r"(?i)\?|\brespectively\b|\b(?:would|should|must|shall|ought|can|will|but|yet|although|though"
    r"|however|otherwise|except|while|whereas|since|as)\b"
    r"|\b(?:say|argue|believe|think|hope|warn|assume|suppose|allege|deny|doubt|wonder|ask)"
    r"(?:s|d|ed|ing)?\b"
    r"|\b(?:state|claim|report|announce|suggest|estimate|expect)(?:s|d|ed|ing)?,?\s+that\b"
    r"|\b(?:said|thought|denied|denies)\b|\baccording\s+to\b"
)
_MODAL: Final = re.compile(r"(?i)\b(?:would|should|must|shall|ought|can|will)\b")
_JOINED: Final = re.compile(r"(?i)[\s,]*and\b")
_REPORTS: Final = re.compile(
    r"(?i)(?<!\bthe )(?<!\ba )(?<!\bwas )(?<!\bis )(?<!\bare )(?<!\bwere )(?<!\bbeen )\breported\s"
)
# Words that refer to something mentioned before.
_POINTING: Final = PRONOUNS | frozenset(
    "its their his her our my your one both such former latter here then him them us me".split()
)


@dataclass(frozen=True, slots=True)
class Token:
    """A word with its offsets.

    Attributes:
        value: the figure or date; None for other words.
    """

    key: str
    start: int
    end: int
    value: Value | None = None


def folded_keys(original: str, folded: Folded) -> list[tuple[str, int, int]]:
    """The words of a text with their offsets; a code identifier keeps its capitals."""
    starts, ends = folded.starts, folded.ends
    keys = []
    for match in _TOKEN.finditer(folded.text):
        start, end = starts[match.start()], ends[match.end() - 1]
        key, written = match.group(), original[start:end]
        # A capital letter after the first may belong to a code identifier.
        if written[1:] != key[1:] and written[1:] != written[1:].lower() and _CAMEL.search(written):
            key = written
        keys.append((key, start, end))
    return keys


def figures(text: str) -> list[Value]:
    """The figures and dates of a text; codes and names count as ordinary words."""
    return [value for value in read(text).values if value.family != "name"]


def tokens_of(text: str, keys: Sequence[tuple[str, int, int]], shift: int = 0) -> list[Token]:
    """The words of a text as they are compared.

    Args:
        keys: its words; their offsets are larger by `shift` than those in the text.
    """
    left_out = [(m.start() + shift, m.end() + shift) for m in MARKER.finditer(text)]
    lead = _LEAD.match(text)
    if lead is not None:
        left_out.append((shift, shift + lead.end()))
    values = [(v.start + shift, v.end + shift, v) for v in figures(text)]
    tokens: list[Token] = []
    for place, (key, start, end) in enumerate(keys):
        if any(low < end and start < high for low, high in left_out):
            continue
        value = next((row for row in values if row[0] < end and start < row[1]), None)
        if value is not None:
            if not tokens or tokens[-1].value is not value[2]:
                tokens.append(Token(value[2].text.casefold(), value[0], value[1], value[2]))
            continue
        following = keys[place + 1][0] if place + 1 < len(keys) else ""
        if key in _ARTICLES and following not in _AFTER_ARTICLE:
            continue
        if key in _SHORT_NOT:
            tokens.append(Token(_FULL.get(key, key[:-2]), start, end))
            tokens.append(Token("not", start, end))
            continue
        tokens.append(Token(key, start, end))
    return tokens


@remembered_of_sentences
def claim_tokens(text: str) -> tuple[Token, ...]:
    """The words of a text that is not part of a longer one."""
    return tuple(tokens_of(text, folded_keys(text, Folded(text))))


def same_token(claim: Token, source: Token) -> bool:
    """Whether two words or values are equal; a claim must not add a unit that the source lacks."""
    if claim.value is None or source.value is None:
        same = claim.key == source.key or not readings_of(claim.key).isdisjoint(
            readings_of(source.key)
        )
        return same and (claim.value is None) == (source.value is None)
    own, other = claim.value.of, source.value.of
    if isinstance(own, Quantity) and isinstance(other, Quantity) and own.unit and not other.unit:
        return False
    return same_value(claim.value, source.value)


def readings_of(key: str) -> frozenset[str]:
    """The forms of a word: a hyphen at a line's end may belong to it or come from the break."""
    if HYPHENATION not in key:
        return frozenset({key})
    return frozenset({key.replace(HYPHENATION, ""), key.replace(HYPHENATION, "-")})


def shape_of(tokens: Sequence[Token]) -> tuple[str, ...]:
    """The words without hyphens, and "" for each value; equal texts have equal shapes."""
    return tuple(
        "" if t.value is not None else t.key.replace(HYPHENATION, "").replace("-", "")
        for t in tokens
    )


def content_keys(tokens: Sequence[Token]) -> list[str]:
    """The content words of a claim, without its values."""
    return [t.key for t in tokens if t.value is None and t.key not in STOP_WORDS]


def without_denial(tokens: Sequence[Token]) -> tuple[list[str], list[Token]]:
    """The stems without denials ("not", "never") and their "do", and the denials."""
    stems: list[str] = []
    denials: list[Token] = []
    for token in tokens:
        if token.value is None and token.key in DENIALS:
            denials.append(token)
        elif token.value is not None:
            stems.append(token.key)
        elif token.key not in _DO:
            stems.append(stem(PAST_OF.get(token.key, token.key)))
    return stems, denials


def qualified(text: str) -> bool:
    """Whether a text has a condition, negation, modal, attribution, contrast or question."""
    if _QUALIFIED.search(text) is not None:
        return True
    spans = [span.of(text).lower() for span in find_conditions(text)]
    # "Acme reported revenue" is not a reservation, but "the reported revenue" is.
    reported = spans.count("reported") and _REPORTS.search(text) is not None
    return any(not reported or span != "reported" for span in spans) or bool(negations(text))


def qualified_beside(before: str, after: str) -> bool:
    """Whether the rest of a sentence qualifies the clause between its two parts.

    A modal verb after "and" belongs to the clause there and to those that follow it.

    >>> qualified_beside("", " and can be cancelled monthly."), qualified_beside("It can run", "")
    (False, True)
    """
    if _JOINED.match(after):
        after = _MODAL.sub("", after)
    return qualified(f"{before} {after}")


def points_back(text: str) -> bool:
    """Whether a claim's subject is missing, a pronoun or a demonstrative."""
    text_words = words(_LEAD.sub("", text, count=1))
    verb = finite_verb(text_words)
    if not verb:
        return True
    subject = [word.lower for word in text_words[:verb]]
    if subject[0] in _POINTING:
        return True
    return all(w in STOP_WORDS or w in DETERMINERS or w in PREPOSITIONS for w in subject)


def is_vague(text: str) -> bool:
    """Whether a claim's subject is one common noun with an article, like "the company"."""
    text_words = words(_LEAD.sub("", text, count=1))
    verb = finite_verb(text_words)
    if not verb:
        return True
    subject = text_words[:verb]
    if subject[0].lower not in DETERMINERS:
        return False
    named = [w for w in subject[1:] if w.lower not in STOP_WORDS]
    return len(named) < 2 and not any(w.text[0].isupper() or w.text[0].isdigit() for w in named)


# Of two sentences about "some rooms" or "a room", each may be about other ones.
_INDEFINITE: Final = frozenset("a an another any either several some".split())


def is_indefinite(text: str) -> bool:
    """Whether a claim's subject may be a different thing each time, like "some rooms"."""
    subject = words(_LEAD.sub("", text, count=1))[:1]
    return any(word.lower in _INDEFINITE for word in subject)


def predicate_start(text: str) -> int:
    """The offset of a claim's finite verb; the text's length if there is none."""
    text_words = words(text)
    verb = finite_verb(text_words)
    return text_words[verb].start if verb else len(text)


def identifies(token: Token, tokens: Sequence[Token], text: str) -> bool:
    """Whether a value identifies the thing that a claim is about, rather than describing it.

    A value identifies if it is before the verb, a date next to another value or before a noun, an
    ordinal, or a bare number that neither counts things nor follows a verb or preposition.
    """
    assert token.value is not None
    if token.start < predicate_start(text):
        return True
    place = tokens.index(token)
    following = tokens[place + 1] if place + 1 < len(tokens) else None
    adjacent = following is not None and text[token.end : following.start].isspace()
    noun = adjacent and following is not None and following.key not in PREPOSITIONS | STOP_WORDS
    if isinstance(token.value.of, DateMention):
        return noun or sum(t.value is not None for t in tokens) > 1
    quantity = token.value.of
    if not isinstance(quantity, Quantity) or quantity.kind == "ordinal":
        return True
    if quantity.unit or noun:
        return False
    before = tokens[place - 1].key if place else ""
    led = words(text[: token.start])
    article = bool(led) and led[-1].lower in _ARTICLES
    return article or not (before in AUXILIARIES | PREPOSITIONS or before == "not")
