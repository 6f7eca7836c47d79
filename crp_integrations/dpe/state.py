"""The state passed between stages: the dossier, findings so far, and the session's sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.engine_signals import Live, Near, Signals, near, numbers
from crp_integrations.dpe.ports import Recogniser, Verifier
from crp_integrations.dpe.records import (
    Claim,
    Classification,
    Finding,
    Omission,
    PersonalData,
    StageRun,
)
from crp_integrations.dpe.report_parts import Coherence, Completeness, Flow, Repetition
from crp_integrations.dpe.settings import DpeSettings, QualitySettings
from crp_integrations.dpe.verifier.alignment import Alignment
from crp_integrations.dpe.verifier.context import PassageContext
from crp_integrations.guard.ports import PolicyEngine
from crp_integrations.language.claims import Segment, segment
from crp_integrations.language.text import Span, split_sentences
from crp_integrations.language.words import content_stems, words
from crp_integrations.ports import Embedder
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import Checked, ClaimType

# Number of rows multiplied at once, to limit memory.
BLOCK = 512
NONE = -1


class SessionText:
    """One text of the session, read on first use."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def every(self) -> tuple[Span, ...]:
        """Its sentences."""
        return split_sentences(self.text)

    @cached_property
    def spans(self) -> list[Span]:
        """Its sentences that contain a word."""
        return [span for span in self.every if words(span.of(self.text))]

    @cached_property
    def sentences(self) -> list[str]:
        """The texts of `spans`."""
        return [span.of(self.text) for span in self.spans]

    @cached_property
    def stems(self) -> list[frozenset[str]]:
        """Content stems of each sentence."""
        return [frozenset(content_stems(sentence)) for sentence in self.sentences]

    @cached_property
    def segments(self) -> list[Segment]:
        """Its claims."""
        return segment(self.text)


@dataclass(frozen=True, slots=True)
class Nearest:
    """For each sentence, the cosine and position of the nearest other one."""

    cosine: list[float]
    place: list[int]


class SessionSentences:
    """The answer and the windows before it."""

    def __init__(
        self, dossier: Dossier, embedder: Embedder | None, signals: Signals | None = None
    ) -> None:
        self.answer = SessionText(dossier.answer)
        self.prior = tuple(SessionText(window.text) for window in dossier.prior)
        self._embedder = embedder
        self._signals = signals or Live()
        self._vectors = dossier.vectors
        self._passages = dossier.passages
        self._rows: dict[str, FloatRows] = {}

    @cached_property
    def before(self) -> SessionText | None:
        """The window directly before the answer; None if there is none or its text is unknown.

        A window whose text is missing must not count as checked.
        """
        return self.prior[-1] if self.prior and self.prior[-1].sentences else None

    @cached_property
    def earlier(self) -> list[str]:
        """All sentences of earlier windows, oldest first."""
        return [sentence for session_text in self.prior for sentence in session_text.sentences]

    @cached_property
    def earlier_stems(self) -> list[frozenset[str]]:
        """Content stems of each sentence of `earlier`."""
        return [stems for session_text in self.prior for stems in session_text.stems]

    def rows(self, texts: Sequence[str]) -> FloatRows:
        """Unit row vectors of texts, shape (n, d); each text is embedded once per examination.

        The caller must ensure that there is an embedder.
        """
        assert self._embedder is not None
        new = [text for text in dict.fromkeys(texts) if text not in self._rows]
        if new:
            for text, row in zip(new, self._embedder.embed_passages(new), strict=True):
                self._rows[text] = row
        if not texts:
            return np.zeros((0, self._embedder.dimensions), dtype=np.float32)
        return np.stack([self._rows[text] for text in texts])

    def cosines(self, at: str, lefts: Sequence[str], rights: Sequence[str]) -> list[float]:
        """Cosines of pairs of texts, six digits."""

        def asked() -> Sequence[float]:
            left, right = self.rows(lefts), self.rows(rights)
            cosines: list[float] = np.einsum("ij,ij->i", left, right, dtype=np.float32).tolist()
            return cosines

        return numbers(self._signals, at, asked)

    def best_for_facts(self, at: str, places: Sequence[int]) -> list[float]:
        """The best cosine of a sentence of the answer with each of these facts, six digits."""

        def asked() -> Sequence[float]:
            rows = self.rows(self.answer.sentences)
            best: list[float] = []
            for start in range(0, len(places), BLOCK):
                block = list(places[start : start + BLOCK])
                if self._vectors is None:
                    facts = self.rows([self._passages[place][1] for place in block])
                else:
                    facts = self._vectors[block]
                best += (facts @ rows.T).max(axis=1).tolist()
            return best

        # Six digits: the order of summation must not decide at the threshold.
        return numbers(self._signals, at, asked)

    def nearest(self, at: str, texts: Sequence[str], others: Sequence[str]) -> Nearest:
        """For each text, the nearest of the others."""
        if not texts or not others:
            return Nearest([-1.0] * len(texts), [NONE] * len(texts))
        return Nearest(*near(self._signals, at, lambda: self._nearest(texts, others)))

    def _nearest(self, texts: Sequence[str], others: Sequence[str]) -> Near:
        own, there = self.rows(texts), self.rows(others)
        best = np.full(len(texts), -1.0)
        place = np.full(len(texts), NONE)
        for start in range(0, len(others), BLOCK):
            # Six digits: the order of summation must not decide a tie.
            values = np.round(own @ there[start : start + BLOCK].T, 6)
            top = values.argmax(axis=1)
            highest = values[np.arange(len(texts)), top]
            better = highest > best
            best = np.where(better, highest, best)
            place = np.where(better, top + start, place)
        return best.tolist(), place.tolist()


@dataclass(frozen=True, slots=True)
class StageTools:
    """The engines and settings of a pipeline."""

    embedder: Embedder | None
    verifier: Verifier | None
    settings: DpeSettings
    policy: PolicyEngine | None = None
    recognisers: tuple[Recogniser, ...] = ()
    signals: Signals = field(default_factory=Live)

    @property
    def quality(self) -> QualitySettings:
        """The settings of stages 6 to 9, with this embedder's thresholds (decision D14)."""
        return self.settings.quality.in_force(self.embedder.thresholds if self.embedder else {})


@dataclass(frozen=True, slots=True)
class State:
    """The results so far; each stage returns a new state.

    Attributes:
        sentences: for each claim, the answer's sentence around it and the next one.
        alignments: alignment of each claim; None for a claim that is not checked.
        language: the answer's language if it clearly differs from the passages'; else empty.
        pairs_cut: number of claims not compared with every earlier one about the same thing.
        session_sentences: sentences of the answer and of earlier windows, for stages 6 to 9.
    """

    dossier: Dossier
    tools: StageTools
    index: Callable[[], PassageContext]
    claims: tuple[Claim, ...] = ()
    sentences: tuple[str, ...] = ()
    alignments: tuple[Alignment | None, ...] = ()
    language: str = ""
    pairs_cut: int = 0
    weakest: tuple[float, float, float] = (1.0, 0.0, 0.0)
    coherence: Coherence = field(default_factory=Coherence)
    repetition: Repetition = field(default_factory=Repetition)
    completeness: Completeness = field(default_factory=Completeness)
    flow: Flow = field(default_factory=Flow)
    omissions: tuple[Omission, ...] = ()
    personal: PersonalData = field(default_factory=PersonalData)
    classification: Classification = field(default_factory=Classification)
    stages: tuple[StageRun, ...] = field(default=())
    session_sentences: SessionSentences | None = None

    @property
    def session(self) -> SessionSentences:
        """The session's sentences, which the pipeline creates once for all stages."""
        assert self.session_sentences is not None
        return self.session_sentences

    @property
    def context(self) -> PassageContext:
        """The passages, indexed once."""
        return self.index()

    @property
    def factual(self) -> list[Claim]:
        """The FACTUAL claims, over which the scores are computed."""
        return [claim for claim in self.claims if claim.claim_type is ClaimType.FACTUAL]

    @property
    def findings(self) -> list[Finding]:
        """All findings so far in order of the answer."""
        return [finding for claim in self.claims for finding in claim.findings]


Stage = Callable[[State], State]


def is_open(claim: Claim) -> bool:
    """Whether a claim is checked: factual or procedural, and within the limits."""
    return claim.checked is Checked.CHECKED


def checked_share(state: State) -> float:
    """Characters of checked claims over characters of checkable ones, 1.0 when there are none.

    Spec: CRP-SPEC-005 §6.2 (decision D6)
    """
    sizes = {
        word: sum(c.end - c.start for c in state.claims if c.checked is word) for word in Checked
    }
    checkable = sizes[Checked.CHECKED] + sizes[Checked.NOT_CHECKED]
    return sizes[Checked.CHECKED] / checkable if checkable else 1.0


def with_findings(claims: tuple[Claim, ...], findings: list[Finding]) -> tuple[Claim, ...]:
    """The claims with findings added, sorted by place; only one finding for each place."""
    taken = {(f.start, f.end) for claim in claims for f in claim.findings}
    added: dict[str, list[Finding]] = {}
    for finding in findings:
        if (finding.start, finding.end) in taken:
            continue
        taken.add((finding.start, finding.end))
        added.setdefault(finding.claim_id, []).append(finding)
    return tuple(
        claim.model_copy(
            update={
                "findings": tuple(
                    sorted(
                        [*claim.findings, *added[claim.claim_id]], key=lambda f: (f.start, f.end)
                    )
                )
            }
        )
        if claim.claim_id in added
        else claim
        for claim in claims
    )
