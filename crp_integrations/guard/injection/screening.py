"""Which candidates may be selected at all: those on the topic that give no orders.

The screening says who stays and why the others go. What happens when too little stays is the
assembler's word: `minimal` tells it to fall back to the smallest pack that policy calls safe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from crp_integrations.guard.injection.detect import RULES, detect_many
from crp_integrations.guard.injection.ports import InjectionModel
from crp_integrations.guard.injection.records import InjectionReport, InjectionSettings
from crp_integrations.records import Part
from crp_integrations.scores import SCALE, from_fixed

Reason = Literal["injection", "off-topic"]


class ScreeningSettings(Part):
    """The numbers of a screening.

    Spec: Summit §Context Assembly Pipeline

    Attributes:
        enabled: whether an ordinary turn looks at its candidates at all.
        relevance_floor: relevance below which a candidate is off topic, [0, 1]; it depends on the
            embedder. 0 calls nothing off topic.
        words_floor: share of the best candidate's words from which one is on topic whatever its
            relevance, (0, 1].
        hop_floor: what a link must say for a candidate that is on topic whatever its relevance.
        fewest: candidates that must stay, else the pack is the minimal one; 0 for no such number.
        injection: the numbers of the rules.
    """

    enabled: bool = False
    relevance_floor: float = Field(default=0.0, ge=0.0, le=1.0)
    words_floor: float = Field(default=0.25, gt=0.0, le=1.0)
    hop_floor: float = Field(default=0.25, gt=0.0, le=1.0)
    fewest: int = Field(default=1, ge=0)
    injection: InjectionSettings = InjectionSettings()


class Refused(Part):
    """A candidate that is not to be selected.

    Attributes:
        rules: names of the rules that found something; empty for one that is off topic.
        score: the injection score, or the relevance of what is off topic, [0, 1].
    """

    id: str
    reason: Reason
    score: float = Field(ge=0.0, le=1.0)
    rules: tuple[str, ...] = ()


class Screening(Part):
    """Who may be selected.

    Attributes:
        kept: ids in the order given.
        refused: the others, in the order given.
        minimal: so little stays that the minimal pack is to be used.
        algorithm: `name@n` of the rules.
    """

    kept: tuple[str, ...]
    refused: tuple[Refused, ...]
    minimal: bool
    algorithm: str


def screen(
    candidates: Sequence[tuple[str, str, int]],
    settings: ScreeningSettings | None = None,
    model: InjectionModel | None = None,
    *,
    known: Mapping[str, InjectionReport] | None = None,
) -> Screening:
    """Sort out what is off topic, then what gives orders.

    Spec: Summit §Context Assembly Pipeline

    Args:
        candidates: id, text and relevance (fixed point in [0, SCALE]) of each, ids unique.
        model: asked about the candidates that are on topic.
        known: reports by id that were made of the same texts and with the same settings before,
            such as when they were written.

    Raises:
        EngineError: the model failed.
    """
    chosen = settings or ScreeningSettings()
    floor = round(chosen.relevance_floor * SCALE)
    told = dict(known or {})
    asked = [(id_, text) for id_, text, near in candidates if near >= floor and id_ not in told]
    reports = detect_many([text for _, text in asked], chosen.injection, model)
    told |= {id_: report for (id_, _), report in zip(asked, reports, strict=True)}
    kept: list[str] = []
    refused: list[Refused] = []
    for id_, _, near in candidates:
        if near < floor:
            far = from_fixed(max(0, near))
            refused.append(Refused(id=id_, reason="off-topic", score=far))
        elif told[id_].injected:
            report = told[id_]
            refused.append(
                Refused(id=id_, reason="injection", score=report.score, rules=report.names)
            )
        else:
            kept.append(id_)
    return Screening(
        kept=tuple(kept),
        refused=tuple(refused),
        minimal=len(kept) < chosen.fewest,
        algorithm=RULES,
    )
