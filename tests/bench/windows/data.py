"""Sessions of windows, whole and broken."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tests.bench.distortions.amounts import number
from tests.bench.distortions.case import Maker, Pool, Sentence
from tests.bench.distortions.dates import date
from tests.bench.distortions.phrasing import paraphrase
from tests.bench.distortions.sense import negation
from tests.bench.distortions.text import Document, is_prose, sentences

GENERATOR = "windows@1"
# Words of a window at least, and windows before the present one.
WORDS = 90
PRIOR = 3
# Sessions of one document at most: a book would give all of them.
OF_ONE = 12
# Sub-queries of a session; so many stay without an answer where it is broken.
NEEDS = 4
UNMET = 2
_VALUES: tuple[Maker, ...] = (number, date, negation)
_ARTICLE = re.compile(r"\n(?=PMID: )")


@dataclass(frozen=True, slots=True)
class Session:
    """Earlier answers and a present one.

    Attributes:
        kind: `coherent`, `restated`, `shuffled`, `repeated`, `contradicted`, `complete` or
            `truncated`.
        rule: how it was broken, such as `far` or `negation`.
        facts: the envelope of the present answer.
    """

    key: str
    kind: str
    rule: str
    prior: tuple[str, ...]
    answer: str
    facts: tuple[str, ...]
    sub_queries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive windows of one document."""

    key: str
    windows: tuple[str, ...]


def windows(text: str) -> list[str]:
    """The prose of a document in windows of whole paragraphs."""
    found: list[str] = []
    held: list[str] = []
    count = 0
    for line in text.split("\n"):
        pieces = sentences(line)
        good = [one for one in pieces if is_prose(one)]
        # A paragraph whose sentences are mostly no prose is a table, a list or a reference.
        if not good or 2 * len(good) < len(pieces):
            continue
        held.append(line.strip())
        count += len(line.split())
        if count >= WORDS and (len(held) > 1 or count >= 2 * WORDS):
            found.append("\n\n".join(held))
            held, count = [], 0
    return found


def articles(documents: Sequence[Document]) -> list[Document]:
    """The documents, each article of a collection on its own, so that parts share none."""
    return [
        Document(one.source, f"{one.name}/{place}", one.title, text)
        for one in documents
        for place, text in enumerate(_ARTICLE.split(one.text))
    ]


def stretches(documents: Sequence[Document]) -> list[Stretch]:
    """Runs of windows, `PRIOR` before and one present, that do not overlap."""
    found = []
    size = PRIOR + 1
    for document in documents:
        cut = windows(document.text)
        for run in range(min(OF_ONE, len(cut) // size)):
            key = f"{document.digest}/{run}"
            found.append(Stretch(key, tuple(cut[run * size : (run + 1) * size])))
    return found


def sessions(documents: Sequence[Document], most: int) -> list[Session]:
    """At most so many coherent sessions, each with its broken counterparts."""
    order = Random(f"{GENERATOR}/order")
    found = stretches(documents)
    order.shuffle(found)
    made: list[Session] = []
    for place, stretch in enumerate(found[:most]):
        other = found[(place + len(found) // 2) % len(found)]
        made += _broken(stretch, other)
    titled = [one for one in documents if one.title and _need(one)]
    order.shuffle(titled)
    for start in range(0, min(len(titled) - NEEDS + 1, most * NEEDS), NEEDS):
        made += _needs(titled[start : start + NEEDS])
    return made


def _broken(stretch: Stretch, other: Stretch) -> Iterator[Session]:
    *before, answer = stretch.windows
    prior = tuple(before)
    draw = Random(f"{GENERATOR}/{stretch.key}")

    def session(kind: str, rule: str, text: str) -> Session:
        facts = tuple(text.split("\n\n"))
        return Session(stretch.key, kind, rule, prior, text, facts)

    yield session("coherent", "next", answer)
    if other.key.split("/")[0] != stretch.key.split("/")[0]:
        yield session("shuffled", "other_document", other.windows[-1])
    said = [one for text in prior for line in text.split("\n") for one in sentences(line)]
    prose = [one for one in said if is_prose(one)]
    own = sentences(answer.replace("\n\n", " "))
    half = max(2, len(own) // 2)
    if len(prose) >= half:
        again = draw.sample(prose, half)
        yield session("repeated", "verbatim", " ".join((*own[: len(own) - half], *again)))
        nearly = [_nearly(one, draw) for one in again]
        yield session("repeated", "nearly", " ".join((*own[: len(own) - half], *nearly)))
    yield from _contradicted(stretch, prose, own, draw)


def _nearly(text: str, draw: Random) -> str:
    """The sentence in nearly the same words."""
    edit = paraphrase(Sentence("", text, (text,)), draw, Pool())
    if edit is not None:
        return edit.claim
    lead = draw.choice(("As said, ", "Again, ", "In short, "))
    return lead + text


def _contradicted(
    stretch: Stretch, prose: list[str], own: list[str], draw: Random
) -> Iterator[Session]:
    """An earlier sentence said again in the present window, as it was and with one change."""
    *prior, _ = stretch.windows
    evidence = " ".join(prior)
    makers = list(_VALUES)
    draw.shuffle(makers)
    for maker in makers:
        for text in draw.sample(prose, len(prose)):
            edit = maker(Sentence("", text, (evidence,)), draw, Pool())
            if edit is None:
                continue
            at = draw.randrange(1, len(own)) if len(own) > 1 else 0
            for kind, claim in (("restated", text), ("contradicted", edit.claim)):
                answer = " ".join((*own[:at], claim, *own[at:]))
                facts = (" ".join(own), text)
                yield Session(stretch.key, kind, maker.__name__, tuple(prior), answer, facts)
            return


_QUESTIONS = (
    (re.compile(r"\(born "), "When was {} born?"),
    (re.compile(r"\b(?:is|was) (?:located|situated) (?:in|on|at)\b"), "Where is {} located?"),
    (re.compile(r"\b(?:was|were) (?:founded|established) (?:in|by)\b"), "How was {} founded?"),
    (re.compile(r"\bdirected by\b"), "Who directed {}?"),
    (re.compile(r"\bwritten by\b"), "Who wrote {}?"),
    (re.compile(r"\b(?:is|was|are|were) (?:an?|the)\b"), "What is {}?"),
)
_NOTHING = (
    "There is no information about {}.",
    "The sources say nothing about {}.",
    "More on {} will follow.",
)


def _need(document: Document) -> str:
    """A question that the first sentence of a document answers, empty for none."""
    found = sentences(document.text)
    title = re.sub(r" \(.*\)$", "", document.title)
    if len(found) < 2 or title not in found[0] or len(document.text) > 1_500:
        return ""
    return next((ask.format(title) for told, ask in _QUESTIONS if told.search(found[0])), "")


def _needs(documents: Sequence[Document]) -> Iterator[Session]:
    """A session that answers all sub-queries, and the same with some unanswered."""
    key = "/".join(one.digest for one in documents)
    draw = Random(f"{GENERATOR}/{key}")
    asked = tuple(_need(one) for one in documents)
    texts = [one.text for one in documents]
    met = NEEDS - UNMET
    prior, rest = tuple(texts[: met - 1]), texts[met - 1]
    facts = tuple(texts)
    last = "\n\n".join(texts[met - 1 :])
    yield Session(key, "complete", "all", prior, last, facts, asked)
    yield Session(key, "truncated", "missing", prior, rest, facts, asked)
    titles = [re.sub(r" \(.*\)$", "", one.title) for one in documents[met:]]
    talk = " ".join(draw.choice(_NOTHING).format(title) for title in titles)
    yield Session(key, "truncated", "talk", prior, f"{rest}\n\n{talk}", facts, asked)
