"""The reader: a small encoder that reads a claim beside its evidence.

No trained reader ships; `python -m crp_integrations.recipes.reader` writes the folder that is
read here (docs/reader.md).

One run reads one pair, so what it says about a pair depends on the pair, the files and the
processor, never on the pairs beside it. Evidence that is longer than the window is searched
whole for the sentences that share most with the claim; a claim that is longer is read in pieces,
and the piece in most doubt speaks for it.
"""

from __future__ import annotations

import math
import re
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import tokenizers

from crp_integrations import seals, weights
from crp_integrations.engines.onnx import failed, library, opened, windows
from crp_integrations.errors import ConfigError, EngineError
from crp_integrations.language.sentences import split_sentences
from crp_integrations.vectors import FloatRows

if TYPE_CHECKING:
    import onnxruntime

EVIDENCE: Final = "reader-evidence@1"
# Tokens of evidence and of a claim, frame tokens included; the network was trained within these.
CLAIM_TOKENS: Final = 112
CLAIM_OVERLAP: Final = 16
TOKENIZER_SHA256: Final = "3ad857958ba886d154a5a852119fb31a0dd549d03d8a3fc20e33f2336272cc19"
_WORD: Final = re.compile(r"\w+")


class OnnxReader:
    """Reads pairs of claim and evidence with an encoder that the recipe wrote.

    Safe under threads. The model is read, verified and loaded at the first pair.
    """

    def __init__(self, directory: Path, *, threads: int = 1) -> None:
        """Read the card.

        Args:
            directory: the folder that the recipe wrote, with `model.onnx` and `card.json`.
            threads: processor threads of one run, at least 1.

        Raises:
            ConfigError: `threads` is below 1.
            EngineError: there is no readable card, or it is not a reader's.
        """
        if threads < 1:
            raise ConfigError(f"threads is {threads}, wanted at least 1")
        found = weights.describe_directory(directory)
        card = found.card
        if card.dimensions or not 32 <= card.passage <= 512 or "model.onnx" not in card.files:
            raise EngineError(
                f"{card.name} has {card.dimensions} dimensions and a passage of {card.passage} "
                "tokens, wanted a reader's card",
                engine="reader",
            )
        shared = weights.describe("minilm")
        self._words = found if "tokenizer.json" in card.files else shared
        seen = self._words.card.files["tokenizer.json"]
        if seen != TOKENIZER_SHA256:
            raise EngineError(
                f"the tokenizer has SHA-256 {seen}, wanted {TOKENIZER_SHA256}", engine="reader"
            )
        self._weights = found
        self._threads = threads
        decisive = {
            "files": dict(card.files),
            "tokenizer": seen,
            "passage": card.passage,
            "algorithm": EVIDENCE,
        }
        self._identity = f"{card.name}/{card.version}+{seals.digest(decisive)}"
        self._lock = threading.Lock()
        self._loaded: tuple[onnxruntime.InferenceSession, tokenizers.Tokenizer] | None = None

    def verify(self) -> None:
        """Check every file against its published hash, without loading the model.

        Raises:
            EngineError: a file is missing or was changed; names it.
        """
        self._weights.verify()
        self._words.read("tokenizer.json")

    @property
    def identity(self) -> str:
        """Name, quantisation and a hash over the files' hashes and the rule for evidence."""
        return self._identity

    @property
    def passage(self) -> int:
        """Tokens of evidence that one pair may have; of longer evidence the best are read."""
        return self._weights.card.passage

    def read(self, pairs: Sequence[tuple[str, str]]) -> tuple[FloatRows, list[FloatRows]]:
        """Read claims beside their evidence.

        Spec: CRP-SPEC-005 §6

        Args:
            pairs: claim and evidence, any texts; without evidence or claim nothing is run, and
                the pair is neutral with every character in doubt.

        Returns:
            Probabilities of entailed, neutral and contradicted, shape (n, 3), float32, rows that
            sum to 1; and for each claim the probability that the evidence does not support a
            character, shape (characters of the claim,), float32, 0 between words.

        Raises:
            EngineError: the files were changed, or a library failed.
        """
        probabilities = np.zeros((len(pairs), 3), dtype=np.float32)
        doubts: list[FloatRows] = []
        contexts: dict[str, _Context] = {}
        for number, (claim, evidence) in enumerate(pairs):
            if not claim.strip() or not evidence.strip():
                probabilities[number, 1] = 1
                doubts.append(np.ones(len(claim), dtype=np.float32))
                continue
            session, tokenizer = self._load()
            context = contexts.get(evidence)
            if context is None:
                context = contexts[evidence] = _Context(evidence, tokenizer, self.passage)
            row, doubt = _read(session, tokenizer, claim, context.best(claim))
            probabilities[number] = row
            doubts.append(doubt)
        return probabilities, doubts

    def _load(self) -> tuple[onnxruntime.InferenceSession, tokenizers.Tokenizer]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._open()
            return self._loaded

    def _open(self) -> tuple[onnxruntime.InferenceSession, tokenizers.Tokenizer]:
        # The fused integer product is faster than its parts.
        return opened(
            self._weights.read("model.onnx"),
            self._words.read("tokenizer.json"),
            threads=self._threads,
            level="ORT_ENABLE_EXTENDED",
        )


class _Context:
    """One evidence, cut into sentences once, and which of them a claim is read with."""

    def __init__(self, evidence: str, tokenizer: tokenizers.Tokenizer, passage: int) -> None:
        self._tokenizer = tokenizer
        self._room = passage - 2
        ids = _ids(tokenizer, evidence)
        self._frame = ids[:1], ids[-1:]
        self._whole = ids if len(ids) <= passage else None
        self._pieces: list[list[int]] = []
        self._where: dict[str, list[int]] = defaultdict(list)
        if self._whole is not None:
            return
        for span in split_sentences(evidence):
            text = evidence[span.start : span.end]
            piece = _ids(tokenizer, text)[1:-1]
            # A sentence longer than the window is taken in parts; its words stand for each.
            for start, end in windows(len(piece), self._room, 0):
                self._pieces.append(piece[start:end])
                for word in sorted({found.lower() for found in _WORD.findall(text)}):
                    self._where[word].append(len(self._pieces) - 1)

    def best(self, claim: str) -> list[int]:
        """Token ids of the evidence for a claim, at most a passage, frame tokens included."""
        if self._whole is not None:
            return self._whole
        scores = np.zeros(len(self._pieces))
        for word in sorted({found.lower() for found in _WORD.findall(claim)}):
            places = self._where.get(word, ())
            if places:
                scores[places] += math.log(1 + len(self._pieces) / len(places))
        room, chosen = self._room, []
        for index in np.lexsort((np.arange(len(scores)), -scores)):
            if len(self._pieces[index]) <= room:
                chosen.append(int(index))
                room -= len(self._pieces[index])
            elif room < 16:
                break
        body = [token for index in sorted(chosen) for token in self._pieces[index]]
        return self._frame[0] + body + self._frame[1]


def _read(
    session: onnxruntime.InferenceSession,
    tokenizer: tokenizers.Tokenizer,
    claim: str,
    evidence: list[int],
) -> tuple[FloatRows, FloatRows]:
    try:
        encoded = tokenizer.encode(claim)
    except Exception as error:  # tokenizers has no class of its own
        raise failed("a claim cannot be cut into tokens", tokenizers) from error
    ids, offsets = encoded.ids, encoded.offsets
    characters = np.zeros(len(claim), dtype=np.float32)
    worst = np.array([0, 1, 0], dtype=np.float32)
    body = windows(len(ids) - 2, CLAIM_TOKENS - 2, CLAIM_OVERLAP)
    for number, (start, end) in enumerate(body):
        piece = [ids[0], *ids[start + 1 : end + 1], ids[-1]]
        feed = {
            "evidence": np.array([evidence], dtype=np.int64),
            "claim": np.array([piece], dtype=np.int64),
        }
        try:
            pair, doubt = session.run(["pair", "doubt"], feed)
        except Exception as error:
            raise failed(
                f"a run over {len(evidence)} and {len(piece)} tokens failed", library()
            ) from error
        for token, score in enumerate(doubt[0][1:-1], start=start + 1):
            a, b = offsets[token]
            characters[a:b] = np.maximum(characters[a:b], score)
        if number == 0 or pair[0, 0] < worst[0]:
            worst = pair[0]
    return worst, characters


def _ids(tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
    try:
        return list(tokenizer.encode(text).ids)
    except Exception as error:  # tokenizers has no class of its own
        raise failed("evidence cannot be cut into tokens", tokenizers) from error
