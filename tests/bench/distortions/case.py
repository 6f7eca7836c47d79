"""A case, an edit, and the names of what is made."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

# The first six bear the names of the engine's own distortion types.
DISTORTED = (
    "NUMBER_CHANGED",
    "DATE_SHIFTED",
    "NEGATION_FLIP",
    "ENTITY_SUBSTITUTED",
    "CONTEXT_STRIPPED",
    "MAGNITUDE_ALTERED",
    "UNIT_CHANGED",
    "ROLE_SWAPPED",
    "UNSUPPORTED_ADDITION",
)
CLEAN = ("verbatim", "reformatted", "paraphrase")
KINDS = (*DISTORTED, *CLEAN)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a document that reads as prose, with the passage around it.

    Attributes:
        title: of the document, empty where it has none.
        passage: the sentences of the evidence; `text` is one of them.
        after: the sentence that follows in the passage, empty when there is none.
    """

    title: str
    text: str
    passage: tuple[str, ...]
    after: str = ""

    @property
    def evidence(self) -> str:
        """The passage as one text."""
        return " ".join(self.passage)


@dataclass(frozen=True, slots=True)
class Edit:
    """What a maker made of a sentence.

    Attributes:
        rule: name of the rule within the kind.
        start, end: the changed characters of the claim; the whole claim for clean cases and for
            what was left out.
        expected: what the evidence has there.
    """

    rule: str
    claim: str
    start: int
    end: int
    expected: str = ""


@dataclass(frozen=True, slots=True)
class Pool:
    """Values of the whole part that stand in for others.

    Attributes:
        people: full names that occur in its documents.
    """

    people: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A claim, the facts it is to be checked against, and what is known of it."""

    case_id: str
    kind: str
    rule: str
    source: str
    document: str
    facts: tuple[str, ...]
    claim: str
    start: int
    end: int
    expected: str = field(default="")


Maker = Callable[[Sentence, Random, Pool], Edit | None]


def put(text: str, start: int, end: int, new: str, rule: str) -> Edit:
    """The text with one stretch replaced."""
    return Edit(rule, text[:start] + new + text[end:], start, start + len(new), text[start:end])


def whole(claim: str, rule: str, expected: str = "") -> Edit:
    """An edit that concerns the whole claim."""
    return Edit(rule, claim, 0, len(claim), expected)


def has(text: str, value: str) -> bool:
    """Whether a value stands in a text as words or figures of its own, in any case."""
    return (
        re.search(rf"(?<![\w.,]){re.escape(value)}(?![\w]|[.,]\d)", text, re.IGNORECASE) is not None
    )


def capital(text: str) -> str:
    """The text with its first letter large."""
    return text[:1].upper() + text[1:]
