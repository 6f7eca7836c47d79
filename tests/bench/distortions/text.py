"""Documents, the sentences and passages of their prose, cases, and edits."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from inspect import cleandoc
from pathlib import Path
from random import Random
from typing import Any

from crp_integrations.errors import RequestError
from crp_integrations.evaluation.data_sets import each

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


SETS = ("hotpot", "musique", "chunking_eval", "codebase")
FILE = "documents.jsonl.gz"
# Packages whose docstrings are prose about conditions, numbers and units; those that are there.
PACKAGES = (
    "numpy", "networkx", "cryptography", "pydantic", "rich", "typer", "click", "anyio", "httpx",
    "asyncio", "logging", "email", "unittest", "concurrent", "importlib", "scipy", "sqlalchemy",
)  # fmt: skip
# Evidence: so many sentences.
FEWEST, MOST = 3, 8
_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Jr|Sr|Prof|Gen|Col|Capt|Lt|Sgt|Rev|Hon|Gov|Sen|Rep|Inc|Co|Corp|Ltd|"
    r"vs|etc|al|cf|ca|c|approx|No|Nos|Fig|Figs|Eq|Ref|Vol|pp|p|ed|eds|Mt|Ft|Bros|U\.S|U\.K|e\.g|"
    r"i\.e|"
    r"a\.k\.a|a\.m|p\.m|Ph\.D|D\.C|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec)|\b[A-Z])\.$"
)
_END = re.compile(r"[.!?][\"”’)]*\s+(?=[\"“(]?[A-Z0-9])")
# What no sentence of ours may hold: mark-up, code, tokenised text, addresses, lists of authors.
_ODD = re.compile(
    r"[@{}<>|\\=_^~\[\]*`#…†•;\t]|``|''| - |\s[.,;:!?)]|\(\s|https?:|www\.|\.\.|\bet al\b|--|//|  |"
    r"[a-z]\. [a-z]|\bv\.|"
    r"\b[A-Z]\. ?[A-Z]\.|\bii+\b|[a-z]- |\"\"|[^\x20-\xff“”’–—−€]"
)
_LITTLE = re.compile(r"\b(?:the|a|an|of|in|to|is|was|and|for|by|on|with)\b")
_FIRST = re.compile(r"[\"“]?[A-Z]")
_FULL = re.compile(r"[a-z0-9)%\"”]\.$")
_VERB = re.compile(
    r"\b(?:is|are|was|were|be|been|has|have|had|can|could|will|would|should|must|may|might|does|"
    r"do|did|"
    r"\w{3,}ed|won|wrote|made|became|began|took|led|held|left|went|gave|ran|sang|"
    r"\w{3,}(?:[^s\W]s))\b"
)


@dataclass(frozen=True, slots=True)
class Document:
    """One document and where it comes from."""

    source: str
    name: str
    title: str
    text: str

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits of its text's hash."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    @property
    def part(self) -> str:
        """`tune` or `held`, by its text alone."""
        return ("tune", "held")[int(self.digest, 16) % 2]


def read(folder: Path | None, packages: Iterable[str] | None = None) -> list[Document]:
    """The documents of the sets in a folder, then those of this Python.

    Args:
        folder: None for what this Python holds alone.
        packages: whose docstrings are read; None for `PACKAGES`.

    Raises:
        RequestError: the folder has none of the sets, or a file of one cannot be read.
    """
    found: dict[str, Document] = {}
    for one in _of_sets(folder) if folder is not None else ():
        found.setdefault(one.digest, one)
    for one in _manual():
        found.setdefault(one.digest, one)
    for package in PACKAGES if packages is None else packages:
        for one in _docstrings(package):
            found.setdefault(one.digest, one)
    return list(found.values())


def _of_sets(folder: Path) -> Iterator[Document]:
    there = [name for name in SETS if (folder / name / FILE).exists()]
    if not there:
        raise RequestError(
            f"{folder} has none of the sets {', '.join(SETS)}; give the folder that holds them"
        )
    for name in there:

        def document(row: dict[str, Any], name: str = name) -> Document:
            return Document(name, row["doc_id"], row["title"], row["text"])

        yield from each(folder / name / FILE, "doc_id, title, text", document)


def _manual() -> Iterator[Document]:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return
    for name, text in sorted(topics.items()):
        yield Document("python", name, "", _plain(text))


def _docstrings(package: str) -> Iterator[Document]:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return
    root = Path(next(iter(spec.submodule_search_locations)))
    for path in sorted(root.rglob("*.py")):
        if "test" in str(path.relative_to(root)) or path.stat().st_size > 300_000:
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError, OSError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node, clean=False)
                if text and len(text) > 400:
                    name = (
                        f"{package}/{path.relative_to(root).as_posix()}:{node.__class__.__name__}"
                    )
                    yield Document("docstrings", name, "", _plain(cleandoc(text)))


def _plain(text: str) -> str:
    """The paragraphs of a documentation text that are prose, one a line."""
    kept = []
    for part in re.split(r"\n\s*\n", text):
        lines = part.split("\n")
        line = " ".join(part.split())
        if len(line) < 60 or line.startswith((">>>", "..", "-", "*", "|", "+")) or "::" in line:
            continue
        # Definitions, tables and code are indented unevenly.
        if len({len(one) - len(one.lstrip()) for one in lines if one.strip()}) > 1:
            continue
        kept.append(re.sub(r"[`*]+([^`*]+)[`*]+", r"\1", line))
    return "\n".join(kept)


def sentences(text: str) -> list[str]:
    """The sentences of a text; a new line ends one."""
    found: list[str] = []
    for line in text.split("\n"):
        start = 0
        for match in _END.finditer(line):
            piece = line[start : match.end()].strip()
            if _ABBREVIATION.search(piece):
                continue
            found.append(piece)
            start = match.end()
        if line[start:].strip():
            found.append(line[start:].strip())
    return found


def is_prose(text: str) -> bool:
    """Whether a sentence can be edited: whole, of ordinary length, without mark-up."""
    words = text.split()
    return (
        7 <= len(words) <= 34
        and len(text) < 240
        and _FIRST.match(text) is not None
        and _FULL.search(text) is not None
        and not _ABBREVIATION.search(text)
        and not _ODD.search(text)
        and _VERB.search(text) is not None
        and _LITTLE.search(text) is not None
        and text.count("(") == text.count(")")
        and text.count('"') % 2 == 0
        and text.count("“") == text.count("”")
        and sum(sign.isalpha() or sign.isspace() for sign in text) >= 0.8 * len(text)
        and sum(word[:1].isupper() for word in words) <= 0.6 * len(words)
        and not re.match(
            r"(?:PMID|Figure|Table|Copyright|Note|See|Changed in|Added in|New in)\b", text
        )
    )


def passages(document: Document) -> Iterator[Sentence]:
    """Each sentence that can be edited, in a passage of its own around it."""
    found = sentences(document.text)
    if len(found) < FEWEST:
        return
    for place, text in enumerate(found):
        if not is_prose(text):
            continue
        draw = Random(f"{document.digest}/{place}")
        size = min(len(found), draw.randint(FEWEST, MOST))
        start = max(0, min(place - draw.randrange(size), len(found) - size))
        passage = tuple(found[start : start + size])
        after = found[place + 1] if start <= place + 1 < start + size else ""
        yield Sentence(document.title, text, passage, after if after and is_prose(after) else "")
