"""How much a claim commits itself to, as a number."""

from __future__ import annotations

from crp_integrations.language.dates import dates
from crp_integrations.language.names import names
from crp_integrations.language.quantities import Quantity, quantities
from crp_integrations.language.words import content_words

# What each thing that can be looked up adds; at least .30, so that one alone is specific.
NUMBER = 0.45
SMALL_NUMBER = 0.30
ORDINAL = 0.15
DATE = 0.45
NAME = 0.35
# Length adds little: fifteen content words or more without any of those stay below .30.
BASE = 0.05
WORD = 0.01
MOST_WORDS = 15


def specificity(text: str) -> float:
    """How specific a claim is: 1 − (1 − base) · Π (1 − weight of each thing named).

    Base is .05 and .01 for each content word up to 15. A number weighs .45 (.30 for a bare
    whole number up to 10, .15 for an ordinal), a date .45, a name, code or address .35.

    Spec: CRP-SPEC-005 §3.2

    Returns:
        A score in [0, 1], rounded to 4 places.

    >>> specificity("This is important.") < 0.3 <= specificity("Revenue was $4.2M.")
    True
    """
    open_share = 1.0 - (BASE + WORD * min(MOST_WORDS, len(content_words(text))))
    for quantity in quantities(text):
        open_share *= 1.0 - _weight(quantity)
    open_share *= (1.0 - DATE) ** len(dates(text))
    open_share *= (1.0 - NAME) ** len(names(text))
    return round(1.0 - open_share, 4)


def _weight(quantity: Quantity) -> float:
    if quantity.kind == "ordinal":
        return ORDINAL
    whole = quantity.value == quantity.value.to_integral_value()
    small = quantity.kind == "number" and whole and abs(quantity.value) <= 10
    return SMALL_NUMBER if small else NUMBER
