"""Text outside of claims: every character of an answer is in a claim or has a named kind.

This module also finds the leaves of a JSON answer, each of which is a claim.

Spec: CRP-SPEC-005 §3
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from pydantic import JsonValue

from crp_integrations.language.blocks import blocks, counting_cells
from crp_integrations.language.text import Span, fold
from crp_integrations.language.word_lists import LISTS

NonClaimKind = Literal[
    "white space",
    "list marker",
    "table rule",
    "fence",
    "fence info string",
    "separating mark",
    "conjunction",
    "reasoning",
    # Words or figures that are in no claim yet; `segment` turns them into claims.
    "unread",
]


class Stretch(Protocol):
    """Anything with a start and an end in the text."""

    @property
    def start(self) -> int:
        """First offset."""

    @property
    def end(self) -> int:
        """Offset after the last character."""


@dataclass(frozen=True, slots=True)
class NonClaim:
    """A stretch [start, end) of an answer that lies in no claim, and why."""

    start: int
    end: int
    kind: NonClaimKind


_TAG = re.compile(
    r"^\s{0,12}(?P<fence>`{3,}|~{3,})"
    r"|<(?P<close>/?)(?P<name>think|thinking|reasoning|scratchpad)\s{0,8}>",
    re.IGNORECASE | re.MULTILINE,
)


# The labels of the ReAct format, as the prompts of LangChain and LlamaIndex agents define them.
_STEP = re.compile(
    r"^[ \t*]{0,5}(?P<label>Thought|Action|Action Input|Observation|Final Answer|Answer)"
    r"\*{0,2}:\*{0,2}",
    re.MULTILINE,
)
_ANSWERS: Final = ("Final Answer", "Answer")
# LangChain's prompt ends in "Thought:", so the model's text begins after that label.
_LAST_THOUGHT: Final = "i now know the final answer"


def reasoning_spans(text: str) -> tuple[Span, ...]:
    r"""The spans of a model's reasoning, tags and labels included; they are not the answer.

    A tag counts only at the start of a line outside of a code fence, so that an answer may
    mention such tags. A tag without an end extends to the end of the text. In a text in the ReAct
    format that labels an answer, everything before that answer is reasoning.

    >>> [span.of("<think>Hm.</think>Yes.") for span in reasoning_spans("<think>Hm.</think>Yes.")]
    ['<think>Hm.</think>']
    >>> reasoning_spans("Thought: It is 4.\nAnswer: It is 3.")
    (Span(start=0, end=25),)
    """
    tagged = _tagged_spans(text)
    steps = _step_spans(without_reasoning(text, tagged)) if "nswer" in text else []
    if not steps:
        return tagged
    spans: list[Span] = []
    for span in sorted([*tagged, *steps], key=lambda span: span.start):
        if spans and span.start <= spans[-1].end:
            spans[-1] = Span(spans[-1].start, max(spans[-1].end, span.end))
        else:
            spans.append(span)
    return tuple(spans)


def _step_spans(text: str) -> list[Span]:
    """The steps of the ReAct format, each up to and including the label of its answer."""
    labels = list(_STEP.finditer(text))
    if not any(match["label"] in _ANSWERS for match in labels):
        return []
    before = text[: labels[0].start()].strip()
    names = [match["label"] for match in labels]
    steps = "Action Input" in names or (not before and names[0] == "Thought")
    if not steps and before.rpartition("\n")[2].strip(" .*").lower() != _LAST_THOUGHT:
        return []
    spans: list[Span] = []
    start: int | None = 0
    for match in labels:
        if start is None and match["label"] == "Thought":
            start = match.start()
        elif start is not None and match["label"] in _ANSWERS:
            spans.append(Span(start, match.end()))
            start = None
    return spans if start is None else [*spans, Span(start, len(text))]


def _tagged_spans(text: str) -> tuple[Span, ...]:
    """The stretches between tags of reasoning."""
    if "<" not in text:
        return ()
    spans: list[Span] = []
    fence = name = ""
    start = depth = 0
    for match in _TAG.finditer(text):
        if not name:
            if match["fence"]:
                mark = match["fence"]
                fence = mark if not fence else "" if mark.startswith(fence) else fence
            elif not match["close"] and not fence and _opens_line(text, match.start(), spans):
                name, start, depth = match["name"].lower(), match.start(), 1
        elif (match["name"] or "").lower() == name:
            depth += -1 if match["close"] else 1
            if depth == 0:
                spans.append(Span(start, match.end()))
                name = ""
    if name:
        spans.append(Span(start, len(text)))
    return tuple(spans)


def _opens_line(text: str, place: int, spans: list[Span]) -> bool:
    # Looking back at most 80 characters bounds the cost for tags after much white space.
    before = text[max(0, place - 80, spans[-1].end if spans else 0) : place]
    opened = place - len(before) == (spans[-1].end if spans else 0)
    line = before.rpartition("\n")
    return not line[2].strip() and (bool(line[1]) or opened)


# Names of languages that may follow a fence; any other word there may be content.
_LANGUAGES: Final = frozenset(LISTS["code_languages"])
_INFO = re.compile(r"\s*(?P<language>[\w#+.-]+)\s*\Z")
_MARKER = re.compile(
    r"(?P<quote>(?:>\s?){0,4})(?:[-*+\u2022\u2023\u25aa\u25cf\u25e6\u2013]"
    r"|\(?(?P<counter>\d{1,3}|[a-z]|[A-Z]|[ivx]{1,5})[.)])(?=\s)"
)
_ROMAN = {word: at for at, word in enumerate("i ii iii iv v vi vii viii ix x xi xii".split(), 1)}
_CONJUNCTIONS = frozenset("and but yet then however moreover therefore also".split())
_PIECE = re.compile(r"(?P<space>\s+)|(?P<word>(?:(?!\s).)+)", re.DOTALL)


def _counters(text: str, place: int) -> tuple[int, set[tuple[str, int]]]:
    """Where the list marker at a place ends, and the numbers it may stand for, by style."""
    match = _MARKER.match(text, place)
    if match is None:
        return place, set()
    word = match["counter"] or ""
    if word.isdigit():
        return match.end(), {("number", int(word))}
    counted = {("roman", _ROMAN[word])} if word in _ROMAN else set()
    if len(word) == 1:
        counted.add(("letter", ord(word.lower()) - ord("a") + 1))
    return match.end(), counted


def _marked(text: str, reasoning: tuple[Span, ...]) -> Iterator[NonClaim]:
    """Fences, rules, and list markers (bullets, or counters from one up), in order."""
    counted: set[tuple[str, int]] = set()
    shown = without_reasoning(text, reasoning)
    text_blocks = blocks(shown)
    cells = counting_cells(shown, text_blocks)
    for block in text_blocks:
        start, end = block.start, block.end
        if block.kind == "rule":
            yield NonClaim(start, end, "table rule")
        elif block.kind == "fence":
            mark = start
            while mark < end and text[mark] in "`~":
                mark += 1
            yield NonClaim(start, mark, "fence")
            info = _INFO.match(text, mark, end)
            if info is not None and info["language"].lower() in _LANGUAGES:
                yield NonClaim(mark, end, "fence info string")
        elif start in cells:
            yield NonClaim(start, cells[start], "list marker")
        elif block.kind == "item":
            marker, counts = _counters(text, start)
            # A list may start at zero or one.
            if not counts or any(n < 2 or (style, n - 1) in counted for style, n in counts):
                counted |= counts
                if text[marker:end].strip():
                    yield NonClaim(start, marker, "list marker")


def without_reasoning(text: str, reasoning: tuple[Span, ...]) -> str:
    """The text with reasoning replaced by line breaks, so that offsets stay the same."""
    if not reasoning:
        return text
    pieces, place = [], 0
    for span in reasoning:
        pieces += [text[place : span.start], "\n" * (span.end - span.start)]
        place = span.end
    return "".join([*pieces, text[place:]])


def non_claims(text: str, segments: Iterable[Stretch]) -> tuple[NonClaim, ...]:
    """The stretches of a text outside of its claims, in order; with the claims they partition it.

    A figure or word that is a counted list marker, a known language after a fence, a conjunction
    between two claims, or part of reasoning has its own kind; any other one is "unread".

    Args:
        text: an answer.
        segments: its claims in order, as `segment` returns them.

    >>> [(one.kind, one.start, one.end) for one in non_claims("1. Run.", [Span(3, 7)])]
    [('list marker', 0, 2), ('white space', 2, 3)]
    """
    reasoning = reasoning_spans(text)
    known = [NonClaim(span.start, span.end, "reasoning") for span in reasoning]
    known = sorted([*known, *_marked(text, reasoning)], key=lambda gap: gap.start)
    gaps: list[NonClaim] = []
    place, next_known = 0, 0
    for segment in (*segments, Span(len(text), len(text))):
        joint = place > 0 and segment.start < len(text)
        while place < segment.start:
            while next_known < len(known) and known[next_known].end <= place:
                next_known += 1
            here = known[next_known] if next_known < len(known) else None
            if here is not None and here.start <= place:
                end = min(here.end, segment.start)
                gaps.append(NonClaim(place, end, here.kind))
            else:
                end = min(segment.start, here.start if here is not None else len(text))
                gaps.extend(_plain(text, place, end, joint=joint))
            place = end
        place = max(place, segment.end)
    return tuple(gaps)


def markers(text: str) -> dict[int, int]:
    """The start and end of each list marker, code fence and language name after a fence."""
    return {
        mark.start: mark.end
        for mark in _marked(text, reasoning_spans(text))
        if mark.kind != "table rule"
    }


def _plain(text: str, start: int, end: int, *, joint: bool) -> Iterator[NonClaim]:
    for match in _PIECE.finditer(text, start, end):
        word = match["word"]
        kind: NonClaimKind = "separating mark"
        if word is None:
            kind = "white space"
        elif any(character.isalnum() for character in word):
            kind = "conjunction" if joint and _is_conjunction(word) else "unread"
        yield NonClaim(match.start(), match.end(), kind)


def _is_conjunction(word: str) -> bool:
    return fold(word).text.lower().strip(",;") in _CONJUNCTIONS


# A fence around the whole answer; the JSON is inside it.
_FENCED = re.compile(
    r"\s*(?:`{3,}|~{3,})[ \t]*(?:json[5lc]?)?[ \t]*\n(.*?)\n[ \t]*(?:`{3,}|~{3,})\s*\Z", re.S | re.I
)
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


@dataclass(frozen=True, slots=True)
class JsonLeaf:
    """One scalar or empty container of a JSON answer, with its keys.

    Attributes:
        start, end: offsets in the answer, from its own key on; the first leaf of a container
            begins with the container's key, so that every key lies in a leaf.
        keys: spans of the keys of the enclosing objects, outermost first, its own last.
        path: the same keys as strings, and indexes in arrays.
        value: string, number, boolean, None, or an empty container.
        value_span: span of the value, quotation marks included.
    """

    start: int
    end: int
    keys: tuple[Span, ...]
    path: tuple[str | int, ...]
    value: JsonValue
    value_span: Span


def json_leaves(text: str) -> tuple[JsonLeaf, ...] | None:
    """The leaves of a text that is a JSON object or array, alone or in a fence; None for others.

    >>> [(leaf.path, leaf.value) for leaf in json_leaves('{"a": {"b": [1, true]}}')]
    [(('a', 'b', 0), 1), (('a', 'b', 1), True)]
    """
    fenced = _FENCED.match(text)
    low, high = fenced.span(1) if fenced is not None else (0, len(text))
    body = text[low:high].strip()
    if body[:1] + body[-1:] not in ("{}", "[]"):
        return None
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return None
    tokens = list(_TOKEN.finditer(text, low, high))
    leaves: list[JsonLeaf] = []
    # For each open container: the span of its current key, and the key or array index.
    keys: list[Span | None] = []
    path: list[str | int] = []
    pending: int | None = None  # start of the first key that is not yet in a leaf
    place = 0
    while place < len(tokens):
        token, sign = tokens[place], tokens[place].group()
        span = Span(*token.span())
        following = tokens[place + 1].group() if place + 1 < len(tokens) else ""
        if path and isinstance(path[-1], str) and following == ":" and sign[0] == '"':
            path[-1], keys[-1] = json.loads(sign, strict=False), span
            pending = span.start if pending is None else pending
            place += 2
            continue
        empty = sign + following in ("{}", "[]")
        if sign in "{[" and not empty:
            path.append("" if sign == "{" else 0)
            keys.append(None)
        elif sign in "}]":
            path.pop()
            keys.pop()
        elif sign == ",":
            if isinstance(path[-1], int):
                path[-1] += 1
        elif path:
            end = tokens[place + 1].end() if empty else span.end
            start = span.start if pending is None else pending
            pending = None
            around = tuple(key for key in keys if key is not None)
            value = json.loads(text[span.start : end], strict=False)
            leaves.append(JsonLeaf(start, end, around, tuple(path), value, Span(span.start, end)))
        place += 2 if empty else 1
    return tuple(leaves)
