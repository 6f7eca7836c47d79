"""What the stages use of the fitted verifier's reading, in fixed point and without the verifier.

Spec: CRP-SPEC-005 §15.4
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from crp_integrations.dpe.signals import Signals, fixed
from crp_integrations.dpe.verifier.calibrated import Reading
from crp_integrations.dpe.verifier.fitted import SIGNALS, Curve
from crp_integrations.errors import EngineError
from crp_integrations.scores import SCALE

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


class Over(Protocol):
    """Log odds of the answer when only some claims count."""

    def __call__(self, kept: Sequence[bool]) -> float:
        """Log odds over the claims that are kept."""
        ...


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


def heard(signals: Signals, ask: _Ask) -> Heard:
    """A reading to a millionth.

    Args:
        signals: the door to the verifier.
        ask: reads the answer.
    """
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


class _Ask(Protocol):
    def __call__(self) -> Reading: ...


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
