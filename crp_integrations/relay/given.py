"""What a caller hands over to be examined, as the provenance engine takes it."""

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.dpe.dossier import PriorWindow
from crp_integrations.envelope.decomposition import decompose
from crp_integrations.envelope.records import Envelope, PackedFact
from crp_integrations.errors import RequestError
from crp_integrations.fabric.records import Fact
from crp_integrations.relay.settings import Settings
from crp_integrations.vocabulary import GroundingMode


def passages_of(context: Envelope | Sequence[Fact | str]) -> list[tuple[str, str]]:
    """Ids and texts of what the model had; texts are named `context-1`, `context-2`, ….

    Raises:
        RequestError: something is neither a text nor a fact.
    """
    items = context.facts if isinstance(context, Envelope) else context
    passages = []
    for number, item in enumerate(items, 1):
        if isinstance(item, str):
            passages.append((f"context-{number}", item))
        elif isinstance(item, Fact | PackedFact):
            passages.append((item.fact_id, item.content))
        else:
            raise RequestError(f"context {number} is {type(item).__name__}, wanted a text or fact")
    return passages


def needs_of(
    question: str | None,
    given: Sequence[str],
    context: Envelope | Sequence[Fact | str],
    settings: Settings,
) -> tuple[str, ...]:
    """The sub-queries: those given, the envelope's own, or the question's by the same rules."""
    if isinstance(given, str):
        raise RequestError("sub_queries is one string; give a list of texts, such as [need]")
    if given:
        return tuple(given)
    if isinstance(context, Envelope):
        return context.sub_queries
    if not question or not question.strip():
        return ()
    rules = settings.envelope.decompose
    return decompose(question, rules) if rules.rules else (question,)


def earlier_of(prior: Sequence[str | PriorWindow]) -> tuple[PriorWindow, ...]:
    """Earlier answers of the session; texts are numbered.

    Raises:
        RequestError: something is neither a text nor a window.
    """
    if isinstance(prior, str):
        raise RequestError("prior is one string; give a list of earlier answers, such as [answer]")
    windows = []
    for number, window in enumerate(prior, 1):
        if isinstance(window, str):
            windows.append(PriorWindow(f"window-{number}", number, window))
        elif isinstance(window, PriorWindow):
            windows.append(window)
        else:
            raise RequestError(
                f"prior {number} is {type(window).__name__}, wanted a text or PriorWindow"
            )
    return tuple(windows)


def importances_of(context: Envelope | Sequence[Fact | str]) -> tuple[float, ...]:
    """The importance of each fact; none at all as soon as one is a mere text."""
    items = context.facts if isinstance(context, Envelope) else context
    known = [item.importance_weight for item in items if isinstance(item, Fact | PackedFact)]
    return tuple(known) if len(known) == len(items) else ()


def mode_of(grounding: GroundingMode | str) -> GroundingMode:
    """A grounding mode by its word.

    Raises:
        RequestError: it is not one of the three.
    """
    try:
        return GroundingMode(grounding)
    except ValueError:
        wanted = ", ".join(GroundingMode)
        raise RequestError(f"grounding {grounding!r:.40} is not one of {wanted}") from None
