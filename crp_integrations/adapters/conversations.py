"""Conversations, agents' calls and sessions of a framework as questions of the relay."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from crp_integrations.adapters.arguments import check_values
from crp_integrations.dpe.records import RejectedClaim, Report
from crp_integrations.dpe.rejections import rejected_claims
from crp_integrations.engines.models import WholeReplies
from crp_integrations.errors import AccessDenied, RequestError, SafetyHalt
from crp_integrations.headers import names
from crp_integrations.messages import Message, ModelCall, Reply
from crp_integrations.relay.delegation import asked_by, result_of
from crp_integrations.relay.judge import BACKGROUND, Judge, JudgeChoices
from crp_integrations.relay.question_fields import QuestionFields
from crp_integrations.relay.records import Answer, conversation_of
from crp_integrations.relay.relay import Relay
from crp_integrations.session.records import SESSION_PREFIX
from crp_integrations.vocabulary import Strategy
from crp_integrations.vocabulary.safety import Purpose

Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as a question.

    Attributes:
        system: the system messages joined by an empty line.
        history: all other messages in order.
        results: how many messages at the history's end follow the question: tool calls with what
            the tools answered.
    """

    question: str
    system: str = ""
    history: tuple[Message, ...] = ()
    results: int = 0


def question_of(messages: Sequence[Mapping[str, Any]]) -> Conversation:
    """The question, the system prompt and the history of a conversation."""
    if not isinstance(messages, Sequence):
        raise RequestError(f"messages is {type(messages).__name__}, wanted a list of messages")
    read = conversation_of(messages)
    last = read[-1].role if read else ""
    places = [place for place, message in enumerate(read) if message.role == "user"]
    if last not in ("user", "tool") or not places:
        raise RequestError(
            "the last message must be the user's question, or a tool's result after it"
        )
    system = "\n\n".join(
        message.content for message in read if message.role == "system" and message.content
    )
    before = [message for message in read[: places[-1]] if message.role != "system"]
    after = [message for message in read[places[-1] + 1 :] if message.role != "system"]
    return Conversation(read[places[-1]].content, system, (*before, *after), len(after))


class AgentModelCalls(WholeReplies, Generic[Response]):
    """The model behind an agent, as the model of a turn.

    The agent's own messages go out as they are; what the turn adds is the system message with the
    envelope, and behind them what a remedy asks for. The model's own errors go on unchanged.

    Args:
        conversation: the agent's messages as a question.
        model: the name by which tokens are counted.
    """

    def __init__(self, conversation: Conversation, model: str) -> None:
        self._conversation = conversation
        self._model = model
        self._answers: list[tuple[Reply, Response]] = []

    def _keep(self, call: ModelCall, reply: Reply, response: Response) -> Reply:
        """Keep the response of a reply that may become the answer."""
        if call.purpose is not Purpose.JUDGE:
            self._answers.append((reply, response))
        return reply

    def _response_of(self, answer: Answer) -> Response:
        """The response whose text was examined."""
        same = [
            response
            for reply, response in self._answers
            if (reply.text, reply.tool_calls) == (answer.reply.text, answer.reply.tool_calls)
        ]
        return same[-1] if same else self._answers[-1][1]

    def _split(self, messages: Sequence[Message]) -> tuple[str, Sequence[Message] | None]:
        """The system message, and what follows the agent's messages; None for a call of its own."""
        system = messages[0].content if messages[0].role == "system" else ""
        conversation = self._conversation
        place = int(bool(system)) + len(conversation.history) - conversation.results
        if len(messages) <= place or messages[place].content != conversation.question:
            return system, None
        if messages[place].role != "user":
            return system, None
        return system, messages[place + 1 + conversation.results :]


def sampling(model: Any, call: ModelCall) -> dict[str, Any]:
    """The sampling values that a call sets, as far as a framework's model has a field for them.

    Others would reach the provider as they are, which may refuse them.
    """
    return {
        name: getattr(call, name)
        for name in ("temperature", "max_tokens", "seed")
        if getattr(call, name) is not None and name in type(model).model_fields
    }


def turn_metadata(answer: Answer) -> dict[str, Any]:
    """What stands beside the report in an answer's metadata, plain JSON."""
    return {
        "crp_envelope": answer.envelope.model_dump(mode="json"),
        "crp_headers": public_headers(answer),
        "crp_session": {
            "session_id": answer.session_id,
            "window_id": answer.window_id,
            "window_number": answer.window_number,
            "continuation_id": answer.continuation_id,
        },
    }


# Strategies of one window; the others answer in several, which an agent does by itself.
STRATEGIES: Final = (Strategy.PUSH, Strategy.PULL, Strategy.REFLEXIVE)
# Filled in from the agent, or without meaning for one window of it.
FILLED: Final = frozenset(
    "history results tools system_prompt continuation_ids loop_depth parent_session previous prior "
    "if_match temperature max_tokens seed inherited_policy session_token compaction "
    "rejected".split()
)
# Of an envelope, what an agent's message tells beside the ids of its facts; no text.
_TOLD: Final = frozenset({"etag", "state_hash", "quality_tier", "token_count"})


def check_fields(asking: QuestionFields, relay: Relay, taker: str, *, filled: str) -> None:
    """Check the fields that every question of an agent gets."""
    known = sorted(QuestionFields.__annotations__.keys() - FILLED - {filled})
    for name in asking:
        if name not in known:
            raise RequestError(
                f"a question of an agent has no field {name!r:.40}; {taker} takes "
                f"{', '.join(known)}"
            )
    check_strategy(asking.get("strategy"))
    check_values(asking, relay, taker=taker)


def check_strategy(strategy: object) -> None:
    """Check that a strategy answers in one window."""
    if strategy is not None and strategy not in STRATEGIES:
        raise RequestError(f"strategy {str(strategy)!r:.40} is not one of {', '.join(STRATEGIES)}")


def check_depth(depth: int, most: int) -> None:
    """Check how many agents are around one."""
    if depth > most:
        raise AccessDenied(f"the agent is {depth} agents deep, at most {most} are allowed")


def delegated_fields(relay: Relay, session_id: str) -> dict[str, Any]:
    """What the agent around another one hands down, as plain values; counts the delegation.

    Spec: related facts §8
    """
    fields = asked_by(relay.delegate(session_id)).items()
    # Plain values, since a framework may write them to a disk.
    return {
        name: value.value if isinstance(value, Enum) else value
        for name, value in fields
        if value not in (None, "")
    }


def merge_fields(own: Mapping[str, Any], handed: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a question: an agent's own, overridden by what the agent around it hands on.

    The safety budget is the smaller one of the two.
    """
    both = {**own, **handed}
    budgets = (own.get("safety_budget"), handed.get("safety_budget"))
    limits = [budget for budget in budgets if budget is not None]
    return {**both, "safety_budget": min(limits)} if limits else both


def handed_judge(own: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """The judge of agents below an agent that have none: its own, else the one it was handed.

    One in the background is not handed on: whom it tells is the agent's affair.
    """
    judge = own.get("judge")
    if judge is None:
        return dict(above)
    background = own.get("judge_mode") or (judge.settings.mode if isinstance(judge, Judge) else "")
    if judge is False or background == BACKGROUND:
        return {}
    return {name: own[name] for name in ("judge", *JudgeChoices.__annotations__) if own.get(name)}


def with_judge(own: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an agent's questions; one without a judge has that of the agents around it."""
    return {**above, **own} if own.get("judge") is None else dict(own)


def answer_fields(answer: Answer) -> dict[str, Any]:
    """What an agent's message tells of the envelope, and the headers; plain JSON without texts."""
    envelope = answer.envelope.model_dump(mode="json", include=set(_TOLD))
    facts = [fact.fact_id for fact in answer.envelope.facts]
    return {"crp_envelope": {**envelope, "facts": facts}, "crp_headers": public_headers(answer)}


def public_headers(answer: Answer) -> dict[str, str]:
    """The headers of an answer without the session token, which is a credential.

    A message is written into checkpoints and traces that others read.
    """
    return {name: value for name, value in answer.headers.items() if name != names.SET_SESSION}


def hand_back(relay: Relay, parent: str, answered: Answer | SafetyHalt) -> None:
    """Tell the agent around one what came of it.

    Spec: related facts §8
    """
    if parent and (isinstance(answered, Answer) or answered.session_id):
        relay.take(parent, result_of(answered))


def held_rejections(relay: Relay, session_id: str) -> tuple[RejectedClaim, ...]:
    """Claims of sub-agents' answers, held in memory for a session, that their reports flag."""
    return relay._world.memory.sessions.of(session_id).rejected


def hold_rejections(relay: Relay, session_id: str, report: Report) -> None:
    """Hold the claims that the report on a sub-agent's answer flags, for the session around it."""
    relay._world.memory.sessions.reject(session_id, rejected_claims(report))


def new_session() -> str:
    """A session of its own, for a run that names none."""
    return SESSION_PREFIX + uuid.uuid4().hex


@contextmanager
def context_value(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Within it, a context variable has this value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
