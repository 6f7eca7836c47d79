"""What one request puts around its context: the messages, and the tokens that they leave."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from crp_integrations.envelope import prompt
from crp_integrations.envelope.budget import BudgetRoom, budget
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.messages import Message
from crp_integrations.ports import TokenCounter
from crp_integrations.relay.passes import replies
from crp_integrations.relay.records import Request

_LOG = logging.getLogger(__name__)


def messages(request: Request, context: str) -> tuple[Message, ...]:
    """The conversation for one request.

    Spec: CRP-SPEC-003 §13.1

    Args:
        context: the envelope's rendered text, placed verbatim; empty for no context.
    """
    return _conversation(request, before(request), context)


def _conversation(request: Request, parts: Sequence[str], context: str) -> tuple[Message, ...]:
    return prompt.build_messages(parts, context, request.history, request.query, request.results)


def before(request: Request) -> tuple[str, ...]:
    """What stands in a request's system message before the context."""
    return prompt.system_parts(
        request.system_prompt, request.grounding, request.strategy, request.instructions
    )


def room(
    request: Request, counter: TokenCounter, context_limit: int, settings: EnvelopeSettings
) -> int:
    """Tokens left for the context, as `reckoned` has them."""
    return reckoned(request, counter, context_limit, settings).tokens


def reckoned(
    request: Request, counter: TokenCounter, context_limit: int, settings: EnvelopeSettings
) -> BudgetRoom:
    """Tokens left for the context once everything else in the request is counted.

    That is the system prompt with the grounding instruction, the history, the question, the tool
    definitions, the frames around them, the answer, and a margin by the counter's exactness.

    Spec: CRP-SPEC-003 §7.2 (decisions E19, E20)

    Args:
        context_limit: the model's context limit in tokens.

    Returns:
        With the smaller of what is left and the request's own `budget_tokens`, at least 0.
    """
    parts = (*before(request), prompt.CONTEXT_OPEN + prompt.CONTEXT_CLOSE)
    around = _conversation(request, parts, "")
    asked = counter.count(request.query)
    rest = counter.count_messages(around) - asked + counter.count_tools(request.tools)
    # The draft and what was found in it are sent along when it is asked again.
    further = replies(request.strategy) - 1
    each = request.max_tokens or settings.expected_response_tokens
    rest += further * each
    left = budget(
        context_limit,
        rest,
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
    own = request.budget_tokens
    return BudgetRoom(
        limit=context_limit,
        around=rest,
        question=asked,
        answer=request.max_tokens,
        asked=own,
        tokens=left if own is None else max(0, min(left, own)),
    )
