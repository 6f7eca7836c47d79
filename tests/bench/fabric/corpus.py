"""Real text that every Python environment has: the documentation inside its packages.

Docstrings, README and METADATA files, and other Markdown, reStructuredText and plain text are cut
into paragraphs of a few sentences. No passage comes twice, and the same packages give the same
passages in the same order.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from inspect import cleandoc
from pathlib import Path

from crp_integrations import seals
from crp_integrations.errors import ConfigError
from crp_integrations.language.sentences import split_sentences
from crp_integrations.language.words import STOP_WORDS

# The rules below; a cache of other rules is of no use.
RULES = "passages@1"
# Words and signs of one passage; a paragraph above that is cut at its sentences.
FEWEST, MOST = 12, 64
# A passage is English prose: this many words, this share of letters among what is no space, and
# this share of little words, which lists of names and words do not have.
WORDS = 9
LETTERS = 0.75
LITTLE = 0.15
# Longer files are data that happens to be text.
LARGEST_FILE = 2_000_000
_TOKEN = re.compile(r"\w+|[^\w\s]")
_WORD = re.compile(r"[^\W\d_]{2,}")
_PARAGRAPH = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")
_TEXTS = frozenset({".md", ".rst", ".txt"})


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of documentation and where it stands.

    Attributes:
        package: name of the distribution.
        path: file inside site-packages.
        offset: number of the passage within the file, from 0.
    """

    package: str
    path: str
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """Passages and the packages that they come from.

    Attributes:
        passages: in the order of package, path and offset.
        found: distinct passages that the environment has.
        versions: version of each package that gave a passage.
    """

    passages: tuple[Passage, ...]
    found: int
    versions: dict[str, str]

    @property
    def texts(self) -> list[str]:
        """The passages' texts."""
        return [passage.text for passage in self.passages]

    def counts(self) -> dict[str, int]:
        """Passages by package, most first."""
        counted: dict[str, int] = {}
        for passage in self.passages:
            counted[passage.package] = counted.get(passage.package, 0) + 1
        return dict(sorted(counted.items(), key=lambda entry: (-entry[1], entry[0])))

    def thinned(self, count: int) -> Corpus:
        """A part of the corpus, spread evenly over it.

        Raises:
            ConfigError: it has fewer passages.
        """
        passages = spread(self.passages, count)
        named = {passage.package for passage in passages}
        versions = {name: self.versions[name] for name in self.versions if name in named}
        return Corpus(tuple(passages), self.found, versions)

    def package_near(self, share: float) -> str:
        """The package whose share of the passages is nearest to a wanted one, in (0, 1)."""
        wanted = share * len(self.passages)
        return min(self.counts().items(), key=lambda entry: (abs(entry[1] - wanted), entry[0]))[0]


def spread(passages: Sequence[Passage], count: int) -> list[Passage]:
    """`count` of the passages at even distances.

    Raises:
        ConfigError: there are fewer.
    """
    if count > len(passages):
        raise ConfigError(
            f"the packages of this environment hold {len(passages)} distinct passages, "
            f"{count} were asked for; install more packages or ask for fewer"
        )
    return [passages[number * len(passages) // count] for number in range(count)]


def read(count: int | None = None, folder: Path | None = None) -> Corpus:
    """The corpus of this environment.

    Args:
        count: passages wanted, taken at even distances; None for all there are.
        folder: where the passages of the same packages are kept between runs; None for nowhere.

    Raises:
        ConfigError: the environment has fewer.
    """
    packages = sorted(installed(), key=lambda entry: entry[0])
    told = [(name, version, [path for path, _ in files]) for name, version, files in packages]
    key = seals.digest({"rules": RULES, "packages": told})[7:23]
    path = None if folder is None else folder / f"passages-{key}.json"
    if path is not None and path.exists():
        passages = [Passage(*row) for row in json.loads(path.read_text(encoding="utf-8"))]
    else:
        passages = distinct(
            passage for name, _, files in packages for passage in of_package(name, files)
        )
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = [(one.package, one.path, one.offset, one.text) for one in passages]
            path.write_text(json.dumps(rows), encoding="utf-8")
    named = {passage.package for passage in passages}
    versions = {name: version for name, version, _ in packages if name in named}
    whole = Corpus(tuple(passages), len(passages), versions)
    return whole if count is None else whole.thinned(count)


def installed() -> Iterator[tuple[str, str, list[tuple[str, Path]]]]:
    """Name, version and text files of each installed distribution, once each."""
    seen: set[str] = set()
    for one in metadata.distributions():
        name = re.sub(r"[-_.]+", "-", one.metadata["Name"] or "").lower()
        if not name or name in seen:
            continue
        seen.add(name)
        listed = [
            (str(file), Path(str(file.locate())))
            for file in one.files or ()
            if _is_text(str(file)) and not str(file).startswith("..")
        ]
        if listed:
            yield name, one.version, sorted(listed)


def of_package(name: str, files: Iterable[tuple[str, Path]]) -> Iterator[Passage]:
    """The passages of a distribution's files, in their order."""
    for path, place in files:
        try:
            if place.stat().st_size > LARGEST_FILE:
                continue
            text = place.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        texts = docstrings(text) if path.endswith(".py") else [_body(path, text)]
        pieces = (piece for one in texts for piece in paragraphs(one))
        for offset, piece in enumerate(pieces):
            yield Passage(name, path, offset, piece)


def docstrings(source: str) -> list[str]:
    """The docstrings of a module and of all that is in it, in the order of the file."""
    try:
        with warnings.catch_warnings():
            # Invalid escapes in other people's files are no news.
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text:
                found.append((getattr(node, "lineno", 0), cleandoc(text)))
    return [text for _, text in sorted(found, key=lambda entry: entry[0])]


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a text that are prose of a fitting length, on one line each."""
    for part in _PARAGRAPH.split(text):
        line = " ".join(part.split())
        if len(line) < 40:
            continue
        for piece in _pieces(line):
            if _is_prose(piece):
                yield piece


def distinct(passages: Iterable[Passage]) -> list[Passage]:
    """The first passage of each normalised text."""
    seen: set[str] = set()
    kept = []
    for passage in passages:
        key = " ".join(_TOKEN.findall(passage.text.lower()))
        if key not in seen:
            seen.add(key)
            kept.append(passage)
    return kept


def _pieces(line: str) -> Iterator[str]:
    if len(_TOKEN.findall(line)) <= MOST:
        yield line
        return
    held, length = "", 0
    for span in split_sentences(line):
        sentence = line[span.start : span.end].strip()
        tokens = len(_TOKEN.findall(sentence))
        if held and length + tokens > MOST:
            yield held
            held, length = "", 0
        held, length = f"{held} {sentence}".strip(), length + tokens
    if held:
        yield held


def _is_prose(piece: str) -> bool:
    tokens = len(_TOKEN.findall(piece))
    found = _WORD.findall(piece.lower())
    if not FEWEST <= tokens <= MOST or len(found) < WORDS:
        return False
    if sum(word in STOP_WORDS for word in found) < LITTLE * len(found):
        return False
    shown = [sign for sign in piece if not sign.isspace()]
    return sum(sign.isalpha() for sign in shown) >= LETTERS * len(shown)


def _is_text(path: str) -> bool:
    name = path.rpartition("/")[2]
    return (
        path.endswith(".py")
        or name == "METADATA"
        or name.startswith("README")
        or Path(name).suffix.lower() in _TEXTS
    )


def _body(path: str, text: str) -> str:
    """A text file's text; of METADATA what stands below the fields."""
    return text.partition("\n\n")[2] if path.endswith("METADATA") else text
