"""What a framework's class is given when it is made; a mistake shows there, not at a question."""

from __future__ import annotations

from crp_integrations.errors import RequestError
from crp_integrations.relay.relay import Relay
from crp_integrations.vocabulary import GroundingMode


def check_relay(given: object, taker: str) -> None:
    """Check that a relay was given.

    Args:
        taker: name of the class that takes it.

    Raises:
        RequestError: it is something else, such as a store's folder.
    """
    if not isinstance(given, Relay):
        raise RequestError(
            f"{taker} takes a relay, as Relay.open(…) gives it, not {type(given).__name__}"
        )


def check_packing(
    *, budget_tokens: int | None, k: int | None, grounding: GroundingMode | str
) -> None:
    """Check how much is packed, and how the model is told to use it.

    Raises:
        RequestError: a value has no use; names it.
    """
    for name, value in (("budget_tokens", budget_tokens), ("k", k)):
        if value is not None and value < 1:
            raise RequestError(f"{name} is {value}, wanted at least 1, or None")
    if grounding not in tuple(GroundingMode):
        wanted = ", ".join(GroundingMode)
        raise RequestError(f"grounding {str(grounding)!r:.40} is not one of {wanted}")
