"""What a session has been like so far: tiers, whether they fall, and facts seen and deferred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from crp_integrations.envelope.continuation import degradation_advice
from crp_integrations.envelope.records import Advice, PriorWindow
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.session.graph import ancestors, order
from crp_integrations.session.records import WindowNode
from crp_integrations.vocabulary import QualityTier

LACKS_DEPTH: Final = "quality falls from window to window; the domain may lack depth"


@dataclass(frozen=True, slots=True)
class Degradation:
    """That the last windows got worse one by one, and what to do about it.

    Attributes:
        advice: to aggregate instead (`hierarchical`), with the tiers as reason.
        data: of the journal's warning: the tiers and the advice, no content.
    """

    advice: Advice
    data: Mapping[str, object]


def tiers(windows: Sequence[WindowNode]) -> tuple[QualityTier, ...]:
    """The quality tier of each window that had an envelope, in the order of the graph.

    Spec: CRP-SPEC-003 §14.3
    """
    return tuple(node.quality_tier for node in order(windows) if node.quality_tier is not None)


def quality_history(history: Sequence[QualityTier]) -> str:
    """The value of `QualityHistory`.

    Spec: CRP-SPEC-003 §14.3

    >>> quality_history([QualityTier.A, QualityTier.A, QualityTier.B])
    'A,A,B'
    """
    return ",".join(history)


def falling(history: Sequence[QualityTier], settings: EnvelopeSettings) -> Degradation | None:
    """What falling tiers ask for; None while they do not fall.

    Spec: CRP-SPEC-003 §14.3

    Args:
        history: tiers of a chain of windows, oldest first.
    """
    advice = degradation_advice(history, settings)
    if advice is None:
        return None
    shown = history[-settings.pressure.falling_windows :]
    data = {
        "warning": LACKS_DEPTH,
        "recommended": f"dispatch_{advice.word.value}",
        "tiers": [tier.value for tier in shown],
    }
    return Degradation(advice, data)


def before(windows: Sequence[WindowNode], parents: Sequence[str]) -> tuple[str, ...]:
    """Ids of the windows whose facts a window with these parents has seen.

    Those that it follows, near and far: a branch does not hold what another branch was shown.
    What they saw and deferred is `envelope.evolution` of what the store keeps of them.

    Spec: CRP-SPEC-003 §14.2

    Raises:
        UnknownContinuation: a parent is not one of the windows.
    """
    return tuple(node.window_id for node in ancestors(windows, parents))


def priors(
    ids: Sequence[str], kept: Mapping[str, PriorWindow], told: Mapping[str, PriorWindow]
) -> list[PriorWindow]:
    """The earlier windows as the next one is told of them, in the ids' order.

    Spec: CRP-SPEC-003 §14.1

    Args:
        ids: what `before` names.
        kept: what the store keeps of them.
        told: of the windows that are followed at once, what `Transfer.into` made.
    """
    return [told.get(id_, kept[id_]) for id_ in ids if id_ in kept or id_ in told]
