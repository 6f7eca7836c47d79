"""What is measured: our verifiers, the literal rule, and whatever peer is installed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from crp_integrations import weights
from crp_integrations.bench.verifier.data import Case
from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.ports import Verifier
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.verifier.alignment import AlignmentVerifier
from crp_integrations.dpe.verifier.calibrated import FeaturesVerifier
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.ports import Embedder

# A claim entailed less than this marks its stretch where a verifier marks no words.
LEAST_ENTAILED: Final = 0.5
# A folder with a LettuceDetect model; nothing is downloaded.
LETTUCE: Final = "CRP_BENCH_LETTUCEDETECT"


@dataclass(frozen=True, slots=True)
class Word:
    """What a system says of one answer.

    Attributes:
        score: [0, 1], hallucinated from .20 on.
        probability: its calibrated probability, the score itself where it has none.
        claims: start, end and risk of each claim.
        spans: what it marks.
    """

    score: float
    probability: float
    claims: tuple[tuple[int, int, float], ...] = ()
    spans: tuple[tuple[int, int], ...] = ()


System = Callable[[Case], Word]


def shipped() -> FeaturesVerifier:
    """The fitted verifier that ships, its file verified."""
    return FeaturesVerifier([weights.load("verifier").read("features.json")])


def always_positive(case: Case) -> Word:
    """Calls everything hallucinated."""
    whole = (0, len(case.answer))
    return Word(1.0, 1.0, ((*whole, 1.0),), (whole,))


def engine(verifier: Verifier, embedder: Embedder | None, settings: DpeSettings) -> System:
    """The provenance engine with a verifier."""

    def say(case: Case) -> Word:
        dossier = Dossier(case.question, case.answer, case.passages)
        return word_of(examine(dossier, embedder=embedder, verifier=verifier, settings=settings))

    return say


def word_of(report: Report) -> Word:
    """A report as the bench compares it."""
    claims = tuple(
        (c.start, c.end, 1.0 - (c.entailment or 0.0) if c.unsupported is None else c.unsupported)
        for c in report.claims
        if c.unsupported is not None or c.entailment is not None
    )
    marked = {(f.start, f.end) for f in report.findings}
    # Amplifiers tell what is at stake, not whether the answer is supported.
    score = report.base_score
    if report.hallucination_probability is None:
        marked |= {(a, b) for a, b, risk in claims if 1.0 - risk < LEAST_ENTAILED}
        return Word(score, score, claims, tuple(sorted(marked)))
    return Word(score, report.hallucination_probability, claims, tuple(sorted(marked)))


def ours(names: Sequence[str]) -> dict[str, System]:
    """The systems of this package by name.

    Args:
        names: of `crp`, `features`, `alignment` and `literal`.
    """
    found: dict[str, System] = {}
    if "crp" in names or "features" in names:
        system = engine(shipped(), None, DpeSettings())
        found |= {name: system for name in ("crp", "features") if name in names}
    if "alignment" in names:
        found["alignment"] = engine(AlignmentVerifier(), None, DpeSettings(verifier="alignment"))
    if "literal" in names:
        found["literal"] = engine(AlignmentVerifier(), Once(), DpeSettings.preset("literal"))
    return found


def peers() -> dict[str, System]:
    """Peers that are installed and whose model lies on this machine."""
    folder = os.environ.get(LETTUCE, "")
    if not folder or find_spec("lettucedetect") is None:
        return {}
    library: Any = import_module("lettucedetect.models.inference")
    detector = library.HallucinationDetector(method="transformer", model_path=folder)

    def say(case: Case) -> Word:
        found = detector.predict(
            context=[case.context], question=case.question, answer=case.answer,
            output_format="spans",
        )  # fmt: skip
        spans = tuple((span["start"], span["end"]) for span in found)
        score = max((float(span.get("confidence", 1.0)) for span in found), default=0.0)
        claims = tuple((s["start"], s["end"], float(s.get("confidence", 1.0))) for s in found)
        return Word(score, score, claims, spans)

    return {"lettucedetect": say}


class Once:
    """The shipped embedder, which embeds a text that comes again only once."""

    def __init__(self) -> None:
        self._of = OnnxEmbedder()
        self._rows: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def embed_query(self, text: str) -> Any:
        """A unit vector."""
        if text not in self._rows:
            self._rows[text] = self._of.embed_query(text)
        return self._rows[text]

    def embed_passages(self, texts: Sequence[str]) -> Any:
        """Unit rows."""
        import numpy as np

        rows = [self.embed_query(text) for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(rows), self._of.dimensions)
