"""The text that stands in the prompt (`render@1`): numbered facts with empty lines between."""

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.vocabulary import GroundingMode

RENDER = "render@1"
SEPARATOR = "\n\n"
# Between parts of one fact that do not adjoin.
ELLIPSIS = " \u2026 "

# Two digits: right for most envelopes; the rendered text is counted as a whole anyway.
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

    Args:
        contents: texts of the facts in their order.

    Returns:
        Empty without facts.

    >>> render(["First.", "Second."])
    '[1] First.\n\n[2] Second.'
    """
    return SEPARATOR.join(f"[{number}] {text}" for number, text in enumerate(contents, start=1))


def marker_text(content: str) -> str:
    """What is counted for one fact: its text with a marker and a separator (decision E17).

    Spec: CRP-SPEC-003 §7.3
    """
    return _TYPICAL_MARKER + content + SEPARATOR


def grounding_instruction(mode: GroundingMode) -> str:
    """The sentences that a grounding mode adds to the system prompt; empty for `open`.

    Spec: CRP-SPEC-003 §13.1
    """
    return _INSTRUCTIONS[mode]
