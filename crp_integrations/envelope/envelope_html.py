"""An envelope as HTML: its budget, the facts that a model saw, and what was dropped and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from crp_integrations.markup import counted, escaped, folded, listed
from crp_integrations.vocabulary import DropReason, QualityTier

if TYPE_CHECKING:
    from crp_integrations.envelope.records import Drop, Envelope, EnvelopePreview, PackedFact

# Table rows and characters of a fact that are visible without unfolding.
VISIBLE_ROWS, EXCERPT_CHARS = 20, 120
# A bar with more parts is drawn as one part, since they would be too thin to see.
MAX_BAR_PARTS = 60
COLOURS = {
    QualityTier.S: "crp-ok",
    QualityTier.A: "crp-ok",
    QualityTier.B: "crp-ok",
    QualityTier.C: "crp-un",
    QualityTier.D: "crp-no",
}
REASONS = {
    DropReason.BUDGET: "no room in the budget",
    DropReason.DUPLICATE: "duplicate",
    DropReason.K: "beyond the number asked for",
    DropReason.INJECTION: "suspected injection",
    DropReason.OFF_TOPIC: "off topic",
    DropReason.LABEL: "access label",
    DropReason.CONFIDENCE: "low confidence",
    DropReason.MINIMAL: "context kept minimal",
}


def envelope_html(envelope: Envelope, texts: Mapping[str, str] = MappingProxyType({})) -> str:
    """The envelope as HTML without its style; a dropped fact missing in `texts` shows its id."""
    facts, dropped = envelope.facts, envelope.dropped
    places = {fact.fact_id: fact.position for fact in facts}
    parts = _shown(envelope, envelope.token_count, envelope.total_facts_available)
    if dropped:
        count = Counter(drop.reason for drop in dropped).most_common()
        why = "".join(
            f'<span class="crp-word crp-na">{number} {REASONS[reason]}</span> '
            for reason, number in count
        )
        parts += [
            f"<h3>{counted(len(dropped), 'fact')} left out</h3><p>{why}</p>",
            _table("tokens", "fact", [_drop(drop, places, texts) for drop in dropped]),
        ]
    return "".join(parts)


def preview_html(preview: EnvelopePreview) -> str:
    """The preview as HTML without its style."""
    return "".join(_shown(preview, preview.estimated_tokens, preview.facts_available))


def _shown(of: Envelope | EnvelopePreview, tokens: int, candidates: int) -> list[str]:
    """Head, bar and facts."""
    return [
        _head(of, tokens, len(of.facts), candidates),
        _bar(tokens, of.token_budget, [fact.token_count for fact in of.facts]),
        "<h3>What the model sees</h3>",
        _table("# score tokens", "fact", [_fact(fact) for fact in of.facts]),
    ]


def _head(of: Envelope | EnvelopePreview, tokens: int, facts: int, candidates: int) -> str:
    tier = f'<b class="{COLOURS[of.quality_tier]}">Tier {of.quality_tier.value}</b>'
    note = f"{facts} of {counted(candidates, 'fact')}, {tokens} of {of.token_budget} tokens"
    caps = (f"at most {cap.ceiling.value}: {escaped(cap.reason)}" for cap in of.caps)
    return f'<div class="crp-head">{tier}<span class="crp-quiet">{note}</span></div>{listed(caps)}'


def _bar(tokens: int, budget: int, parts: Sequence[int]) -> str:
    """A bar of the budget with a part for each fact; tokens between facts are spread over all."""
    free = max(0, budget - tokens)
    parts = parts if len(parts) <= MAX_BAR_PARTS else [tokens]
    whole, shared = max(1, tokens + free), tokens / max(1, sum(parts))
    widths = "".join(f'<i style="width:{100 * n * shared / whole:.2f}%"></i>' for n in parts)
    caption = f"{counted(tokens, 'token')} of facts, {free} free"
    return (
        f'<div class="crp-bar" role="img" aria-label="{caption}">{widths}</div>'
        f'<p class="crp-quiet">{caption}; the reserve for the answer is already taken off</p>'
    )


def _table(numbers: str, last: str, rows: Sequence[tuple[Sequence[str], str]]) -> str:
    """A table with columns of numbers and one of HTML; rows after the first ones are folded."""
    names = "".join(f'<th class="crp-n">{name}</th>' for name in numbers.split())
    head = f"<table><thead><tr>{names}<th>{last}</th></tr></thead><tbody>"
    lines = []
    for cells, text in rows:
        line = "".join(f'<td class="crp-n">{cell}</td>' for cell in cells)
        lines.append(f"<tr>{line}<td>{text}</td></tr>")
    first, more = "".join(lines[:VISIBLE_ROWS]), "".join(lines[VISIBLE_ROWS:])
    shown = f"{head}{first}</tbody></table>" if first else ""
    if more:
        shown += folded(f"{len(lines) - VISIBLE_ROWS} more", f"{head}{more}</tbody></table>")
    return shown


def _excerpt(text: str) -> str:
    """The beginning of a text; a longer text unfolds below it."""
    line = " ".join(text.split())
    shown = f'<span class="crp-text" dir="auto">{escaped(line[:EXCERPT_CHARS])}</span>'
    if len(line) <= EXCERPT_CHARS:
        return shown
    return folded(f"{shown}…", f'<p class="crp-text" dir="auto">{escaped(line)}</p>')


def _fact(fact: PackedFact) -> tuple[list[str], str]:
    part = ' <span class="crp-quiet">in part</span>' if fact.spans else ""
    numbers = [str(fact.position), f"{fact.composite_score:.3f}", str(fact.token_count)]
    return numbers, _excerpt(fact.content) + part


def _drop(drop: Drop, places: Mapping[str, int], texts: Mapping[str, str]) -> tuple[list[str], str]:
    reason = REASONS[drop.reason]
    if drop.kept is not None and drop.kept in places:
        reason = f"{reason} of fact {places[drop.kept]}"
    note = f'<span class="crp-quiet">{reason}</span>'
    return [str(drop.tokens)], f"{_excerpt(texts.get(drop.fact_id, drop.fact_id))} {note}"
