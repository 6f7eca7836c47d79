"""Sentence splitters beside ours: pysbd, nltk's Punkt, LlamaIndex's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

Splitter = Callable[[str], list[int]]


def ends(text: str, pieces: Sequence[str]) -> list[int]:
    """Where each piece ends in the text, trailing blanks left out; pieces come in order."""
    found, place = [], 0
    for piece in pieces:
        bare = piece.strip()
        if not bare:
            continue
        at = text.find(bare, place)
        if at < 0:
            continue
        place = at + len(bare)
        found.append(place)
    return found


def pysbd() -> tuple[str, Splitter]:
    """The rules of pysbd, with the text left as it is."""
    module = import_module("pysbd")
    segmenter = module.Segmenter(language="en", clean=False)
    return f"pysbd {version('pysbd')}", lambda text: ends(text, segmenter.segment(text))


def punkt() -> tuple[str, Splitter]:
    """Punkt of nltk with its English parameters.

    They are read where nltk looks for data, else where LlamaIndex brings them along; nothing is
    fetched.

    Raises:
        LookupError: neither has them.
    """
    tokenizer = _punkt()
    return f"nltk Punkt {version('nltk')}", lambda text: [
        end for _, end in tokenizer.span_tokenize(text)
    ]


def llama_index() -> tuple[str, Splitter]:
    """The sentences that LlamaIndex's `SentenceSplitter` puts together: Punkt, ends appended."""
    _punkt()
    module = import_module("llama_index.core.node_parser.text.utils")
    split = module.split_by_sentence_tokenizer()
    return f"LlamaIndex {version('llama-index-core')}", lambda text: ends(text, split(text))


def _punkt() -> Any:
    data = import_module("nltk.data")
    core = Path(str(import_module("llama_index.core").__file__)).parent
    bundled = str(core / "_static" / "nltk_cache")
    data.find("tokenizers/punkt_tab/english/", paths=[*data.path, bundled])
    if bundled not in data.path:
        data.path.append(bundled)
    return import_module("nltk.tokenize.punkt").PunktTokenizer("english")


PEERS: tuple[Callable[[], tuple[str, Splitter]], ...] = (pysbd, punkt, llama_index)


def installed() -> list[tuple[str, Splitter]]:
    """The peers that are there, in their order."""
    found = []
    for peer in PEERS:
        try:
            found.append(peer())
        except (ImportError, LookupError):
            continue
    return found
