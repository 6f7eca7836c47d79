"""Real text that every Python environment has: the documentation inside its packages.

Docstrings, README and METADATA files, and other Markdown, reStructuredText and plain text are cut
into paragraphs of a few sentences. No passage comes twice, and the same packages give the same
passages in the same order.
"""

from __future__ import annotations

import ast
import hashlib
import json
import multiprocessing
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from inspect import cleandoc
from pathlib import Path
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from crp_integrations import seals
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.errors import ConfigError, EngineError
from crp_integrations.language.text import split_sentences
from crp_integrations.language.words import STOP_WORDS
from crp_integrations.ports import Embedder
from crp_integrations.vectors import FloatRows, unit_rows

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


Kind = Literal["minilm", "hash"]
Progress = Callable[[int, int], None]
Hashes = npt.NDArray[np.uint8]

# Texts of one task of a worker, and after how many of them the cache is saved.
TASK = 250
SAVE_EVERY = 20_000


class HashEmbedder:
    """A bag of words hashed into 256 dimensions: quick, for trying a bench out."""

    identity: Final = "bench-hash/256"
    dimensions: Final = 256
    thresholds: Mapping[str, float] = {}

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        """Unit rows, shape (n, 256)."""
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()) or [""]:
                row[_place(word)] += 1.0
        return unit_rows(rows)

    def embed_query(self, text: str) -> FloatRows:
        """A unit vector, shape (256,)."""
        row: FloatRows = self.embed_passages([text])[0]
        return row


@cache
def _place(word: str) -> int:
    return int.from_bytes(hashlib.sha256(word.encode()).digest()[:2], "big") % 256


def embedder_of(kind: Kind) -> Embedder:
    """The shipped embedder, or the one for trying out."""
    return HashEmbedder() if kind == "hash" else _minilm()


@cache
def _minilm() -> OnnxEmbedder:
    return OnnxEmbedder()


class Known:
    """An embedder whose vectors were made before: it looks texts up and embeds only new ones.

    Attributes:
        identity, dimensions, thresholds: those of the embedder that made them.
        seconds: processor time spent within, for taking off what is not the fabric's.
    """

    def __init__(self, base: Embedder, texts: Sequence[str], rows: FloatRows) -> None:
        self._base = base
        self._rows = rows
        self._place = {text: place for place, text in enumerate(texts)}
        self.seconds = 0.0

    @property
    def identity(self) -> str:
        """Name and version of the embedder that made the vectors."""
        return self._base.identity

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self._base.dimensions

    @property
    def thresholds(self) -> Mapping[str, float]:
        """The embedder's thresholds."""
        return self._base.thresholds

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        """Unit rows, shape (n, dimensions)."""
        # Of this thread alone: other threads of an ingestion work meanwhile.
        before = time.thread_time()
        places = [self._place.get(text, -1) for text in texts]
        rows = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for number, place in enumerate(places):
            rows[number] = (
                self._rows[place] if place >= 0 else self._base.embed_query(texts[number])
            )
        self.seconds += time.thread_time() - before
        return rows

    def embed_query(self, text: str) -> FloatRows:
        """A unit vector, shape (dimensions,)."""
        row: FloatRows = self.embed_passages([text])[0]
        return row


def vectors(
    kind: Kind,
    texts: Sequence[str],
    folder: Path | None = None,
    *,
    processes: int = 2,
    progress: Progress | None = None,
) -> FloatRows:
    """The vectors of texts, from the cache as far as it has them.

    Args:
        folder: where the cache is; None for none.
        processes: that embed side by side, at least 1.
        progress: called with texts done and texts to do.

    Returns:
        Unit rows in the order of the texts.

    Raises:
        EngineError: the cache is of rows of another length, or the embedder failed.
    """
    embedder = embedder_of(kind)
    hashes = _hashes(texts)
    path = (
        None if folder is None else folder / f"vectors-{seals.digest(embedder.identity)[7:23]}.npz"
    )
    held, rows = _load(path, embedder.dimensions)
    place = {row.tobytes(): number for number, row in enumerate(held)}
    missing = [number for number, one in enumerate(hashes) if one.tobytes() not in place]
    tasks = [missing[start : start + TASK] for start in range(0, len(missing), TASK)]
    new_hashes: list[Hashes] = []
    new_rows: list[FloatRows] = []

    def keep() -> None:
        nonlocal held, rows
        held = np.concatenate([held, *new_hashes])
        rows = np.concatenate([rows, *new_rows])
        new_hashes.clear()
        new_rows.clear()
        if path is not None:
            _save(path, held, rows)

    done = 0
    for task, made in zip(tasks, _made(kind, texts, tasks, processes), strict=True):
        new_hashes.append(hashes[task])
        new_rows.append(made)
        before, done = done, done + len(task)
        if progress:
            progress(done, len(missing))
        if done // SAVE_EVERY > before // SAVE_EVERY:
            keep()
    if new_rows:
        keep()
    place = {row.tobytes(): number for number, row in enumerate(held)}
    found: FloatRows = rows[[place[h.tobytes()] for h in hashes]]
    return np.ascontiguousarray(found)


def _made(
    kind: Kind, texts: Sequence[str], tasks: Sequence[Sequence[int]], processes: int
) -> Iterator[FloatRows]:
    batches = [(kind, [texts[number] for number in task]) for task in tasks]
    if kind == "hash" or len(batches) < 2:
        yield from map(_embed, batches)
        return
    # Fresh processes: a copy of one that runs threads of a library may hang.
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_embed, batches)


def _embed(batch: tuple[Kind, list[str]]) -> FloatRows:
    kind, texts = batch
    return embedder_of(kind).embed_passages(texts)


def _hashes(texts: Sequence[str]) -> Hashes:
    digests = b"".join(hashlib.sha256(text.encode()).digest() for text in texts)
    return np.frombuffer(digests, dtype=np.uint8).reshape(len(texts), 32)


def _load(path: Path | None, dimensions: int) -> tuple[Hashes, FloatRows]:
    if path is None or not path.exists():
        return np.zeros((0, 32), np.uint8), np.zeros((0, dimensions), np.float32)
    with np.load(path, allow_pickle=False) as stored:
        hashes, rows = stored["hashes"], stored["rows"]
    if rows.shape != (len(hashes), dimensions):
        raise EngineError(
            f"the cache {path.name} holds rows of shape {rows.shape}, "
            f"wanted ({len(hashes)}, {dimensions}); remove it"
        )
    return hashes, rows


def _save(path: Path, hashes: Hashes, rows: FloatRows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        np.savez(file, hashes=hashes, rows=rows)
    Path(file.name).replace(path)
