"""Remedies: text that is added, and parameters that change, when a model is asked again.

Pure functions of the findings of stages 6 to 9; nothing here asks a model. Quoted texts come from
the session's own answers.

Spec: CRP-SPEC-005 §9.3, §10.3, §11.5, §18.1, §19.2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crp_integrations.dpe.records import Claim
from crp_integrations.dpe.report_parts import CrossContradiction, Repetition
from crp_integrations.language.text import split_sentences
from crp_integrations.vocabulary import Strategy

MOST_REDISPATCHES: Final = 2
REDISPATCH_TEMPERATURE: Final = 0.2
STITCH_TEMPERATURE: Final = 0.2
# Number of sentences quoted to continue from, and to connect with a bridge.
LAST_SENTENCES: Final = 3
BRIDGED_SENTENCES: Final = 2
REPEATED: Final = "[REPEATED] "
# Any other seed works; this step leads far away from seeds that people choose.
SEED_STEP: Final = 7_919
LARGEST_SEED: Final = 2**31 - 1
# Bounds on what a re-dispatch quotes of the claims and the evidence.
MAX_QUOTED_CLAIMS: Final = 10
MAX_QUOTATIONS: Final = 3
QUOTED_CHARACTERS: Final = 500


@dataclass(frozen=True, slots=True)
class Redispatch:
    """Instructions and parameters with which the same question is asked again.

    Spec: CRP-SPEC-005 §19.2

    Attributes:
        seed: a seed that differs from the first call's.
    """

    instructions: tuple[str, ...]
    temperature: float
    strategy: Strategy
    seed: int


def redispatch(
    instructions: Sequence[str],
    *,
    seed: int | None,
    strategy: Strategy = Strategy.REFLEXIVE,
    attempt: int = 1,
) -> Redispatch:
    """The parameters of a re-dispatch.

    Spec: CRP-SPEC-005 §19.2
    """
    if not 1 <= attempt <= MOST_REDISPATCHES:
        raise ValueError(
            f"re-dispatch {attempt} of a window is not allowed, at most {MOST_REDISPATCHES} are"
        )
    other = ((seed or 0) + attempt * SEED_STEP) % LARGEST_SEED
    return Redispatch(tuple(instructions), REDISPATCH_TEMPERATURE, strategy, other)


def against_repetition(summary: str) -> str:
    """The text added to a prompt when an answer repeats earlier ones.

    Spec: CRP-SPEC-005 §9.3
    """
    return (
        "IMPORTANT: The following content has already been provided to the user in prior "
        "responses.\nDO NOT repeat this content. Build upon it, extend it, or address different "
        f"aspects.\n{summary}\n"
        "Continue from where the prior response ended. Provide NEW information only."
    )


def marked(answer: str, repetition: Repetition) -> str:
    """The answer with each sentence on its own line and a mark before each repeated one.

    Spec: CRP-SPEC-005 §9.3
    """
    repeated = {start for start, _ in repetition.sentences}
    lines = [
        f"{REPEATED if span.start in repeated else ''}{span.of(answer)}"
        for span in split_sentences(answer)
    ]
    return "\n".join(lines)


def against_contradiction(contradictions: Sequence[CrossContradiction]) -> str:
    """The text added to a prompt when an answer contradicts an earlier one.

    Spec: CRP-SPEC-005 §8.3, §18.1
    """
    lines = [
        f"- Earlier: {contradiction.prior_claim}\n  Now: {contradiction.claim}"
        for contradiction in contradictions
    ]
    return (
        "IMPORTANT: The last response contradicts what was said before:\n"
        + "\n".join(lines)
        + "\nCheck each against the context. Say what the context supports; where that differs "
        "from what was said before, correct it openly."
    )


def against_unsupported(claims: Sequence[Claim]) -> str:
    """The text added to a prompt when an answer has claims that the context does not support.

    Each claim stands with the words of the evidence that say otherwise, if there are any.

    Spec: CRP-SPEC-005 §19.2
    """
    lines = "".join(map(_finding, claims[:MAX_QUOTED_CLAIMS]))
    named = f"The last response made claims that the context does not support:\n{lines}"
    return (
        f"IMPORTANT: {named if claims else 'The last response was not supported by the context. '}"
        "Answer again. State only what the context says, with its numbers, dates, names and "
        "conditions as they stand there. Where the context does not say, say so."
    )


def _finding(claim: Claim) -> str:
    words = [_on_one_line(quotation.text) for quotation in claim.quotations]
    says = "".join(f'  The context says: "{text}"\n' for text in words[:MAX_QUOTATIONS])
    return f"- {_on_one_line(claim.text)}\n{says}"


def _on_one_line(text: str) -> str:
    return " ".join(text.split())[:QUOTED_CHARACTERS]


def towards_completeness(covered: Sequence[str], uncovered: Sequence[str]) -> str:
    """The instruction to a continuation that names the open parts of the question.

    Spec: CRP-SPEC-005 §10.3
    """
    done = ", ".join(covered) or "none of the topics"
    return f"The prior response addressed {done}. Now address: {', '.join(uncovered)}."


def towards_flow(prior: str) -> str:
    """The text added to a prompt so that an answer continues the one before.

    Spec: CRP-SPEC-005 §11.5
    """
    return (
        "This is a continuation of a prior response. The prior response ended with:\n"
        f"'{_last(prior, LAST_SENTENCES)}'\n"
        "Continue naturally from that point. Do NOT re-introduce the topic.\n"
        "Do NOT repeat content from the prior response.\n"
        "Use transitional language to bridge from the prior content.\n"
        "Maintain the same style, formality, and level of detail."
    )


def stitch(prior: str, current: str) -> str:
    """The prompt of a call that writes a bridge between two windows, at `STITCH_TEMPERATURE`.

    Spec: CRP-SPEC-005 §11.5
    """
    first = [span.of(current) for span in split_sentences(current)[:BRIDGED_SENTENCES]]
    return (
        "Write a 1-2 sentence bridge connecting these two passages:\n"
        f"PASSAGE A ends with: '{_last(prior, BRIDGED_SENTENCES)}'\n"
        f"PASSAGE B begins with: '{' '.join(first)}'\n"
        "The bridge should create a natural transition. Be concise."
    )


def _last(text: str, count: int) -> str:
    return " ".join(span.of(text) for span in split_sentences(text)[-count:])
