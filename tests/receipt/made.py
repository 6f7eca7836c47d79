"""Receipts made by hand, for tests of the form."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from crp_integrations.receipt.leaves import Leaf, Part
from crp_integrations.receipt.records import Draft, Receipt, issue
from crp_integrations.receipt.signed_statement import Chain, SigningKey
from crp_integrations.receipt.verify import verify as whole

SEED = bytes(range(32))
OTHER_SEED = bytes(range(1, 33))
SALT_KEY = b"s" * 32
KEY = SigningKey(SEED)
CHAIN = Chain(
    session_id="crp_sess_1",
    window_id="crp_win_1",
    window_number=1,
    timestamp="2026-11-21T12:00:00Z",
    hmac="sha256:" + "ab" * 32,
    parents=(),
    outcome="released",
)
CONTENT: dict[str, Any] = {
    "schema": "receipt-content/1",
    "numbers": [1, -2, 0],
    "none": None,
    "yes": True,
}


# The form alone, as these contents are nothing that was packed or examined.
verify = partial(whole, contents=False)


def leaves(*facts: str, answer: str = "It weighs 105 kg.") -> tuple[Leaf, ...]:
    """A question, a context that shows every fact, an answer and the facts."""
    numbers = range(3, 3 + len(facts))
    parts: list[Part] = []
    for place, number in enumerate(numbers, start=1):
        parts += [f"[{place}] ", number, "\n\n"]
    return (
        Leaf("request", "How much does the walrus weigh?"),
        Leaf("context", parts=tuple(parts)),
        Leaf("answer", answer, of=tuple(numbers), follows=True),
        *(Leaf(f"fact/f{n}", text, f"f{n}", f"doc{n % 2}") for n, text in enumerate(facts)),
    )


def receipt(*facts: str, **chain: Any) -> Receipt:
    """A signed receipt with some facts."""
    made = Draft(_content(facts), leaves(*(facts or ("The walrus weighs 105 kg.",))))
    return issue(made, replace(CHAIN, **chain), KEY, SALT_KEY)


def _content(facts: tuple[str, ...]) -> dict[str, Any]:
    candidates = [{"id": f"f{n}", "source": f"doc{n % 2}"} for n in range(len(facts))]
    return {**CONTENT, "candidates": candidates}
