"""The prompt of one request: messages, token budget of the context, information needs, counts.

A model's reply to a decomposition is input for Phase 1 and is never shown. It is used only if it
is exactly a JSON list of strings; otherwise the rules decompose. The envelope names the algorithm.
"""

from __future__ import annotations

import json
import logging
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from crp_integrations.envelope import prompt
from crp_integrations.envelope.budget import BudgetRoom, budget, reserves
from crp_integrations.envelope.decomposition import DECOMPOSE, complete_needs, decompose
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.settings import DecomposeSettings, EnvelopeSettings
from crp_integrations.errors import RequestError
from crp_integrations.language.words import content_stems
from crp_integrations.messages import Message, ModelCall, Reply
from crp_integrations.ports import TokenCounter
from crp_integrations.relay.records import Request, TokenCount, message_of
from crp_integrations.vocabulary import Decomposition, Purpose, Strategy

_LOG = logging.getLogger(__name__)


def prompt_messages(request: Request, context: str) -> tuple[Message, ...]:
    """The messages that are sent for one request.

    Spec: CRP-SPEC-003 §13.1
    """
    return _conversation(request, system_parts(request), context)


def _conversation(request: Request, parts: Sequence[str], context: str) -> tuple[Message, ...]:
    return prompt.build_messages(parts, context, request.history, request.query, request.results)


def system_parts(request: Request) -> tuple[str, ...]:
    """The parts of a request's system message that precede the context."""
    return prompt.system_parts(
        request.system_prompt, request.grounding, request.strategy, request.instructions
    )


def reckon_room(
    request: Request,
    counter: TokenCounter,
    context_limit: int,
    settings: EnvelopeSettings,
    *,
    model: str = "",
    input_limit: int | None = None,
) -> BudgetRoom:
    """Tokens left for the context after everything else in the request is counted.

    Counted are the system prompt with the grounding instruction, the history, the question, the
    tool definitions, message overhead, the answer, and a margin by the counter's exactness.

    Spec: CRP-SPEC-003 §7.2 (decisions E19, E20)

    Args:
        input_limit: maximum input tokens of a deployment, without the answer. It replaces a
            smaller context limit, which cannot be this deployment's.
    """
    parts = (*system_parts(request), prompt.CONTEXT_OPEN + prompt.CONTEXT_CLOSE)
    messages = _conversation(request, parts, "")
    asked = counter.count(request.query)
    rest = counter.count_messages(messages) - asked + counter.count_tools(request.tools)
    # When the model is asked again, the draft and the findings on it are sent too.
    further_replies = expected_replies(request.strategy) - 1
    limit, answer = context_limit, request.max_tokens
    rest += further_replies * reserves(input_limit or limit, answer or None, settings)[0]
    left = budget(limit, rest, asked, answer, counter.exactness, settings)
    if input_limit is not None:
        within_input = budget(input_limit, rest, asked, 0, counter.exactness, settings)
        if limit < input_limit or within_input < left:
            limit, answer, left = input_limit, 0, within_input
    if not left:
        _LOG.warning(
            "model %s: %d tokens of the request, the answer and the margin leave none of %d "
            "for context",
            model or request.model,
            rest + asked,
            limit,
        )
    asked_budget = request.asked_budget(settings)
    cap, automatic = asked_budget if isinstance(asked_budget, int) else None, asked_budget == "auto"
    limits = (limit, rest, asked, answer)
    tokens = budget(*limits, counter.exactness, settings, asked=cap, automatic=automatic)
    return BudgetRoom(*limits, cap, automatic, tokens)


DECOMPOSE_MODEL = "decompose-model@1"
INSTRUCTION = (
    "You prepare a search. Split the user's question into the separate pieces of information that "
    "must be looked up to answer it. When one piece must be known before another, put it first. "
    "Write each piece so that it can be understood alone, in the question's own words and "
    "language. Do not answer the question. A question that asks for one thing stays whole.\n"
    "Reply with a JSON list of at most {most} strings and nothing else."
)


class InformationNeeds:
    """The information needs of one request; determined once, before anything is read.

    Spec: CRP-SPEC-003 §5.2
    """

    def __init__(self, request: Request, settings: DecomposeSettings) -> None:
        self._request = request
        self._settings = settings
        self._needs: tuple[str, ...] = tuple(request.sub_queries)
        self._algorithm = ""
        self._searched: frozenset[str] = frozenset()
        self.waiting = False

    def asking(self) -> ModelCall | None:
        """The call that decomposes the question; None if no model is to be asked."""
        request = self._request
        if self._needs or self.waiting or request.decompose is not Decomposition.MODEL:
            return None
        self.waiting = True
        instruction = INSTRUCTION.format(most=self._settings.most)
        return ModelCall(
            model=request.model,
            messages=(
                Message(role="system", content=instruction),
                Message(role="user", content=request.query),
            ),
            purpose=Purpose.DECOMPOSE,
            temperature=0.0,
            max_tokens=self._settings.reply_tokens,
            seed=request.seed,
        )

    def read(self, reply: Reply) -> None:
        """Use the needs in the model's reply if it is a valid list."""
        self.waiting = False
        needs = parse_needs(reply.text, self._settings)
        if needs:
            self._needs = complete_needs(self._request.query, needs, self._settings)
            self._algorithm = DECOMPOSE_MODEL

    @property
    def sub_queries(self) -> tuple[str, ...]:
        """The needs: given or from the reply, else by the rules; the question itself for `none`."""
        if not self._needs:
            self.waiting = False
            query = self._request.query
            if self._request.decompose is Decomposition.NONE or not self._settings.rules:
                self._needs = (query,)
            else:
                self._needs = decompose(query, self._settings)
                self._algorithm = DECOMPOSE
        return self._needs

    def add(self, queries: Sequence[str]) -> None:
        """Add an agent's search queries after the question's own needs."""
        own = self.sub_queries
        self._searched |= frozenset(queries).difference(own)
        self._needs = tuple(dict.fromkeys((*own, *queries)))

    def own(self, sub_queries: Sequence[str]) -> tuple[str, ...]:
        """The needs that an answer must cover, without an agent's search queries."""
        return tuple(need for need in sub_queries if need not in self._searched)

    def named(self, envelope: Envelope) -> Envelope:
        """An envelope with the name of the algorithm that decomposed its question."""
        if not self._algorithm or self._algorithm in envelope.algorithms:
            return envelope
        # Skips validation: only a name is added.
        return envelope.model_copy(update={"algorithms": (self._algorithm, *envelope.algorithms)})


def parse_needs(text: str, settings: DecomposeSettings) -> tuple[str, ...] | None:
    """The needs in a model's reply; None if it is not a valid list of them.

    Spec: CRP-SPEC-003 §5.2
    """
    if len(text) > settings.most * (settings.longest + 8):
        return None
    try:
        needs_read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(needs_read, list) or not 0 < len(needs_read) <= settings.most:
        return None
    needs = []
    for need in needs_read:
        if not isinstance(need, str) or len(need) > settings.longest or not _readable(need):
            return None
        needs.append(" ".join(need.split()))
    return tuple(needs)


def _readable(text: str) -> bool:
    """Whether a text is valid UTF-8, has no control characters and contains content words."""
    categories = {unicodedata.category(character) for character in text if not character.isspace()}
    return categories.isdisjoint(("Cc", "Cs")) and bool(content_stems(text))


Conversation = Sequence[Message | Mapping[str, Any]]


def count_tokens_of(
    what: str | Conversation, counter: TokenCounter, tools: Sequence[Mapping[str, Any]] = ()
) -> TokenCount:
    """The tokens of a text or a conversation, with the exactness of the count.

    Spec: CRP-SPEC-003 §10.1 (decision E19)
    """
    content: object = what
    if isinstance(content, str):
        texts, n = [content], counter.count(content)
    elif isinstance(content, Sequence):
        messages = [message_of(message) for message in content]
        texts = [message.content for message in messages]
        n = counter.count_messages(messages)
    else:
        raise RequestError(f"what is {type(content).__name__}, wanted a text or a list of messages")
    n += counter.count_tools(_definitions(tools))
    return TokenCount(
        n=n,
        exactness=counter.exactness,
        source=counter.source,
        overhead=max(0, n - sum(counter.count_many(texts))),
    )


def _definitions(tools: Sequence[object]) -> list[Mapping[str, Any]]:
    read = []
    for number, tool in enumerate(tools, start=1):
        if not isinstance(tool, Mapping):
            raise RequestError(f"tool {number} is {type(tool).__name__}, wanted a definition")
        read.append(tool)
    return read


def expected_replies(strategy: Strategy) -> int:
    """The number of replies that must fit into the model's context with the envelope."""
    return 3 if strategy is Strategy.REFLEXIVE else 1
