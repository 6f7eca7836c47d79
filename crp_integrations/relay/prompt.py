"""The messages that a model gets: system prompt, grounding instruction, context, question.

No CRP metadata is in them: no score, no id, no header (transparency boundary).
"""

from __future__ import annotations

import logging

from crp_integrations.envelope.budget import budget
from crp_integrations.envelope.render import grounding_instruction
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.messages import Message
from crp_integrations.ports import TokenCounter
from crp_integrations.relay.passes import instruction, replies
from crp_integrations.relay.records import Request

_LOG = logging.getLogger(__name__)

CONTEXT_OPEN = "<context>\n"
CONTEXT_CLOSE = "\n</context>"


def messages(request: Request, context: str) -> tuple[Message, ...]:
    """The conversation for one request (`prompt@1`).

    Spec: CRP-SPEC-003 §13.1

    Args:
        context: the envelope's rendered text, placed verbatim; empty for no context.

    Returns:
        System message (left out when empty), history, then the question.
    """
    framed = CONTEXT_OPEN + context + CONTEXT_CLOSE if context else ""
    system = "\n\n".join(part for part in (*_before(request), framed) if part)
    head = (Message(role="system", content=system),) if system else ()
    return (*head, *request.history, Message(role="user", content=request.query))


def room(
    request: Request, counter: TokenCounter, context_limit: int, settings: EnvelopeSettings
) -> int:
    """Tokens left for the context once everything else in the request is counted.

    That is the system prompt with the grounding instruction, the history, the question, the tool
    definitions, the frames around them, the answer, and a margin by the counter's exactness.

    Spec: CRP-SPEC-003 §7.2 (decisions E19, E20)

    Args:
        context_limit: the model's context limit in tokens.

    Returns:
        The smaller of what is left and the request's own `budget_tokens`, at least 0.
    """
    parts = (*_before(request), CONTEXT_OPEN + CONTEXT_CLOSE)
    system = "\n\n".join(part for part in parts if part)
    around = (
        Message(role="system", content=system),
        *request.history,
        Message(role="user", content=request.query),
    )
    asked = counter.count(request.query)
    rest = counter.count_messages(around) - asked + counter.count_tools(request.tools)
    # The draft and what was found in it are sent along when it is asked again.
    further = replies(request.strategy) - 1
    each = request.max_tokens or settings.expected_response_tokens
    left = budget(
        context_limit,
        rest + further * each,
        asked,
        request.max_tokens,
        counter.exactness,
        settings,
    )
    if not left:
        _LOG.warning(
            "model %s: %d tokens of the request, its answer and the margin leave none of %d "
            "for context",
            request.model,
            rest + asked,
            context_limit,
        )
    return left if request.budget_tokens is None else max(0, min(left, request.budget_tokens))


def _before(request: Request) -> tuple[str, ...]:
    """What stands in the system message before the context."""
    return (
        request.system_prompt,
        grounding_instruction(request.grounding),
        instruction(request.strategy),
        *request.instructions,
    )
