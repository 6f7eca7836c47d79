"""Plain text and Markdown: paragraphs with the headings above them, and front matter."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from crp_integrations.errors import IngestError, MissingExtra
from crp_integrations.fabric.records import Block, Document, StreamedDocument
from crp_integrations.loaders.files import NoTextError, decode, decode_pieces, read_pieces
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import SourceKind

if TYPE_CHECKING:
    from markdown_it.token import Token

FENCE = re.compile(r"---[ \t]*\n(?P<yaml>.*?)(?:^|\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
# Keys that protect or rank a document: a YAML error near them is raised, not read as plain text.
_PROTECTED_KEYS = re.compile(r"""^[\s{?,-]*["']?(?:kind|labels)["']?\s*:""", re.MULTILINE)
# What yaml raises besides its own errors: for a date in month 13, `!!bool perhaps`, deep nesting.
_YAML_ERRORS = (ValueError, ArithmeticError, LookupError, AttributeError, TypeError)
# Limit on values, since a few YAML aliases can expand to billions.
_MAX_VALUES = 10_000


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """A document's description in its front matter.

    Attributes:
        metadata: all other keys.
    """

    kind: SourceKind | None = None
    title: str = ""
    labels: tuple[str, ...] = ()
    metadata: dict[str, JsonValue] = field(default_factory=dict)


def split_front_matter(text: str, *, name: str) -> tuple[FrontMatter, int]:
    """Read the YAML between two `---` lines at the start of a text; also return its end offset.

    A block that is not a YAML mapping (a template, a sentence between two rules) belongs to the
    document's text, unless one of its lines begins with `kind:` or `labels:`.
    """
    match = FENCE.match(text)
    if match is None:
        return FrontMatter(), 0
    import yaml

    try:
        values = yaml.safe_load(match["yaml"])
    except (yaml.YAMLError, *_YAML_ERRORS, RecursionError) as error:
        if _PROTECTED_KEYS.search(match["yaml"]) is None:
            return FrontMatter(), 0
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 2}" if mark is not None else ""
        raise IngestError(f"the front matter of {name} is not YAML{place}: {problem}") from None
    if values is None:
        return FrontMatter(), match.end()
    if not isinstance(values, Mapping):
        if _PROTECTED_KEYS.search(match["yaml"]) is not None:
            raise IngestError(
                f"the front matter of {name} is not a list of keys; write `key: value` in each line"
            )
        return FrontMatter(), 0
    return read_front_matter(values, name=name), match.end()


def read_front_matter(values: Mapping[Any, Any], *, name: str) -> FrontMatter:
    """Build `FrontMatter` from a mapping; unknown keys become metadata."""
    known = {str(key): value for key, value in values.items()}
    kind = known.pop("kind", None)
    try:
        chosen = None if kind is None else SourceKind(str(kind).strip().lower())
    except ValueError:
        raise IngestError(
            f"{name} has kind {str(kind)[:40]!r}, wanted one of {', '.join(SourceKind)}"
        ) from None
    title = known.pop("title", None)
    budget = [_MAX_VALUES]
    return FrontMatter(
        kind=chosen,
        title="" if title is None else str(title).strip(),
        labels=_labels(known.pop("labels", None), name),
        metadata={key: _as_json(value, budget, name) for key, value in known.items()},
    )


def _labels(value: Any, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(
        isinstance(item, str) and item.strip() for item in items
    ):
        raise IngestError(f"the labels of {name} are not a text or a list of texts")
    return tuple(sorted({item.strip() for item in items}))


def _as_json(value: Any, budget: list[int], name: str) -> JsonValue:
    budget[0] -= 1
    if budget[0] < 0:
        raise IngestError(f"the metadata of {name} contains more than {_MAX_VALUES} values")
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _as_json(item, budget, name) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_as_json(item, budget, name) for item in value]
    return str(value)


def reread_document(read: Callable[[], Document], name: str) -> StreamedDocument:
    """Return a document that reads its paragraphs again on each use, to save memory."""
    first = read()
    known = first.document_hash

    def blocks() -> Iterator[Block]:
        again = read()
        if again.document_hash != known:
            raise IngestError(f"{name} changed while it was read; ingest it again")
        yield from again.blocks

    return StreamedDocument(
        uri=first.uri,
        title=first.title,
        document_hash=known,
        blocks=blocks,
        kind=first.kind,
        labels=first.labels,
        metadata=first.metadata,
    )


# List items with at least this many characters on average are treated as paragraphs.
LONG_ITEM = 200
# A form feed ends a paragraph, like an empty line.
_GAP = re.compile(r"\n[ \t]*(?:\n[ \t]*)+|\f")
# Maximum characters of a paragraph; longer ones are cut, to bound memory.
_MAX_PARAGRAPH = 1_000_000


def split_paragraphs(text: str, *, heading: str = "") -> list[Block]:
    """Split a text into paragraphs, each a verbatim slice without outer white space."""
    return list(stream_paragraphs([text], heading=heading))


def stream_paragraphs(texts: Iterable[str], *, heading: str = "") -> Iterator[Block]:
    """Split a text that arrives in pieces; the result equals `split_paragraphs` of the whole."""
    rest, base = "", 0
    for text in texts:
        rest += text
        start = 0
        # The next piece may continue a gap; that white space is stripped later.
        for gap in _GAP.finditer(rest):
            yield from _paragraph_blocks(rest, start, gap.start(), base, heading)
            start = gap.end()
        filled = len(rest.rstrip())
        for block in _paragraph_blocks(rest, start, filled, base, heading):
            # Only the last block may grow with the next piece; earlier ones are complete.
            if block.end - base == filled:
                break
            yield block
            start = block.end - base
        start = len(rest) if start >= filled else start
        rest, base = rest[start:], base + start
    yield from _paragraph_blocks(rest, 0, len(rest), base, heading)


def _paragraph_blocks(text: str, start: int, end: int, base: int, heading: str) -> Iterator[Block]:
    """Yield a paragraph as one block, or as several if it exceeds the maximum length."""
    while True:
        body = text[start:end]
        start += len(body) - len(body.lstrip())
        body = body.strip()
        if not body:
            return
        length = len(body)
        if length > _MAX_PARAGRAPH:
            line = body.rfind("\n", _MAX_PARAGRAPH // 2, _MAX_PARAGRAPH)
            space = line if line > 0 else body.rfind(" ", _MAX_PARAGRAPH // 2, _MAX_PARAGRAPH)
            length = space if space > 0 else _MAX_PARAGRAPH
        yield Block(text=body[:length].rstrip(), start=base + start, heading=heading)
        if length == len(body):
            return
        start += length


def read_text(data: bytes, *, uri: str, name: str) -> Document:
    """A document from the bytes of a text file."""
    return Document(
        uri=uri,
        title=PurePath(name).stem,
        blocks=tuple(split_paragraphs(decode(data, name=name))),
        document_hash=sha256(data),
    )


def stream_text(file: Path, *, uri: str, name: str) -> StreamedDocument:
    """Return a document that reads its paragraphs from the file each time they are needed.

    The file is read once to compute its hash and to check that it is text; at most two million
    characters of it are in memory.
    """
    first = hashlib.sha256()
    filled = False
    for text in decode_pieces(_hash_pieces(file, first), name=name):
        filled = filled or bool(text.strip())
    if not filled:
        raise NoTextError(f"{name} contains no text")
    known = f"sha256:{first.hexdigest()}"

    def blocks() -> Iterator[Block]:
        again = hashlib.sha256()
        yield from stream_paragraphs(decode_pieces(_hash_pieces(file, again), name=name))
        if f"sha256:{again.hexdigest()}" != known:
            raise IngestError(f"{name} changed while it was read; ingest it again")

    return StreamedDocument(uri=uri, title=PurePath(name).stem, document_hash=known, blocks=blocks)


def _hash_pieces(file: Path, into: hashlib._Hash) -> Iterator[bytes]:
    for piece in read_pieces(file):
        into.update(piece)
        yield piece


_TAG = re.compile(r"<!--.*?-->|<[^>]*>", re.DOTALL)
_LINE_END = re.compile(r"\n")


def read_markdown(data: bytes, *, uri: str, name: str) -> Document:
    """A document from the bytes of a Markdown file.

    The title is taken from the front matter, else the first heading, else the file name.
    """
    text = decode(data, name=name)
    about, begin = split_front_matter(text, name=name)
    blocks, title = _markdown_blocks(text, begin)
    if not blocks:
        raise NoTextError(f"{name} contains no text")
    return Document(
        uri=uri,
        title=about.title or title or PurePath(name).stem,
        blocks=tuple(blocks),
        document_hash=sha256(data),
        kind=about.kind,
        labels=about.labels,
        metadata=about.metadata,
    )


def _markdown_blocks(text: str, begin: int) -> tuple[list[Block], str]:
    """Return the blocks after the front matter, and the text of the first heading."""
    # Imported for the first Markdown file only, since it would slow the start of every relay.
    try:
        from markdown_it import MarkdownIt
    except ModuleNotFoundError as error:
        raise MissingExtra("documents", "reading Markdown") from error

    tokens = MarkdownIt("commonmark").enable("table").parse(text[begin:])
    lines = _line_starts(text, begin)
    headings: list[tuple[int, str]] = []
    blocks: list[Block] = []
    title = ""
    for place, token in enumerate(tokens):
        if token.level != 0 or token.map is None or token.type == "hr":
            continue
        if token.type == "heading_open":
            words = " ".join(tokens[place + 1].content.split())
            headings = [(level, above) for level, above in headings if level < int(token.tag[1])]
            headings.append((int(token.tag[1]), words))
            title = title or words
        heading = " > ".join(above for _, above in headings if above)
        for first_line, last_line in _sections(tokens, place):
            block = _slice(text, lines[first_line], lines[last_line], token)
            if block is not None:
                blocks.append(block.model_copy(update={"heading": heading}))
    return blocks, title


def _sections(tokens: list[Token], place: int) -> list[tuple[int, int]]:
    """Line ranges of a block: one, or one per item for a list whose items are paragraphs."""
    token = tokens[place]
    whole = (token.map[0], token.map[1]) if token.map else (0, 0)
    if token.type not in ("bullet_list_open", "ordered_list_open"):
        return [whole]
    items: list[tuple[int, int]] = []
    length = 0
    for inner in tokens[place + 1 :]:
        if inner.level == 0:
            break
        if inner.level == 1 and inner.type == "list_item_open" and inner.map:
            items.append((inner.map[0], inner.map[1]))
        elif inner.type == "inline":
            length += len(inner.content)
    if not items or length < LONG_ITEM * len(items):
        return [whole]
    # An item's lines may end before the next item begins; each item takes the lines between.
    starts = [whole[0], *(first for first, _ in items[1:]), whole[1]]
    return list(pairwise(starts))


def _slice(text: str, start: int, end: int, token: Token) -> Block | None:
    body = text[start:end].strip()
    if not body or _is_markup(token):
        return None
    # Indentation of code is kept: stripping on the left would shift its first line.
    first = start if token.type == "code_block" else text.index(body, start)
    return Block(text=text[first:end].rstrip(), start=first)


def _is_markup(token: Token) -> bool:
    return token.type == "html_block" and not _TAG.sub("", token.content).strip()


def _line_starts(text: str, begin: int) -> list[int]:
    """Offsets of each line from `begin` on, and of the text's end."""
    starts = [begin, *(match.end() for match in _LINE_END.finditer(text, begin))]
    if starts[-1] != len(text):
        starts.append(len(text))
    return starts
