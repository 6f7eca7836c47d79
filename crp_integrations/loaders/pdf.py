"""PDF: the text of each page, with lines joined into paragraphs.

Needs the extra `pdf`. Words hyphenated at a line's end are joined (a name and a figure keep their
hyphen, and so does a word that the document hyphenates within a line), lines repeated at the top
or foot of most pages are left out, and a paragraph that crosses a page break stays one paragraph.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import PurePath

import pypdf

from crp_integrations.errors import IngestError
from crp_integrations.fabric.records import Block, Document
from crp_integrations.language.folded_text import HYPHENATION, undo_typesetting
from crp_integrations.seals import sha256

_LIGATURES = str.maketrans(
    {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st"}
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
# Dot leaders before the page numbers of a table of contents.
_LEADERS = re.compile(r"(?: ?\.){5,}")
_ITEM = re.compile(r"(?:[•▪●◦‣*–-]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s+\S")
_SENTENCE_END = re.compile(r"[.!?:;…][\"'”’)\]]*\Z")
_HYPHENATED = re.compile(r"(?<![^\W\d_])[^\W\d_]+(?:-[^\W\d_]+)+")
_HYPHENS = frozenset("-\u2010\u00ad")
_LAST_PART = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*[-\u2010]\Z")
_FIRST_WORD = re.compile(r"[^\W\d_]+")
# A line that ends a sentence and is shorter than this share of the longest ends its paragraph.
_SHORT_LINE = 0.75
# A line at the top or foot of this share of at least this many pages is a running title.
_RUNNING_SHARE = 0.6
_RUNNING_PAGES = 4


def read_pdf(data: bytes, *, uri: str, name: str) -> Document:
    """A document from the bytes of a PDF file."""
    title, pages = _extract(data, name)
    blocks = _blocks(_without_running_titles(pages))
    if not blocks:
        raise IngestError(f"{name} has no text layer; run text recognition over it first")
    return Document(
        uri=uri,
        title=title or PurePath(name).stem,
        blocks=tuple(blocks),
        document_hash=sha256(data),
    )


def _extract(data: bytes, name: str) -> tuple[str, list[list[str]]]:
    """Return the title and the lines of each page; an empty line ends a paragraph."""
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise IngestError(f"{name} is encrypted; save it without a password")
        pages = [_clean(page.extract_text()).split("\n") for page in reader.pages]
        title = str((reader.metadata and reader.metadata.title) or "")
    except IngestError:
        raise
    except Exception as error:
        # A damaged PDF makes pypdf raise anything from KeyError to RecursionError.
        raise IngestError(
            f"{name} cannot be read as a PDF (pypdf {pypdf.__version__}: {type(error).__name__})"
        ) from error
    return " ".join(_clean(title).split()), [[line.strip() for line in page] for page in pages]


def _clean(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n")
    text = _CONTROL.sub("", text).translate(_LIGATURES).replace("\u00a0", " ")
    return _LEADERS.sub(" …", text)


def _without_running_titles(pages: list[list[str]]) -> list[list[str]]:
    if len(pages) < _RUNNING_PAGES:
        return pages

    def shape(line: str) -> str:
        return re.sub(r"\d+", "0", line)

    filled = [[line for line in page if line] for page in pages]
    edges = Counter(shape(line) for page in filled if page for line in {page[0], page[-1]})
    running = {line for line, count in edges.items() if count >= _RUNNING_SHARE * len(pages)}
    cleaned = []
    for page in pages:
        places = [place for place, line in enumerate(page) if line]
        out = {place for place in (places[:1] + places[-1:]) if shape(page[place]) in running}
        cleaned.append([line for place, line in enumerate(page) if place not in out])
    return cleaned


def _blocks(pages: list[list[str]]) -> list[Block]:
    compounds = {
        word.lower() for page in pages for line in page for word in _HYPHENATED.findall(line)
    }
    paragraphs: list[tuple[int, str]] = []
    for number, page in enumerate(pages, 1):
        for paragraph in _paragraphs(page, compounds):
            if (
                paragraphs
                and paragraphs[-1][0] == number - 1
                and _runs_on(paragraphs[-1][1], paragraph)
            ):
                paragraphs[-1] = (paragraphs[-1][0], _add(paragraphs[-1][1], paragraph, compounds))
            else:
                paragraphs.append((number, paragraph))
    blocks, start = [], 0
    for number, paragraph in paragraphs:
        blocks.append(Block(text=paragraph, start=start, page=number))
        start += len(paragraph) + 2
    return blocks


def _paragraphs(lines: list[str], compounds: set[str]) -> list[str]:
    width = max((len(line) for line in lines), default=0)
    done: list[str] = []
    text, before = "", ""
    for line in lines:
        ended = _SENTENCE_END.search(before) and len(before) < _SHORT_LINE * width
        if text and (not line or (ended and not _ITEM.match(line))):
            done.append(text)
            text = ""
        if line:
            text = _add(text, line, compounds)
        before = line
    return [*done, text] if text else done


def _add(text: str, line: str, compounds: set[str]) -> str:
    """Append a line to a paragraph: a list item on a line of its own, other lines inline."""
    if not text:
        return line
    if _ITEM.match(line) and not text.endswith("\u00ad"):
        return f"{text}\n{line}"
    # A few characters before and after the line break are enough to apply the hyphenation rule.
    joint = undo_typesetting(f"{text[-2:]}\n{line[:8]}") if text[-1] in _HYPHENS else None
    if joint is None:
        return f"{text} {line}"
    sign = joint.text[1:2]
    if sign == HYPHENATION:
        part, following = _LAST_PART.search(text), _FIRST_WORD.match(line)
        whole = f"{part[0][:-1]}-{following[0]}".lower() if part and following else ""
        sign = text[-1] if whole in compounds else ""
    return text[:-1] + (sign if sign in _HYPHENS else "") + line


def _runs_on(before: str, after: str) -> bool:
    """Whether the first paragraph of a page continues the last one of the page before."""
    return _SENTENCE_END.search(before) is None and after[:1].islower()
