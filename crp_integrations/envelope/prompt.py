"""The messages sent to a model (`prompt@1`) and the facts as rendered in them (`render@1`).

They contain no CRP metadata: no score, no id, no header (transparency boundary).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from crp_integrations.messages import Message
from crp_integrations.vocabulary import GroundingMode, Strategy

RENDER = "render@1"
SEPARATOR = "\n\n"
# Joins parts of one fact that do not adjoin.
ELLIPSIS = " \u2026 "

# Two digits suit most envelopes; the rendered text is counted as a whole later anyway.
_TYPICAL_MARKER = "[10] "

_INSTRUCTIONS = {
    GroundingMode.STRICT: (
        "Answer using ONLY the provided context. "
        "If the context does not contain sufficient information, state that clearly."
    ),
    GroundingMode.PREFERRED: (
        "Prefer the provided context when answering. "
        "If you use general knowledge, indicate this clearly."
    ),
    GroundingMode.OPEN: "",
}


def render(contents: Sequence[str]) -> str:
    r"""The facts as numbered blocks; a fact's text is never altered.

    >>> render(["First.", "Second."])
    '[1] First.\n\n[2] Second.'
    """
    return SEPARATOR.join(f"[{number}] {text}" for number, text in enumerate(contents, start=1))


def marker_text(content: str) -> str:
    """The text counted for one fact: its content with a marker and a separator (decision E17).

    Spec: CRP-SPEC-003 §7.3
    """
    return _TYPICAL_MARKER + content + SEPARATOR


def grounding_instruction(mode: GroundingMode) -> str:
    """The sentences that a grounding mode adds to the system prompt; empty for `open`.

    Spec: CRP-SPEC-003 §13.1
    """
    return _INSTRUCTIONS[mode]


PROMPT: Final = "prompt@1"
CONTEXT_OPEN: Final = "<context>\n"
CONTEXT_CLOSE: Final = "\n</context>"
BETWEEN: Final = "\n\n"
PULL: Final = (
    "Extract everything in the context that answers the question. Report what the context says, "
    "with its numbers, dates and names as they stand there, and add nothing to it."
)
HIERARCHICAL: Final = (
    "Answer the parts of the question one after the other, each from the context alone, and then "
    "bring them together in one answer."
)


def strategy_instruction(strategy: Strategy) -> str:
    """The sentences that a strategy adds to the system prompt; empty if it adds none."""
    return {Strategy.PULL: PULL, Strategy.HIERARCHICAL: HIERARCHICAL}.get(strategy, "")


def system_parts(
    system_prompt: str,
    grounding: GroundingMode,
    strategy: Strategy,
    instructions: Sequence[str] = (),
) -> tuple[str, ...]:
    """The parts of the system message before the context; `system_text` skips empty ones.

    Spec: CRP-SPEC-003 §13.1
    """
    return (
        system_prompt,
        grounding_instruction(grounding),
        strategy_instruction(strategy),
        *instructions,
    )


def system_text(parts: Sequence[str], context: str) -> str:
    """The system message: the parts that are not empty, then the context in its tags."""
    framed = CONTEXT_OPEN + context + CONTEXT_CLOSE if context else ""
    return BETWEEN.join(part for part in (*parts, framed) if part)


def build_messages(
    parts: Sequence[str],
    context: str,
    history: Sequence[Message],
    question: str,
    results: int = 0,
) -> tuple[Message, ...]:
    """The conversation for one question (`prompt@1`).

    Spec: CRP-SPEC-003 §13.1
    """
    system = system_text(parts, context)
    head = (Message(role="system", content=system),) if system else ()
    place = max(0, len(history) - results)
    return (*head, *history[:place], Message(role="user", content=question), *history[place:])
