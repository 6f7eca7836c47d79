"""What a call cost: LiteLLM's own figure where a price is known, else None, never a guess.

LiteLLM says 0.0 both for a free model and, behind a router, for one whose price it does not
know. So a zero counts only where a price is on record: in its table, or in a deployment's entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from crp_integrations.engines.litellm_versions import notes_of
from crp_integrations.messages import Usage

_PRICE: Final = ("input_cost_per_", "output_cost_per_")


def usage_of(response: Any, library: Any, names: Iterable[str] = ()) -> Usage:
    """What the provider reported of a whole response, or of the chunk of a stream that tells it.

    Args:
        library: the module `litellm`.
        names: further names under which a price may be on record, such as a deployment's id, a
            base model, or the model that was called.
    """
    used = getattr(response, "usage", None)
    return Usage(
        prompt_tokens=getattr(used, "prompt_tokens", None) or 0,
        completion_tokens=getattr(used, "completion_tokens", None) or 0,
        cost_usd=_cost(response, used, library, names),
    )


def _cost(response: Any, used: Any, library: Any, names: Iterable[str]) -> float | None:
    notes = notes_of(response)
    told = notes.get("response_cost")
    if isinstance(told, int | float) and told > 0:
        return float(told)
    if used is None:
        return None
    # A deployment's own price comes before that of its model.
    asked = (notes.get("model_id"), *names, notes.get("litellm_model_name"))
    known = [str(name) for name in asked if name]
    for name in known:
        for spelled in (name, name.partition("/")[2]):
            row = library.model_cost.get(spelled) if spelled else None
            if row and any(k.startswith(_PRICE) and v is not None for k, v in row.items()):
                return _priced(library, spelled, row.get("litellm_provider"), known, used)
    return None


def _priced(
    library: Any, name: str, provider: str | None, known: Sequence[str], used: Any
) -> float | None:
    """LiteLLM's price of what was used; what is priced by anything but tokens is not known."""
    prefixes = (one.partition("/")[0] for one in known if "/" in one)
    try:
        paid = library.cost_per_token(
            model=name, custom_llm_provider=provider or next(prefixes, None), usage_object=used
        )
    except Exception:  # noqa: BLE001 - whatever it is, the cost is not known
        return None
    return float(sum(paid))
