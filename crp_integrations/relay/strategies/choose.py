"""Which strategy a request gets: what the caller accepts, then the policy, then the question."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from crp_integrations.vocabulary import Strategy

# Words that say what is wanted of an answer, each strategy's most telling first (related facts §7).
_INTENTS: Final[tuple[tuple[Strategy, re.Pattern[str]], ...]] = tuple(
    (strategy, re.compile(rf"\b(?:{words})\b", re.IGNORECASE))
    for strategy, words in (
        (
            Strategy.REFLEXIVE,
            (
                r"double[- ]check|verif(?:y|ied)|make (?:very )?sure|fact[- ]check(?:ed)?|"
                r"check (?:your|the) (?:answer|work)"
            ),
        ),
        (
            Strategy.HIERARCHICAL,
            (
                r"compar(?:e|ed|es|ing|ison)|contrast|differences?|differ|versus|vs\.?|"
                r"synthesi[sz]e|summari[sz]e (?:all|across)|trade[- ]?offs?|"
                r"pros and cons|advantages and disadvantages"
            ),
        ),
        (
            Strategy.PULL,
            (
                r"extract|list (?:all|every|each)|find (?:all|every)|which of|enumerate|"
                r"all (?:the )?(?:mentions|occurrences|names|dates|figures|numbers)"
            ),
        ),
        (
            Strategy.AGENTIC,
            (
                r"step[- ]by[- ]step|first .{1,80}? then|plan (?:and|how)|investigate|research|"
                r"work out|figure out"
            ),
        ),
    )
)


def intent(question: str) -> Strategy:
    """The strategy that a question's words ask for; push for a simple one (`intent@1`).

    Spec: related facts §7

    >>> intent("Compare the GDPR and the EU AI Act on fines.")
    <Strategy.HIERARCHICAL: 'hierarchical'>
    """
    for strategy, words in _INTENTS:
        if words.search(question):
            return strategy
    return Strategy.PUSH


def chosen(wanted: Strategy, accepted: Sequence[Strategy]) -> Strategy:
    """The strategy of a request.

    Spec: related facts §7

    Args:
        wanted: by the caller, the policy or the question.
        accepted: by the caller, best first; empty for any.
    """
    return wanted if not accepted or wanted in accepted else accepted[0]
