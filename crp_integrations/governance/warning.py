"""What a model is told of items that it is shown although they may be out of date or doubtful."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from crp_integrations.envelope.layout import caller_fact
from crp_integrations.envelope.prompt import marker_text
from crp_integrations.envelope.records import PackedFact
from crp_integrations.governance.pack_records import Warned, WarningWord
from crp_integrations.governance.pack_settings import PackSettings
from crp_integrations.governance.selecting import Memorised
from crp_integrations.ports import TokenCounter

WARNINGS: Final = "crp:warnings"
_SAID: Mapping[WarningWord, tuple[str, str]] = {
    "stale": ("may be out of date", "say so wherever you rely on it"),
    "low-confidence": ("is of low confidence", "confirm it or say that it is uncertain"),
}


def warned(
    facts: Sequence[PackedFact],
    place: int,
    memories: Mapping[str, Memorised],
    settings: PackSettings,
    counter: TokenCounter,
) -> tuple[list[PackedFact], list[Warned]]:
    """The reminders that stand in the policy section, and the warnings behind them.

    Spec: Summit §Failure Modes & Mitigations

    Args:
        place: position of the first fact in the pack, by which the model is told of it.
    """
    found: dict[WarningWord, list[int]] = {}
    warnings: list[Warned] = []
    for position, fact in enumerate(facts, start=place):
        memory = memories.get(fact.fact_id)
        words: list[tuple[WarningWord, str]] = []
        if fact.freshness_score <= settings.stale_freshness:
            words.append(("stale", f"its freshness is {fact.freshness_score:.2f}"))
        if memory is not None and memory.confidence < settings.low_confidence:
            words.append(("low-confidence", f"its confidence is {memory.confidence:.2f}"))
        for word, reason in words:
            found.setdefault(word, []).append(position)
            warnings.append(Warned(word=word, reason=reason, item_id=fact.fact_id))
    texts = {word: _text(word, found[word]) for word in _SAID if word in found}
    counts = counter.count_many([marker_text(text) for text in texts.values()])
    notes = [
        caller_fact(f"warning:{word}", text, WARNINGS, max(0, tokens))
        for (word, text), tokens in zip(texts.items(), counts, strict=True)
    ]
    return notes, warnings


def _text(word: WarningWord, positions: Sequence[int]) -> str:
    state, wanted = _SAID[word]
    items = ", ".join(f"[{position}]" for position in positions)
    return f"Each of these items {state}, {wanted}: {items}."
