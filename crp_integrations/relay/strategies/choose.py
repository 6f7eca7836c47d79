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
            Strategy.BATCH,
            (
                r"in bulk|for each of (?:the|these|those|my)|"
                r"(?:each|all) of the following (?:questions|items|tickets|rows)|"
                r"(?:these|the following) \d+ (?:questions|items|tickets|rows)"
            ),
        ),
        (
            Strategy.STREAMING,
            r"in real[- ]time|as (?:it is|you) (?:written|write)|stream (?:the|me|your|it)",
        ),
        (
            Strategy.FAN_OUT,
            (
                r"in parallel|side by side|concurrently|independently of (?:each|one an)other|"
                r"at the same time,? (?:find|look|check)"
            ),
        ),
        (
            Strategy.REFLEXIVE,
            (
                r"double[- ]check|verif(?:y|ied)|fact[- ]check(?:ed)?|"
                r"mak(?:e|ing) (?:very |absolutely )?(?:sure|certain)|"
                r"check (?:your|the) (?:answer|work)|"
                r"confirm (?:that|whether|if|with|against)|cross[- ]check"
            ),
        ),
        (
            Strategy.HIERARCHICAL,
            (
                r"compar(?:e|ed|es|ing|ison)|contrast|differences?|differ|versus|vs\.?|"
                r"synthesi[sz]e|synthesis|summari[sz]e (?:all|across)|trade[- ]?offs?|"
                r"pros and cons|advantages and disadvantages|similarities|bring together"
            ),
        ),
        (
            Strategy.PULL,
            (
                r"extract|list (?:all|every|each|the)|find (?:all|every|each)|enumerate|"
                r"pull (?:out|together)|every (?:mention|occurrence|instance)|"
                r"all (?:the )?(?:mentions|occurrences|names|dates|figures|numbers|amounts)"
            ),
        ),
        (
            Strategy.AGENTIC,
            (
                r"step[- ]by[- ]step|first .{1,80}? then|plan (?:and|how)|investigate|research|"
                r"work out|figure out|find out .{1,80}?,? (?:and )?then|get to the bottom of|"
                r"track down|trace"
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
