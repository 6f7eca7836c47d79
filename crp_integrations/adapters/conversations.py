"""Turns a framework's conversations, agent calls and sessions into questions of the relay."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from crp_integrations.adapters.arguments import check_values
from crp_integrations.dpe.records import RejectedClaim, Report
from crp_integrations.dpe.rejections import rejected_claims
from crp_integrations.dpe.repair import Edit, edited
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
Block = TypeVar("Block")


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation split into question, system prompt and history.

    Attributes:
        system: the system messages joined by an empty line.
        history: all other messages except the question, in order.
        results: number of messages at the end of `history` that follow the question: tool calls
            and their results.
    """

    question: str
    system: str = ""
    history: tuple[Message, ...] = ()
    results: int = 0


def question_of(messages: Sequence[Mapping[str, Any]]) -> Conversation:
    """Split a conversation into question, system prompt and history."""
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
    """An agent's model, used as the model of a turn.

    The agent's own messages are sent unchanged; the turn adds the system message with the envelope
    before them, and the request of a remedy after them. The model's errors are not wrapped.

    Args:
        conversation: the agent's messages as a question.
        model: model name that selects the tokenizer.
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
        """The framework's response whose text was examined."""
        own = answer.model_reply
        same = [
            response
            for reply, response in self._answers
            if (reply.text, reply.tool_calls) == (own.text, own.tool_calls)
        ]
        return same[-1] if same else self._answers[-1][1]

    def _split(self, messages: Sequence[Message]) -> tuple[str, Sequence[Message] | None]:
        """The system message, and the messages after the agent's; None if those are not in it."""
        system = messages[0].content if messages[0].role == "system" else ""
        conversation = self._conversation
        place = int(bool(system)) + len(conversation.history) - conversation.results
        if len(messages) <= place or messages[place].content != conversation.question:
            return system, None
        if messages[place].role != "user":
            return system, None
        return system, messages[place + 1 + conversation.results :]


def replace_text(
    blocks: Sequence[Block],
    text: str,
    edits: Sequence[Edit],
    text_of: Callable[[Block], str | None],
    make: Callable[[str], Block],
    separator: str = "",
) -> list[Block]:
    """The blocks of a message with a repaired text; an edit across two blocks makes them one.

    Args:
        text_of: the text of a block; None for a block of another kind.
        separator: what stands between two texts in the whole text.
    """
    made: list[Block] = []
    texts: list[str] = []
    left, at = list(edits), 0
    for block in blocks:
        own = text_of(block)
        if own is None:
            made.append(block)
            continue
        end = at + len(own)
        own_edits = [
            edit.model_copy(update={"start": edit.start - at, "end": edit.end - at})
            for edit in left
            if at <= edit.start and edit.end <= end
        ]
        # An insertion between two blocks is the first one's.
        left = [edit for edit in left if not (at <= edit.start and edit.end <= end)]
        # A provider may refuse an empty text.
        if new := edited(own, own_edits):
            made.append(make(new) if own_edits else block)
        texts.append(new)
        at = end + len(separator)
    if texts and not left and separator.join(texts) == text:
        return made
    others = [block for block in blocks if text_of(block) is None]
    first = next((n for n, block in enumerate(blocks) if text_of(block) is not None), len(others))
    return [*others[:first], make(text), *others[first:]]


def sampling(model: Any, call: ModelCall) -> dict[str, Any]:
    """The sampling values of a call for which the framework's model has a field.

    Values without a field would reach the provider unchanged, which may refuse them.
    """
    return {
        name: getattr(call, name)
        for name in ("temperature", "max_tokens", "seed")
        if getattr(call, name) is not None and name in type(model).model_fields
    }


def turn_metadata(answer: Answer, attach: str) -> dict[str, Any]:
    """An answer's metadata except the report and the receipt's id, as plain JSON."""
    return {
        **(
            {
                "crp_envelope": answer.envelope.model_dump(mode="json"),
                "crp_headers": public_headers(answer),
            }
            if attach == "full"
            else {}
        ),
        "crp_session": {
            "session_id": answer.session_id,
            "window_id": answer.window_id,
            "window_number": answer.window_number,
            "continuation_id": answer.continuation_id,
        },
    }


# Strategies that use one window. The others use several, but an agent makes its own calls.
STRATEGIES: Final = (Strategy.PUSH, Strategy.PULL, Strategy.REFLEXIVE)
# Fields that a caller may not set: taken from the agent, or meaningless for one of its windows.
FILLED: Final = frozenset(
    "history results tools system_prompt continuation_ids loop_depth parent_session previous prior "
    "if_match temperature max_tokens seed inherited_policy session_token compaction "
    "rejected".split()
)
# Envelope fields that an agent's message contains, besides the fact ids; none of them is text.
_ENVELOPE_FIELDS: Final = frozenset({"etag", "state_hash", "quality_tier", "token_count"})


def check_fields(asking: QuestionFields, relay: Relay, taker: str, *, filled: str) -> None:
    """Check the fields that are added to every question of an agent."""
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
    """Check that a strategy uses one window."""
    if strategy is not None and strategy not in STRATEGIES:
        raise RequestError(f"strategy {str(strategy)!r:.40} is not one of {', '.join(STRATEGIES)}")


def check_depth(depth: int, most: int) -> None:
    """Check the number of agents around an agent."""
    if depth > most:
        raise AccessDenied(f"the agent is {depth} agents deep, at most {most} are allowed")


def delegated_fields(relay: Relay, session_id: str) -> dict[str, Any]:
    """Fields that an outer agent passes to an inner one; counts the delegation.

    Spec: related facts §8
    """
    fields = asked_by(relay.delegate(session_id)).items()
    # Plain values instead of enums, since a framework may write them to disk.
    return {
        name: value.value if isinstance(value, Enum) else value
        for name, value in fields
        if value not in (None, "")
    }


def merge_fields(own: Mapping[str, Any], handed: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a question: an agent's own, overridden by those of the agent around it.

    The safety budget is the smaller of the two.
    """
    both = {**own, **handed}
    budgets = (own.get("safety_budget"), handed.get("safety_budget"))
    limits = [budget for budget in budgets if budget is not None]
    return {**both, "safety_budget": min(limits)} if limits else both


def handed_judge(own: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Judge fields for inner agents without a judge: the agent's own, else those it was passed.

    A background judge is not passed on: its reports go to a callback of this agent alone.
    """
    judge = own.get("judge")
    if judge is None:
        return dict(above)
    background = own.get("judge_mode") or (judge.settings.mode if isinstance(judge, Judge) else "")
    if judge is False or background == BACKGROUND:
        return {}
    return {name: own[name] for name in ("judge", *JudgeChoices.__annotations__) if own.get(name)}


def with_judge(own: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an agent's questions; without a judge of its own, it uses the outer agent's."""
    return {**above, **own} if own.get("judge") is None else dict(own)


def answer_fields(answer: Answer, attach: str) -> dict[str, Any]:
    """Envelope fields and headers for an agent's message with `full`; plain JSON, no texts."""
    if attach != "full":
        return {}
    envelope = answer.envelope.model_dump(mode="json", include=set(_ENVELOPE_FIELDS))
    facts = [fact.fact_id for fact in answer.envelope.facts]
    return {"crp_envelope": {**envelope, "facts": facts}, "crp_headers": public_headers(answer)}


def public_headers(answer: Answer) -> dict[str, str]:
    """The headers of an answer without the session token, which is a credential.

    Others read the checkpoints and traces that messages are written to.
    """
    return {name: value for name, value in answer.headers.items() if name != names.SET_SESSION}


def hand_back(relay: Relay, parent: str, answered: Answer | SafetyHalt) -> None:
    """Pass an inner agent's answer or halt to the session of the agent around it.

    Spec: related facts §8
    """
    if parent and (isinstance(answered, Answer) or answered.session_id):
        relay.take(parent, result_of(answered))


def held_rejections(relay: Relay, session_id: str) -> tuple[RejectedClaim, ...]:
    """Claims flagged in sub-agents' answers, kept in memory for a session."""
    return relay._world.memory.sessions.of(session_id).rejected


def hold_rejections(relay: Relay, session_id: str, report: Report) -> None:
    """Keep the flagged claims of a sub-agent's answer in memory for the outer agent's session."""
    relay._world.memory.sessions.reject(session_id, rejected_claims(report))


def new_session() -> str:
    """A new session id, for a run that names no session."""
    return SESSION_PREFIX + uuid.uuid4().hex


@contextmanager
def context_value(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Set a context variable inside the `with` block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
