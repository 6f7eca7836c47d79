"""The default verifier: measures of claims and words, read by a small fitted model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeGuard

import numpy as np

from crp_integrations.dpe.engine_signals import Signals, fixed
from crp_integrations.dpe.ports import Judgement
from crp_integrations.dpe.records import Claim
from crp_integrations.dpe.verifier.claim_measures import Measured, measure
from crp_integrations.dpe.verifier.context import Context
from crp_integrations.dpe.verifier.features import THRESHOLDS, Alignment, align
from crp_integrations.dpe.verifier.fitted_model import SIGNALS, Curve, Fitted, Said
from crp_integrations.dpe.verifier.word_measures import Source
from crp_integrations.errors import EngineError
from crp_integrations.language.claim_kinds import (
    is_greeting,
    is_request,
    is_silent,
    is_talk,
    without_opener,
)
from crp_integrations.language.text import fold, plain
from crp_integrations.scores import SCALE
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import Checked, ClaimType

IDENTITY: Final = "alignment@1"
ALIGNED_PASSAGE: Final = 4_000

# Lexical alignment to probability of entailment, straight lines between these points; fitted
# by eye on RAGTruth's clean and hallucinated sentences, to be replaced by a trained map.
CURVE: Final = (
    (0.0, 0.0),
    (0.15, 0.10),
    (0.3, 0.40),
    (0.5, 0.75),
    (0.7, 0.88),
    (0.9, 0.96),
    (1.0, 0.98),
)
CONTRADICTED: Final = 0.92
ENTAILED_BESIDE_CONFLICT: Final = 0.03


def curve(lexical: float, points: Sequence[tuple[float, float]] = CURVE) -> float:
    """A monotone map through points, straight between them.

    >>> curve(0.0), curve(1.0)
    (0.0, 0.98)
    """
    for (left, low), (right, high) in itertools.pairwise(points):
        if lexical <= right:
            return low + (high - low) * (lexical - left) / (right - left)
    return points[-1][1]


def judgement(found: Alignment, passage: int = 0) -> Judgement:
    """The three probabilities that an alignment stands for.

    A dropped condition is not among its grounds: a claim is one clause, and the condition may
    stand in another clause of its sentence. Stage 3 sees the sentence and bounds the score.
    """
    if found.changes or found.flip is not None:
        contradiction, entailment = CONTRADICTED, ENTAILED_BESIDE_CONFLICT
    else:
        # A value without a source lowers the alignment itself; stage 4 bounds it further, since
        # only the whole context can tell that there is none.
        entailment = curve(found.lexical)
        contradiction = 0.02 * (1.0 - entailment)
    return Judgement(entailment, contradiction, 1.0 - entailment - contradiction, passage)


class AlignmentVerifier:
    """Judges by lexical alignment and typed values; deterministic, without weights."""

    identity = IDENTITY
    passage = ALIGNED_PASSAGE
    thresholds: Mapping[str, float] = MappingProxyType({**THRESHOLDS, "contradicted": CONTRADICTED})

    def judge(self, claim: str, passages: Sequence[str]) -> Judgement:
        """The judgement on the best of the passages.

        Spec: CRP-SPEC-005 §6.2
        """
        found = align(claim, Context(passages))
        return judgement(found, found.units[0].passage if found.units else 0)


PASSAGE = 4_000
DIGITS = 12


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer as the fitted model reads it."""

    measured: Measured
    fitted: Fitted
    said: Said

    def over(self, kept: Sequence[bool]) -> Said:
        """What the model says when only some claims count."""
        return self.fitted.say(self.measured, len(kept), kept)


class ReadsAnswers(Protocol):
    """A verifier that reads a whole answer at once, by a fitted model."""

    def read(
        self,
        answer: str,
        question: str,
        claims: Sequence[Claim],
        alignments: Sequence[Alignment | None],
        context: Context,
    ) -> Reading:
        """Read a whole answer."""
        ...


def reads_answers(verifier: object) -> TypeGuard[ReadsAnswers]:
    """Whether a verifier is one: `isinstance` of a protocol takes many times as long."""
    return hasattr(verifier, "read")


class FeaturesVerifier:
    """Judges claims and the whole answer by fitted measures; deterministic."""

    passage = PASSAGE

    def __init__(self, content: bytes) -> None:
        """Read a fitted file."""
        self._fitted = Fitted.of(content)
        self._thresholds = _thresholds(self._fitted)
        digest = sha256(content).removeprefix("sha256:")[:DIGITS]
        self.identity = f"{self._fitted.name}+{digest}"

    @property
    def thresholds(self) -> Mapping[str, float]:
        """What its judgements are read with."""
        return MappingProxyType(self._thresholds)

    @property
    def maps(self) -> dict[str, tuple[tuple[float, float], ...]]:
        """Points of the monotone maps: of the evidence, and of each printed signal.

        Spec: CRP-SPEC-005 §16.3 (decision D13)
        """
        curves = {"evidence": self._fitted.risk, **self._fitted.signals}
        return {name: tuple(zip(c.xs, c.ys, strict=True)) for name, c in curves.items()}

    def read(
        self,
        answer: str,
        question: str,
        claims: Sequence[Claim],
        alignments: Sequence[Alignment | None],
        context: Context,
    ) -> Reading:
        """Read a whole answer."""
        measured = measure(answer, question, claims, alignments, Source(context))
        fitted = self._fitted
        said = fitted.say(measured, len(claims))
        if all(says_nothing(claim, question) or is_greeting(claim.text) for claim in claims):
            kept = [False] * len(claims)
        else:
            # A courtesy before a lie leaves the lie as it is.
            kept = [not _announces(claim) for claim in claims]
        if not all(kept):
            # No source says that it lacks an answer, or has the head over a quotation (§3.3).
            said = min(said, fitted.say(measured, len(claims), kept), key=lambda one: one.evidence)
        return Reading(measured, fitted, said)

    def judge(self, claim: str, passages: Sequence[str]) -> Judgement:
        """The judgement on one claim by the passages, all of which are searched.

        Spec: CRP-SPEC-005 §6.2
        """
        context = Context(passages)
        found = align(claim, context)
        alone = Claim(
            claim_id="c1",
            text=claim,
            start=0,
            end=len(claim),
            reads_as=claim,
            sentence_index=0,
            claim_type=ClaimType.FACTUAL,
            specificity=0.5,
            checked=Checked.CHECKED,
        )
        said = self.read(claim, "", [alone], [found], context).said
        unsupported = float(said.claims[0])
        return judged(found, unsupported, found.units[0].passage if found.units else 0)


def judged(found: Alignment | None, unsupported: float, passage: int = 0) -> Judgement:
    """A probability that a claim is unsupported, as three."""
    entailment = round(1.0 - unsupported, 6)
    conflict = found is not None and (bool(found.changes) or found.flip is not None)
    contradiction = round(unsupported * (CONTRADICTED if conflict else 0.1), 6)
    return Judgement(entailment, contradiction, 1.0 - entailment - contradiction, passage)


def says_nothing(claim: Claim, question: str) -> bool:
    """Whether a claim is talk about the answer with no name, figure or date but the question's."""
    if claim.claim_type is not ClaimType.META:
        return False
    text = without_opener(fold(claim.text).text.strip().strip("*_# "))
    if is_talk(text):
        return True
    asked = plain(question)
    if any(plain(entity.text) not in asked for entity in claim.entities):
        return False
    return is_silent(text) or is_request(text) or claim.text.rstrip().endswith(":")


def _announces(claim: Claim) -> bool:
    """Whether it is the head over a list, or says that its source lacks an answer."""
    text = claim.text
    talk = claim.claim_type is ClaimType.META and not claim.entities
    return talk and (is_silent(text) or text.rstrip().endswith(":"))


def _thresholds(fitted: Fitted) -> dict[str, float]:
    cut = float(np.interp(0.20, fitted.risk.ys, fitted.risk.xs))
    return {
        **THRESHOLDS,
        "contradicted": CONTRADICTED,
        "marked_word": fitted.spans,
        "evidence_medium": round(cut, 6),
        "printed_share": fitted.share,
    }


READING: Final = "attribution.reading"
OVER: Final = "risk.reading"


class Marked(NamedTuple):
    """A word that the verifier holds to be unsupported.

    Attributes:
        place: number of the word in the answer.
        claim: position of its claim, -1 outside of claims.
        start, end: character offsets in the answer.
    """

    place: int
    claim: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Maps:
    """How a fitted file's evidence becomes a composite: its name and its monotone maps.

    Attributes:
        risk: probability on the scale of evidence to the scale of the composite.
        signals: for each signal its printed value to the same scale.
        share: weight of the printed signals in the composite, [0, 1).
    """

    name: str
    risk: Curve
    signals: Mapping[str, Curve]
    share: float


# Log odds of the answer when only some claims count.
Over: TypeAlias = Callable[[Sequence[bool]], float]


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer as the fitted verifier reads it.

    Attributes:
        claims: probability that each claim is not supported, [0, 1].
        evidence: log odds that the answer holds an unsupported claim, as if half of all did.
        probability: calibrated probability of that.
        marked: words that are held to be unsupported, in order.
        over: the evidence when only some claims count.
    """

    claims: tuple[float, ...]
    evidence: float
    probability: float
    marked: tuple[Marked, ...]
    maps: Maps
    over: Over


def heard(signals: Signals, ask: Callable[[], Reading]) -> Heard:
    """A reading to a millionth."""
    given: list[Reading] = []

    def asked() -> dict[str, Any]:
        given.append(ask())
        return _told(given[-1])

    def over(kept: Sequence[bool]) -> float:
        return float(
            signals.said(OVER, lambda: fixed((given[-1] if given else ask()).over(kept).evidence))
            / SCALE
        )

    told = signals.said(READING, asked)
    try:
        return Heard(
            claims=tuple(value / SCALE for value in told["claims"]),
            evidence=told["evidence"] / SCALE,
            probability=told["probability"] / SCALE,
            marked=tuple(Marked(*word) for word in told["marked"]),
            maps=Maps(
                name=told["name"],
                risk=_curve(told["maps"]["risk"]),
                signals={name: _curve(told["maps"][name]) for name in SIGNALS},
                share=float(told["share"]),
            ),
            over=over,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError("a remembered reading is malformed", engine="features") from error


def _told(reading: Reading) -> dict[str, Any]:
    measured, said, fitted = reading.measured, reading.said, reading.fitted
    places = np.flatnonzero(said.words >= fitted.spans)
    columns = (places, measured.word_claim[places], measured.starts[places], measured.ends[places])
    return {
        "claims": [fixed(value) for value in said.claims.tolist()],
        "evidence": fixed(said.evidence),
        "probability": fixed(said.probability),
        "marked": [list(word) for word in zip(*(c.tolist() for c in columns), strict=True)],
        "name": fitted.name,
        # Maps are published with the file; their decimals stand as they are printed.
        "share": repr(fitted.share),
        "maps": {"risk": _points(fitted.risk)}
        | {name: _points(curve) for name, curve in fitted.signals.items()},
    }


def _points(curve: Curve) -> list[list[str]]:
    return [[repr(float(x)), repr(float(y))] for x, y in zip(curve.xs, curve.ys, strict=True)]


def _curve(points: Sequence[Sequence[str]]) -> Curve:
    return Curve.of([[float(x), float(y)] for x, y in points])
