"""How many tokens an envelope may have."""

from __future__ import annotations

from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.vocabulary import Exactness


def safety_margin(tokens: int, exactness: Exactness, settings: EnvelopeSettings) -> int:
    """Tokens kept free because counts may be wrong.

    Spec: CRP-SPEC-003 §7.2 (decision E19)

    Args:
        tokens: what is left for the envelope before the margin.
        exactness: how far the counter can be trusted.
    """
    share = {
        Exactness.EXACT: 0,
        Exactness.FAMILY: to_fixed(settings.family_margin),
        Exactness.ESTIMATE: to_fixed(settings.estimate_margin),
    }[exactness]
    return max(settings.safety_margin_tokens, -(-max(0, tokens) * share // SCALE))


def budget(
    context_limit: int,
    system_tokens: int,
    query_tokens: int,
    response_tokens: int | None,
    exactness: Exactness,
    settings: EnvelopeSettings,
) -> int:
    """The token budget of an envelope.

    Spec: CRP-SPEC-003 §7.2 (decisions E19, E20)

    Args:
        context_limit: tokens that the model takes in all.
        system_tokens: the system message as measured, with its grounding instruction.
        query_tokens: the question.
        response_tokens: the call's `max_tokens`; None takes the setting.
        exactness: how far the counter can be trusted.

    Returns:
        Tokens, never below 0.

    >>> budget(8192, 100, 20, None, Exactness.EXACT, EnvelopeSettings())
    5512
    """
    answer = settings.expected_response_tokens if response_tokens is None else response_tokens
    left = context_limit - system_tokens - query_tokens - answer
    return max(0, left - safety_margin(left, exactness, settings))
