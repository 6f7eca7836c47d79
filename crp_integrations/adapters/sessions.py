"""Sessions of a framework's agents and conversations.

An agent's model call is one window of its run's session. The adapters find out which run that is
and how deep; the fields that it may ask with and what agents hand each other are the same for all.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from crp_integrations.adapters.arguments import check_values
from crp_integrations.errors import AccessDenied, RequestError, SafetyHalt
from crp_integrations.relay.delegation import asked_by, result_of
from crp_integrations.relay.question_fields import QuestionFields
from crp_integrations.relay.records import Answer
from crp_integrations.relay.relay import Relay
from crp_integrations.seals import sha256
from crp_integrations.session.records import SESSION_ID
from crp_integrations.vocabulary import Strategy

# Strategies of one window; the others answer in several, which an agent does by itself.
STRATEGIES: Final = (Strategy.PUSH, Strategy.PULL, Strategy.REFLEXIVE)
# Filled in from the agent, or without meaning for one window of it.
FILLED: Final = frozenset(
    "history results tools system_prompt continuation_ids loop_depth parent_session previous prior "
    "if_match temperature max_tokens seed inherited_policy session_token compaction".split()
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
    strategy = asking.get("strategy")
    if strategy is not None and strategy not in STRATEGIES:
        raise RequestError(f"strategy {str(strategy)!r:.40} is not one of {', '.join(STRATEGIES)}")
    check_values(asking, relay)


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
    """The fields of a question: an agent's own, below what the agent around it says.

    The safety budget is the smaller one of the two.
    """
    both = {**own, **handed}
    budgets = (own.get("safety_budget"), handed.get("safety_budget"))
    given = [budget for budget in budgets if budget is not None]
    return {**both, "safety_budget": min(given)} if given else both


def answer_fields(answer: Answer) -> dict[str, Any]:
    """What an agent's message tells of the envelope, and the headers; plain JSON without texts."""
    told = answer.envelope.model_dump(mode="json", include=set(_TOLD))
    facts = [fact.fact_id for fact in answer.envelope.facts]
    return {"crp_envelope": {**told, "facts": facts}, "crp_headers": dict(answer.headers)}


def hand_back(relay: Relay, parent: str, answered: Answer | SafetyHalt) -> None:
    """Tell the agent around one what came of it.

    Spec: related facts §8
    """
    if parent and (isinstance(answered, Answer) or answered.session_id):
        relay.take(parent, result_of(answered))


PREFIX: Final = "crp_sess_"
_DIGITS: Final = 32


def session_id_for(given: object, framework: str, word: str = "session_id") -> str:
    """The session id for whatever names a conversation.

    An id of ours is taken as it is. Any other is hashed, so that one name is one session, in
    whatever process it goes on, and the name itself, which may be a person's, is stored nowhere.
    """
    if isinstance(given, bool) or not isinstance(given, str | int | uuid.UUID):
        raise RequestError(f"{word} is {type(given).__name__}, wanted a text")
    named = str(given)
    if SESSION_ID.fullmatch(named):
        return named
    return PREFIX + sha256(f"{framework}\x1f{named}").removeprefix("sha256:")[:_DIGITS]
