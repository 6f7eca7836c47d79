"""Keywords of some texts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from crp_integrations.language.words import STOP_WORDS, stem, words


def keywords(texts: Sequence[str], count: int) -> list[str]:
    """The words that say most about the texts, best first.

    A word weighs its occurrences times the texts it is in; the commonest spelling is shown.

    Args:
        texts: any number of texts.
        count: how many keywords at most.
    """
    weight: Counter[str] = Counter()
    spread: Counter[str] = Counter()
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for text in texts:
        seen: set[str] = set()
        for word in words(text):
            if word.lower in STOP_WORDS or len(word.lower) < 3 or word.lower.isdigit():
                continue
            root = stem(word.lower)
            weight[root] += 1
            forms[root][word.lower] += 1
            seen.add(root)
        spread.update(seen)
    ranked = sorted(weight, key=lambda root: (-weight[root] * spread[root], root))
    return [
        min(forms[root], key=lambda form: (-forms[root][form], form)) for root in ranked[:count]
    ]
