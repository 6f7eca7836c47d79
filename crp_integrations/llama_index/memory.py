"""A block of LlamaIndex's `Memory` that stores facts in a session and also searches the fabric."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import Field, PrivateAttr, field_validator
from llama_index.core.memory import BaseMemoryBlock

from crp_integrations.adapters.arguments import PackBudget, check_relay, pydantic_errors
from crp_integrations.adapters.evidence import hold_facts, passage_facts
from crp_integrations.envelope.prompt import SEPARATOR
from crp_integrations.errors import RequestError
from crp_integrations.fabric.records import Fact
from crp_integrations.llama_index.messages import message_of
from crp_integrations.llama_index.model import check_fields
from crp_integrations.llama_index.spans import session_of
from crp_integrations.loaders.text import split_paragraphs
from crp_integrations.relay.relay import Relay
from crp_integrations.session.records import session_id_of

# Roles whose messages are remembered; a model's own statements are not evidence.
ROLES: Final = ("user", "tool")
_KNOWN_ROLES: Final = (*ROLES, "assistant")
# Key under which LlamaIndex puts the session id on messages for a block.
_SESSION: Final = "session_id"
SOURCE: Final = "memory:"


class CRPMemoryBlock(BaseMemoryBlock[str]):
    """A block for `Memory(session_id=…, memory_blocks=[CRPMemoryBlock(relay, model=…)])`.

    Messages dropped from the short-term memory are kept as facts of the session, in memory, until
    `Relay.end_session` or the end of the process; no other session finds them. The block returns
    the envelope for the user's last message: facts of the fabric and of the session, within
    `budget_tokens`. The session is `session_id`, else that of the memory, else the one in
    `instrument_tags`; without a session, nothing is remembered and only the fabric is searched.

    Spec: CRP-SPEC-009 §7.2

    Args:
        place: a relay.
        model: model whose tokenizer counts; None for the model in the relay's settings.
        budget_tokens: maximum number of tokens of the block; None or `auto` for what the question
            needs, `window` for all that fits the model's context.
        k: maximum number of facts, None for as many as fit.
        roles: roles whose messages are remembered: `user`, `tool`, `assistant`. By default not
            `assistant`, since a model's remembered statements would support its later ones.

    Raises:
        RequestError: `place` is not a relay, or a field is unknown or has no usable value.
    """

    name: str = Field(default="facts", description="The name of the memory block.")
    model: str | None = Field(default=None, min_length=1)
    budget_tokens: PackBudget | None = None
    k: int | None = Field(default=None, ge=1)
    session_id: str | None = None
    roles: tuple[str, ...] = ROLES

    _relay: Relay = PrivateAttr()

    def __init__(self, place: Relay, **fields: Any) -> None:
        check_relay(place, "CRPMemoryBlock")
        with pydantic_errors(type(self)):
            super().__init__(**check_fields(type(self), fields))
        self._relay = place

    @field_validator("roles")
    @classmethod
    def _known_roles(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [role for role in value if role not in _KNOWN_ROLES]
        if wrong:
            raise ValueError(f"role {wrong[0]!r:.40} is not one of {', '.join(_KNOWN_ROLES)}")
        return value

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        question = next(
            (
                message.content
                for message in reversed(messages or [])
                if message.role == "user" and message.content
            ),
            "",
        )
        if not question.strip():
            return ""
        session = self._session(block_kwargs.get(_SESSION))
        return await asyncio.to_thread(self._envelope_text, question, session)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        # Removed, since the same message objects also go to other blocks and to the model.
        names = [message.additional_kwargs.pop(_SESSION, None) for message in messages]
        session = self._session(next((name for name in names if name), None))
        if not session:
            return
        facts = list(self._facts(messages))
        await asyncio.to_thread(hold_facts, self._relay, session, facts)

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """The first facts of a block, with at least this many tokens cut off; or None."""
        count = self._relay.count_tokens(content, self.model).n - max(0, tokens_to_truncate)
        parts = content.split(SEPARATOR)
        while parts and self._relay.count_tokens(SEPARATOR.join(parts), self.model).n > count:
            parts.pop()
        return SEPARATOR.join(parts) or None

    def _envelope_text(self, question: str, session: str) -> str:
        turn = self._relay.turn(
            question,
            model=self.model,
            budget_tokens=self.budget_tokens,
            k=self.k,
            session_id=session or None,
        )
        return turn.retrieve().text

    def _facts(self, messages: Iterable[ChatMessage]) -> Iterable[Fact]:
        for message in messages:
            read = message_of(message)
            if read.role in self.roles:
                frame = f"The {read.role} said: "
                yield from passage_facts(
                    self._relay, split_paragraphs, SOURCE + read.role, read.content, frame
                )

    def _session(self, name: object) -> str:
        try:
            named = self.session_id or name
            return session_id_of(named) if named else session_of()
        except RequestError:
            return ""
