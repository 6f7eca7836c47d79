"""A model that needs no key: it quotes the best sentences of the context and says so.

It is a plain `Model` and reads only the messages that any provider would get: the facts between
`<context>` and the last `</context>` of the system message, and the last user message as the
question. Equal messages always get an equal answer (`extractive@1`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

from crp_integrations.envelope.continuation import EARLIER
from crp_integrations.language.lexical_overlap import coverage, inverse_frequency
from crp_integrations.language.text import split_sentences
from crp_integrations.language.words import content_stems, words
from crp_integrations.messages import Message, ModelCall, Reply
from crp_integrations.vocabulary import Purpose

EXTRACTIVE = "extractive"
FRAME = "Quoted from the context:"
NO_ANSWER = "The context does not contain an answer to this question."

# The critique of a draft that needs no correction.
SOUND = "NONE"
# Number of sentences in a summary.
SUMMARY_SENTENCES = 2

MOST_QUOTES = 3
# A quoted sentence must contain this share of the question's weighted words.
LEAST_COVERAGE = 0.25
# A further sentence must score at least this share of the best one, and differ in its words.
NEAR_BEST = 0.60
SAME_WORDS = 0.75
SENTENCE_SHARE = 0.70
FULL_LENGTH = 8
POOR_FORM = 0.40
# A text without a full stop is a list item if it has at least this many words, else a title.
ITEM_WORDS = 6
ITEM_FORM = 0.80

_CONTEXT = re.compile(r"<context>(.*)</context>", re.DOTALL)
_BLOCK = re.compile(r"(?:\A|\n[ \t]*\n)[ \t]*\[(\d{1,9})\] ?")
_LEAD = re.compile(r"(?:[-*+•]|\d{1,3}[.)])\s+|>\s*")
_POOR = re.compile(r"^\s*(?:\||```|~~~|\$ |>>> |#)|[{};]\s*$|^\s*[\w.]+\(.*\)\s*$|\|\s*$")
_ENDED = re.compile(r"[.!…][\"')\]”’*_]*$")


@dataclass(frozen=True, slots=True)
class ExtractedQuote:
    """A sentence of the context.

    Attributes:
        number: the fact's number in the context, from 1.
        text: the sentence exactly as in the fact.
    """

    number: int
    text: str


class ExtractiveModel:
    """Answers by quoting; needs no key, no network and no randomness.

    Args:
        most_quotes: maximum number of quotations in an answer.
    """

    def __init__(self, *, most_quotes: int = MOST_QUOTES) -> None:
        self._most = most_quotes

    def call(self, call: ModelCall) -> Reply:
        """Answer with the best sentences of the call's context."""
        return Reply(text="".join(_answered(call, self._most)), model=call.model)

    async def acall(self, call: ModelCall) -> Reply:
        """Answer as `call` does, in a thread."""
        return await asyncio.to_thread(self.call, call)

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        """One piece for each quotation, then the whole reply."""
        pieces = _answered(call, self._most)
        yield from pieces
        yield Reply(text="".join(pieces), model=call.model)

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous version of `stream`."""
        for piece in await asyncio.to_thread(lambda: list(self.stream(call))):
            yield piece


def _answered(call: ModelCall, most: int) -> list[str]:
    """The pieces of a reply, according to the purpose of the call.

    Its answers only quote the context, so a draft never needs correction; it writes no transition
    between parts, and summarises a text by its first sentences.
    """
    if call.purpose is Purpose.CRITIQUE:
        return [SOUND]
    if call.purpose is Purpose.STITCH:
        return []
    if call.purpose is Purpose.SUMMARISE:
        text = question(call.messages)
        return [span.of(text) + " " for span in split_sentences(text)[:SUMMARY_SENTENCES]]
    chosen = quotes(question(call.messages), facts(call.messages), most)
    if not chosen:
        return [NO_ANSWER]
    return [FRAME, *(f'\n\n"{quote.text}" [{quote.number}]' for quote in chosen)]


def facts(messages: Sequence[Message]) -> list[str]:
    """The numbered facts of the last system message that has a context, in order.

    A fact that contains `</context>` or another fact's number does not end the list: the last
    closing tag counts, and only the next number in sequence begins a block.
    """
    for message in reversed(messages):
        match = _CONTEXT.search(message.content) if message.role == "system" else None
        if match:
            return _blocks(match.group(1).strip())
    return []


def question(messages: Sequence[Message]) -> str:
    """The last user message, empty when there is none."""
    return next((m.content for m in reversed(messages) if m.role == "user"), "")


def quotes(asked: str, contents: Sequence[str], most: int = MOST_QUOTES) -> list[ExtractedQuote]:
    """The sentences that answer a question best, best first."""
    sentences = [
        ExtractedQuote(number, text)
        for number, content in enumerate(contents, start=1)
        for text in _sentences(content)
    ]
    if not sentences or not content_stems(asked):
        return []
    rarity = inverse_frequency([sentence.text for sentence in sentences])
    around = [coverage(asked, content, rarity) for content in contents]
    scored: list[tuple[float, int, ExtractedQuote]] = []
    for place, sentence in enumerate(sentences):
        own = coverage(asked, sentence.text, rarity)
        if own < LEAST_COVERAGE:
            continue
        score = SENTENCE_SHARE * own + (1 - SENTENCE_SHARE) * around[sentence.number - 1]
        scored.append((round(score * _form(sentence.text), 9), place, sentence))
    scored.sort(key=lambda row: (-row[0], row[1]))
    return _distinct(scored, most)


def _blocks(context: str) -> list[str]:
    starts: list[tuple[int, int]] = []
    for match in _BLOCK.finditer(context):
        if int(match.group(1)) == len(starts) + 1:
            starts.append((match.start(), match.end()))
    if not starts:
        return [context] if context else []
    ends = [start for start, _ in starts[1:]] + [len(context)]
    blocks = [context[begin:end].strip() for (_, begin), end in zip(starts, ends, strict=True)]
    # An earlier answer is not a fact; it becomes an empty text, so that the numbers stay right.
    return ["" if block.startswith(EARLIER) else block for block in blocks]


def _sentences(content: str) -> list[str]:
    """A fact's sentences without list marks; questions and headings are not quoted."""
    sentences = []
    for span in split_sentences(content):
        text = span.of(content).strip()
        lead = _LEAD.match(text)
        text = text[lead.end() :].strip() if lead else text
        if text and not text.rstrip("\"')]”’*_ ").endswith("?") and not text.startswith("#"):
            sentences.append(text)
    return sentences


def _form(text: str) -> float:
    """How much a text looks like a full sentence, (0, 1]; low for code, tables and titles."""
    count = len(words(text))
    fullness = min(1.0, 0.6 + 0.4 * count / FULL_LENGTH)
    if _POOR.search(text):
        return fullness * POOR_FORM
    if _ENDED.search(text):
        return fullness
    return fullness * (ITEM_FORM if count >= ITEM_WORDS else POOR_FORM)


def _distinct(
    scored: Sequence[tuple[float, int, ExtractedQuote]], most: int
) -> list[ExtractedQuote]:
    chosen: list[ExtractedQuote] = []
    seen: list[set[str]] = []
    for score, _, quote in scored:
        if len(chosen) == most or score < NEAR_BEST * scored[0][0]:
            break
        stems = set(content_stems(quote.text))
        if any(
            len(stems & other) >= SAME_WORDS * max(1, min(len(stems), len(other))) for other in seen
        ):
            continue
        chosen.append(quote)
        seen.append(stems)
    return chosen
