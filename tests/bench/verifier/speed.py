"""What a verdict costs as the answer and the context grow."""

from __future__ import annotations

import itertools
import re
import statistics
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.language import memo
from crp_integrations.language.sentences import sentence_runs
from crp_integrations.vectors import unit_rows
from tests.bench.verifier.systems import shipped

# A token of English is about so many characters.
CHARACTERS: Final = 4.5
CONTEXTS: Final = (500, 2_000, 8_000, 32_000, 100_000)
ANSWERS: Final = (75, 150, 300, 600, 1_200)
REPEATS: Final = 5
_GAP: Final = re.compile(r"\s+")
_SENTENCE: Final = re.compile(r"[A-Z][a-z][^.`*\"|]{40,260}\.(?= )")


def sentences() -> list[str]:
    """Real sentences, of this Python's own language reference, in order, none twice."""
    topics: dict[str, str] = import_module("pydoc_data.topics").topics
    whole = _GAP.sub(" ", " ".join(topics[name] for name in sorted(topics)))
    return list(dict.fromkeys(_SENTENCE.findall(whole)))


def sized(characters: int, every: int = 1) -> str:
    """A text of about so many characters, of every nth sentence; it starts over at the end."""
    found: list[str] = []
    length = 0
    for sentence in itertools.cycle(sentences()[::every]):
        if length >= characters:
            return " ".join(found)
        found.append(sentence)
        length += len(sentence) + 1
    return ""


def cost(words: int, tokens: int, stored: bool) -> float:
    """Processor milliseconds of one verdict, the median of a few.

    Args:
        words: of the answer.
        tokens: of the context, about.
        stored: whether the dossier brings the facts' vectors.
    """
    verifier, settings, embedder = shipped(), DpeSettings(), OnnxEmbedder()
    given = sentence_runs(sized(round(tokens * CHARACTERS)))
    answer = sized(words * 6, 3)
    rows = None
    if stored:
        rows = unit_rows(np.eye(len(given), embedder.dimensions) + 0.01)
    taken = []
    for _ in range(REPEATS):
        # What was remembered of these texts would make every round after the first too cheap.
        memo.forget()
        passages = tuple((f"context-{n}", fact) for n, fact in enumerate(given, 1))
        before = time.process_time()
        examine(
            Dossier("", answer, passages, rows), embedder=embedder, verifier=verifier,
            settings=settings,
        )  # fmt: skip
        taken.append((time.process_time() - before) * 1000)
    return round(statistics.median(taken), 1)


def curve(
    contexts: Sequence[int] = CONTEXTS, answers: Sequence[int] = ANSWERS
) -> dict[str, dict[str, Any]]:
    """The cost over lengths of context for 300 words, and over answers for 2,000 tokens."""
    return {
        "context_tokens": {str(n): cost(300, n, stored=True) for n in contexts},
        "answer_words": {str(n): cost(n, 2_000, stored=True) for n in answers},
        "without_vectors": {"2000": cost(300, 2_000, stored=False)},
    }
