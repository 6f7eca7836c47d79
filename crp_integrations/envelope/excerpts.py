"""Phase 3, after the packing: parts of facts fill what whole facts leave (`excerpt@1`).

A budget ends in the middle of a fact, and the next fact is often long for the one sentence that
matters in it. So whole facts fill a share of the budget, and the best stretches of the others
the rest. What is shown is the fact's own text, never altered; parts that do not adjoin have an
ellipsis between them, and the envelope says which characters they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from crp_integrations.envelope.candidates import Candidate, RankedFact
from crp_integrations.envelope.pack import PackResult
from crp_integrations.envelope.prompt import ELLIPSIS, marker_text
from crp_integrations.envelope.settings import HybridSettings
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import sha256

EXCERPT = "excerpt@1"

# Tokens below which nothing is looked for any more.
_LEAST_ROOM = 8


@dataclass(frozen=True, slots=True)
class PartChoice:
    """Parts that were chosen, in the order of their choice.

    Attributes:
        facts: what was left out, in rank order.
        chosen: number of the fact and of its stretch.
    """

    facts: Sequence[RankedFact]
    chosen: tuple[tuple[int, int], ...]
    # Excerpts by fact and parts: a lightened choice shows most of them again.
    _excerpts: dict[tuple[int, ...], Candidate] = field(default_factory=dict, repr=False)

    def lightened(self, excess: int) -> PartChoice:
        """The same filling without the parts chosen last; at least one is removed.

        Parts are removed until they come to half of the excess, as whole facts are.
        """
        count, freed = len(self.chosen), 0
        while count and 2 * freed < excess:
            count -= 1
            fact, number = self.chosen[count]
            candidate = self.facts[fact].candidate
            stretch = candidate.stretches[number]
            freed += _estimate_tokens(candidate, stretch.end - stretch.start)
        return replace(self, chosen=self.chosen[:count])

    def shown(self) -> dict[int, RankedFact]:
        """The facts that are shown in part, or as a whole when all of it was chosen."""
        numbers: dict[int, list[int]] = {}
        for fact, number in self.chosen:
            numbers.setdefault(fact, []).append(number)
        shown: dict[int, RankedFact] = {}
        for fact, parts in sorted(numbers.items()):
            ranked, parts = self.facts[fact], sorted(parts)
            excerpt = self._excerpts.get((fact, *parts))
            if excerpt is None:
                excerpt = _make_excerpt(ranked.candidate, parts)
                self._excerpts[fact, *parts] = excerpt
            shown[fact] = ranked._replace(candidate=excerpt)
        return shown


def whole_budget(budget_tokens: int, settings: HybridSettings, k: int | None) -> int:
    """Tokens that whole facts may fill; all of them where no parts are shown.

    A cap on the number of facts counts whole facts.
    """
    if not settings.enabled or k is not None:
        return budget_tokens
    return int(settings.whole_share * budget_tokens)


def choose_parts(
    left: Sequence[RankedFact], room: int, settings: HybridSettings, counter: TokenCounter
) -> PartChoice:
    """Choose parts of facts that were left out, best first, as long as they fit.

    Spec: CRP-SPEC-003 §7.3 (decision E17)
    """
    marker, gap = (max(0, count) for count in counter.count_many([marker_text(""), ELLIPSIS]))
    chosen: list[tuple[int, int]] = []
    begun: dict[int, set[int]] = {}
    texts: set[str] = set()
    facts = [ranked.candidate for ranked in left]
    for place, number in _best_spans(facts, settings.stretches_seen):
        if room < _LEAST_ROOM:
            break
        fact, shown = facts[place], begun.get(place)
        if shown is None:
            extra = marker
        else:
            extra = 0 if number - 1 in shown or number + 1 in shown else gap
        start, end, _ = fact.stretches[number]
        tokens = extra + _estimate_tokens(fact, end - start)
        if tokens > room:
            continue
        words = fact.content[start:end]
        if words not in texts:
            room -= tokens
            begun.setdefault(place, set()).add(number)
            texts.add(words)
            chosen.append((place, number))
    return PartChoice(left, tuple(chosen))


def add_parts(packing: PackResult, shown: Mapping[int, RankedFact]) -> PackResult:
    """The packing with facts that are shown in part behind the whole ones."""
    left = [fact for place, fact in enumerate(packing.over_budget) if place not in shown]
    return replace(packing, packed=(*packing.packed, *shown.values()), over_budget=tuple(left))


def count_parts(packing: PackResult, counter: TokenCounter) -> PackResult:
    """The packing with the tokens of facts that are shown in part counted."""
    parts = [place for place, fact in enumerate(packing.packed) if fact.candidate.spans]
    texts = [marker_text(packing.packed[place].candidate.content) for place in parts]
    tokens = dict(zip(parts, counter.count_many(texts), strict=True))
    return replace(
        packing,
        packed=tuple(
            fact._replace(candidate=replace(fact.candidate, tokens=max(0, tokens[place])))
            if place in tokens
            else fact
            for place, fact in enumerate(packing.packed)
        ),
    )


def _best_spans(facts: Sequence[Candidate], most: int) -> list[tuple[int, int]]:
    """Fact and number of the best spans, ties by these."""
    spans = [
        (-span.score, place, number)
        for place, fact in enumerate(facts)
        for number, span in enumerate(fact.stretches)
    ]
    return [(place, number) for _, place, number in sorted(spans)[:most]]


def _estimate_tokens(fact: Candidate, characters: int) -> int:
    """Tokens of so many characters of a fact, in proportion and rounded up."""
    return -(-fact.tokens * characters // max(1, len(fact.content)))


def _make_excerpt(fact: Candidate, parts: Sequence[int]) -> Candidate:
    if len(parts) == len(fact.stretches):
        return fact
    spans: list[tuple[int, int]] = []
    previous = -2
    for number in parts:
        start, end, _ = fact.stretches[number]
        if number == previous + 1:
            # What stands between two sentences is shown with them.
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
        previous = number
    content = ELLIPSIS.join(fact.content[start:end] for start, end in spans)
    return replace(
        fact,
        content=content,
        tokens=_estimate_tokens(fact, len(content)),
        stretches=(),
        spans=tuple(spans),
        content_hash=sha256(fact.content),
    )
