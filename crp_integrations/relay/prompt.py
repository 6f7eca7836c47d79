"""What one request puts around its context: messages, token room, information needs, history.

The model's reply to a decomposition is data for Phase 1 and is never shown. It is taken only when
it is exactly a JSON list of texts; else the rules decide, and the envelope names which of the two.
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
    """The conversation for one request.

    Spec: CRP-SPEC-003 §13.1
    """
    return _conversation(request, system_parts(request), context)


def _conversation(request: Request, parts: Sequence[str], context: str) -> tuple[Message, ...]:
    return prompt.build_messages(parts, context, request.history, request.query, request.results)


def system_parts(request: Request) -> tuple[str, ...]:
    """What stands in a request's system message before the context."""
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
    """Tokens left for the context once everything else in the request is counted.

    That is the system prompt with the grounding instruction, the history, the question, the tool
    definitions, the frames around them, the answer, and a margin by the counter's exactness.

    Spec: CRP-SPEC-003 §7.2 (decisions E19, E20)

    Args:
        input_limit: tokens that a deployment takes without the answer; a smaller context limit
            is not this deployment's.
    """
    parts = (*system_parts(request), prompt.CONTEXT_OPEN + prompt.CONTEXT_CLOSE)
    around = _conversation(request, parts, "")
    asked = counter.count(request.query)
    rest = counter.count_messages(around) - asked + counter.count_tools(request.tools)
    # The draft and what was found in it are sent along when it is asked again.
    further = expected_replies(request.strategy) - 1
    limit, answer = context_limit, request.max_tokens
    rest += further * reserves(input_limit or limit, answer or None, settings)[0]
    left = budget(limit, rest, asked, answer, counter.exactness, settings)
    if input_limit is not None:
        within = budget(input_limit, rest, asked, 0, counter.exactness, settings)
        if limit < input_limit or within < left:
            limit, answer, left = input_limit, 0, within
    if not left:
        _LOG.warning(
            "model %s: %d tokens of the request, the answer and the margin leave none of %d "
            "for context",
            model or request.model,
            rest + asked,
            limit,
        )
    own = request.asked_budget(settings)
    cap, automatic = own if isinstance(own, int) else None, own == "auto"
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
    """What one request looks for; settled once, before anything is read.

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
        """The call that decomposes the question, None when no model is to be asked."""
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
        """Take the needs from the model's reply, if it is nothing but a list of them."""
        self.waiting = False
        needs = parse_needs(reply.text, self._settings)
        if needs:
            self._needs = complete_needs(self._request.query, needs, self._settings)
            self._algorithm = DECOMPOSE_MODEL

    @property
    def sub_queries(self) -> tuple[str, ...]:
        """The needs; without a reply those of the rules, and the question for `none`."""
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
        """What an agent searches for; the question's own needs come first."""
        own = self.sub_queries
        self._searched |= frozenset(queries).difference(own)
        self._needs = tuple(dict.fromkeys((*own, *queries)))

    def own(self, sub_queries: Sequence[str]) -> tuple[str, ...]:
        """Those that an answer is to cover, without what was only searched for on the way."""
        return tuple(need for need in sub_queries if need not in self._searched)

    def named(self, envelope: Envelope) -> Envelope:
        """An envelope that names what decomposed its question."""
        if not self._algorithm or self._algorithm in envelope.algorithms:
            return envelope
        # Nothing is validated again: a name is all that is added.
        return envelope.model_copy(update={"algorithms": (self._algorithm, *envelope.algorithms)})


def parse_needs(text: str, settings: DecomposeSettings) -> tuple[str, ...] | None:
    """The needs in a model's reply.

    Spec: CRP-SPEC-003 §5.2
    """
    if len(text) > settings.most * (settings.longest + 8):
        return None
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(listed, list) or not 0 < len(listed) <= settings.most:
        return None
    needs = []
    for need in listed:
        if not isinstance(need, str) or len(need) > settings.longest or not _readable(need):
            return None
        needs.append(" ".join(need.split()))
    return tuple(needs)


def _readable(text: str) -> bool:
    """Whether a text can be written as UTF-8, has no control sign and says something."""
    kinds = {unicodedata.category(sign) for sign in text if not sign.isspace()}
    return kinds.isdisjoint(("Cc", "Cs")) and bool(content_stems(text))


Conversation = Sequence[Message | Mapping[str, Any]]


def count_tokens_of(
    what: str | Conversation, counter: TokenCounter, tools: Sequence[Mapping[str, Any]] = ()
) -> TokenCount:
    """The tokens of a text or of a conversation, with what the count is worth.

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
    """How many replies must fit into the model's context beside the envelope."""
    return 3 if strategy is Strategy.REFLEXIVE else 1
